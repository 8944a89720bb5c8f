/* A fork-join pool of compute threads. Waiting threads sleep. */
#ifndef NP_POOL_H
#define NP_POOL_H

#include "loader/base/err.h"

struct np_pool;
/* Starts nr_threads - 1 threads; the thread that calls np_pool_run() is the other one. */
int np_pool_new(int nr_threads, struct np_pool **ret_pool, struct np_err *err);
void np_pool_free(struct np_pool *pool);
int np_pool_threads(const struct np_pool *pool);
/* work(context, item, thread) for item 0..nr_items-1, taken in order; returns when all are done. */
void np_pool_run(struct np_pool *pool, int nr_items,
    void (*work)(void *context, int item, int thread), void *context);

#endif
