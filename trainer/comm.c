/* Exchanges between the processes of a run, over the connections that comm_meet.c made. What must reach a
 * process that takes part in none goes over comm_line.c's. */
#include "trainer/comm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "trainer/comm_line.h"
#include "trainer/comm_mpi.h"

/* Floats of a sum in one message: both ends add them while they are in cache. */
#define CHUNK (256u * 1024)
#define GONE_NS                                                                                    \
    1000000000 /* until a closed connection means an end, if MPI has something under way */
#define MAX_WAIT_NS 128000 /* between two looks at MPI's requests: it has no wait that sleeps */

enum kind { ABORT = 0x6e70, SUM, GATHER, BROADCAST, ANY };
struct head { /* before each message; bytes: of what follows */
    uint32_t kind;
    int32_t code;  /* of an abort */
    uint64_t call; /* the number of the call: it and its kind must be the same at both ends */
    uint64_t bytes;
};
struct last_words { /* follows the head of an abort */
    char text[500];
};

struct np_comm {
    int rank, world, nr_links;
    struct np_link links[NP_MAX_LINKS]; /* links[k] to rank ^ (1 << k) */
    enum kind kind;                     /* of the current call */
    uint64_t call;                      /* and its number */
    bool over;                          /* nothing is sent any more, for the reason in `why` */
    bool aborted;                       /* by another process */
    struct np_err why;
    struct np_line *line;
    struct np_mpi *mpi; /* NULL: sums go over the links */
    float *other;       /* (CHUNK) of the other end of a sum; NULL: not yet */
};

/* Which way sums take: all processes the same one. */
static int open_data(const struct np_launch *launch, struct np_comm *comm, struct np_err *err)
{
    const char *data = getenv("NNPIPE_COMM_DATA");
    uint32_t ways = 1;

    if (data && strcmp(data, "mpi") == 0)
        ways = 2;
    else if (data && strcmp(data, "tcp") != 0)
        ways = 4;
    int code = np_comm_any(comm, &ways, err);
    if (code == 0 && (ways & (ways - 1) || ways == 4))
        return np_err_set(err, -EINVAL,
            ways == 4 ? "NNPIPE_COMM_DATA=%.40s: expected tcp or mpi"
                      : "NNPIPE_COMM_DATA is not the same in all "
                        "processes (here: %.40s)",
            data ? data : "not set");
    return code == 0 && ways == 2 ? np_mpi_open(launch, &comm->mpi, err) : code;
}

int np_comm_open(const struct np_launch *launch, struct np_comm **ret_comm, struct np_err *err)
{
    struct np_comm *comm = np_alloc(sizeof(*comm));

    comm->rank = launch->rank;
    comm->world = launch->world;
    while (1 << comm->nr_links < launch->world)
        comm->nr_links++;
    int code = np_meet(launch, comm->links, err);
    if (code < 0) {
        np_free(comm);
        return code;
    }
    comm->line = np_line_new(comm->links, comm->nr_links);
    if ((code = open_data(launch, comm, err)) < 0) {
        np_comm_abort(comm, code, err ? err->text : "");
        np_comm_close(comm);
        return code;
    }
    *ret_comm = comm;
    return 0;
}

void np_comm_close(struct np_comm *comm)
{
    if (!comm)
        return;
    np_line_free(comm->line);
    for (int k = 0; k < comm->nr_links; k++)
        close(comm->links[k].fd);
    np_mpi_close(comm->mpi, !comm->over);
    np_free(comm->other);
    np_free(comm);
}

int np_comm_rank(const struct np_comm *comm)
{
    return comm ? comm->rank : 0;
}

int np_comm_world(const struct np_comm *comm)
{
    return comm ? comm->world : 1;
}

const char *np_comm_way(const struct np_comm *comm)
{
    return !comm ? "" : comm->mpi ? np_mpi_version(comm->mpi) : "tcp";
}

bool np_comm_aborted(const struct np_comm *comm)
{
    return comm && comm->aborted;
}

/* --- one message each way ------------------------------------------------------------------- */

/* What is left of a message: its head, then its body. */
struct piece {
    struct head head;
    char *body;
    size_t done, bytes; /* of head and body */
};

/* Moves what can be moved without waiting. Returns 0, or a negative errno. */
static int move(int fd, struct piece *piece, bool sends)
{
    while (piece->done < piece->bytes) {
        const bool in_head = piece->done < sizeof(piece->head);
        char *at = in_head ? (char *)&piece->head + piece->done
                           : piece->body + (piece->done - sizeof(piece->head));
        const size_t n = (in_head ? sizeof(piece->head) : piece->bytes) - piece->done;
        const ssize_t moved =
            sends ? send(fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE * in_head)
                  : recv(fd, at, n, MSG_DONTWAIT);

        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (moved < 0)
            return -errno;
        if (moved == 0)
            return -ECONNRESET;
        piece->done += (size_t)moved;
        if (in_head && piece->done == sizeof(piece->head) && !sends)
            return 0; /* the caller looks at it */
    }
    return 0;
}

