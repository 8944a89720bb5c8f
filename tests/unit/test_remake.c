/* Rows made again are those of the run's batches, pixel for pixel. */
#include <errno.h>
#include <string.h>

#include "daemon/data/remake.h"
#include "loader/base/crc32c.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"

enum { ROW_BYTES = SIDE * SIDE * 3 };

/* What is known of a row of the run. */
struct known {
    uint32_t crc;
    int32_t label;
    struct np_row about;
};

struct check {
    const struct known *known; /* (STEPS * BATCH) */
    uint64_t first;
    int nr_rows, nr_replaced, wrong;
};

static int compare(void *context, const struct np_remade *row, struct np_err *err)
{
    struct check *check = context;
    const struct known *known = &check->known[row->number];

    check->wrong += row->number != check->first + (uint64_t)check->nr_rows++;
    check->wrong += np_crc32c(0, row->pixels, ROW_BYTES) != known->crc;
    check->wrong += row->label != known->label;
    check->wrong += row->about->sample != known->about.sample;
    check->wrong += row->about->epoch != known->about.epoch;
    check->wrong += row->about->position != known->about.position;
    check->wrong += row->about->attempts != known->about.attempts;
    check->wrong += row->nr_bad != known->about.attempts;
    check->wrong +=
        memcmp(&row->about->geometry, &known->about.geometry, sizeof(struct np_geometry)) != 0;
    for (int i = 0; i < row->nr_bad; i++)
        check->wrong += row->bad[i].attempt != i || row->bad[i].position != row->about->position;
    check->nr_replaced += row->nr_bad > 0;
    return 0;
}

static void run(const struct rig *rig, struct known *known)
{
    struct np_block *block = np_stat_join(rig->config.stat, "trainer", NULL);
    struct np_loader *loader = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_loader_start(&rig->config, &loader, &err), 0, "%s", err.text);
    for (uint64_t seq = 0; seq < loader->sampler->nr_batches; seq++) {
        struct np_batch *batch = np_ring_take(loader->ring, block, &err);

        cr_assert_not_null(batch, "%s", err.text);
        for (int r = 0; r < BATCH && batch->kind == NP_BATCH_TRAIN; r++)
            known[batch->step * BATCH + (uint64_t)r] =
                (struct known){np_crc32c(0, batch->images + r * ROW_BYTES, ROW_BYTES),
                    batch->labels[r], batch->about[r]};
        np_ring_release(loader->ring, batch);
    }
    np_loader_stop(loader);
}

static int remake(const struct rig *rig, struct check *check, uint64_t number, int nr_rows)
{
    char changed[1024] = "";
    struct np_err err = {0};

    check->first = number;
    check->nr_rows = 0;
    cr_assert_eq(np_remake_rows(&rig->config, number, nr_rows, compare, check, changed, &err), 0,
        "%s", err.text);
    cr_assert_str_empty(changed);
    return check->nr_rows;
}

/* Every step whole, and rows drawn at random. */
static void compare_all(struct rig *rig)
{
    static struct known known[STEPS * BATCH];
    struct check check = {.known = known};
    uint64_t number = 1;

    run(rig, known);
    for (int readers = 1; readers <= 3; readers += 2) {
        rig->options.readers = readers;
        for (uint64_t step = 0; step < STEPS; step++)
            cr_assert_eq(remake(rig, &check, step * BATCH, BATCH), BATCH);
    }
    for (int i = 0; i < 100; i++) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        cr_assert_eq(remake(rig, &check, (number >> 33) % (STEPS * BATCH), 1), 1);
    }
    cr_expect_eq(check.wrong, 0);
}

Test(remake, gives_the_rows_of_each_step_for_each_kind_of_set, .timeout = 120)
{
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rig;

        cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 21), 0);
        compare_all(&rig);
        rig_free(&rig);
    }
}

Test(remake, gives_the_rows_that_a_cache_made, .timeout = 120)
{
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    rig.options.cache = NP_CACHE_DECODED;
    rig.config.sampler.shuffle = NP_SHUFFLE_WINDOW;
    rig.config.sampler.window = 10;
    compare_all(&rig);
    rig_free(&rig);
}

Test(remake, gives_the_rows_of_a_split_set_and_no_others, .timeout = 120)
{
    static uint32_t order[N];
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    for (uint32_t i = 0; i < N; i++)
        order[i] = (i * 36 + 5) % N;
    rig.config.eval = rig.config.train;
    rig.config.sampler.split = order;
    rig.config.sampler.nr_eval = 20;
    rig.config.sampler.nr_train = N - 20;
    compare_all(&rig);
    rig_free(&rig);
}

Test(remake, replaces_the_bad_samples_that_the_run_replaced, .timeout = 120)
{
    static struct known known[STEPS * BATCH];
    struct check check = {.known = known};
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    for (uint64_t s = 3; s < N; s += 12)
        made_damage(&rig.set, s, 0, "XX", 2);
    run(&rig, known);
    rig.options.bad_budget = 0; /* no matter: the run has kept it */
    for (uint64_t step = 0; step < STEPS; step++)
        remake(&rig, &check, step * BATCH, BATCH);
    cr_expect_eq(check.wrong, 0);
    cr_expect_gt(check.nr_replaced, STEPS / 2);
    for (uint64_t number = 0; number < STEPS * BATCH; number++)
        if (known[number].about.attempts)
            remake(&rig, &check, number, 1);
    cr_expect_eq(check.wrong, 0);
    rig_free(&rig);
}

static int refuse(void *context, const struct np_remade *row, struct np_err *err)
{
    ++*(int *)context;
    return np_err_set(err, -ENOSPC, "no space for row %d", (int)row->number);
}

Test(remake, ends_with_the_first_error_of_its_caller, .timeout = 120)
{
    char changed[1024] = "";
    struct np_err err = {0};
    struct rig rig;
    int calls = 0;

    cr_assert_eq(rig_make(&rig, MADE_RAW, false, 0), 0);
    cr_expect_eq(np_remake_rows(&rig.config, BATCH, BATCH, refuse, &calls, changed, &err), -ENOSPC);
    cr_expect_eq(calls, 1);
    cr_expect_str_eq(err.text, "no space for row 16");
    rig_free(&rig);
}
