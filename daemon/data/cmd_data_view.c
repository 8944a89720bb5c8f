/* `nnpipe data view`: the rows of one training step from the loader itself, with their geometry,
 * and as PNG files. Main thread; the loader's readers run while it waits for the batch. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/data/data.h"
#include "daemon/config/setup.h"
#include "loader/base/mem.h"
#include "loader/loader.h"
#include "loader/pixels/codec.h"

struct view {
    struct np_config *config;
    struct np_setup setup;
    struct np_ui *ui;
    struct np_io io;
    const char *out, *sheet, *split; /* NULL: none; split: train */
    uint64_t step;
    const struct np_index *index; /* of setup: the shown set */
    uint8_t *grid;                /* of the sheet: (grid_height, grid_width, channels) */
    int grid_columns, grid_width, grid_height;
};

/* Changes config to the rows of an evaluation: in the set's order, with the test chain. */
static int evaluation_config(struct view *view, struct np_loader_config *config, struct np_err *err)
{
    struct np_setup *setup = &view->setup;
    struct np_index *index = setup->test;
    const int32_t *labels = setup->test_labels;
    int code = 0;

    if (strcmp(view->split, "val") == 0) {
        index = setup->val ? setup->val : view->config->data.split > 0 ? setup->train : NULL;
        labels = setup->val ? setup->val_labels : setup->train_labels;
        if (!setup->val && index && (code = np_setup_split(view->config, setup, err)) == 0)
            code = np_index_keep(index, setup->split.order, setup->split.nr_eval, err);
    }
    if (code < 0)
        return code;
    if (!index)
        return np_err_set(err, -EINVAL, "there is no data.%s in the config", view->split);
    config->train = index;
    config->train_labels = labels;
    config->augment = config->test_augment;
    config->eval = NULL;
    config->sampler = (struct np_sampler_options){.seed = config->sampler.seed,
        .nr_train = np_index_samples(index),
        .batch = config->sampler.batch,
        .nr_steps = config->sampler.nr_steps,
        .shuffle = NP_SHUFFLE_NONE};
    return 0;
}

/* The config of a run that ends after this step. */
static int loader_config(struct view *view, struct np_stat *stat,
    struct np_loader_config *ret_config, struct np_err *err)
{
    const struct np_config *config = view->config;
    const struct np_loader_options *options = &config->loader;
    const struct np_split *split = &view->setup.split;
    const int code = config->data.split > 0 ? np_setup_split(config, &view->setup, err) : 0;

    if (code < 0)
        return code;
    *ret_config = (struct np_loader_config){
        .options = options,
        .sampler = {.seed = (uint64_t)config->seed,
            .nr_train = split->order ? split->nr_train : np_index_samples(view->setup.train),
            .nr_eval = split->nr_eval,
            .batch = (int)options->batch,
            .nr_steps = view->step + 1,
            .shuffle = options->shuffle,
            .window = (uint64_t)options->window,
            .split = split->order},
        .train = view->setup.train,
        .train_labels = view->setup.train_labels,
        .eval_labels = view->setup.train_labels,
        .eval = split->order ? view->setup.train : NULL,
        .augment = config->loader.augment,
        .test_augment = config->loader.test_augment,
        .shape = {(int)options->batch, view->setup.height, view->setup.width,
            (int)options->channels},
        .allocator = &np_page_allocator,
        .stat = stat,
        .first_step = view->step,
    };
    return 0;
}

struct picture {
    const uint8_t *pixels; /* (height, width, channels) */
    int height, width, channels;
};

static int write_png(
    struct view *view, const struct picture *picture, const char *path, struct np_err *err)
{
    uint8_t *png = NULL;
    size_t bytes;
    int code = np_codec_png.encode(
        picture->pixels, picture->width, picture->height, picture->channels, 0, &png, &bytes, err);

    if (!code)
        code = np_io_replace(&view->io, path, png, bytes, err);
    np_free(png);
    return code;
}

#define GAP 2 /* pixels between the rows of a sheet */

/* Makes the sheet, nearly square: rows from left to right, then down. */
static int begin_sheet(struct view *view, const struct np_batch_shape *shape, struct np_err *err)
{
    view->grid_columns = (int)ceil(sqrt(shape->rows * (double)shape->height / shape->width));
    if (view->grid_columns > shape->rows)
        view->grid_columns = shape->rows;
    view->grid_width = view->grid_columns * (shape->width + GAP) - GAP;
    view->grid_height =
        (shape->rows + view->grid_columns - 1) / view->grid_columns * (shape->height + GAP) - GAP;
    view->grid = np_try_array(
        (size_t)view->grid_height * (size_t)view->grid_width, (size_t)shape->channels, err);
    return view->grid ? 0 : -ENOMEM;
}

