#include "daemon/profile/compared.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/run/run_folder.h"
#include "daemon/ui/curves.h"
#include "daemon/ui/page.h"
#include "loader/base/mem.h"

const struct np_found_run *np_compared_run(const struct np_compared_runs *c, int i)
{
    return &c->found.runs[c->runs[i].found];
}

/* --- numbers ---------------------------------------------------------------------------------- */

static double last_write(const char *dir)
{
    char *path = np_format("%s/metrics.jsonl", dir);
    struct stat stat_;
    const bool is = stat(path, &stat_) == 0;

    np_free(path);
    return is ? (double)stat_.st_mtime : NAN;
}

void np_compared_measure(struct np_compared_runs *c, int i, double ran_s)
{
    const struct np_found_run *run = np_compared_run(c, i);
    const struct np_progress *progress = &run->progress;
    struct np_compared *compared = &c->runs[i];
    const struct np_node *loader = run->config ? np_node_get(run->config, "loader") : NULL;
    const double batch = np_node_number(loader, "batch", NAN);
    struct np_node *result = NULL;

    compared->images_per_second = progress->images_per_second;
    compared->seconds = isfinite(ran_s) ? ran_s
                        : run->started  ? last_write(run->dir) - (double)run->started
                                        : NAN;
    if (run->state == NP_RUN_DONE)
        np_folder_result(run->dir, &result);
    if (result) {
        compared->images_per_second = np_node_number(result, "images_per_second", NAN);
        compared->seconds = np_node_number(result, "train_seconds", compared->seconds);
    }
    np_node_free(result);
    /* a step has `batch` images, so an epoch has batch * step / epoch of them */
    compared->epoch_seconds =
        batch * progress->step / progress->epoch / compared->images_per_second;
    if (!isfinite(compared->epoch_seconds))
        compared->epoch_seconds = NAN;
}

/* NAN last; a positive result: b comes first. */
static int ascending(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return a < b ? -1 : a > b;
}

static int better(const void *left, const void *right, void *context)
{
    const struct np_compared_runs *c = context;
    const struct np_compared *a = left, *b = right;
    const struct np_found_run *one = &c->found.runs[a->found], *other = &c->found.runs[b->found];
    int order = ascending(-one->best_accuracy, -other->best_accuracy);

    if (order == 0)
        order = ascending(one->loss, other->loss);
    if (order == 0)
        order = ascending(one->train_loss, other->train_loss);
    return order ? order : a->found - b->found;
}

static bool has(const struct np_node *list, const char *key)
{
    for (int i = 0; i < list->nr_items; i++)
        if (strcmp(list->items[i]->text, key) == 0)
            return true;
    return false;
}

void np_compared_sort(struct np_compared_runs *c)
{
    np_runs_differ(&c->found, true);
    c->keys = np_node_new(NP_NODE_LIST, 0, 0);
    for (int i = 0; i < c->nr_runs; i++) {
        const struct np_node *differs = np_compared_run(c, i)->differs;

        for (int k = 0; differs && k < differs->nr_items; k++)
            if (!has(c->keys, differs->items[k]->key))
                np_node_add(c->keys, NULL, np_node_scalar(differs->items[k]->key, 0, 0));
    }
    for (int i = 0; i < c->keys->nr_items; i++)
        c->keys->items[i]->quoted = true;
    qsort_r(c->runs, (size_t)c->nr_runs, sizeof(*c->runs), better, c);
}

void np_compared_write(struct np_json *json, const struct np_compared_runs *c, int i)
{
    const struct np_compared *compared = &c->runs[i];
    const struct np_found_run *run = np_compared_run(c, i);

    np_json_text(json, "run", run->name);
    np_json_real(json, "id", *compared->id ? strtod(compared->id, NULL) : NAN);
    np_json_text(json, "run_dir", run->dir);
    np_json_text(json, "state", compared->state);
    np_json_real(json, "step", run->progress.step);
    np_json_real(json, "epoch", run->progress.epoch);
    np_run_write_result(json, run);
    np_json_real(json, "train_loss", run->train_loss);
    np_json_real(json, "epoch_seconds", compared->epoch_seconds);
    np_json_real(json, "images_per_second", compared->images_per_second);
    np_json_real(json, "seconds", compared->seconds);
    np_json_open(json, "values", '{');
    for (int k = 0; run->differs && k < run->differs->nr_items; k++)
        np_json_node(json, run->differs->items[k]->key, run->differs->items[k]);
    np_json_close(json, '}');
}

/* --- curves ----------------------------------------------------------------------------------- */

