/* `nnpipe replay RUN --step N [--row R]`: makes the rows of a training step again, as PNG files
 * and JSON. `nnpipe replay RUN --worst K`: the rows with the highest losses of the last epoch, as
 * one PNG file and JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/data/data.h"
#include "daemon/data/sheet.h"
#include "daemon/run/losses_file.h"
#include "daemon/run/replay.h"
#include "daemon/run/run_change.h"
#include "daemon/run/run_log.h"
#include "daemon/run/runs_found.h"
#include "daemon/ui/table.h"
#include "daemon/ui/terminal.h"
#include "loader/base/crc32c.h"
#include "loader/base/text.h"

#define MAX_WORST 1000

struct request {
    const char *word;         /* RUN */
    int64_t step, row, worst; /* -1: not given */
    const char *out;          /* NULL: a folder in the run's */
    bool json;
};

struct show {
    const struct request *request;
    struct np_replay replay;
    struct np_ui ui;
    struct np_io io;
    struct np_table table;
    char *folder;
    FILE *lines; /* of the rows' JSON */
    char *text;  /* the same as text, once `lines` is closed; free() */
    size_t text_bytes;
    int nr_replaced;

    struct np_sheet sheet; /* of --worst; pixels NULL: none */
    uint64_t *samples;     /* (sheet.shape.rows) of the rows in it */
    double loss;           /* of the next row of the sheet */
};

/* --- one row ------------------------------------------------------------------------------- */

enum { LOSS, STEP, ROW, EPOCH, SAMPLE, CLASS, MADE, PATH, REPLACED };
static const struct np_column columns[] = {
    [LOSS] = {"loss", .right = true, .if_any = true},
    [STEP] = {"step", .right = true, .if_any = true},
    [ROW] = {"row", .right = true},
    [EPOCH] = {"epoch", .right = true, .spare = 3},
    [SAMPLE] = {"sample", .right = true, .spare = 2},
    [CLASS] = {"class"},
    [MADE] = {"made by", .cuts = true, .spare = 1},
    [PATH] = {"path", .cuts = true},
    [REPLACED] = {"replaced", .right = true, .if_any = true},
    {0},
};

static const char *class_of(const struct show *show, const struct np_remade *row)
{
    const struct np_index *index = show->replay.setup->sets.train;

    if (index->label_type != NP_LABEL_CLASS)
        return index->classes[np_index_get(index, row->about->sample).label];
    return show->replay.setup->sets.classes->items[row->label]->text;
}

static int add_to_table(struct show *show, const struct np_remade *row, struct np_err *err)
{
    const struct np_row *about = row->about;
    struct np_table_row *line = np_table_add(&show->table, err);
    char name[NP_MAX_NAME + 1], made[256];

    if (!line)
        return err->code;
    np_index_name(show->replay.setup->sets.train, about->sample, name, sizeof(name));
    np_geometry_text(about, made, sizeof(made));
    if (show->sheet.pixels) {
        snprintf(line->cells[LOSS], NP_TABLE_CELL, "%.4f", show->loss);
        snprintf(line->cells[STEP], NP_TABLE_CELL, "%" PRIu64,
            row->number / (uint64_t)show->replay.batch);
    }
    snprintf(
        line->cells[ROW], NP_TABLE_CELL, "%" PRIu64, row->number % (uint64_t)show->replay.batch);
    snprintf(line->cells[EPOCH], NP_TABLE_CELL, "%" PRIu32, about->epoch);
    snprintf(line->cells[SAMPLE], NP_TABLE_CELL, "%" PRIu64, about->sample);
    snprintf(line->cells[CLASS], NP_TABLE_CELL, "%s", class_of(show, row));
    snprintf(line->cells[MADE], NP_TABLE_CELL, "%s", made);
    snprintf(line->cells[PATH], NP_TABLE_CELL, "%s", name);
    if (about->attempts)
        snprintf(line->cells[REPLACED], NP_TABLE_CELL, "%u", about->attempts);
    return 0;
}

