/* The cache of remote ranges: what is put is found by all who share the folder, checked once, bounded, evicted by
 * data sets that nobody holds; a damaged or foreign folder gives nothing wrong. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_ranges.h"

#define BLOCK   ((uint64_t)NP_RANGE_BLOCK)
#define BYTES   (10 * BLOCK + 1000) /* 11 blocks, the last one short */
#define PLENTY  (1ull << 30)
#define PER_SET (4096 + 10 * BLOCK + 4096) /* on the account, for an object of BYTES */

static struct np_range_numbers numbers_of(const struct np_range_cache *cache)
{
    struct np_range_numbers numbers;

    np_range_numbers(cache, &numbers);
    return numbers;
}

static int fill(const char *folder, const char *set, uint64_t max_bytes)
{
    return made_ranges_fill(folder, set, max_bytes, BYTES);
}

/* How many blocks of it are there; opens and holds the set meanwhile. */
static int left(const char *folder, const char *set)
{
    struct np_range_cache *cache = made_ranges_open(folder, set, PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, set, "1", BYTES);
    const int nr = made_ranges_count(object, set, "1", BYTES);

    np_range_object_close(object);
    np_range_cache_close(cache);
    return nr;
}

Test(range_cache, what_was_put_is_found_and_checked_once, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, "u", "1", BYTES);
    struct np_range_place place;
    uint8_t *data = np_alloc(3 * BLOCK);
    uint64_t offset = BLOCK + 5, bytes = BLOCK;

    cr_assert_eq(np_range_find(object, 0, 10, &place), NP_RANGE_MISS);
    cr_assert(np_range_wants(object, &offset, &bytes));
    cr_assert_eq(offset, BLOCK);
    cr_assert_eq(bytes, 2 * BLOCK);
    made_ranges_put(object, "u", "1", offset, bytes);
    np_range_flush(cache);
    cr_assert_eq(np_range_find(object, BLOCK - 1, 2, &place), NP_RANGE_MISS);
    cr_assert_eq(np_range_find(object, BLOCK + 5, BLOCK, &place), NP_RANGE_BLOCKS);
    cr_assert_eq(place.offset, BLOCK);
    cr_assert_eq(place.bytes, 2 * BLOCK);
    cr_assert_eq((place.file_offset - place.offset) % 4096, 0);
    cr_assert_eq(np_read_at(place.fd, place.file_offset, data, place.bytes), 2 * (int64_t)BLOCK);
    cr_assert(np_range_check(object, place.offset, data, place.bytes));
    cr_assert_eq(np_range_find(object, BLOCK + 5, BLOCK, &place), NP_RANGE_HIT);
    cr_assert_eq(place.offset, BLOCK + 5);
    cr_assert_eq(place.bytes, BLOCK);
    cr_assert_eq(np_read_at(place.fd, place.file_offset, data, BLOCK), (int64_t)BLOCK);
    made_ranges_bytes("u", "1", BLOCK + 5, data + BLOCK, BLOCK);
    cr_assert_arr_eq(data, data + BLOCK, BLOCK);
    cr_assert_eq(numbers_of(cache).nr_stored, 2);
    cr_assert_eq(numbers_of(cache).nr_misses, 2);
    cr_assert_eq(numbers_of(cache).nr_hits, 2);
    cr_assert_eq(numbers_of(cache).used_bytes, made_ranges_used(folder));
    np_range_object_close(object);
    np_range_cache_close(cache);
    np_free(data);
    made_ranges_remove(folder);
}

