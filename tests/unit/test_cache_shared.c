/* Caches that processes share: what one has is found by the others, what one makes the others wait for, and what a
 * damaged or hostile one offers is not used. Two caches of one process stand for those of two. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/cache.h"
#include "loader/cache_memory.h"
#include "loader/share/memfd.h"
#include "loader/share/peers.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "tests/unit/made_meeting.h"
#include "tests/unit/made_memory.h"

#define MS 1000000ull

enum { CAP = 1 << 20, WIDTH = 50, HEIGHT = 30, BYTES = WIDTH * HEIGHT * 3 };
static const uint64_t nr_samples[2] = {40, 7};
static const struct np_cache_sharing sharing = {
    .hash = 3, .wait_ns = 50 * MS, .picture_bytes = BYTES, .channels = 3};
static struct np_cache *share(const struct np_cache_sharing *how)
{
    struct np_cache *cache;
    struct np_err err = {0};

    cr_assert_eq(np_cache_new(CAP, 2, nr_samples, &cache, &err), 0);
    cr_assert_eq(np_cache_share(cache, how, &err), 0, "%s", err.text);
    return cache;
}

/* Both know each other afterwards, although a cache looks for others every 10 ms only. */
static void meet(struct np_cache *a, struct np_cache *b, int nr_met)
{
    while (np_cache_met(a) < nr_met || np_cache_met(b) < nr_met) {
        np_cache_meet(a);
        np_cache_meet(b);
    }
}

static void put(struct np_cache *cache, int set, uint64_t sample)
{
    uint8_t pixels[BYTES];

    memset(pixels, (int)sample + set, sizeof(pixels));
    cr_assert(np_cache_claim(cache, set, sample));
    np_cache_put(cache, set, sample, &(struct np_cached){pixels, BYTES, WIDTH, HEIGHT, 3});
}

static bool finds(const struct np_cache *cache, int set, uint64_t sample)
{
    struct np_cached cached;

    if (!np_cache_find(cache, set, sample, &cached))
        return false;
    cr_expect(cached.bytes == BYTES && cached.width == WIDTH && cached.height == HEIGHT &&
              cached.channels == 3);
    for (int i = 0; i < BYTES; i++)
        cr_assert_eq(cached.data[i], sample + (uint64_t)set);
    return true;
}

Test(cache_shared, a_picture_is_found_by_all_and_stays_when_its_job_has_ended, .timeout = 120)
{
    own_folder();
    struct np_cache *a = share(&sharing), *b = share(&sharing);
    struct np_cached cached;

    meet(a, b, 1);
    put(a, 0, 39);
    put(b, 1, 6);
    cr_expect(finds(a, 0, 39) && finds(b, 0, 39) && finds(a, 1, 6) && finds(b, 1, 6));
    cr_expect(!finds(a, 0, 6) && !finds(b, 1, 5));
    cr_assert(np_cache_find(b, 0, 39, &cached));
    cr_expect(
        cached.data < np_cache_arena(b) || cached.data >= np_cache_arena(b) + CAP, "it is no copy");
    cr_expect_eq(np_cache_shared(b).found, 2);
    cr_expect_eq(np_cache_shared(b).decoded, 1);
    cr_assert(np_cache_claim(a, 0, 8));
    cr_expect(np_cache_awaits(b, 0, 8, 5, 5));
    np_cache_free(a);
    while (np_cache_awaits(b, 0, 8, 5, 5)) /* until its socket's end is seen */
        np_cache_meet(b);
    cr_expect(finds(b, 0, 39));
    np_cache_free(b);
    remove_folder();
}

Test(cache_shared, who_wants_other_pictures_is_not_met, .timeout = 120)
{
    own_folder();
    struct np_cache_sharing other = sharing;
    other.hash++;
    struct np_cache *a = share(&sharing), *stranger = share(&other), *b = share(&sharing);

    meet(a, b, 1);
    np_cache_meet(stranger);
    cr_expect_eq(np_cache_met(a), 1);
    cr_expect_eq(np_cache_met(stranger), 0);
    np_cache_free(a);
    np_cache_free(b);
    np_cache_free(stranger);
    remove_folder();
}