/* The bad samples that this sample replaces. */
static void put_bad(struct np_json *json, const struct np_remade *row)
{
    np_json_open(json, "bad", '[');
    for (int i = 0; i < row->nr_bad; i++) {
        np_json_open(json, NULL, '{');
        np_json_int(json, "sample", (int64_t)row->bad[i].sample);
        np_json_text(json, "path", row->bad[i].path);
        np_json_text(json, "reason", row->bad[i].reason);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
}

static void put_row(struct show *show, const struct np_remade *row, const char *file)
{
    const struct np_row *about = row->about;
    const uint64_t batch = (uint64_t)show->replay.batch;
    const size_t bytes =
        (size_t)row->height * (size_t)row->width * (size_t)show->replay.loader.shape.channels;
    struct np_json *json = &show->ui.object;
    char path[2 * NP_MAX_NAME], crc[9];

    np_data_place(show->replay.setup->sets.train, about->sample, path, sizeof(path));
    snprintf(crc, sizeof(crc), "%08x", np_crc32c(0, row->pixels, bytes));
    np_json_begin(json, "row");
    if (show->sheet.pixels)
        np_json_real(json, "loss", show->loss);
    np_json_int(json, "step", (int64_t)(row->number / batch));
    np_json_int(json, "epoch", about->epoch);
    np_json_int(json, "row", (int64_t)(row->number % batch));
    np_json_int(json, "position", about->position);
    np_json_int(json, "sample", (int64_t)about->sample);
    np_json_text(json, "path", path);
    np_json_int(json, "label", row->label);
    np_json_text(json, "class", class_of(show, row));
    np_geometry_json(json, about);
    np_json_text(json, "crc32c", crc);
    np_json_int(json, "replaced", about->attempts);
    if (row->nr_bad)
        put_bad(json, row);
    np_json_text(json, "file", file);
    const char *line = np_json_end(json);
    np_ui_event(&show->ui, line);
    if (line)
        fputs(line, show->lines);
}

static int take(void *context, const struct np_remade *row, struct np_err *err)
{
    struct show *show = context;
    const struct np_picture picture = {
        row->pixels, row->height, row->width, show->replay.loader.shape.channels};
    char *file = np_format(
        "%s/row%04" PRIu64 ".png", show->folder, row->number % (uint64_t)show->replay.batch);
    int code = np_picture_write(&show->io, &picture, file, err);

    if (code == 0)
        put_row(show, row, file);
    if (code == 0)
        code = add_to_table(show, row, err);
    show->nr_replaced += row->about->attempts > 0;
    np_free(file);
    return code;
}

/* --- a step -------------------------------------------------------------------------------- */

static int open_folder(struct show *show, const char *dir, struct np_err *err)
{
    const struct request *request = show->request;

    show->folder = request->out          ? np_strdup(request->out)
                   : request->worst >= 0 ? np_format("%s/replay-worst", dir)
                                         : np_format("%s/replay-step%" PRId64, dir, request->step);
    int code = np_make_dirs(show->folder, err);
    if (code == 0)
        code = np_io_open(&show->io, "pread", 1, err);
    if (code == 0 && !(show->lines = open_memstream(&show->text, &show->text_bytes)))
        code = np_err_set(err, -errno, "the rows' JSON: %s", strerror(errno));
    return code;
}

/* Writes rows.jsonl, or rowNNNN.json of a single row. */
static int write_lines(struct show *show, struct np_err *err)
{
    const int64_t row = show->request->row;
    char *path = row < 0 ? np_format("%s/rows.jsonl", show->folder)
                         : np_format("%s/row%04" PRId64 ".json", show->folder, row);
    int code = fclose(show->lines) ? np_err_set(err, -errno, "%s: %s", path, strerror(errno)) : 0;

    show->lines = NULL;
    if (code == 0)
        code = np_io_replace(&show->io, path, show->text, show->text_bytes, err);
    np_free(path);
    return code;
}

static void print_table(struct show *show)
{
    const struct np_table_look look = {.chosen = -1,
        .width = np_terminal_columns(STDOUT_FILENO),
        .colour = np_terminal_colour(STDOUT_FILENO)};

    if (!show->ui.json)
        np_table_print(&show->table, &look, stdout);
    if (show->replay.changed[0])
        np_ui_say(&show->ui,
            "%s has changed since it was listed, perhaps since the run: rows of changed files "
            "differ",
            show->replay.changed);
}

static int replay_step(struct show *show, struct np_err *err)
{
    const struct request *request = show->request;
    int code =
        np_replay_step(&show->replay, (uint64_t)request->step, (int)request->row, take, show, err);

    if (code == 0)
        code = write_lines(show, err);
    if (code < 0)
        return code;
    print_table(show);
    char replaced[64] = "";

    if (show->nr_replaced)
        snprintf(
            replaced, sizeof(replaced), ", %d of them in place of bad samples", show->nr_replaced);
    np_ui_say(&show->ui,
        "step %" PRId64 " of %" PRIu64 " (%" PRId64 " in metrics.jsonl): %d row%s%s, in %s",
        request->step, show->replay.nr_steps, request->step + 1, show->table.nr_rows,
        show->table.nr_rows == 1 ? "" : "s", replaced, show->folder);
    return 0;
}

/* --- the worst rows ------------------------------------------------------------------------ */

/* Puts a row into the sheet, unless another row of its sample is there. */
static int take_worst(void *context, const struct np_remade *row, struct np_err *err)
{
    struct show *show = context;
    const int place = show->table.nr_rows;

    for (int i = 0; i < place; i++)
        if (show->samples[i] == row->about->sample)
            return 0; /* this sample also replaced a bad one, in another row */
    show->samples[place] = row->about->sample;
    np_sheet_put(&show->sheet, place, row->pixels, row->height, row->width);
    show->nr_replaced += row->about->attempts > 0;
    put_row(show, row, NULL);
    return add_to_table(show, row, err);
}

static int take_all_worst(struct show *show, const struct np_losses *losses, struct np_err *err)
{
    struct np_batch_shape shape = show->replay.loader.shape;
    const uint64_t wanted = (uint64_t)show->request->worst;

    shape.rows = (int)(wanted < losses->nr_rows ? wanted : losses->nr_rows);
    show->samples = np_try_array((size_t)shape.rows, sizeof(*show->samples), err);
    int code = show->samples ? np_sheet_init(&show->sheet, &shape, err) : -ENOMEM;
    for (uint64_t i = 0; code == 0 && i < losses->nr_rows && show->table.nr_rows < shape.rows;
         i++) {
        show->loss = (double)losses->rows[i].loss;
        code = np_remake_rows(&show->replay.loader, losses->rows[i].number, 1, take_worst, show,
            show->replay.changed, err);
    }
    return code;
}

static int read_losses(
    struct show *show, const char *dir, struct np_losses *ret_losses, struct np_err *err)
{
    struct np_replay *replay = &show->replay;
    char *path = np_format("%s/" NP_LOSSES_FILE, dir);
    struct np_err why = {0};
    const int code = np_losses_read(path, (uint32_t)replay->batch, replay->loader.sampler.nr_train,
        replay->nr_steps, ret_losses, &why);

    replay->usage = code == -ENOENT || code == -ENODATA;
    if (code == -ENOENT)
        np_err_set(err, code,
            "%s has no " NP_LOSSES_FILE ": --worst needs a run with train: {sample_losses: true}",
            dir);
    else if (code < 0)
        *err = why;
    np_free(path);
    return code;
}

static int replay_worst(struct show *show, const char *dir, struct np_err *err)
{
    struct np_losses losses = {0};
    char *file = np_format("%s/worst.png", show->folder);
    int code = read_losses(show, dir, &losses, err);

    if (code == 0)
        code = take_all_worst(show, &losses, err);
    if (code == 0)
        code = np_sheet_write(&show->io, &show->sheet, file, err);
    if (code == 0)
        code = write_lines(show, err);
    if (code == 0) {
        print_table(show);
        np_ui_say(&show->ui,
            "the %d highest of %" PRIu64 " losses of epoch %" PRIu64 "%s, from left to right in "
            "%d columns: %s",
            show->table.nr_rows, losses.nr_rows, losses.epoch,
            losses.complete ? "" : ", which is not complete", show->sheet.columns, file);
    }
    np_free(losses.rows);
    np_free(file);
    return code;
}

/* --- the command --------------------------------------------------------------------------- */

/* A row depends on most keys: -o may change only those that a resumed run may change. */
static int check_overrides(
    const char *path, const struct np_overrides *overrides, const struct np_config *config)
{
    const struct np_overrides none = {0};
    struct np_config *plain = NULL;
    char why[512];
    int code = overrides->nr_texts ? np_cmd_config(path, &none, NULL, &plain) : 0;

    if (code == 0 && plain) {
        struct np_node *then = np_config_node(plain), *now = np_config_node(config);

        if (!np_config_same(then, now, true, why, sizeof(why)))
            code = np_usage("replay", "-o: the run's rows would be others: %s", why);
        np_node_free(then);
        np_node_free(now);
    }
    np_config_free(plain);
    return code;
}

static int replay(const struct request *request, const char *dir, struct np_config *config)
{
    struct show show = {.request = request, .table = {.columns = columns, .coloured = -1}};
    struct np_source_progress progress = {
        .note = np_ui_note, .count = np_ui_listing, .context = &show.ui};
    struct np_err err = {0};

    np_ui_init(&show.ui, request->json);
    int code = np_replay_open(&show.replay, config, dir, &progress, &err);
    if (code == 0)
        code = open_folder(&show, dir, &err);
    if (code == 0)
        code = request->worst >= 0 ? replay_worst(&show, dir, &err) : replay_step(&show, &err);
    if (code < 0)
        np_ui_error(&show.ui, &err);
    const bool usage = show.replay.usage;
    if (show.lines)
        fclose(show.lines);
    free(show.text);
    np_free(show.sheet.pixels);
    np_free(show.samples);
    np_free(show.folder);
    np_io_close(&show.io);
    np_table_fini(&show.table);
    np_replay_close(&show.replay);
    np_ui_fini(&show.ui);
    return code == 0 ? NP_EXIT_DONE : usage ? NP_EXIT_USAGE : NP_EXIT_FAILED;
}

static int parse(const char *step, const char *row, const char *worst, struct request *request)
{
    request->step = request->row = request->worst = -1;
    if (!step == !worst || (worst && row))
        return np_usage("replay", "expected RUN --step N [--row R], or RUN --worst K");
    if (worst && !np_text_int(worst, 1, MAX_WORST, &request->worst))
        return np_usage("replay", "--worst takes a number from 1 to %d, not %s", MAX_WORST, worst);
    if (worst)
        return 0;
    if (!np_text_int(step, 0, INT64_MAX / 2, &request->step))
        return np_usage("replay", "--step takes a number, 0 for the first step, not %s", step);
    if (row && !np_text_int(row, 0, INT32_MAX, &request->row))
        return np_usage("replay", "--row takes a number, 0 for the first row, not %s", row);
    return 0;
}

int np_cmd_replay(int argc, char **argv)
{
    const char *step = NULL, *row = NULL, *worst = NULL;
    struct request request = {0};
    const struct np_flag flags[] = {{"--step", &step, NULL, NULL}, {"--row", &row, NULL, NULL},
        {"--worst", &worst, NULL, NULL}, {"--out", &request.out, NULL, NULL},
        {"--json", NULL, &request.json, NULL}, {NULL, NULL, NULL, NULL}};
    struct np_overrides overrides = {0};
    struct np_config *config = NULL;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0)
        code = nr == 1 ? parse(step, row, worst, &request) : np_usage("replay", "expected one RUN");
    if (code)
        return code;
    char *dir = np_runs_folder("runs", argv[1]), *path = np_format("%s/config.yaml", dir);

    if (access(path, F_OK) < 0)
        code = np_usage("replay", "%s: no run: %s: %s", dir, path, strerror(errno));
    if (code == 0)
        code = np_cmd_config(path, &overrides, NULL, &config);
    if (code == 0)
        code = check_overrides(path, &overrides, config);
    if (code == 0)
        code = replay(&request, dir, config);
    np_config_free(config);
    np_free(path);
    np_free(dir);
    return code;
}