Test(range_cache, ranges_at_the_ends_and_outside_of_the_object, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, "u", "1", BYTES);
    struct np_range_object *empty = made_ranges_object(cache, "empty", "1", 0);
    struct np_range_place place;
    uint64_t offset = BYTES - 1, bytes = 1;

    cr_assert(np_range_wants(object, &offset, &bytes));
    cr_assert_eq(offset, 10 * BLOCK);
    cr_assert_eq(bytes, 1000);
    made_ranges_put(
        object, "u", "1", 10 * BLOCK - 1, 1001);         /* only the short last block is whole */
    made_ranges_put(object, "u", "1", 1, 2 * BLOCK - 2); /* none is */
    np_range_put(object, BYTES, "x", 1);                 /* outside */
    np_range_put(object, UINT64_MAX, "x", 2);
    np_range_flush(cache);
    cr_assert_eq(numbers_of(cache).nr_stored, 1);
    cr_assert_eq(made_ranges_get(object, "u", "1", BYTES - 5, 5), 1);
    cr_assert_eq(np_range_find(object, BYTES - 1, 1, &place), NP_RANGE_HIT);
    cr_assert_eq(np_range_find(object, BYTES - 1, 2, &place), NP_RANGE_MISS);
    cr_assert_eq(np_range_find(object, BYTES, 0, &place), NP_RANGE_MISS);
    cr_assert_eq(np_range_find(object, BYTES - 1, UINT64_MAX, &place), NP_RANGE_MISS);
    cr_assert_eq(np_range_find(object, UINT64_MAX, UINT64_MAX, &place), NP_RANGE_MISS);
    cr_assert_eq(np_range_find(empty, 0, 1, &place), NP_RANGE_MISS);
    cr_assert_not(np_range_wants(empty, &offset, &bytes));
    np_range_object_close(object);
    np_range_object_close(empty);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

Test(range_cache, another_version_and_another_size_are_other_objects, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *one = made_ranges_object(cache, "u", "1", BYTES), *two, *three;

    made_ranges_put(one, "u", "1", 0, BYTES);
    np_range_flush(cache);
    two = made_ranges_object(cache, "u", "2", BYTES); /* while the older one is open */
    three = made_ranges_object(cache, "u", "2", BYTES + 1);
    cr_assert_eq(made_ranges_count(two, "u", "2", BYTES), 0);
    cr_assert_eq(made_ranges_count(three, "u", "2", BYTES + 1), 0);
    cr_assert_eq(made_ranges_count(one, "u", "1", BYTES), 11);
    np_range_object_close(one);
    np_range_object_close(two);
    np_range_object_close(three);
    two = made_ranges_object(cache, "u", "3", BYTES); /* now nobody has the older ones open */
    cr_assert_eq(made_ranges_used(folder), 4096);
    cr_assert_eq(numbers_of(cache).used_bytes, 4096);
    np_range_object_close(two);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

/* Puts half, waits until the other process has put the whole, and sees all of it without opening again. */
static _Noreturn void put_half(const char *folder, int from, int to)
{
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, "u", "1", BYTES);
    char go;
    int result;

    made_ranges_put(object, "u", "1", 0, 5 * BLOCK);
    np_range_flush(cache);
    if (write(to, "x", 1) != 1 || read(from, &go, 1) != 1)
        _exit(2);
    made_ranges_put(object, "u", "1", 0, BYTES); /* stores nothing */
    np_range_flush(cache);
    result = made_ranges_count(object, "u", "1", BYTES) != 11 || numbers_of(cache).nr_stored != 5;
    np_range_object_close(object);
    np_range_cache_close(cache);
    _exit(result);
}

Test(range_cache, two_processes_share_what_either_puts, .timeout = 120)
{
    char *folder = made_ranges_folder(), go;
    struct np_range_cache *cache;
    struct np_range_object *object;
    int to_child[2], to_parent[2], status;
    pid_t pid;

    cr_assert_eq(pipe(to_child) | pipe(to_parent), 0);
    if (made_ranges_fork(&pid))
        put_half(folder, to_child[0], to_parent[1]);
    cache = made_ranges_open(folder, "s", PLENTY, NULL);
    object = made_ranges_object(cache, "u", "1", BYTES);
    cr_assert_eq(read(to_parent[0], &go, 1), 1);
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 5);
    made_ranges_put(object, "u", "1", 0, BYTES);
    np_range_flush(cache);
    cr_assert_eq(numbers_of(cache).nr_stored, 6);
    cr_assert_eq(write(to_child[1], "x", 1), 1);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 11);
    cr_assert_eq(numbers_of(cache).used_bytes, made_ranges_used(folder));
    np_range_object_close(object);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