Test(cache_shared, a_claimed_picture_is_awaited_while_its_job_lives, .timeout = 120)
{
    own_folder();
    struct np_cache *a = share(&sharing), *b = share(&sharing);
    const uint64_t t = 1000 * MS;

    meet(a, b, 1);
    cr_expect(!np_cache_awaits(b, 0, 1, t, t));
    cr_assert(np_cache_claim(a, 0, 1));
    cr_expect(!np_cache_claim(a, 0, 1));
    cr_expect(np_cache_awaits(b, 0, 1, t, t));
    cr_expect(np_cache_awaits(b, 0, 1, t, t + 49 * MS));
    put(a, 0, 2); /* a sign of life */
    cr_expect(!np_cache_awaits(b, 0, 2, t, t));
    cr_expect(np_cache_awaits(b, 0, 1, t, t + 60 * MS));
    cr_expect(np_cache_awaits(b, 0, 1, t, t + 100 * MS));
    cr_expect(!np_cache_awaits(b, 0, 1, t, t + 111 * MS), "it was silent for 51 ms");
    cr_expect(!np_cache_awaits(b, 0, 1, t + 112 * MS, t + 112 * MS), "nor next time");
    for (uint64_t sample = 3; sample < 20; sample++) { /* alive again, but slow */
        const uint64_t now = t + 200 * MS + sample * 30 * MS;

        put(a, 0, sample);
        cr_expect_eq(np_cache_awaits(b, 0, 1, t + 200 * MS, now), sample * 30 < 500, "%d ms",
            (int)sample * 30);
    }
    cr_expect(!np_cache_awaits(b, 0, 1, t + 9000 * MS, t + 9000 * MS), "it was shunned at 710 ms");
    cr_expect(np_cache_awaits(b, 0, 1, t + 11000 * MS, t + 11000 * MS));
    np_cache_withdraw(a, 0, 1);
    cr_expect(!np_cache_awaits(b, 0, 1, 2 * t * 20, 2 * t * 20));
    cr_expect(np_cache_claim(b, 0, 1));
    np_cache_free(a);
    np_cache_free(b);
    remove_folder();
}

Test(cache_shared, a_full_cache_claims_nothing, .timeout = 120)
{
    own_folder();
    struct np_cache *a = share(&sharing);
    const uint8_t pixels[CAP / 2 - BYTES] = {0};
    const struct np_cached large = {pixels, sizeof(pixels), 1, sizeof(pixels) / 3, 3};

    for (uint64_t sample = 0; sample < 2; sample++) {
        cr_assert(np_cache_claim(a, 0, sample));
        np_cache_put(a, 0, sample, &large);
    }
    cr_expect(!np_cache_fits(a, large.bytes));
    cr_assert(np_cache_claim(a, 0, 2));
    np_cache_put(a, 0, 2, &large); /* it does not fit, so the claim ends */
    cr_expect(!finds(a, 0, 2));
    put(a, 0, 2);
    cr_expect(!np_cache_claim(a, 0, 3), "less than a picture is left");
    cr_expect(finds(a, 0, 2));
    np_cache_free(a);
    remove_folder();
}

/* --- what others offer ------------------------------------------------------------------------------ */

struct liar {
    int fd;
    uint8_t *memory;
    struct np_peers *peers;
};

static void *no_view(int fd, const void *context)
{
    return NULL;
}

static void free_nothing(void *view)
{
}

static void lie(struct liar *liar)
{
    const struct np_peers_options options = {
        .hash = sharing.hash, .fd = liar->fd, .view_new = no_view, .view_free = free_nothing};

    cr_assert_eq(np_peers_open(&options, &liar->peers, NULL), 0);
}

/* Until the liar's connection was looked at, and closed or kept. */
static void poll_both(struct np_cache *cache, struct liar *liar)
{
    for (int i = 0; i < 5; i++) {
        np_peers_poll(liar->peers);
        np_sleep_until_ns(np_now_ns() + 11 * MS); /* the time between two looks */
        np_cache_meet(cache);
    }
}

Test(cache_shared, memory_that_could_shrink_or_has_no_arena_is_not_met, .timeout = 120)
{
    const uint64_t arena_at = np_cache_arena_at(nr_samples, 2);

    own_folder();
    for (int kind = 0; kind < 3; kind++) {
        struct np_cache *cache = share(&sharing);
        struct liar liar = {.fd = -1};
        void *memory = NULL;
        const uint64_t bytes = arena_at + (kind == 1 ? 0 : CAP);

        if (kind == 0) { /* without seals */
            liar.fd = memfd_create("liar", MFD_ALLOW_SEALING);
            cr_assert_eq(ftruncate(liar.fd, (off_t)bytes), 0);
        } else {
            cr_assert_eq(np_memfd_new(bytes, &liar.fd, &memory, NULL), 0);
        }
        lie(&liar);
        poll_both(cache, &liar);
        cr_expect_eq(np_cache_met(cache), kind == 2, "kind %d", kind);
        np_peers_close(liar.peers);
        np_cache_free(cache);
        if (memory)
            munmap(memory, bytes);
        close(liar.fd);
    }
    remove_folder();
}

