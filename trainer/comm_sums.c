/* Each sum is exchanged chunk by chunk with rank ^ 1, then rank ^ 2, and so on (comm_hops.h); the order of sums is that
 * of np_sums_begin(), which must be the same in all processes. */
#include "trainer/comm_sums.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "trainer/comm_mpi.h"
#include "trainer/comm_wire.h"

#define CHUNK       (256u * 1024) /* floats of a message: both ends add them while they are in cache */
#define MAX_QUEUED  256
#define MAX_WAIT_NS 128000 /* between two looks at MPI's requests: it has no wait that sleeps */
#define GONE_NS                                                                                    \
    1000000000 /* until a closed connection means an end, if MPI has something under way */

struct sum {
    float *x;
    uint64_t n;
};

struct np_sums {
    const struct np_launch *launch; /* until the thread has begun */
    const struct np_link *links;    /* set once */
    int ended;                      /* as struct np_wire */
    int rank, nr_hops;
    struct np_hop hops[NP_MAX_HOPS];
    bool by_mpi;
    pthread_t thread;
    /* The thread alone: */
    float *other; /* (CHUNK) of the other end */
    uint64_t call;
    struct np_mpi *mpi; /* opened before anyone else reads it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under lock: */
    bool begun, ends, whole;
    struct sum queue[MAX_QUEUED];
    uint64_t nr_queued, nr_done;
    struct np_err why; /* code 0: all sums so far are right */
};

/* --- one chunk ------------------------------------------------------------------------------ */

static int gone(const struct np_link *link, struct np_err *err)
{
    return np_err_set(err, -ECONNRESET, "%s has ended", link->name);
}

/* What a hop sends and receives: NULL and 0 for nothing. */
struct parcel {
    const void *out;
    void *in;
    size_t nr_out, nr_in; /* bytes */
};

static int exchange(struct np_sums *sums, int k, const struct parcel *parcel, struct np_err *err)
{
    const struct np_link *link = &sums->links[k];
    const struct np_head head = {NP_MESSAGE_SUM, 0, sums->call, parcel->nr_out};
    struct np_head other;
    const int code = np_wire_exchange((struct np_wire){link->sums, sums->ended}, &head, parcel->out,
        parcel->in, parcel->nr_in, &other);

    if (code < 0)
        return gone(link, err);
    return code == 0
               ? 0
               : np_err_set(err, -EPROTO,
                     "%.100s sums %llu bytes in sum %llu, and %zu in sum %llu are due: the "
                     "processes are not in step",
                     link->name, (unsigned long long)other.bytes, (unsigned long long)other.call,
                     parcel->nr_in, (unsigned long long)sums->call);
}