struct crowd {
    struct np_range_object *object;
    uint64_t seed;
    int nr_wrong;
};

static void *join_crowd(void *context)
{
    struct crowd *crowd = context;
    struct np_draws draws = {0};

    np_draws_init(&draws, crowd->seed, NP_STREAM_AUGMENT, 0, 0, 0);
    for (int i = 0; i < 150; i++) {
        const uint64_t offset = np_draw_below(&draws, BYTES);
        uint64_t at = offset, bytes = 1 + np_draw_below(&draws, 3 * NP_RANGE_BLOCK);
        int got;

        bytes = bytes < BYTES - offset ? bytes : BYTES - offset;
        got = made_ranges_get(crowd->object, "u", "1", offset, bytes);
        crowd->nr_wrong += got < 0;
        if (got == 0 && np_range_wants(crowd->object, &at, &bytes))
            made_ranges_put(crowd->object, "u", "1", at, bytes);
    }
    return NULL;
}

Test(range_cache, threads_put_and_find_at_once, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, "u", "1", BYTES);
    struct crowd crowds[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        crowds[i] = (struct crowd){object, (uint64_t)i, 0};
        pthread_create(&threads[i], NULL, join_crowd, &crowds[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(crowds[i].nr_wrong, 0);
    }
    np_range_flush(cache);
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 11);
    cr_assert_eq(numbers_of(cache).nr_wrong, 0);
    np_range_object_close(object);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

/* --- the limit and eviction --------------------------------------------------------------- */

Test(range_cache, a_full_cache_keeps_what_came_first, .timeout = 120)
{
    char *folder = made_ranges_folder();
    const uint64_t max_bytes = 4096 + 4 * BLOCK;
    struct np_range_cache *cache = made_ranges_open(folder, "s", max_bytes, NULL);
    struct np_range_object *object = made_ranges_object(cache, "u", "1", BYTES);
    uint64_t offset = 9 * BLOCK + 7, bytes = 5;

    made_ranges_put(object, "u", "1", 0, 3 * BLOCK);
    np_range_flush(cache);
    made_ranges_put(object, "u", "1", 3 * BLOCK, BYTES - 3 * BLOCK);
    np_range_flush(cache);
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 4);
    cr_assert_eq(made_ranges_get(object, "u", "1", 0, 4 * BLOCK), 1);
    cr_assert_eq(numbers_of(cache).nr_full, 7);
    cr_assert_leq(made_ranges_used(folder), max_bytes);
    cr_assert_not(np_range_wants(object, &offset, &bytes)); /* fetch what is needed, no more */
    cr_assert_eq(offset, 9 * BLOCK + 7);
    cr_assert_eq(bytes, 5);
    cr_assert_str_eq(np_range_note(cache), "");
    np_range_object_close(object);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

/* A count is due in the middle of a batch, because none could be made at the start. */
Test(range_cache, a_count_forgets_nothing_that_is_reserved, .timeout = 120)
{
    char *folder = made_ranges_folder(), *writing = np_format("%s/writing", folder);
    const uint64_t max_bytes = 4096 + 4 * BLOCK;
    const int fd = open(writing, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct np_range_cache *cache;
    struct np_range_object *object;

    cr_assert_eq(flock(fd, LOCK_SH), 0); /* as another process that writes */
    cache = made_ranges_open(folder, "s", max_bytes, NULL);
    object = made_ranges_object(cache, "u", "1", BYTES);
    close(fd);
    made_ranges_put(object, "u", "1", 0, BYTES);
    np_range_flush(cache);
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 4);
    cr_assert_leq(made_ranges_used(folder), max_bytes);
    np_range_object_close(object);
    np_range_cache_close(cache);
    np_free(writing);
    made_ranges_remove(folder);
}

Test(range_cache, sets_that_nobody_holds_are_evicted_the_oldest_first, .timeout = 120)
{
    char *folder = made_ranges_folder();
    const uint64_t max_bytes = 3 * PER_SET;
    struct np_range_cache *held;

    cr_assert_eq(fill(folder, "a", max_bytes), 11);
    cr_assert_eq(fill(folder, "b", max_bytes), 11);
    cr_assert_eq(fill(folder, "c", max_bytes), 11);
    cr_assert_eq(left(folder, "a"), 11); /* used again: now b is the oldest */
    cr_assert_eq(fill(folder, "d", max_bytes), 11);
    cr_assert_eq(left(folder, "b"), 0); /* and an empty file of it is the newest use */
    cr_assert_eq(left(folder, "a"), 11);
    cr_assert_eq(left(folder, "c"), 11);
    cr_assert_eq(left(folder, "d"), 11);
    held = made_ranges_open(folder, "a", max_bytes, NULL); /* c is the next, then d */
    cr_assert_eq(fill(folder, "e", max_bytes), 11);
    cr_assert_eq(fill(folder, "f", max_bytes), 11);
    cr_assert_leq(made_ranges_used(folder), max_bytes);
    cr_assert_eq(left(folder, "a"), 11);
    cr_assert_eq(left(folder, "c"), 0);
    cr_assert_eq(left(folder, "d"), 0);
    np_range_cache_close(held);
    made_ranges_remove(folder);
}

Test(range_cache, a_reader_goes_on_with_a_file_that_was_unlinked, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, "u", "1", BYTES);
    char command[200];

    made_ranges_put(object, "u", "1", 0, 5 * BLOCK);
    np_range_flush(cache);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 5);
    made_ranges_put(object, "u", "1", 0, BYTES);
    np_range_flush(cache);
    cr_assert(strstr(np_range_note(cache), "the folder was removed"));
    cr_assert_eq(made_ranges_count(object, "u", "1", BYTES), 5);
    np_range_object_close(object);
    np_range_cache_close(cache);
    cr_assert_neq(access(folder, F_OK), 0);
    made_ranges_remove(folder);
}