Test(cache_shared, an_entry_outside_the_arena_or_of_a_wrong_size_is_not_used, .timeout = 120)
{
    const struct np_cache_entry good = {.bytes = 12, .width = 2, .height = 2, .channels = 3};
    const uint64_t arena_at = np_cache_arena_at(nr_samples, 2), bytes = arena_at + 4096;
    const struct {
        uint64_t offset;
        struct np_cache_entry entry;
        bool used;
    } cases[] = {{64, good, true}, {4096 - 16 - 16, good, true}, {4096 - 16, good, false},
        {4096, good, false}, {72, good, false}, {1ull << 40, good, false},
        {UINT64_MAX - 31 - NP_CACHE_FIRST, good, false},
        {64, {.bytes = 11, .width = 2, .height = 2, .channels = 3}, false},
        {64, {.bytes = 4, .width = 2, .height = 2, .channels = 1}, false},
        {64, {.bytes = 0, .width = 0, .height = 2, .channels = 3}, false},
        {64, {.bytes = 12, .width = -2, .height = -2, .channels = 3}, false},
        {64, {.bytes = 4080, .width = 1360, .height = 1, .channels = 3}, false},
        {64, {.bytes = 0, .width = 1 << 30, .height = 1 << 30, .channels = 3}, false},
        {64, {.bytes = 3u << 30, .width = 1 << 15, .height = 1 << 15, .channels = 3}, false}};
    struct np_cache *cache;
    struct liar liar;
    void *memory;

    own_folder();
    cache = share(&sharing);
    cr_assert_eq(np_memfd_new(bytes, &liar.fd, &memory, NULL), 0);
    lie(&liar);
    poll_both(cache, &liar);
    cr_assert_eq(np_cache_met(cache), 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t *words = (void *)((uint8_t *)memory + np_cache_words_at(nr_samples, 0));
        struct np_cached cached;

        if (cases[i].offset <= 4096 - sizeof(good))
            memcpy((uint8_t *)memory + arena_at + cases[i].offset, &cases[i].entry, sizeof(good));
        words[5] = cases[i].offset + NP_CACHE_FIRST;
        cr_expect_eq(np_cache_find(cache, 0, 5, &cached), cases[i].used, "case %zu", i);
        cr_expect(!np_cache_awaits(cache, 0, 5, 1, 1), "case %zu", i);
    }
    np_peers_close(liar.peers);
    np_cache_free(cache);
    munmap(memory, bytes);
    close(liar.fd);
    remove_folder();
}

/* --- what fails ------------------------------------------------------------------------------------- */

Test(cache_shared, a_cache_that_cannot_be_shared_is_an_own_one)
{
    struct rlimit before, limit;
    struct np_err err = {0};
    struct np_cache *cache;

    own_folder();
    cr_assert_eq(np_cache_new(CAP, 2, nr_samples, &cache, &err), 0);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(np_cache_share(cache, &sharing, &err), -EFBIG);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    put(cache, 1, 2);
    cr_expect(finds(cache, 1, 2));
    np_cache_meet(cache);
    cr_expect(!np_cache_awaits(cache, 0, 1, 1, 1));
    np_cache_free(cache);
    remove_folder();
}

Test(cache_shared, each_failed_allocation_is_reported)
{
    int n = 0, code;

    own_folder();
    do {
        struct np_cache *cache;
        struct np_err err = {0};

        cr_assert_eq(np_cache_new(CAP, 2, nr_samples, &cache, &err), 0);
        made_memory_fail(++n);
        code = np_cache_share(cache, &sharing, &err);
        made_memory_fail(0);
        if (code)
            cr_expect(code == -ENOMEM && err.code == -ENOMEM, "allocation %d: %d", n, code);
        put(cache, 0, 1);
        cr_expect(finds(cache, 0, 1));
        np_cache_free(cache);
    } while (code && n < 100);
    cr_expect(n > 2 && n < 100);
    remove_folder();
}

/* --- whole runs ------------------------------------------------------------------------------------- */

/* The last two of four jobs have another augmentation, or another order. */
static void share_rig(struct rig *rig, enum made_kind kind, int job)
{
    cr_assert_eq(rig_make(rig, kind, job < 2 || kind >= MADE_JPEG, kind >= MADE_JPEG ? 0 : 21), 0);
    rig->config.sampler.seed += (uint64_t)job / 3;
    rig->options.share = true;
    rig->options.share_wait_ms = 5;
    rig->options.cache = NP_CACHE_DECODED;
    rig->options.cache_bytes = 4 << 20;
    snprintf(rig->options.share_name, sizeof(rig->options.share_name), "test");
}

static void *run_rig(void *context)
{
    struct outcome *outcome = malloc(sizeof(*outcome));

    *outcome = rig_run(context, 0);
    return outcome;
}

/* Each of the jobs alone, then all at once. */
static void run_four(enum made_kind kind)
{
    struct rig rigs[4];
    struct outcome lone[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        share_rig(&rigs[i], kind, i);
        lone[i] = rig_run(&rigs[i], 0);
        cr_assert_geq(lone[i].nr_batches, STEPS);
        rigs[i].config.pictures_key = 5;
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, run_rig, &rigs[i]), 0);
        for (int i = 0; i < 4; i++) {
            struct outcome *outcome;

            pthread_join(threads[i], (void **)&outcome);
            cr_expect_eq(outcome->digest, lone[i].digest, "job %d: %s", i, outcome->err.text);
            cr_expect_eq(outcome->nr_batches, lone[i].nr_batches);
            free(outcome);
        }
    }
    for (int i = 0; i < 4; i++)
        rig_free(&rigs[i]);
}

Test(cache_shared, runs_side_by_side_have_the_batches_of_lone_runs, .timeout = 120)
{
    static const enum made_kind kinds[] = {MADE_PPM, MADE_ZSTD, MADE_FOLDER, MADE_JPEG};

    own_folder();
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        run_four(kinds[i]);
    remove_folder();
}
