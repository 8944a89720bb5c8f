/* The n-th allocation fails, for every n, while sets are listed, opened again, and read: -ENOMEM each
 * time, said in words, and nothing is left over. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_sets.h"

enum { BATCHES = 3, MOST = 4000 };

/* Opens a loader and takes its first batches. */
static int run(struct rig *rig, struct np_block *block, struct np_err *err)
{
    struct np_loader *loader = NULL;
    int code = np_loader_start(&rig->config, &loader, err);

    for (int i = 0; i < BATCHES && !code; i++) {
        struct np_batch *batch = np_ring_take(np_loader_ring(loader), block, err);

        if (batch)
            np_ring_release(np_loader_ring(loader), batch);
        code = batch ? 0 : err->code;
    }
    np_loader_stop(loader);
    return code;
}

Test(loader_memory, a_loader_and_its_first_batches_survive_any_failed_allocation, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++)
        for (int cache = NP_CACHE_NONE; cache <= NP_CACHE_DECODED; cache++) {
            struct np_block *block;
            struct rig rig;
            int n = 0, code = 0;

            cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 21), 0);
            rig.options.cache = cache;
            rig.options.cache_bytes = 1 << 20;
            block = np_stat_join(rig.config.stat, "trainer", NULL);
            do {
                struct np_err err = {0};

                made_memory_fail(++n);
                code = run(&rig, block, &err);
                if (code)
                    cr_expect(code == -ENOMEM && err.code == -ENOMEM && *err.text,
                        "kind %d, cache %d, allocation %d: %d, %s", kind, cache, n, code, err.text);
            } while (made_memory_failed() && n < MOST);
            made_memory_fail(0);
            cr_expect_eq(code, 0);
            cr_expect(n > 20 && n < MOST, "%d allocations", n);
            rig_free(&rig);
        }
}

/* Lists the set (again: reads it back) with each allocation failing once. */
static void open_failing(const char *folder, const char *source, const char *path, bool again)
{
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
        if (code)
            cr_expect(code == -ENOMEM && err.code == -ENOMEM && *err.text,
                "%s, allocation %d: %d, %s", source, n, code, err.text);
        else
            cr_expect_eq(np_index_samples(index), 3u, "%s, allocation %d", source, n);
        np_index_free(index);
    } while (made_memory_failed() && n < MOST);
    made_memory_fail(0);
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
    cr_expect(nr_failed > 5 && n < MOST, "%s: %d of %d", source, nr_failed, n);
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
}

Test(loader_memory, listing_a_set_survives_any_failed_allocation, .timeout = 60)
{
    char *folder = make_set();

    make_all(folder);
    for (int again = 0; again < 2; again++) {
        open_failing(folder, "folder", "set", again);
        open_failing(folder, "tar", "set.tar", again);
        open_failing(folder, "cifar10", "data_batch_1.bin", again);
    }
    remove_set(folder);
}