/* Fills objects of its own until it is told to end. */
static _Noreturn void crowd_of(const char *folder, uint64_t max_bytes, int number)
{
    char url[20];
    struct np_range_cache *cache;

    snprintf(url, sizeof(url), "u%d", number);
    cache = made_ranges_open(folder, number < 2 ? "s" : url, max_bytes, NULL);
    for (int i = 0; i < 6; i++) {
        char version[10];
        struct np_range_object *object;

        snprintf(version, sizeof(version), "%d", i);
        object = made_ranges_object(cache, url, version, BYTES);
        made_ranges_put(object, url, version, 0, BYTES);
        np_range_flush(cache);
        if (made_ranges_used(folder) > max_bytes ||
            made_ranges_count(object, url, version, BYTES) < 0)
            _exit(1);
        if (i % 2)
            np_range_object_close(object); /* the others stay open */
    }
    _exit(0); /* as killed: closes nothing */
}

Test(range_cache, the_limit_holds_across_four_processes, .timeout = 120)
{
    char *folder = made_ranges_folder();
    const uint64_t max_bytes = 8 * PER_SET;
    struct np_range_cache *cache;
    pid_t pid;

    for (int i = 0; i < 4; i++)
        if (made_ranges_fork(&pid))
            crowd_of(folder, max_bytes, i);
    for (int i = 0, status; i < 4; i++) {
        cr_assert_gt(wait(&status), 0);
        cr_assert_eq(status, 0);
    }
    cr_assert_gt(made_ranges_used(folder), max_bytes / 2);
    cache = made_ranges_open(folder, "last", max_bytes, NULL); /* counts */
    cr_assert_eq(numbers_of(cache).used_bytes, made_ranges_used(folder));
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}
