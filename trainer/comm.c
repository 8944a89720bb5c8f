/* Exchanges between the processes of a run, over the connections that comm_meet.c made. What must reach a
 * process that takes part in none goes over comm_line.c's. */
#include "trainer/comm.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "trainer/comm_line.h"
#include "trainer/comm_mpi.h"
#include "trainer/comm_sums.h"
#include "trainer/comm_wire.h"

#define NEWS_MS 2000 /* until news of an end come that a sum has noticed */

struct last_words { /* follows the head of an abort */
    char text[500];
};

struct np_comm {
    int rank, world, nr_hops;
    struct np_hop hops[NP_MAX_HOPS];
    struct np_link links[NP_MAX_LINKS]; /* links[k] to rank ^ (1 << k), if there is one */
    enum np_message kind;               /* of the current call */
    uint64_t call;                      /* and its number */
    bool over;                          /* nothing is sent any more, for the reason in `why` */
    bool aborted;                       /* by another process */
    struct np_err why;
    int ended; /* of comm_wire.h: `line` has heard that a process is gone */
    struct np_line *line;
    struct np_sums *sums;
    uint64_t waited_ns; /* in exchanges, and for sums */
    double *other;      /* (NP_MAX_JOIN) of the other end of a join; NULL: not yet */
};

struct lack {     /* of Open MPI, in a process */
    int32_t code; /* 0: it is there */
    char why[300];
};

/* Before one of them waits for the others in MPI_Init(): have all of them Open MPI? */
static int find_mpi(struct np_comm *comm, struct np_err *err)
{
    struct np_err why = {0};
    struct lack own = {0}, *all = np_try_array((size_t)comm->world, sizeof(*all), err);

    if (!all)
        return -ENOMEM;
    own.code = np_mpi_find(&why);
    snprintf(own.why, sizeof(own.why), "%s", why.text);
    int code = np_comm_gather(comm, &own, all, sizeof(own), err);
    for (int r = 0; r < comm->world && code == 0; r++) {
        all[r].why[sizeof(all[r].why) - 1] = '\0';
        if (all[r].code < 0)
            code = np_err_set(err, -EINVAL, "rank %d: %s", r, all[r].why);
    }
    np_free(all);
    return code;
}

/* Opens the way of sums: the same one in all processes. */
static int open_sums(const struct np_launch *launch, struct np_comm *comm, struct np_err *err)
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
    if (code == 0 && ways == 2)
        code = find_mpi(comm, err);
    return code == 0 ? np_sums_new(launch, comm->links, comm->ended, ways == 2, &comm->sums, err)
                     : code;
}

