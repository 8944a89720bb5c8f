/* See lib_spread.h. The threads take pieces in turn from one counter. */
#include "loader/lib/lib_spread.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "loader/base/box.h"

#define PIECE       128 /* items */
#define MIN_THREADS 8   /* on a small machine: enough for a slow storage */
#define MAX_THREADS 64

struct spread {
    uint64_t n; /* set once, with work and context */
    np_spread_fn *work;
    void *context;
    uint64_t next; /* atomic: items that were taken */
    pthread_mutex_t lock;
    struct np_err err; /* under lock: the first */
};

static void *work_on(void *context)
{
    struct spread *spread = context;
    struct np_err err = {0};

    for (int code = 0; !code;) {
        /* Relaxed: the items are independent, and the join orders the rest. */
        const uint64_t first = __atomic_fetch_add(&spread->next, PIECE, __ATOMIC_RELAXED);
        const uint64_t left = first < spread->n ? spread->n - first : 0;

        if (left == 0)
            return NULL;
        code = spread->work(spread->context, first, first + (left < PIECE ? left : PIECE), &err);
    }
    __atomic_store_n(&spread->next, spread->n, __ATOMIC_RELAXED);
    pthread_mutex_lock(&spread->lock);
    if (!spread->err.code)
        spread->err = err;
    pthread_mutex_unlock(&spread->lock);
    return NULL;
}

static int nr_threads(uint64_t n)
{
    const uint64_t pieces = (n + PIECE - 1) / PIECE;
    struct np_box box;
    int nr = MIN_THREADS;

    if (pieces <= 1)
        return 1;
    np_box_read(&box);
    if (nr < box.nr_cpus)
        nr = box.nr_cpus < MAX_THREADS ? box.nr_cpus : MAX_THREADS;
    return (uint64_t)nr < pieces ? nr : (int)pieces;
}

int np_spread(uint64_t n, np_spread_fn *work, void *context, struct np_err *err)
{
    struct spread spread = {.n = n, .work = work, .context = context};
    pthread_t threads[MAX_THREADS];
    const int wanted = nr_threads(n) - 1;
    sigset_t all, before;
    int nr = 0;

    pthread_mutex_init(&spread.lock, NULL);
    sigfillset(&all); /* signals go to the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (nr < wanted && pthread_create(&threads[nr], NULL, work_on, &spread) == 0)
        nr++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work_on(&spread);
    while (nr > 0)
        pthread_join(threads[--nr], NULL);
    pthread_mutex_destroy(&spread.lock);
    if (spread.err.code && err && !err->code)
        *err = spread.err;
    return spread.err.code;
}
