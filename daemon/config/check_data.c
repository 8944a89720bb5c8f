/* See check_data.h. A child lists the data and sends messages through a pipe; the parent waits
 * for them. */
#include "daemon/config/check_data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/config/setup.h"
#include "loader/base/clock.h"

/* Sent in one write, which is atomic up to PIPE_BUF bytes. */
struct message {
    bool is_end; /* else a note, with only a text */
    int code;    /* of np_setup_data() */
    int height, width, nr_classes;
    uint64_t samples;
    char text[800];
};

/* --- the child -------------------------------------------------------------------------------- */

#define PIPE_FD 3

static void send_message(const struct message *message)
{
    if (write(PIPE_FD, message, sizeof(*message)) < 0)
        _exit(1); /* the parent has gone */
}

static void send_note(void *context, const char *text)
{
    struct message message = {.is_end = false};

    snprintf(message.text, sizeof(message.text), "%s", text);
    send_message(&message);
}

/* Closes the parent's terminal and pipes: a child that hangs must not keep them open. */
static void keep_only(int pipe_fd)
{
    const int null_fd = open("/dev/null", O_RDWR);
    const int out = fcntl(pipe_fd, F_DUPFD, PIPE_FD + 1);

    for (int fd = 0; fd < PIPE_FD; fd++)
        dup2(null_fd, fd);
    dup2(out, PIPE_FD);
    close_range(PIPE_FD + 1, ~0u, 0);
}

static uint64_t samples(const struct np_index *index)
{
    return index ? np_index_samples(index) : 0;
}

static _Noreturn void list_data(const struct np_config *config, int pipe_fd)
{
    const struct np_source_progress progress = {.note = send_note, .no_unpack = true};
    struct message message = {.is_end = true};
    struct np_setup setup = {0};
    struct np_err err = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    keep_only(pipe_fd);
    message.code = np_setup_data(config, &progress, &setup, &err);
    if (message.code == 0 && config->data.split > 0)
        message.code = np_setup_split(config, &setup, &err);
    snprintf(message.text, sizeof(message.text), "%s", err.text);
    message.height = setup.height;
    message.width = setup.width;
    message.nr_classes = setup.classes ? setup.classes->nr_items : 0;
    message.samples = samples(setup.train) + samples(setup.val) + samples(setup.test);
    send_message(&message);
    _exit(0);
}

/* --- the parent ------------------------------------------------------------------------------- */

/* The place of the key with which a message of np_setup_data() begins: "data.test: ...". */
static void place_of(const struct np_config *config, const char *text, int *line, int *column)
{
    static const char *const sets[] = {"test", "val", "split", "classes", "train"};
    const struct np_node *node = np_node_get(config->root, "data"), *below = NULL;

    *line = *column = 0;
    for (size_t i = 0; node && node->kind == NP_NODE_MAP && i < sizeof(sets) / sizeof(*sets); i++)
        if (strncmp(text, "data.", 5) == 0 && strncmp(text + 5, sets[i], strlen(sets[i])) == 0)
            below = np_node_get(node, sets[i]);
    if (below && below->kind == NP_NODE_MAP && np_node_get(below, "path"))
        below = np_node_get(below, "path");
    node = below ? below : node;
    if (node) {
        *line = node->key_line > 0 ? node->key_line : node->line;
        *column = node->key_line > 0 ? node->key_column : node->column;
    }
}

/* 1: got a message; 0: timed out; -EPIPE: the child has gone. */
static int receive(int pipe_fd, uint64_t until_ns, struct message *ret_message)
{
    for (;;) {
        const uint64_t now_ns = np_now_ns();
        struct pollfd fds = {pipe_fd, POLLIN, 0};
        const int wait_ms = until_ns > now_ns ? (int)((until_ns - now_ns + 999999) / 1000000) : 0;
        const int n = poll(&fds, 1, wait_ms);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        return read(pipe_fd, ret_message, sizeof(*ret_message)) == sizeof(*ret_message) ? 1
                                                                                        : -EPIPE;
    }
}

/* Receives the last message, and passes on notes. Returns as receive(). */
static int receive_end(int pipe_fd, uint64_t until_ns,
    void (*notes)(void *context, const char *text), struct message *ret_message)
{
    int code;

    while ((code = receive(pipe_fd, until_ns, ret_message)) == 1 && !ret_message->is_end)
        if (notes)
            notes(NULL, ret_message->text);
    return code;
}

static void fill_check(const struct np_config *config, const struct message *message,
    struct np_data_check *check, struct np_report *report)
{
    int line, column;

    check->complete = true;
    check->height = message->height;
    check->width = message->width;
    check->nr_classes = message->nr_classes;
    snprintf(check->note, sizeof(check->note),
        "the data: %" PRIu64 " samples in %d classes are listed; images were not decoded "
        "(`nnpipe data verify` does that)",
        message->samples, message->nr_classes);
    if (message->code < 0) {
        place_of(config, message->text, &line, &column);
        np_report_add(report, line, column, "%s", message->text);
    }
}

/* Forks the child. Returns its process and the pipe to read from; -errno. */
static pid_t start(const struct np_config *config, int *ret_fd)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        list_data(config, fds[1]);
    close(fds[1]);
    if (pid < 0) {
        pid = -errno;
        close(fds[0]);
        return pid;
    }
    *ret_fd = fds[0];
    return pid;
}

void np_check_data(const struct np_config *config, double seconds,
    void (*notes)(void *context, const char *text), struct np_data_check *ret_check,
    struct np_report *report)
{
    const uint64_t until_ns = np_now_ns() + (uint64_t)(seconds * 1e9);
    struct np_data_check check = {0};
    struct message message = {0};
    char why[800];
    int fd = -1;
    const pid_t pid = start(config, &fd);
    const int received = pid < 0 ? pid : receive_end(fd, until_ns, notes, &message);

    if (received == 1 && message.code != -EAGAIN)
        fill_check(config, &message, &check, report);
    else if (received == 0)
        snprintf(why, sizeof(why), "listing them takes longer than %g s", seconds);
    else
        snprintf(why, sizeof(why), "%s",
            received == 1 ? message.text : "the process that checks them has died");
    if (!check.complete)
        snprintf(check.note, sizeof(check.note), "the data were not checked: %.700s", why);
    if (fd >= 0)
        close(fd);
    if (pid > 0) {
        if (received != 1)
            kill(pid, SIGKILL);
        waitpid(pid, NULL,
            received == 1 ? 0
                          : WNOHANG); /* do not wait for a killed child: it may hang in a call */
    }
    *ret_check = check;
}
