/* `nnpipe data view`: shows the rows of one training step, made by the loader itself: their
 * geometry, and PNG files. Main thread; the readers run while it waits for the batch. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/data/data.h"
#include "daemon/data/sheet.h"
#include "daemon/config/setup.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/loader.h"

struct view {
    struct np_config *config;
    struct np_setup setup;
    struct np_ui *ui;
    struct np_io io;
    const char *out, *sheet, *split; /* NULL: none; split: train */
    uint64_t step;
    const struct np_index *index; /* owned by setup: the shown set */
    struct np_sheet grid;         /* pixels NULL: none */
};

/* Changes config to the rows of an evaluation: in the order of the set, with the test chain. */
static int evaluation_config(struct view *view, struct np_loader_config *config, struct np_err *err)
{
    struct np_setup *setup = &view->setup;
    struct np_index *index = setup->sets.test;
    const int32_t *labels = setup->sets.test_labels;
    int code = 0;

    if (strcmp(view->split, "val") == 0) {
        index = setup->sets.val                ? setup->sets.val
                : view->config->data.split > 0 ? setup->sets.train
                                               : NULL;
        labels = setup->sets.val ? setup->sets.val_labels : setup->sets.train_labels;
        if (!setup->sets.val && index &&
            (code = np_sets_split(&view->config->sets, &setup->sets, err)) == 0)
            code = np_index_keep(index, setup->sets.split.order, setup->sets.split.nr_eval, err);
    }
    if (code < 0)
        return code;
    if (!index)
        return np_err_set(err, -EINVAL, "the config has no data.%s", view->split);
    config->train = index;
    config->train_labels = labels;
    config->augment = config->test_augment;
    config->shape = np_batch_shape_of(&config->shape, NP_BATCH_EVAL, 0);
    config->eval = NULL;
    config->sampler = (struct np_sampler_options){.seed = config->sampler.seed,
        .nr_train = np_index_samples(index),
        .batch = config->sampler.batch,
        .nr_steps = config->sampler.nr_steps,
        .shuffle = NP_SHUFFLE_NONE};
    return 0;
}

/* Sets the config of a run that ends after this step. */
static int loader_config(struct view *view, struct np_stat *stat,
    struct np_loader_config *ret_config, struct np_err *err)
{
    const struct np_config *config = view->config;
    const struct np_loader_options *options = &config->loader;
    const struct np_split *split = &view->setup.sets.split;
    int code = config->data.split > 0 ? np_sets_split(&config->sets, &view->setup.sets, err) : 0;
    const uint64_t nr_train =
        split->order ? split->nr_train : np_index_samples(view->setup.sets.train);

    if (code == 0)
        code = np_setup_growth(config, nr_train, &view->setup, err);
    if (code < 0)
        return code;
    *ret_config = (struct np_loader_config){
        .options = options,
        .sampler = {.seed = (uint64_t)config->seed,
            .nr_train = nr_train,
            .nr_eval = split->nr_eval,
            .batch = (int)options->batch,
            .nr_steps = view->step + 1,
            .shuffle = options->shuffle,
            .window = (uint64_t)options->window,
            .repeat = (int)options->repeat,
            .balance = options->balance,
            .split = split->order},
        .train = view->setup.sets.train,
        .train_labels = view->setup.sets.train_labels,
        .eval_labels = view->setup.sets.train_labels,
        .eval = split->order ? view->setup.sets.train : NULL,
        .augment = config->loader.augment,
        .test_augment = config->loader.test_augment,
        .shape = np_setup_shape(config, &view->setup),
        .allocator = &np_page_allocator,
        .stat = stat,
        .first_step = view->step,
    };
    return 0;
}

static void print_row(struct view *view, const struct np_batch *batch, int r, const char *file)
{
    const struct np_row *row = &batch->about[r];
    const bool typed = view->index->label_type != NP_LABEL_CLASS;
    const char *class_name =
        typed ? view->index->classes[np_index_get(view->index, row->sample).label]
              : view->setup.sets.classes->items[batch->labels[r]]->text;
    struct np_json *json = &view->ui->object;
    char name[NP_MAX_NAME + 1], how[256];

    np_index_name(view->index, row->sample, name, sizeof(name));
    np_geometry_text(row, how, sizeof(how));
    np_ui_say(view->ui, "row %d: %s (%s): %s%s%s", r, name, class_name, how, file ? ": " : "",
        file ? file : "");
    np_json_begin(json, "row");
    np_json_int(json, "step", (int64_t)batch->step);
    np_json_int(json, "row", r);
    np_json_text(json, "path", name);
    np_json_int(json, "label", batch->labels[r]);
    np_json_text(json, "class", class_name);
    np_geometry_json(json, row);
    np_json_int(json, "sample", (int64_t)row->sample);
    np_json_int(json, "epoch", row->epoch);
    np_json_int(json, "replaced", row->attempts);
    np_json_text(json, "file", file);
    np_ui_event(view->ui, np_json_end(json));
}