static void put_into_sheet(
    struct view *view, const struct np_batch_shape *shape, int r, const uint8_t *pixels)
{
    const size_t line = (size_t)shape->width * (size_t)shape->channels;
    const size_t top = (size_t)(r / view->grid_columns) * (size_t)(shape->height + GAP);
    const size_t left = (size_t)(r % view->grid_columns) * (size_t)(shape->width + GAP);

    for (size_t y = 0; y < (size_t)shape->height; y++)
        memcpy(view->grid + ((top + y) * (size_t)view->grid_width + left) * (size_t)shape->channels,
            pixels + y * line, line);
}

/* Writes the operations on the picture in their order, without those that change nothing. */
static void geometry_text(const struct np_row *row, char *text, size_t bytes)
{
    const struct np_geometry *g = &row->geometry;
    const int width = g->right - g->left, height = g->bottom - g->top;
    int used = snprintf(text, bytes, "%dx%d", row->source_w, row->source_h);

    if (width != row->source_w || height != row->source_h)
        used += snprintf(text + used, bytes - (size_t)used, ", cut %dx%d at %d,%d", width, height,
            g->left, g->top);
    if (g->scaled_w != width || g->scaled_h != height)
        used += snprintf(
            text + used, bytes - (size_t)used, ", resized to %dx%d", g->scaled_w, g->scaled_h);
    if (g->window_w != g->scaled_w || g->window_h != g->scaled_h || g->window_x || g->window_y)
        used += snprintf(text + used, bytes - (size_t)used, ", window %dx%d at %d,%d", g->window_w,
            g->window_h, g->window_x, g->window_y);
    if (g->flip)
        snprintf(text + used, bytes - (size_t)used, ", flipped");
}

static void print_row(struct view *view, const struct np_batch *batch, int r, const char *file)
{
    const struct np_row *row = &batch->about[r];
    const struct np_geometry *geometry = &row->geometry;
    const int box[4] = {geometry->left, geometry->top, geometry->right, geometry->bottom};
    const int size[2] = {geometry->scaled_w, geometry->scaled_h};
    const int window[4] = {
        geometry->window_x, geometry->window_y, geometry->window_w, geometry->window_h};
    const int source[2] = {row->source_w, row->source_h};
    const char *class_name = view->setup.classes->items[batch->labels[r]]->text;
    struct np_json *json = &view->ui->object;
    char name[NP_MAX_NAME + 1], how[256];

    np_index_name(view->index, row->sample, name, sizeof(name));
    geometry_text(row, how, sizeof(how));
    np_ui_say(view->ui, "row %d: %s (%s): %s%s%s", r, name, class_name, how, file ? ": " : "",
        file ? file : "");
    np_json_begin(json, "row");
    np_json_int(json, "step", (int64_t)batch->step);
    np_json_int(json, "row", r);
    np_json_text(json, "path", name);
    np_json_int(json, "label", batch->labels[r]);
    np_json_text(json, "class", class_name);
    np_json_ints(json, "box", box, 4);
    np_json_ints(json, "size", size, 2);
    np_json_ints(json, "window", window, 4);
    np_json_bool(json, "flip", geometry->flip);
    np_json_ints(json, "source_size", source, 2);
    np_json_int(json, "sample", (int64_t)row->sample);
    np_json_int(json, "epoch", row->epoch);
    np_json_int(json, "replaced", row->attempts);
    np_json_text(json, "file", file);
    np_ui_event(view->ui, np_json_end(json));
}

static int show_batch(struct view *view, const struct np_loader_config *config,
    const struct np_batch *batch, struct np_err *err)
{
    const size_t row_bytes =
        (size_t)config->shape.height * (size_t)config->shape.width * (size_t)config->shape.channels;
    int code = view->sheet ? begin_sheet(view, &config->shape, err) : 0;

    for (int r = 0; !code && r < config->shape.rows; r++) {
        const struct picture row = {batch->images + (size_t)r * row_bytes, config->shape.height,
            config->shape.width, config->shape.channels};
        char *file = view->out
                         ? np_format("%s/step%06" PRIu64 "-row%04d.png", view->out, view->step, r)
                         : NULL;

        if (file)
            code = write_png(view, &row, file, err);
        if (!code && view->grid)
            put_into_sheet(view, &config->shape, r, row.pixels);
        if (!code)
            print_row(view, batch, r, file);
        np_free(file);
    }
    if (!code && view->grid) {
        const struct picture sheet = {
            view->grid, view->grid_height, view->grid_width, config->shape.channels};

        code = write_png(view, &sheet, view->sheet, err);
        if (!code)
            np_ui_say(view->ui, "sheet: %d columns: %s", view->grid_columns, view->sheet);
    }
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
    const struct np_source_progress progress = {.note = np_note};
    struct np_err err = {0};
    struct np_stat *stat = np_stat_new(&err);
    int code = np_setup_data(view->config, &progress, &view->setup, &err);

    if (!code && (view->setup.height == 0 || view->setup.width == 0))
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
    np_free(view->grid);
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