static bool is_closed(const struct np_link *link)
{
    char byte;
    const ssize_t n = recv(link->sums, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Waits for what MPI has under way; MPI itself does not tell that a process is gone. One that has done
 * its last part and closed looks the same for a moment. */
static int await_mpi(struct np_sums *sums, int k, struct np_err *err)
{
    uint64_t wait_ns = 1000, gone_ns = 0;
    int done;

    while ((done = np_mpi_done(sums->mpi, err)) == 0) {
        const uint64_t now = np_now_ns();

        if (!is_closed(&sums->links[k]) && !np_wire_ended(sums->ended))
            gone_ns = 0;
        else if (gone_ns == 0)
            gone_ns = now;
        else if (now - gone_ns > GONE_NS)
            return gone(&sums->links[k], err);
        np_sleep_until_ns(now + wait_ns);
        wait_ns = wait_ns < MAX_WAIT_NS ? 2 * wait_ns : wait_ns;
    }
    return done < 0 ? done : 0;
}

/* exchange() by MPI, once both ends stand at this chunk. */
static int exchange_mpi(
    struct np_sums *sums, int k, const struct parcel *parcel, struct np_err *err)
{
    int code = exchange(sums, k, &(struct parcel){0}, err);

    if (code == 0)
        code = np_mpi_exchange(sums->mpi, sums->rank ^ (1 << k), parcel->out, parcel->nr_out,
            parcel->in, parcel->nr_in, err);
    return code == 0 ? await_mpi(sums, k, err) : code;
}

/* at: (n), one chunk. */
static int hop(
    struct np_sums *sums, const struct np_hop *hop, float *at, size_t n, struct np_err *err)
{
    const size_t bytes = n * sizeof(*at);
    const struct parcel parcels[] = {[NP_HOP_SWAP] = {at, sums->other, bytes, bytes},
        [NP_HOP_GIVE] = {at, NULL, bytes, 0},
        [NP_HOP_TAKE] = {NULL, at, 0, bytes}};
    const int code =
        (sums->mpi ? exchange_mpi : exchange)(sums, hop->link, &parcels[hop->kind], err);

    for (size_t i = 0; code == 0 && hop->kind == NP_HOP_SWAP && i < n; i++)
        at[i] += sums->other[i]; /* a + b and b + a have the same bits */
    return code;
}

static int add_up(struct np_sums *sums, const struct sum *sum, struct np_err *err)
{
    sums->call++;
    for (uint64_t first = 0; first < sum->n; first += CHUNK) {
        const size_t some = sum->n - first < CHUNK ? (size_t)(sum->n - first) : CHUNK;

        for (int i = 0; i < sums->nr_hops; i++) {
            const int code = hop(sums, &sums->hops[i], sum->x + first, some, err);

            if (code < 0)
                return code;
        }
    }
    return 0;
}

/* --- the thread ----------------------------------------------------------------------------- */

/* The next sum, or false: the end. */
static bool next(struct np_sums *sums, struct sum *ret_sum)
{
    pthread_mutex_lock(&sums->lock);
    while (sums->nr_queued == sums->nr_done && !sums->ends)
        pthread_cond_wait(&sums->changed, &sums->lock);
    const bool is_one = sums->nr_queued > sums->nr_done;
    if (is_one)
        *ret_sum = sums->queue[sums->nr_done % MAX_QUEUED];
    pthread_mutex_unlock(&sums->lock);
    return is_one;
}

static void done(struct np_sums *sums, const struct np_err *err)
{
    pthread_mutex_lock(&sums->lock);
    sums->nr_done++;
    if (err->code)
        sums->why = *err;
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
}

static void *sums_thread(void *argument)
{
    struct np_sums *sums = argument;
    struct np_err err = {0};
    struct sum sum;

    if (sums->by_mpi)
        np_mpi_open(sums->launch, &sums->mpi, &err); /* all its calls come from one thread */
    pthread_mutex_lock(&sums->lock);
    sums->why = err;
    sums->begun = true;
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
    while (next(sums, &sum)) {
        if (!err.code)
            add_up(sums, &sum, &err);
        if (err.code)
            np_sums_break(sums); /* the neighbours must not wait for what does not come */
        done(sums, &err);
    }
    np_mpi_close(sums->mpi, sums->whole && !err.code);
    return NULL;
}

int np_sums_new(const struct np_launch *launch, const struct np_link *links, int ended, bool by_mpi,
    struct np_sums **ret_sums, struct np_err *err)
{
    struct np_sums *sums = np_alloc(sizeof(*sums));

    sums->launch = launch;
    sums->links = links;
    sums->ended = ended;
    sums->rank = launch->rank;
    sums->nr_hops = np_hops_find(launch->rank, launch->world, sums->hops);
    sums->by_mpi = by_mpi;
    pthread_mutex_init(&sums->lock, NULL);
    pthread_cond_init(&sums->changed, NULL);
    int code = (sums->other = np_try_array(CHUNK, sizeof(float), err)) ? 0 : -ENOMEM;
    if (code == 0 && (code = -pthread_create(&sums->thread, NULL, sums_thread, sums)) < 0)
        np_err_set(err, code, "the thread that sums gradients cannot start: %s", strerror(-code));
    if (code < 0) {
        np_free(sums->other);
        np_free(sums);
        return code;
    }
    pthread_mutex_lock(&sums->lock);
    while (!sums->begun)
        pthread_cond_wait(&sums->changed, &sums->lock);
    code = sums->why.code;
    pthread_mutex_unlock(&sums->lock);
    *ret_sums = sums;
    return code < 0 ? np_err_set(err, code, "%s", sums->why.text) : 0;
}

void np_sums_free(struct np_sums *sums, bool whole)
{
    if (!sums)
        return;
    if (!whole)
        np_sums_break(sums);
    pthread_mutex_lock(&sums->lock);
    sums->ends = true;
    sums->whole = whole;
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
    pthread_join(sums->thread, NULL);
    for (int k = 0; k < NP_MAX_LINKS; k++)
        if (sums->links[k].sums >= 0)
            close(sums->links[k].sums);
    pthread_cond_destroy(&sums->changed);
    pthread_mutex_destroy(&sums->lock);
    np_free(sums->other);
    np_free(sums);
}

const char *np_sums_way(const struct np_sums *sums)
{
    return sums->mpi ? np_mpi_version(sums->mpi) : "tcp";
}

void np_sums_begin(struct np_sums *sums, float *x, uint64_t n)
{
    pthread_mutex_lock(&sums->lock);
    while (sums->nr_queued - sums->nr_done == MAX_QUEUED)
        pthread_cond_wait(&sums->changed, &sums->lock);
    sums->queue[sums->nr_queued++ % MAX_QUEUED] = (struct sum){x, n};
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
}

int np_sums_end(struct np_sums *sums, struct np_err *err)
{
    pthread_mutex_lock(&sums->lock);
    while (sums->nr_queued > sums->nr_done)
        pthread_cond_wait(&sums->changed, &sums->lock);
    const struct np_err why = sums->why;
    pthread_mutex_unlock(&sums->lock);
    return why.code ? np_err_set(err, why.code, "%s", why.text) : 0;
}

void np_sums_break(struct np_sums *sums)
{
    for (int k = 0; k < NP_MAX_LINKS; k++)
        if (sums->links[k].sums >= 0)
            shutdown(sums->links[k].sums, SHUT_RDWR);
}
