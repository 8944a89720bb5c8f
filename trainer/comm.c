/* Exchanges between the processes of a run, over the connections that comm_meet.c made. */
#include "trainer/comm.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/comm_meet.h"

/* Floats of a sum in one message: both ends add them while they are in cache. */
#define CHUNK (256u * 1024)

enum kind { ABORT = 0x6e70, SUM, GATHER, BROADCAST, ANY, JOIN };
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
    float *other; /* (CHUNK) of the other end of a sum; NULL: not yet */
};

int np_comm_open(const struct np_launch *launch, struct np_comm **ret_comm, struct np_err *err)
{
    struct np_comm *comm = np_alloc(sizeof(*comm));

    comm->rank = launch->rank;
    comm->world = launch->world;
    while (1 << comm->nr_links < launch->world)
        comm->nr_links++;
    const int code = np_meet(launch, comm->links, err);
    if (code < 0)
        np_free(comm);
    else
        *ret_comm = comm;
    return code;
}

void np_comm_close(struct np_comm *comm)
{
    if (!comm)
        return;
    for (int k = 0; k < comm->nr_links; k++)
        close(comm->links[k].fd);
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

void np_comm_abort(struct np_comm *comm, int code, const char *text)
{
    struct last_words words = {0};

    if (!comm || comm->over)
        return;
    snprintf(words.text, sizeof(words.text), "rank %d: %s", comm->rank, text);
    give_up(comm, code, &words);
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

static int take_other(struct np_comm *comm, struct np_err *err)
{
    if (!comm->other)
        comm->other = np_try_array(CHUNK, sizeof(float), err);
    return comm->other ? 0 : -ENOMEM;
}

int np_comm_sum(struct np_comm *comm, float *x, uint64_t n, struct np_err *err)
{
    if (!comm)
        return 0;
    begin(comm, SUM);
    if (take_other(comm, err) < 0)
        return -ENOMEM;
    for (uint64_t first = 0; first < n; first += CHUNK) {
        const size_t some = n - first < CHUNK ? (size_t)(n - first) : CHUNK;
        float *at = x + first;

        for (int k = 0; k < comm->nr_links; k++) {
            const int code =
                exchange(comm, k, at, some * sizeof(float), comm->other, some * sizeof(float), err);

            if (code < 0)
                return code;
            for (size_t i = 0; i < some; i++)
                at[i] += comm->other[i]; /* a + b and b + a have the same bits */
        }
    }
    return 0;
}

int np_comm_join(struct np_comm *comm, double *x, size_t n,
    void (*pair)(double *left, const double *right, size_t n), struct np_err *err)
{
    const size_t bytes = n * sizeof(*x);

    assert(bytes <= CHUNK * sizeof(float));
    begin(comm, JOIN);
    if (comm && take_other(comm, err) < 0)
        return -ENOMEM;
    for (int k = 0; comm && k < comm->nr_links; k++) {
        double *other = (double *)(void *)comm->other;
        const int code = exchange(comm, k, x, bytes, other, bytes, err);

        if (code < 0)
            return code;
        if (comm->rank >> k & 1) {
            pair(other, x, n);
            memcpy(x, other, bytes);
        } else {
            pair(x, other, n);
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
