#include "daemon/run/eval_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/data/remake.h"
#include "daemon/run/eval_kept.h"
#include "daemon/ui/csv.h"
#include "daemon/ui/page.h"
#include "daemon/ui/table.h"
#include "loader/pixels/codec.h"

#define TOPS      5   /* top-1 to top-5 */
#define THUMBNAIL 128 /* pixels of its longer side */
#define NAME      1024

static const char *class_name(const struct np_eval_facts *facts, int32_t class)
{
    return facts->evaluation->classes->items[class]->text;
}

/* --- JSON ---------------------------------------------------------------------------------- */

static void put_figures(struct np_json *json, const struct np_class_figures *figures)
{
    np_json_real(json, "precision", figures->precision);
    np_json_real(json, "recall", figures->recall);
    np_json_real(json, "f1", figures->f1);
}

static int put_classes(struct np_json *json, const struct np_eval_facts *facts, struct np_err *err)
{
    const struct np_outcomes *outcomes = facts->evaluation->outcomes;
    struct np_class_figures *classes =
        np_try_array((size_t)outcomes->nr_classes, sizeof(*classes), err);
    struct np_class_means means;

    if (!classes)
        return -ENOMEM;
    np_outcomes_classes(outcomes, classes, &means);
    np_json_open(json, "macro", '{');
    put_figures(json, &means.macro);
    np_json_close(json, '}');
    np_json_open(json, "weighted", '{');
    put_figures(json, &means.weighted);
    np_json_close(json, '}');
    np_json_open(json, "classes", '[');
    for (int c = 0; c < outcomes->nr_classes; c++) {
        np_json_open(json, NULL, '{');
        np_json_text(json, "class", class_name(facts, c));
        np_json_int(json, "images", (int64_t)classes[c].support);
        np_json_int(json, "predicted", (int64_t)classes[c].predicted);
        np_json_int(json, "correct", (int64_t)classes[c].correct);
        put_figures(json, &classes[c]);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_free(classes);
    return 0;
}

static void put_calibration(struct np_json *json, const struct np_outcomes *outcomes)
{
    struct np_calibration all;

    np_outcomes_calibration(outcomes, &all);
    np_json_open(json, "calibration", '{');
    np_json_real(json, "error", all.error);
    np_json_real(json, "max_error", all.max_error);
    np_json_open(json, "bins", '[');
    for (int b = 0; b < NP_CALIBRATION_BINS; b++) {
        np_json_open(json, NULL, '{');
        np_json_real(json, "to", (double)(b + 1) / NP_CALIBRATION_BINS);
        np_json_int(json, "images", (int64_t)all.bins[b].images);
        np_json_real(json, "confidence", all.bins[b].confidence);
        np_json_real(json, "accuracy", all.bins[b].accuracy);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_json_close(json, '}');
}

/* Each cell as [label, predicted, images], by the classes' numbers. */
static int put_confusion(
    struct np_json *json, const struct np_outcomes *outcomes, struct np_err *err)
{
    struct np_confusion *cells;
    uint64_t nr;

    if (np_outcomes_confusions(outcomes, &cells, &nr, err) < 0)
        return -ENOMEM;
    np_json_open(json, "confusion", '[');
    for (uint64_t i = 0; i < nr; i++) {
        np_json_open(json, NULL, '[');
        np_json_int(json, NULL, cells[i].label);
        np_json_int(json, NULL, cells[i].predicted);
        np_json_int(json, NULL, (int64_t)cells[i].images);
        np_json_close(json, ']');
    }
    np_json_close(json, ']');
    np_free(cells);
    return 0;
}

static void put_worst(
    struct np_json *json, const struct np_eval_facts *facts, char *const *pictures)
{
    const struct np_outcomes *outcomes = facts->evaluation->outcomes;
    uint64_t places[NP_WORST];
    const int nr = np_outcomes_worst(outcomes, NP_WORST, places);

    np_json_open(json, "worst", '[');
    for (int i = 0; i < nr; i++) {
        const struct np_outcome *row = &outcomes->rows[places[i]];
        char name[NAME];

        np_eval_sample_name(facts, row->sample, name, sizeof(name));
        np_json_open(json, NULL, '{');
        np_json_text(json, "path", name);
        np_json_text(json, "label", class_name(facts, row->label));
        np_json_text(json, "predicted", class_name(facts, row->predicted));
        np_json_real(json, "probability", (double)row->probability);
        np_json_real(json, "own", (double)row->own);
        np_json_real(json, "loss", row->loss);
        if (pictures)
            np_json_text(json, "picture", pictures[i]);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
}

static int put_all(struct np_json *json, const struct np_eval_facts *facts, char *const *pictures,
    struct np_err *err)
{
    const struct np_outcomes *outcomes = facts->evaluation->outcomes;

    if (facts->evaluation->kept)
        return np_eval_kept_put(json, facts, pictures, err);
    np_json_int(json, "images", (int64_t)outcomes->nr_rows);
    np_json_real(json, "loss", facts->report->loss);
    np_json_open(json, "top_accuracy", '[');
    for (int k = 1; k <= TOPS && k <= outcomes->nr_classes; k++)
        np_json_real(json, NULL, np_outcomes_top(outcomes, k));
    np_json_close(json, ']');
    put_calibration(json, outcomes);
    put_worst(json, facts, pictures);
    int code = put_classes(json, facts, err);
    return code == 0 ? put_confusion(json, outcomes, err) : code;
}

int np_eval_put(struct np_json *json, const struct np_eval_facts *facts, struct np_err *err)
{
    return put_all(json, facts, NULL, err);
}

/* --- pictures ------------------------------------------------------------------------------ */

/* The mean of each k x k square; *ret_small: u8 (height / k, width / k, channels), np_free. */
static int reduce(const uint8_t *pixels, const struct np_batch_shape *shape, int k,
    uint8_t **ret_small, struct np_err *err)
{
    const int height = shape->height / k, width = shape->width / k, channels = shape->channels;
    uint8_t *small = np_try_array((size_t)height * (size_t)width, (size_t)channels, err);

    for (int i = 0; small && i < height * width * channels; i++) {
        const int c = i % channels, x = i / channels % width * k, y = i / channels / width * k;
        unsigned sum = 0;

        for (int j = 0; j < k * k; j++)
            sum += pixels[((y + j / k) * shape->width + x + j % k) * channels + c];
        small[i] = (uint8_t)((sum + (unsigned)(k * k) / 2) / (unsigned)(k * k));
    }
    *ret_small = small;
    return small ? 0 : -ENOMEM;
}

/* "data:image/png;base64,..."; np_free. NULL: -ENOMEM. */
static char *data_uri(const uint8_t *bytes, size_t n, struct np_err *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char head[] = "data:image/png;base64,";
    char *uri = np_try_alloc(sizeof(head) + (n + 2) / 3 * 4, err);

    if (!uri)
        return NULL;
    char *at = stpcpy(uri, head);
    for (size_t i = 0; i < n; i += 3) {
        const unsigned bits = (unsigned)bytes[i] << 16 | (i + 1 < n ? bytes[i + 1] << 8 : 0) |
                              (i + 2 < n ? bytes[i + 2] : 0);

        for (int d = 0; d < 4; d++)
            *at++ = i + (size_t)d > n ? '=' : digits[bits >> (18 - 6 * d) & 63];
    }
    return uri;
}

struct gallery {
    struct np_batch_shape shape;
    char *pictures[NP_WORST]; /* URIs, owned */
};

static int take_picture(void *context, const struct np_remade *row, struct np_err *err)
{
    struct gallery *gallery = context;
    const struct np_batch_shape *shape = &gallery->shape;
    const int side = shape->height > shape->width ? shape->height : shape->width;
    const int most = (side + THUMBNAIL - 1) / THUMBNAIL,
              least = shape->height < shape->width ? shape->height : shape->width,
              k = most < least ? most : least;
    uint8_t *small = NULL, *png = NULL;
    size_t bytes;
    int code = reduce(row->pixels, shape, k, &small, err);

    if (code == 0)
        code = np_codec_png.encode(
            small, shape->width / k, shape->height / k, shape->channels, 0, &png, &bytes, err);
    if (code == 0 && !(gallery->pictures[row->number] = data_uri(png, bytes, err)))
        code = -ENOMEM;
    np_free(small);
    np_free(png);
    return code;
}

/* *ret_order: samples of the index. */
static int find_worst(
    const struct np_evaluation *evaluation, uint32_t *ret_order, int *ret_nr, struct np_err *err)
{
    const struct np_kept *kept = evaluation->kept;
    uint64_t places[NP_WORST];
    double losses[NP_WORST];
    int nr = 0;

    if (!kept)
        nr = np_outcomes_worst(evaluation->outcomes, NP_WORST, places);
    else if (np_kept_worst(kept, NP_WORST, places, losses, &nr, err) < 0)
        return -ENOMEM;
    for (int i = 0; i < nr; i++)
        ret_order[i] = (uint32_t)(kept ? kept->samples[places[i]]
                                       : evaluation->outcomes->rows[places[i]].sample);
    *ret_nr = nr;
    return 0;
}

/* Reads the worst images again, as the evaluation did. */
static int make_gallery(
    const struct np_eval_facts *facts, struct gallery *gallery, struct np_err *err)
{
    const struct np_evaluation *evaluation = facts->evaluation;
    struct np_loader_config config;
    uint32_t order[NP_WORST];
    char changed[1024];
    int nr, code = find_worst(evaluation, order, &nr, err);

    if (code < 0 || nr == 0)
        return code;
    np_evaluation_loader(evaluation, &config);
    gallery->shape = config.shape = np_batch_shape_of(&config.shape, NP_BATCH_EVAL, 0);
    config.train = config.eval;
    config.train_labels = config.eval_labels;
    config.augment = config.test_augment;
    config.sampler.split = order;
    config.sampler.nr_eval = 0;
    config.sampler.nr_train = (uint64_t)nr;
    config.sampler.shuffle = NP_SHUFFLE_NONE;
    return np_remake_rows(&config, 0, nr, take_picture, gallery, changed, err);
}

/* --- the page ------------------------------------------------------------------------------ */

static void put_page(FILE *out, const void *json)
{
    np_page_fill_json(out, "/assets/evaluation.html", "/assets/evaluation.js", json);
}

int np_eval_html(const struct np_eval_facts *facts, const char *path, struct np_err *err)
{
    struct gallery gallery = {0};
    struct np_json json = {0};
    char *text = NULL;
    int code = make_gallery(facts, &gallery, err);

    np_json_begin(&json, NULL);
    np_json_text(&json, "name", facts->name);
    np_json_text(&json, "set", facts->set);
    np_json_text(&json, "weights", facts->weights);
    np_json_text(&json, "device", facts->evaluation->device->name);
    np_json_text(&json, "precision", facts->precision);
    np_json_text(&json, "tta", np_tta_names[facts->evaluation->config->run.tta]);
    if (code == 0)
        code = put_all(&json, facts, gallery.pictures, err);
    if (code == 0 && !(text = np_json_take(&json, err)))
        code = -ENOMEM;
    if (code == 0)
        code = np_page_write(path, put_page, text, err);
    for (int i = 0; i < NP_WORST; i++)
        np_free(gallery.pictures[i]);
    np_free(text);
    np_json_fini(&json);
    return code;
}

/* --- image by image ------------------------------------------------------------------------ */

static void put_predictions(FILE *out, const void *facts_)
{
    const struct np_eval_facts *facts = facts_;
    const struct np_outcomes *outcomes = facts->evaluation->outcomes;

    fputs("path,label,predicted,probability,own,rank,loss\n", out);
    for (uint64_t i = 0; i < outcomes->nr_rows; i++) {
        const struct np_outcome *row = &outcomes->rows[i];
        char name[NAME];

        np_eval_sample_name(facts, row->sample, name, sizeof(name));
        np_csv_text(out, name);
        fputc(',', out);
        np_csv_text(out, class_name(facts, row->label));
        fputc(',', out);
        np_csv_text(out, class_name(facts, row->predicted));
        fprintf(out, ",%.9g,%.9g,%d,%.9g\n", (double)row->probability, (double)row->own, row->rank,
            row->loss);
    }
}

int np_eval_predictions(const struct np_eval_facts *facts, const char *path, struct np_err *err)
{
    return np_page_write(
        path, facts->evaluation->kept ? np_eval_kept_lines : put_predictions, facts, err);
}

/* --- the table ----------------------------------------------------------------------------- */

enum { CLASS, IMAGES, PRECISION, RECALL, F1, NR_COLUMNS };
static const struct np_column columns[NR_COLUMNS + 1] = {
    [CLASS] = {"class", false, true, 0},
    [IMAGES] = {"images", true, false, 0},
    [PRECISION] = {"precision", true, false, 0},
    [RECALL] = {"recall", true, false, 0},
    [F1] = {"F1", true, false, 0},
};

struct line {
    int class;
    struct np_class_figures figures;
};

static int by_f1(const void *left, const void *right)
{
    const struct line *a = left, *b = right;

    if (a->figures.f1 != b->figures.f1)
        return a->figures.f1 < b->figures.f1 ? -1 : 1;
    return a->class < b->class ? -1 : 1;
}

static int add_line(struct np_table *table, const char *name, uint64_t images,
    const struct np_class_figures *figures, struct np_err *err)
{
    struct np_table_row *row = np_table_add(table, err);

    if (!row)
        return -ENOMEM;
    snprintf(row->cells[CLASS], NP_TABLE_CELL, "%s", name);
    snprintf(row->cells[IMAGES], NP_TABLE_CELL, "%llu", (unsigned long long)images);
    snprintf(row->cells[PRECISION], NP_TABLE_CELL, "%.2f%%", 100 * figures->precision);
    snprintf(row->cells[RECALL], NP_TABLE_CELL, "%.2f%%", 100 * figures->recall);
    snprintf(row->cells[F1], NP_TABLE_CELL, "%.2f%%", 100 * figures->f1);
    return 0;
}

static int fill_table(struct np_table *table, const struct np_eval_facts *facts, struct np_err *err)
{
    const struct np_outcomes *outcomes = facts->evaluation->outcomes;
    const int nr = outcomes->nr_classes;
    struct np_class_figures *classes = np_try_array((size_t)nr, sizeof(*classes), err);
    struct line *lines = np_try_array((size_t)nr, sizeof(*lines), err);
    struct np_class_means means;
    int code = classes && lines ? 0 : -ENOMEM;

    if (code == 0) {
        np_outcomes_classes(outcomes, classes, &means);
        for (int c = 0; c < nr; c++)
            lines[c] = (struct line){c, classes[c]};
        qsort(lines, (size_t)nr, sizeof(*lines), by_f1);
    }
    for (int c = 0; code == 0 && c < nr; c++)
        code = add_line(table, class_name(facts, lines[c].class), lines[c].figures.support,
            &lines[c].figures, err);
    if (code == 0)
        code = add_line(table, "mean of the classes", outcomes->nr_rows, &means.macro, err);
    np_free(classes);
    np_free(lines);
    return code;
}

int np_eval_table(const struct np_eval_facts *facts, FILE *out, struct np_err *err)
{
    if (facts->evaluation->kept)
        return np_eval_kept_table(facts, out, err);
    const struct np_table_look look = {.chosen = -1};
    struct np_table table = {.columns = columns, .coloured = -1};
    const int code = fill_table(&table, facts, err);

    if (code == 0)
        np_table_print(&table, &look, out);
    np_table_fini(&table);
    return code;
}
