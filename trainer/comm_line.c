/* News goes from neighbour to neighbour, each process handing on what is new to it: so it reaches all
 * even where one of them waits for a disk, in as many hops as there are links. Three messages go over a
 * connection at most, which its buffer takes at once: no send waits. That a machine is gone, the
 * kernel finds on this connection (comm_meet.c): a heartbeat of our own would also call a process dead
 * that a debugger or a batch system has suspended. */
#include "trainer/comm_line.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/comm_wire.h"

/* Later ones replace earlier ones. */
enum news { NONE, STOP = 0x6e71, END, BYE };
struct message {
    uint32_t news;
    int32_t code;   /* of an end */
    char text[500]; /* likewise */
};

struct np_line {
    const struct np_link *links; /* set once */
    int nr, wake, ended;
    pthread_t thread;
    /* The thread alone: */
    struct message in[NP_MAX_LINKS];
    size_t nr_in[NP_MAX_LINKS];
    int fds[NP_MAX_LINKS]; /* -1: read to its end */
    pthread_mutex_t lock;
    /* Under lock: */
    uint32_t said;        /* the latest news that the neighbours have from here */
    struct message heard; /* of others; NONE: nothing */
    np_comm_news_fn news; /* NULL: nobody listens yet */
    void *context;
};

/* Sends news once. Under lock. */
static void say(struct np_line *line, const struct message *message)
{
    if (line->said >= message->news)
        return;
    line->said = message->news;
    for (int k = 0; k < line->nr; k++)
        if (line->links[k].line >= 0)
            send(line->links[k].line, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Hands on what another process said, and tells this one, if it is new. */
static void hear(struct np_line *line, const struct message *message)
{
    pthread_mutex_lock(&line->lock);
    const bool is_new = line->said < message->news;
    const np_comm_news_fn news = is_new ? line->news : NULL;
    if (line->heard.news < message->news) /* also if this process has said so itself */
        line->heard = *message;
    if (is_new)
        say(line, message);
    pthread_mutex_unlock(&line->lock);
    if (message->news == END && message->code == -ECONNRESET)
        np_wire_end(line->ended);
    /* Without the lock: who is told may be about to say something itself, and hold a lock of its own. */
    if (news)
        news(line->context, message->news == END);
}

static void hear_end(struct np_line *line, int k)
{
    struct message message = {.news = END, .code = -ECONNRESET};

    snprintf(message.text, sizeof(message.text), "%s has ended", line->links[k].name);
    hear(line, &message);
}

/* Takes what has come from a neighbour, one message at most. */
static void take(struct np_line *line, int k)
{
    struct message *in = &line->in[k];
    const ssize_t n =
        recv(line->fds[k], (char *)in + line->nr_in[k], sizeof(*in) - line->nr_in[k], MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && (line->nr_in[k] += (size_t)n) < sizeof(*in))
        return;
    line->nr_in[k] = 0;
    if (n > 0 && (in->news == STOP || in->news == END)) {
        in->text[sizeof(in->text) - 1] = '\0';
        in->code = in->news == STOP ? -EINTR : in->code < 0 ? in->code : -ECONNRESET;
        hear(line, in);
        return;
    }
    if (n <= 0 || in->news != BYE)
        hear_end(line, k);
    line->fds[k] = -1; /* poll() skips it */
}

static void *line_thread(void *argument)
{
    struct np_line *line = argument;
    struct pollfd fds[NP_MAX_LINKS + 1];

    for (;;) {
        for (int k = 0; k < line->nr; k++)
            fds[k] = (struct pollfd){line->fds[k], POLLIN, 0};
        fds[line->nr] = (struct pollfd){line->wake, POLLIN, 0};
        if (poll(fds, (nfds_t)line->nr + 1, -1) < 0)
            continue;
        if (fds[line->nr].revents)
            return NULL;
        for (int k = 0; k < line->nr; k++)
            if (fds[k].revents)
                take(line, k);
    }
}

int np_line_new(
    const struct np_link *links, int nr, int ended, struct np_line **ret_line, struct np_err *err)
{
    struct np_line *line = np_alloc(sizeof(*line));

    line->links = links;
    line->nr = nr;
    line->ended = ended;
    for (int k = 0; k < nr; k++)
        line->fds[k] = links[k].line;
    pthread_mutex_init(&line->lock, NULL);
    line->wake = eventfd(0, EFD_CLOEXEC);
    const int code =
        line->wake < 0 ? -errno : -pthread_create(&line->thread, NULL, line_thread, line);
    if (code < 0) {
        if (line->wake >= 0)
            close(line->wake);
        np_free(line);
        return np_err_set(err, code,
            "the thread that listens to the other processes cannot start: %s", strerror(-code));
    }
    *ret_line = line;
    return 0;
}

void np_line_listen(struct np_line *line, np_comm_news_fn news, void *context)
{
    pthread_mutex_lock(&line->lock);
    line->news = news;
    line->context = context;
    if (line->heard.news != NONE)
        news(context, line->heard.news == END);
    pthread_mutex_unlock(&line->lock);
}

void np_line_free(struct np_line *line)
{
    const struct message bye = {.news = BYE};
    const uint64_t one = 1;

    if (!line)
        return;
    if (write(line->wake, &one, sizeof(one)) == (ssize_t)sizeof(one))
        pthread_join(line->thread, NULL);
    pthread_mutex_lock(&line->lock);
    say(line, &bye);
    pthread_mutex_unlock(&line->lock);
    for (int k = 0; k < line->nr; k++)
        if (line->links[k].line >= 0)
            close(line->links[k].line);
    if (line->wake >= 0)
        close(line->wake);
    pthread_mutex_destroy(&line->lock);
    np_free(line);
}

void np_line_ask_stop(struct np_line *line)
{
    const struct message stop = {.news = STOP};

    pthread_mutex_lock(&line->lock);
    say(line, &stop);
    pthread_mutex_unlock(&line->lock);
}

void np_line_end(struct np_line *line, int code, const char *text)
{
    struct message end = {.news = END, .code = code};

    snprintf(end.text, sizeof(end.text), "%s", text);
    pthread_mutex_lock(&line->lock);
    say(line, &end);
    pthread_mutex_unlock(&line->lock);
}

int np_line_heard(struct np_line *line, struct np_err *err)
{
    pthread_mutex_lock(&line->lock);
    const struct message heard = line->heard;
    pthread_mutex_unlock(&line->lock);
    return heard.news == NONE
               ? 0
               : np_err_set(err, heard.code, "%s",
                     heard.news == STOP ? "another process was told to stop" : heard.text);
}