/* Tells all neighbours; nothing follows on these lines. */
static void give_up(struct np_comm *comm, int code, const struct last_words *words)
{
    struct {
        struct head head;
        struct last_words words;
    } message = {{ABORT, code, 0, sizeof(*words)}, *words};

    comm->over = true;
    np_err_set(&comm->why, code < 0 ? code : -ECONNRESET, "%s", words->text);
    for (int k = 0; k < comm->nr_links; k++)
        send(comm->links[k].fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
    np_line_end(comm->line, comm->why.code, words->text);
}

/* The error that ended the exchange. */
static int again(const struct np_comm *comm, struct np_err *err)
{
    return np_err_set(err, comm->why.code, "%s", comm->why.text);
}

/* The process at the other end is gone: the others hear its name. */
static int ended(struct np_comm *comm, const struct np_link *link, struct np_err *err)
{
    struct last_words words = {0};

    snprintf(words.text, sizeof(words.text), "%s has ended", link->name);
    give_up(comm, -ECONNRESET, &words);
    comm->aborted = true;
    return again(comm, err);
}

/* Another process has given up: passes its words on. */
static int take_abort(struct np_comm *comm, int k, const struct head *head, struct np_err *err)
{
    struct last_words words = {0};
    struct pollfd wait = {comm->links[k].fd, POLLIN, 0};
    size_t done = 0;

    while (done < sizeof(words) && poll(&wait, 1, 2000) > 0) {
        const ssize_t n = recv(wait.fd, (char *)&words + done, sizeof(words) - done, MSG_DONTWAIT);

        if (n <= 0)
            break;
        done += (size_t)n;
    }
    words.text[sizeof(words.text) - 1] = '\0';
    give_up(comm, head->code, &words);
    comm->aborted = true;
    return again(comm, err);
}

/* Has the head of the other's message come whole? Then it must be as long as ours says. */
static int check_head(struct np_comm *comm, int k, struct piece *in, struct np_err *err)
{
    if (in->done != sizeof(in->head))
        return 0;
    if (in->head.kind == ABORT)
        return take_abort(comm, k, &in->head, err);
    if (in->head.kind == comm->kind && in->head.call == comm->call &&
        in->head.bytes == in->bytes - sizeof(in->head))
        return 0;
    struct last_words words = {0};
    snprintf(words.text, sizeof(words.text),
        "%.100s sends %llu bytes in call %llu, and %zu in call %llu are due: the processes are not "
        "in step",
        comm->links[k].name, (unsigned long long)in->head.bytes, (unsigned long long)in->head.call,
        in->bytes - sizeof(in->head), (unsigned long long)comm->call);
    give_up(comm, -EPROTO, &words);
    comm->aborted = true;
    return again(comm, err);
}

/* Sends to rank ^ (1 << k), and receives from it. */
static int exchange(struct np_comm *comm, int k, const void *send_, size_t nr_send, void *recv_,
    size_t nr_recv, struct np_err *err)
{
    struct piece out = {
        {comm->kind, 0, comm->call, nr_send}, (char *)send_, 0, sizeof(struct head) + nr_send};
    struct piece in = {{0}, recv_, 0, sizeof(struct head) + nr_recv};
    const struct np_link *link = &comm->links[k];

    if (comm->over)
        return again(comm, err);
    while (out.done < out.bytes || in.done < in.bytes) {
        const bool head_was_in = in.done >= sizeof(in.head);
        int code = move(link->fd, &out, true);

        if (code == -ECONNRESET || code == -EPIPE)
            out.done = out.bytes; /* the last words may still be there to read */
        else if (code < 0)
            return ended(comm, link, err);
        if (in.done < in.bytes && (code = move(link->fd, &in, false)) < 0)
            return ended(comm, link, err);
        if (!head_was_in && (code = check_head(comm, k, &in, err)) < 0)
            return code;
        if (!head_was_in && in.done == sizeof(in.head))
            continue;
        struct pollfd wait = {link->fd,
            (short)((out.done < out.bytes ? POLLOUT : 0) | (in.done < in.bytes ? POLLIN : 0)), 0};
        if (wait.events)
            poll(&wait, 1, -1);
    }
    return 0;
}

/* Has the other end given up (negative), or closed the connection (1)? Its next message stays there. */
static int look(struct np_comm *comm, int k, struct np_err *err)
{
    struct head head;
    const ssize_t n = recv(comm->links[k].fd, &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return 1;
    if (n < (ssize_t)sizeof(head) || head.kind != ABORT)
        return 0;
    recv(comm->links[k].fd, &head, sizeof(head), MSG_DONTWAIT);
    return take_abort(comm, k, &head, err);
}

/* Waits for what MPI has under way; MPI itself does not tell that a process is gone. One that has done
 * its last part and closed looks the same for a moment. */
static int await_mpi(struct np_comm *comm, int k, struct np_err *err)
{
    uint64_t wait_ns = 1000, gone_ns = 0;
    int done, code;

    while ((done = np_mpi_done(comm->mpi, err)) == 0) {
        const uint64_t now = np_now_ns();

        if ((code = look(comm, k, err)) < 0)
            return code;
        if (code == 0)
            gone_ns = 0;
        else if (gone_ns == 0)
            gone_ns = now;
        else if (now - gone_ns > GONE_NS)
            return ended(comm, &comm->links[k], err);
        np_sleep_until_ns(now + wait_ns);
        wait_ns = wait_ns < MAX_WAIT_NS ? 2 * wait_ns : wait_ns;
    }
    return done < 0 ? done : 0;
}

/* exchange() of a part of a sum, by MPI. */
static int exchange_mpi(
    struct np_comm *comm, int k, size_t nr, const float *send_, float *recv_, struct np_err *err)
{
    int code = exchange(comm, k, NULL, 0, NULL, 0, err);

    if (code == 0)
        code = np_mpi_exchange(
            comm->mpi, comm->rank ^ (1 << k), send_, recv_, nr * sizeof(float), err);
    return code == 0 ? await_mpi(comm, k, err) : code;
}

void np_comm_abort(struct np_comm *comm, int code, const char *text)
{
    struct last_words words = {0};

    if (!comm || comm->over)
        return;
    snprintf(words.text, sizeof(words.text), "rank %d: %s", comm->rank, text);
    give_up(comm, code, &words);
}

int np_comm_listen(struct np_comm *comm, np_comm_news_fn news, void *context, struct np_err *err)
{
    return np_line_start(comm->line, news, context, err);
}

void np_comm_ask_stop(struct np_comm *comm)
{
    np_line_ask_stop(comm->line);
}

int np_comm_heard(const struct np_comm *comm, struct np_err *err)
{
    return comm ? np_line_heard(comm->line, err) : 0;
}

bool np_comm_over(const struct np_comm *comm)
{
    return comm && comm->over;
}

void np_comm_wait_end(struct np_comm *comm)
{
    char bytes[256];

    if (!comm || comm->rank == 0)
        return;
    const int fd = comm->links[__builtin_ctz((unsigned)comm->rank)].fd;
    struct pollfd wait = {fd, POLLIN, 0};
    while (poll(&wait, 1, -1) < 0 || recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0 ||
           errno == EAGAIN)
        errno = 0;
}

/* --- all processes -------------------------------------------------------------------------- */

static void begin(struct np_comm *comm, enum kind kind)
{
    if (!comm)
        return;
    comm->kind = kind;
    comm->call++;
}

int np_comm_sum(struct np_comm *comm, float *x, uint64_t n, struct np_err *err)
{
    if (!comm)
        return 0;
    begin(comm, SUM);
    if (!comm->other && !(comm->other = np_try_array(CHUNK, sizeof(float), err)))
        return -ENOMEM;
    for (uint64_t first = 0; first < n; first += CHUNK) {
        const size_t some = n - first < CHUNK ? (size_t)(n - first) : CHUNK;
        float *at = x + first;

        for (int k = 0; k < comm->nr_links; k++) {
            const size_t bytes = some * sizeof(float);
            const int code = comm->mpi ? exchange_mpi(comm, k, some, at, comm->other, err)
                                       : exchange(comm, k, at, bytes, comm->other, bytes, err);

            if (code < 0)
                return code;
            for (size_t i = 0; i < some; i++)
                at[i] += comm->other[i]; /* a + b and b + a have the same bits */
        }
    }
    return 0;
}

int np_comm_gather(
    struct np_comm *comm, const void *own, void *all, size_t bytes, struct np_err *err)
{
    char *blocks = all;
    int code = 0;

    begin(comm, GATHER);
    memmove(blocks + (size_t)np_comm_rank(comm) * bytes, own, bytes); /* it may be there already */
    for (int k = 0; comm && code == 0 && k < comm->nr_links; k++) {
        const size_t has = (size_t)comm->rank >> k << k, wants = has ^ ((size_t)1 << k);

        code = exchange(
            comm, k, blocks + has * bytes, bytes << k, blocks + wants * bytes, bytes << k, err);
    }
    return code;
}

int np_comm_broadcast(struct np_comm *comm, void *bytes, size_t n, struct np_err *err)
{
    int code = 0;

    begin(comm, BROADCAST);
    for (int k = 0; comm && code == 0 && k < comm->nr_links; k++) {
        if (comm->rank < 1 << k)
            code = exchange(comm, k, bytes, n, NULL, 0, err);
        else if (comm->rank < 2 << k)
            code = exchange(comm, k, NULL, 0, bytes, n, err);
    }
    return code;
}

int np_comm_any(struct np_comm *comm, uint32_t *bits, struct np_err *err)
{
    int code = 0;

    begin(comm, ANY);
    for (int k = 0; comm && code == 0 && k < comm->nr_links; k++) {
        uint32_t other = 0;

        code = exchange(comm, k, bits, sizeof(*bits), &other, sizeof(other), err);
        *bits |= other;
    }
    return code;
}
