/* One owner thread calls np_pool_run() and works too; the others sleep between runs. Threads take
 * items in order under one lock: an item is milliseconds of work. */
#include "trainer/cpu/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "loader/base/mem.h"

struct np_pool {
    /* set once */
    int nr_threads;
    pthread_t *threads; /* (nr_threads - 1) */
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t work_came, work_done;
    int nr_started;
    uint64_t nr_runs; /* threads join a run when this number changes */
    bool stopping;
    int next_item, nr_items, nr_busy; /* busy: threads that have not left the run */
    void (*work)(void *context, int item, int thread);
    void *context;
};

/* Takes items until none is left. The caller holds the lock. */
static void work_off(struct np_pool *pool, int thread)
{
    while (pool->next_item < pool->nr_items) {
        int item = pool->next_item++;

        pthread_mutex_unlock(&pool->lock);
        pool->work(pool->context, item, thread);
        pthread_mutex_lock(&pool->lock);
    }
}

static void *pool_thread(void *argument)
{
    struct np_pool *pool = argument;
    uint64_t seen = 0;
    int thread;

    pthread_mutex_lock(&pool->lock);
    thread = ++pool->nr_started; /* the caller is thread 0 */
    for (;;) {
        while (!pool->stopping && pool->nr_runs == seen)
            pthread_cond_wait(&pool->work_came, &pool->lock);
        if (pool->stopping)
            break;
        seen = pool->nr_runs;
        work_off(pool, thread);
        if (--pool->nr_busy == 0)
            pthread_cond_signal(&pool->work_done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int np_pool_new(int nr_threads, struct np_pool **ret_pool, struct np_err *err)
{
    struct np_pool *pool = np_alloc(sizeof(*pool));
    int code = 0;

    pool->threads = np_alloc_array((size_t)nr_threads, sizeof(pthread_t));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work_came, NULL);
    pthread_cond_init(&pool->work_done, NULL);
    for (pool->nr_threads = 1; pool->nr_threads < nr_threads; pool->nr_threads++) {
        code = pthread_create(&pool->threads[pool->nr_threads - 1], NULL, pool_thread, pool);
        if (code)
            break;
    }
    if (code) {
        np_err_set(
            err, -code, "cannot start compute thread %d: %s", pool->nr_threads, strerror(code));
        np_pool_free(pool);
        return -code;
    }
    *ret_pool = pool;
    return 0;
}

void np_pool_free(struct np_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work_came);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i + 1 < pool->nr_threads; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->work_done);
    pthread_cond_destroy(&pool->work_came);
    pthread_mutex_destroy(&pool->lock);
    np_free(pool->threads);
    np_free(pool);
}

int np_pool_threads(const struct np_pool *pool)
{
    return pool->nr_threads;
}

void np_pool_run(struct np_pool *pool, int nr_items,
    void (*work)(void *context, int item, int thread), void *context)
{
    if (pool->nr_threads == 1 || nr_items == 1) {
        for (int item = 0; item < nr_items; item++)
            work(context, item, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->work = work;
    pool->context = context;
    pool->next_item = 0;
    pool->nr_items = nr_items;
    pool->nr_busy = pool->nr_threads - 1;
    pool->nr_runs++;
    pthread_cond_broadcast(&pool->work_came);
    work_off(pool, 0);
    while (pool->nr_busy)
        pthread_cond_wait(&pool->work_done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