static void take_line(struct np_overlay_run *curves, const struct np_node *line, double nr_epochs)
{
    const struct np_node *event = np_node_get(line, "event");
    const double at = np_node_number(line, "epoch", NAN) / nr_epochs;

    if (np_node_is(event, "step"))
        np_curve_add(&curves->loss, at, np_node_number(line, "loss", NAN));
    if (np_node_is(event, "eval"))
        np_curve_add(&curves->accuracy, at,
            np_node_number(line, "val_accuracy", np_node_number(line, "test_accuracy", NAN)));
}

/* Opens a regular file: a FIFO could block. */
static FILE *open_metrics(const char *dir)
{
    char *path = np_format("%s/metrics.jsonl", dir);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat stat_;
    FILE *in = fd >= 0 && fstat(fd, &stat_) == 0 && S_ISREG(stat_.st_mode) ? fdopen(fd, "r") : NULL;

    if (!in && fd >= 0)
        close(fd);
    np_free(path);
    return in;
}

static void read_curves(const char *dir, struct np_overlay_run *curves, double nr_epochs)
{
    FILE *in = open_metrics(dir);
    char *text = NULL;
    size_t room = 0;

    for (ssize_t bytes; in && (bytes = getline(&text, &room, in)) > 0;) {
        struct np_node *line = NULL;

        if ((strncmp(text, "{\"event\": \"step\"", 16) == 0 ||
                strncmp(text, "{\"event\": \"eval\"", 16) == 0) &&
            np_json_parse(text, (size_t)bytes, &line, NULL) == 0 && line->kind == NP_NODE_MAP)
            take_line(curves, line, nr_epochs);
        np_node_free(line);
    }
    if (in)
        fclose(in);
    free(text);
}

static int read_overlay(
    const struct np_compared_runs *c, const char *title, struct np_overlay *ret, struct np_err *err)
{
    struct np_overlay overlay = {.title = title};

    overlay.nr_runs = c->nr_runs < NP_OVERLAY_MAX_RUNS ? c->nr_runs : NP_OVERLAY_MAX_RUNS;
    overlay.runs = np_try_array((size_t)overlay.nr_runs, sizeof(*overlay.runs), err);
    if (!overlay.runs)
        return -ENOMEM;
    for (int i = 0; i < overlay.nr_runs; i++)
        overlay.nr_epochs = fmax(overlay.nr_epochs, np_compared_run(c, i)->progress.epoch);
    if (overlay.nr_epochs <= 0)
        overlay.nr_epochs = 1;
    for (int i = 0; i < overlay.nr_runs; i++) {
        const struct np_found_run *run = np_compared_run(c, i);

        overlay.runs[i].name = run->name;
        overlay.runs[i].best = run->best_accuracy;
        if (run->dir)
            read_curves(run->dir, &overlay.runs[i], overlay.nr_epochs);
    }
    *ret = overlay;
    return 0;
}

int np_compared_svg(
    const struct np_compared_runs *c, const char *title, const char *path, struct np_err *err)
{
    struct np_overlay overlay = {0};
    int code = read_overlay(c, title, &overlay, err);

    if (code == 0)
        code = np_overlay_write(&overlay, path, err);
    np_free(overlay.runs);
    return code;
}

static void write_curve(
    struct np_json *json, const char *key, const struct np_curve *curve, double nr_epochs)
{
    np_json_open(json, key, '[');
    for (int i = 0; curve->nr_points && i <= curve->last; i++)
        if (curve->nr[i] > 0) {
            np_json_open(json, NULL, '[');
            np_json_real(json, NULL, nr_epochs * i / (NP_CURVE_COLUMNS - 1));
            np_json_real(json, NULL, np_curve_mean(curve, i));
            np_json_close(json, ']');
        }
    np_json_close(json, ']');
}

int np_compared_html(
    const struct np_compared_runs *c, const char *title, const char *path, struct np_err *err)
{
    struct np_overlay overlay = {0};
    struct np_json json = {0};
    int code = read_overlay(c, title, &overlay, err);

    if (code < 0)
        return code;
    np_json_begin(&json, NULL);
    np_json_text(&json, "title", title);
    np_json_node(&json, "keys", c->keys);
    np_json_open(&json, "runs", '[');
    for (int i = 0; i < overlay.nr_runs; i++) {
        np_json_open(&json, NULL, '{');
        np_compared_write(&json, c, i);
        write_curve(&json, "loss_curve", &overlay.runs[i].loss, overlay.nr_epochs);
        write_curve(&json, "accuracy_curve", &overlay.runs[i].accuracy, overlay.nr_epochs);
        np_json_close(&json, '}');
    }
    np_json_close(&json, ']');
    const char *text = np_json_end(&json);
    code = text ? np_page_write(path, np_compare_html_to, text, err)
                : np_err_set(err, -ENOMEM, "%s: out of memory", path);
    np_json_fini(&json);
    np_free(overlay.runs);
    return code;
}