static int show_batch(struct view *view, const struct np_loader_config *config,
    const struct np_batch *batch, struct np_err *err)
{
    const struct np_batch_shape shape = np_batch_shape_of(&config->shape, batch->kind, batch->step);
    int code = view->sheet ? np_sheet_init(&view->grid, &shape, err) : 0;

    for (int r = 0; !code && r < shape.rows; r++) {
        const struct np_picture row = {batch->images + (size_t)r * np_batch_row_bytes(&shape),
            shape.height, shape.width, shape.channels};
        char *file = view->out
                         ? np_format("%s/step%06" PRIu64 "-row%04d.png", view->out, view->step, r)
                         : NULL;

        if (file)
            code = np_picture_write(&view->io, &row, file, err);
        if (!code && view->grid.pixels)
            np_sheet_put(&view->grid, r, row.pixels, row.height, row.width);
        if (!code)
            print_row(view, batch, r, file);
        np_free(file);
    }
    if (!code && view->grid.pixels)
        code = np_sheet_write(&view->io, &view->grid, view->sheet, err);
    if (!code && view->grid.pixels)
        np_ui_say(view->ui, "sheet: %d columns: %s", view->grid.columns, view->sheet);
    return code;
}

static int take_step(struct view *view, struct np_stat *stat, struct np_err *err)
{
    struct np_loader_config config;
    struct np_loader *loader = NULL;
    struct np_block *block = np_stat_join(stat, "view", err);
    struct np_batch *batch = NULL;
    int code = block ? loader_config(view, stat, &config, err) : -ENOMEM;

    if (!code && view->split && strcmp(view->split, "train") != 0)
        code = evaluation_config(view, &config, err);
    if (!code)
        view->index = config.train;
    if (!code)
        code = np_loader_start(&config, &loader, err);
    if (code)
        return code;
    batch = np_ring_take(loader->ring, block, err);
    if (!batch)
        code = err->code ? err->code : -ESHUTDOWN;
    else {
        code = show_batch(view, &config, batch, err);
        np_ring_release(loader->ring, batch);
    }
    np_loader_stop(loader);
    return code;
}

static int run(struct view *view)
{
    uint64_t last_ns = np_now_ns();
    const struct np_source_progress progress = {
        .note = np_note, .count = np_note_listing, .context = &last_ns};
    struct np_err err = {0};
    struct np_stat *stat = np_stat_new(&err);
    int code = np_sets_open(&view->config->sets, &progress, &view->setup.sets, &err);

    if (!code && (view->setup.sets.size.height == 0 || view->setup.sets.size.width == 0))
        code = np_err_set(&err, -EINVAL,
            "loader.augment: the rows differ in size; end it with a crop or a resize");
    if (!code && view->out)
        code = np_make_dirs(view->out, &err);
    if (!code && !(code = np_io_open(&view->io, "pread", 1, &err))) {
        code = take_step(view, stat, &err);
        np_io_close(&view->io);
    }
    if (code)
        np_ui_error(view->ui, &err);
    np_free(view->grid.pixels);
    np_setup_fini(&view->setup);
    np_stat_free(stat);
    return code ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_data_view(int argc, char **argv)
{
    struct np_overrides overrides = {0};
    struct view view = {0};
    const char *step = NULL;
    bool json = false;
    const struct np_flag flags[] = {{"--step", &step, NULL, NULL}, {"--out", &view.out, NULL, NULL},
        {"--sheet", &view.sheet, NULL, NULL}, {"--split", &view.split, NULL, NULL},
        {"--json", NULL, &json, NULL}, {NULL, NULL, NULL, NULL}};
    struct np_ui ui;
    int64_t number = 0;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code)
        return code;
    if (nr != 1)
        return np_data_usage("view takes one CONFIG");
    if (view.split && strcmp(view.split, "train") != 0 && strcmp(view.split, "val") != 0 &&
        strcmp(view.split, "test") != 0)
        return np_data_usage("--split takes train, test or val");
    if (!np_data_number("--step", step, false, 0, UINT32_MAX, &number))
        return NP_EXIT_USAGE;
    code = np_cmd_config(argv[1], &overrides, NULL, &view.config);
    if (code)
        return code;
    view.step = (uint64_t)number;
    np_ui_init(&ui, json);
    view.ui = &ui;
    code = run(&view);
    np_ui_fini(&ui);
    np_config_free(view.config);
    return code;
}
