/* The fork-join pool. */
#include <stdlib.h>

#include "trainer/cpu/pool.h"

#include "tests/test.h"

static void count(void *context, int item, int thread)
{
    int *counts = context;

    (void)thread;
    __atomic_add_fetch(&counts[item], 1, __ATOMIC_RELAXED);
}

Test(pool, every_item_runs_once_with_any_number_of_threads)
{
    for (int nr_threads = 1; nr_threads <= 5; nr_threads++) {
        struct np_pool *pool;

        cr_assert_eq(np_pool_new(nr_threads, &pool, NULL), 0);
        cr_assert_eq(np_pool_threads(pool), nr_threads);
        for (int run = 0; run < 200; run++) {
            int counts[17] = {0}, nr_items = run % 18;

            np_pool_run(pool, nr_items, count, counts);
            for (int i = 0; i < 17; i++)
                cr_assert_eq(counts[i], i < nr_items);
        }
        np_pool_free(pool);
    }
}

static void note_thread(void *context, int item, int thread)
{
    int *threads = context;

    threads[item] = thread;
}

Test(pool, thread_numbers_are_in_range)
{
    struct np_pool *pool;
    int threads[100];

    cr_assert_eq(np_pool_new(3, &pool, NULL), 0);
    np_pool_run(pool, 100, note_thread, threads);
    for (int i = 0; i < 100; i++)
        cr_assert(threads[i] >= 0 && threads[i] < 3);
    np_pool_free(pool);
}

Test(pool, freeing_nothing_is_fine)
{
    np_pool_free(NULL);
}
