/* The n-th allocation fails, for every n, while sets are listed, opened again, and read: -ENOMEM each time with a
 * text, but for a few callers that can do without. Nothing is left over. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_sets.h"

enum { STEPS_RUN = 3, MAX_N = 4000 };

/* A failed allocation that does not fail the whole: only in these functions. */
static bool may_ignore(const char *const *functions)
{
    for (; *functions; functions++)
        if (strcmp(*functions, made_memory_caller()) == 0)
            return true;
    return false;
}

/* Checks what came of a run with the n-th allocation failing. */
static void check(
    int code, const struct np_err *err, const char *const *ignored, const char *what, int n)
{
    if (code)
        cr_expect(code == -ENOMEM && err->code == -ENOMEM && *err->text,
            "%s, allocation %d: %d, %s", what, n, code, err->text);
    else if (made_memory_failed())
        cr_expect(may_ignore(ignored), "%s, allocation %d: %s() does not report it", what, n,
            made_memory_caller());
}

/* A whole run. After its last batch the ring stops with -EDEADLK once all readers have ended, so that no reader's
 * error is missed. */
static int run(struct rig *rig, struct np_block *block, struct np_err *err)
{
    struct np_loader *loader = NULL;
    struct np_batch *batch;
    int code = np_loader_start(&rig->config, &loader, err);

    if (!code) {
        while ((batch = np_ring_take(loader->ring, block, err)))
            np_ring_release(loader->ring, batch);
        code = err->code == -EDEADLK ? 0 : err->code;
    }
    np_loader_stop(loader);
    return code;
}

Test(loader_memory, a_run_reports_each_failed_allocation, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++)
        for (int cache = NP_CACHE_NONE; cache <= NP_CACHE_DECODED; cache++) {
            static const char *const ignored[] = {NULL};
            char what[32];
            struct np_block *block;
            struct rig rig;
            int n = 0, code = 0;

            cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 21), 0);
            snprintf(what, sizeof(what), "kind %d, cache %d", kind, cache);
            rig.config.sampler.nr_steps = STEPS_RUN;
            rig.options.cache = cache;
            rig.options.cache_bytes = 1 << 20;
            block = np_stat_join(rig.config.stat, "trainer", NULL);
            do {
                struct np_err err = {0};

                made_memory_fail(++n);
                code = run(&rig, block, &err);
                check(code, &err, ignored, what, n);
            } while (made_memory_failed() && n < MAX_N);
            made_memory_fail(0);
            cr_expect_eq(code, 0);
            cr_expect(n > 20 && n < MAX_N, "%d allocations", n);
            rig_free(&rig);
        }
}

/* Lists the set (again: reads it back) with each allocation failing once. */
static void open_failing(const char *folder, const char *source, const char *path, bool again)
{
    /* The index is not saved, without a name for a class, or not trimmed. */
    static const char *const unsaved[] = {"folder_of", "np_cache_dir", "open_backend", "open_queue",
        "read_names", "save_in_cache", "trim", NULL};
    /* The saved index cannot be read: the set is listed. */
    static const char *const unread[] = {
        "folder_of", "np_cache_dir", "parse", "take_strings", "take_tables", NULL};
    char *cache = strdup(getenv("XDG_CACHE_HOME"));
    struct np_index *kept = NULL;
    int n = 0, code = 0, nr_failed = 0;

    if (again)
        cr_assert_eq(open_set(folder, source, path, NULL, NULL, &kept, NULL), 0);
    np_index_free(kept);
    if (!again) /* no index can be kept there */
        setenv("XDG_CACHE_HOME", "/dev/null", 1);

    do {
        struct np_err err = {0};
        struct np_index *index = NULL;

        made_memory_fail(++n);
        code = open_set(folder, source, path, NULL, NULL, &index, &err);
        nr_failed += code != 0;
        check(code, &err, again ? unread : unsaved, source, n);
        if (!code)
            cr_expect_eq(np_index_samples(index), 3u, "%s, allocation %d", source, n);
        np_index_free(index);
    } while (made_memory_failed() && n < MAX_N);
    made_memory_fail(0);
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
    cr_expect(nr_failed > 5 && n < MAX_N, "%s: %d of %d", source, nr_failed, n);
}

static void make_all(const char *folder)
{
    struct made_tar tar = {0};
    uint8_t cifar[3 * 3073] = {0};

    put_file(folder, "set/a/1.png", "1", 1);
    put_file(folder, "set/a/2.png", "2", 1);
    put_file(folder, "set/b/3.png", "3", 1);
    put_file(folder, "data_batch_1.bin", cifar, sizeof(cifar));
    tar_text(&tar, "a/1.png", "1");
    tar_text(&tar, "a/2.png", "2");
    tar_text(&tar, "b/3.png", "3");
    tar_end(&tar);
    put_file(folder, "set.tar", tar.bytes, tar.n);
    tar_free(&tar);
    for (int i = 0; i < 3; i++) { /* two of them are listed ahead */
        tar_text(&tar, (const char *[]){"a/1.png", "a/2.png", "b/3.png"}[i], "1");
        tar_end(&tar);
        put_file(folder, (const char *[]){"m-0.tar", "m-1.tar", "m-2.tar"}[i], tar.bytes, tar.n);
        tar_free(&tar);
    }
}

Test(loader_memory, listing_a_set_reports_each_failed_allocation, .timeout = 120)
{
    char *folder = make_set();

    make_all(folder);
    for (int again = 0; again < 2; again++) {
        open_failing(folder, "folder", "set", again);
        open_failing(folder, "tar", "set.tar", again);
        open_failing(folder, "tar", "m-*.tar", again);
        open_failing(folder, "cifar10", "data_batch_1.bin", again);
    }
    remove_set(folder);
}
