/* The rows of a run, counted one by one, do not depend on the size of its batches: row r of step s
 * is row 0 of step s * batch + r of a run with one row a batch. */
#include "daemon/data/remake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "loader/base/mem.h"

/* The settings that may differ from the run, because no row depends on them. */
struct remake {
    struct np_loader_options options;
    struct np_loader_config config;
    struct np_bad_sample *bad;
    int nr_bad;
    size_t room_bad;
};

static void set_up(
    struct remake *remake, const struct np_loader_config *config, uint64_t number, int nr_rows)
{
    struct np_sampler_options *order = &remake->config.sampler;

    remake->options = *config->options;
    remake->options.batch = nr_rows;
    remake->options.prefetch = 2;
    remake->options.cache = NP_CACHE_NONE;
    remake->options.bad_fail = false;
    remake->options.bad_budget = 1;
    if (nr_rows == 1)
        remake->options.readers = 1;
    remake->config = *config;
    remake->config.options = &remake->options;
    remake->config.shape.rows = nr_rows;
    remake->config.eval = NULL;
    remake->config.eval_due = false;
    remake->config.nr_bad = remake->config.device_room = 0;
    if (order->split) /* it lists the evaluation of the run first; here is none */
        order->split += order->nr_eval;
    order->nr_eval = order->eval_steps = 0;
    order->eval_epochs = 0;
    order->batch = nr_rows;
    order->nr_steps = number / (uint64_t)nr_rows + 1;
    remake->config.first_step = order->nr_steps - 1;
}

static int take_bad(struct remake *remake, struct np_loader *loader, struct np_err *err)
{
    struct np_bad_sample bad;

    while (np_loader_next_bad(loader, &bad)) {
        if (np_try_grow(
                &remake->bad, &remake->room_bad, (size_t)remake->nr_bad + 1, sizeof(bad), err) < 0)
            return -ENOMEM;
        remake->bad[remake->nr_bad++] = bad;
    }
    return 0;
}

static int visit(const struct remake *remake, const struct np_batch *batch, np_remade_fn *take,
    void *context, struct np_err *err)
{
    const struct np_batch_shape shape =
        np_batch_shape_of(&remake->config.shape, batch->kind, batch->step);
    int code = 0, bad = 0;

    for (int r = 0; code == 0 && r < shape.rows; r++) {
        struct np_remade row = {.number = batch->step * (uint64_t)shape.rows + (uint64_t)r,
            .pixels = batch->images + (size_t)r * np_batch_row_bytes(&shape),
            .height = shape.height,
            .width = shape.width,
            .label = batch->labels[r],
            .about = &batch->about[r],
            .bad = remake->bad + bad};

        for (; bad < remake->nr_bad && remake->bad[bad].row == r; bad++)
            row.nr_bad++;
        code = take(context, &row, err);
    }
    return code;
}

int np_remake_rows(const struct np_loader_config *config, uint64_t number, int nr_rows,
    np_remade_fn *take, void *context, char changed[1024], struct np_err *err)
{
    struct remake remake = {0};
    struct np_loader *loader = NULL;
    struct np_block *block = np_stat_join(config->stat, "replay", err);
    char first[1024];
    int code = block ? 0 : -ENOMEM;

    assert(nr_rows > 0 && number % (uint64_t)nr_rows == 0);
    set_up(&remake, config, number, nr_rows);
    if (code == 0)
        code = np_loader_start(&remake.config, &loader, err);
    if (code == 0) {
        struct np_batch *batch = np_ring_take(loader->ring, block, err);

        code = batch ? take_bad(&remake, loader, err) : err->code ? err->code : -ESHUTDOWN;
        if (code == 0)
            code = visit(&remake, batch, take, context, err);
        if (batch)
            np_ring_release(loader->ring, batch);
        if (np_loader_changed(loader, NP_BATCH_TRAIN, first, sizeof(first)))
            snprintf(changed, sizeof(first), "%s", first);
        np_loader_stop(loader);
    }
    np_stat_leave(block);
    np_free(remake.bad);
    return code;
}