int np_comm_open(const struct np_launch *launch, struct np_comm **ret_comm, struct np_err *err)
{
    struct np_comm *comm = np_alloc(sizeof(*comm));

    comm->rank = launch->rank;
    comm->world = launch->world;
    comm->nr_hops = np_hops_find(launch->rank, launch->world, comm->hops);
    comm->ended = eventfd(0, EFD_CLOEXEC);
    int code = comm->ended < 0
                   ? np_err_set(err, -errno, "the processes cannot meet: %s", strerror(errno))
                   : np_meet(launch, comm->links, err);
    if (code < 0) {
        if (comm->ended >= 0)
            close(comm->ended);
        np_free(comm);
        return code;
    }
    if ((code = np_line_new(comm->links, NP_MAX_LINKS, comm->ended, &comm->line, err)) < 0 ||
        (code = open_sums(launch, comm, err)) < 0) {
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
    for (int k = 0; k < NP_MAX_LINKS; k++) /* before the sums: np_comm_wait_end() waits for it */
        if (comm->links[k].fd >= 0)
            close(comm->links[k].fd);
    np_sums_free(comm->sums, !comm->over);
    close(comm->ended);
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
    return comm ? np_sums_way(comm->sums) : "";
}

uint64_t np_comm_waited_ns(const struct np_comm *comm)
{
    return comm ? comm->waited_ns : 0;
}

bool np_comm_aborted(const struct np_comm *comm)
{
    return comm && comm->aborted;
}

/* --- one message each way ------------------------------------------------------------------- */

/* Tells all neighbours; nothing follows on these lines. */
static void give_up(struct np_comm *comm, int code, const struct last_words *words)
{
    struct {
        struct np_head head;
        struct last_words words;
    } message = {{NP_MESSAGE_ABORT, code, 0, sizeof(*words)}, *words};

    comm->over = true;
    np_err_set(&comm->why, code < 0 ? code : -ECONNRESET, "%s", words->text);
    for (int k = 0; k < NP_MAX_LINKS; k++)
        if (comm->links[k].fd >= 0)
            send(comm->links[k].fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (comm->line)
        np_line_end(comm->line, comm->why.code, words->text);
    if (comm->sums)
        np_sums_break(comm->sums);
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
    struct np_err news = {0};

    /* it may have waited for another that the line knows of */
    if (np_comm_heard(comm, &news) == -ECONNRESET)
        snprintf(words.text, sizeof(words.text), "%s", news.text);
    else
        snprintf(words.text, sizeof(words.text), "%s has ended", link->name);
    give_up(comm, -ECONNRESET, &words);
    comm->aborted = true;
    return again(comm, err);
}

/* Another process has given up: passes its words on. */
static int take_abort(struct np_comm *comm, int k, const struct np_head *head, struct np_err *err)
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

/* Another message has come than was due. */
static int take_other(
    struct np_comm *comm, int k, const struct np_head *head, size_t due, struct np_err *err)
{
    struct last_words words = {0};

    if (head->kind == NP_MESSAGE_ABORT)
        return take_abort(comm, k, head, err);
    snprintf(words.text, sizeof(words.text),
        "%.100s sends %llu bytes in call %llu, and %zu in call %llu are due: the processes are not "
        "in step",
        comm->links[k].name, (unsigned long long)head->bytes, (unsigned long long)head->call, due,
        (unsigned long long)comm->call);
    give_up(comm, -EPROTO, &words);
    comm->aborted = true;
    return again(comm, err);
}

/* Sends to rank ^ (1 << k), and receives from it. */
static int exchange(struct np_comm *comm, int k, const void *send_, size_t nr_send, void *recv_,
    size_t nr_recv, struct np_err *err)
{
    const struct np_head head = {comm->kind, 0, comm->call, nr_send};
    struct np_head other;

    if (comm->over)
        return again(comm, err);
    const uint64_t start = np_now_ns();
    const int code = np_wire_exchange(
        (struct np_wire){comm->links[k].fd, comm->ended}, &head, send_, recv_, nr_recv, &other);
    comm->waited_ns += np_now_ns() - start;
    if (code < 0)
        return ended(comm, &comm->links[k], err);
    return code == 0 ? 0 : take_other(comm, k, &other, nr_recv, err);
}

void np_comm_abort(struct np_comm *comm, int code, const char *text)
{
    struct last_words words = {0};

    if (!comm || comm->over)
        return;
    snprintf(words.text, sizeof(words.text), "rank %d: %s", comm->rank, text);
    give_up(comm, code, &words);
}

void np_comm_listen(struct np_comm *comm, np_comm_news_fn news, void *context)
{
    np_line_listen(comm->line, news, context);
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

/* Takes what the neighbour still says: nothing but an abort is due. False: there is nothing to wait for. */
static bool take_last(struct np_comm *comm, int k, struct np_head *head, size_t *nr)
{
    const ssize_t n =
        recv(comm->links[k].fd, (char *)head + *nr, sizeof(*head) - *nr, MSG_DONTWAIT);

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    *nr += (size_t)n;
    if (*nr < sizeof(*head))
        return true;
    *nr = 0;
    if (head->kind == NP_MESSAGE_ABORT && !comm->over)
        take_abort(comm, k, head, NULL);
    return comm->why.code != -ECONNRESET;
}

void np_comm_wait_end(struct np_comm *comm)
{
    struct np_head head;
    size_t nr = 0;

    /* One is gone, perhaps rank 0: then nothing is saved, and a dead connection would take as long as it
     * took to find the first. */
    if (!comm || comm->rank == 0 || comm->why.code == -ECONNRESET)
        return;
    const int k = __builtin_ctz((unsigned)comm->rank);
    struct pollfd waits[] = {{comm->links[k].fd, POLLIN, 0}, {comm->ended, POLLIN, 0}};
    while (poll(waits, 2, -1) < 0 || (waits[0].revents && take_last(comm, k, &head, &nr)))
        ;
}

/* --- all processes -------------------------------------------------------------------------- */

static void begin(struct np_comm *comm, enum np_message kind)
{
    if (!comm)
        return;
    comm->kind = kind;
    comm->call++;
}

void np_comm_sum_begin(struct np_comm *comm, float *x, uint64_t n)
{
    if (comm && !comm->over && n > 0)
        np_sums_begin(comm->sums, x, n);
}

/* A sum has failed: mostly because a process is gone or gave up, of which the line has the words. */
static int failed(struct np_comm *comm, const struct np_err *of_sum, struct np_err *err)
{
    struct last_words words = {0};
    struct np_err heard = *of_sum;

    for (int i = 0; i < NEWS_MS && of_sum->code == -ECONNRESET; i++) {
        struct np_err news = {0};

        if (np_comm_heard(comm, &news) < 0 && news.code != -EINTR) {
            heard = news;
            break;
        }
        np_sleep_until_ns(np_now_ns() + 1000000);
    }
    snprintf(words.text, sizeof(words.text), "%s", heard.text);
    give_up(comm, heard.code, &words);
    comm->aborted = true;
    return again(comm, err);
}

int np_comm_sum_end(struct np_comm *comm, struct np_err *err)
{
    struct np_err of_sum = {0};

    if (!comm)
        return 0;
    const uint64_t start = np_now_ns();
    const int code = np_sums_end(comm->sums, &of_sum); /* nothing is written to after that */
    comm->waited_ns += np_now_ns() - start;
    if (comm->over)
        return again(comm, err);
    return code < 0 ? failed(comm, &of_sum, err) : 0;
}

int np_comm_sum(struct np_comm *comm, float *x, uint64_t n, struct np_err *err)
{
    np_comm_sum_begin(comm, x, n);
    return np_comm_sum_end(comm, err);
}

/* exchange() of a hop, of which one that gives receives nothing, and one that takes sends nothing. */
static int swap(struct np_comm *comm, const struct np_hop *hop, const void *send_, size_t nr_send,
    void *recv_, size_t nr_recv, struct np_err *err)
{
    return exchange(comm, hop->link, send_, hop->kind == NP_HOP_TAKE ? 0 : nr_send, recv_,
        hop->kind == NP_HOP_GIVE ? 0 : nr_recv, err);
}

int np_comm_join(struct np_comm *comm, double *x, size_t n,
    void (*pair)(double *left, const double *right, size_t n), struct np_err *err)
{
    const size_t bytes = n * sizeof(*x);

    assert(n <= NP_MAX_JOIN);
    begin(comm, NP_MESSAGE_JOIN);
    if (comm && !comm->other && !(comm->other = np_try_array(NP_MAX_JOIN, sizeof(double), err)))
        return -ENOMEM;
    for (int i = 0; comm && i < comm->nr_hops; i++) {
        const struct np_hop *hop = &comm->hops[i];
        const bool swaps = hop->kind == NP_HOP_SWAP;
        double *other = comm->other;
        const int code = swap(comm, hop, x, bytes, swaps ? other : x, bytes, err);

        if (code < 0)
            return code;
        if (swaps && comm->rank >> hop->level & 1) {
            pair(other, x, n);
            memcpy(x, other, bytes);
        } else if (swaps) {
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

    begin(comm, NP_MESSAGE_GATHER);
    memmove(blocks + (size_t)np_comm_rank(comm) * bytes, own, bytes); /* it may be there already */
    for (int i = 0; comm && code == 0 && i < comm->nr_hops; i++) {
        const struct np_hop *hop = &comm->hops[i];
        const int facing = comm->rank ^ (1 << hop->level);
        const struct np_ranks_part here = np_hops_part(comm->rank, comm->world, hop->level),
                                   there = np_hops_part(facing, comm->world, hop->level);
        /* Only the right half's are handed on within the left half. */
        const struct np_ranks_part sent = hop->kind == NP_HOP_SWAP ? here : there;

        code = swap(comm, hop, blocks + (size_t)sent.first * bytes, (size_t)sent.nr * bytes,
            blocks + (size_t)there.first * bytes, (size_t)there.nr * bytes, err);
    }
    return code;
}

int np_comm_broadcast(struct np_comm *comm, void *bytes, size_t n, struct np_err *err)
{
    int code = 0;

    begin(comm, NP_MESSAGE_BROADCAST);
    for (int k = 0; comm && code == 0 && 1 << k < comm->world; k++) {
        if (comm->rank < 1 << k && comm->rank + (1 << k) < comm->world)
            code = exchange(comm, k, bytes, n, NULL, 0, err);
        else if (comm->rank >= 1 << k && comm->rank < 2 << k)
            code = exchange(comm, k, NULL, 0, bytes, n, err);
    }
    return code;
}

int np_comm_any(struct np_comm *comm, uint32_t *bits, struct np_err *err)
{
    int code = 0;

    begin(comm, NP_MESSAGE_ANY);
    for (int i = 0; comm && code == 0 && i < comm->nr_hops; i++) {
        uint32_t other = 0;

        code = swap(comm, &comm->hops[i], bits, sizeof(*bits), &other, sizeof(other), err);
        *bits |= other; /* what is handed on has the bits of before, and more */
    }
    return code;
}
