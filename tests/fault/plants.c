/* One planted bug a build: -DPLANT_LEAK, -DPLANT_OVERFLOW, -DPLANT_RACE. plants.sh builds it
 * with the sanitizer that must find it, over the same runner as the real tests. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/test.h"

static int shared;

static void *add(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100000; i++) {
#ifdef PLANT_RACE
        shared++;
#else
        __atomic_add_fetch(&shared, 1, __ATOMIC_RELAXED);
#endif
    }
    return NULL;
}

Test(plants, a_clean_test_passes_and_a_planted_bug_is_found)
{
    pthread_t threads[2];
    char *volatile bytes = malloc(16);
    int last = 15;

    cr_assert_not_null(bytes);
#ifdef PLANT_OVERFLOW
    last = 16;
#endif
    bytes[last] = 1;
#ifndef PLANT_LEAK
    free(bytes);
#else
    bytes = NULL;
#endif
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, add, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cr_assert_gt(__atomic_load_n(&shared, __ATOMIC_RELAXED), 0);
}
