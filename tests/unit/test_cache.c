/* The cache of samples: what was put is found, by any thread; the cap holds. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "loader/cache.h"

#include "tests/test.h"

enum { SAMPLES = 500, THREADS = 4 };

static void fill(uint8_t *bytes, uint64_t sample, int n)
{
    for (int i = 0; i < n; i++)
        bytes[i] = (uint8_t)(sample * 7 + (uint64_t)i);
}

static void put(struct np_cache *cache, int set, uint64_t sample, const struct np_cached *cached)
{
    if (np_cache_claim(cache, set, sample))
        np_cache_put(cache, set, sample, cached);
}

static void *put_and_find(void *context)
{
    struct np_cache *cache = context;
    uint8_t bytes[200], want[200];
    long wrong = 0;

    for (int round = 0; round < 20; round++)
        for (uint64_t sample = 0; sample < SAMPLES; sample++) {
            struct np_cached cached;
            int n = (int)(sample % 150) + 1;

            fill(want, sample, n);
            if (np_cache_find(cache, (int)(sample % 2), sample, &cached)) {
                wrong += cached.bytes != (uint32_t)n || memcmp(cached.data, want, (size_t)n) != 0;
                continue;
            }
            fill(bytes, sample, n);
            cached = (struct np_cached){.data = bytes, .bytes = (uint32_t)n};
            put(cache, (int)(sample % 2), sample, &cached);
        }
    return (void *)wrong;
}

Test(cache, many_threads_put_and_find_the_same, .timeout = 120)
{
    const uint64_t nr_samples[2] = {SAMPLES, SAMPLES};
    struct np_cache *cache = NULL;
    pthread_t threads[THREADS];
    struct np_cached cached;

    cr_assert_eq(np_cache_new(1 << 20, 2, nr_samples, &cache, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, put_and_find, cache);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        cr_assert_null(wrong);
    }
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        cr_assert(np_cache_find(cache, (int)(sample % 2), sample, &cached));
        cr_assert_not(np_cache_find(cache, !(sample % 2), sample, &cached));
    }
    np_cache_free(cache);
}

Test(cache, the_cap_holds_and_cached_samples_stay)
{
    const uint64_t nr_samples[1] = {100};
    struct np_cache *cache = NULL;
    uint8_t bytes[100];
    struct np_cached cached = {.data = bytes, .bytes = 100};
    int found = 0;

    cr_assert_eq(np_cache_new(1000, 1, nr_samples, &cache, NULL), 0);
    for (uint64_t sample = 0; sample < 100; sample++) {
        fill(bytes, sample, 100);
        cached.data = bytes;
        cached.bytes = 100;
        put(cache, 0, sample, &cached);
    }
    for (uint64_t sample = 0; sample < 100; sample++)
        found += np_cache_find(cache, 0, sample, &cached);
    cr_assert_eq(found, 1000 / 128); /* an entry has a head, and is aligned */
    cr_assert(np_cache_find(cache, 0, 0, &cached));
    fill(bytes, 0, 100);
    cr_assert_arr_eq(cached.data, bytes, 100);
    np_cache_free(cache);
}

Test(cache, pictures_keep_their_size)
{
    const uint64_t nr_samples[1] = {3};
    struct np_cache *cache = NULL;
    uint8_t bytes[24] = {1, 2, 3};
    struct np_cached cached = {bytes, 24, 4, 2, 3};

    cr_assert_eq(np_cache_new(1000, 1, nr_samples, &cache, NULL), 0);
    put(cache, 0, 1, &cached);
    memset(&cached, 0, sizeof(cached));
    cr_assert(np_cache_find(cache, 0, 1, &cached));
    cr_assert(cached.width == 4 && cached.height == 2 && cached.channels == 3);
    cr_assert_eq((uintptr_t)cached.data % 16, 0);
    np_cache_free(cache);
}

Test(cache, want_of_memory_is_an_error)
{
    const uint64_t nr_samples[1] = {3};
    struct np_cache *cache = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_cache_new(UINT64_MAX / 2, 1, nr_samples, &cache, &err), -ENOMEM);
    cr_assert_not_null(strstr(err.text, "loader.cache"));
    cr_assert_null(cache);
}
