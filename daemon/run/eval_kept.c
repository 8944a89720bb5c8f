#include "daemon/run/eval_kept.h"

#include <errno.h>
#include <math.h>

#include "daemon/ui/csv.h"
#include "daemon/ui/table.h"
#include "loader/base/mem.h"

#define NAME   1024
#define POINTS 20000 /* of all numbers on a page */

/* The figures of all and of each class or number; *ret_each: np_free. */
union each {
    struct np_multi_figures *multi;
    struct np_value_figures *value;
    void *any;
};

static const char *name_of(const struct np_eval_facts *facts, int i)
{
    return facts->evaluation->classes->items[i]->text;
}

static int make(const struct np_eval_facts *facts, struct np_figures *ret_figures,
    union each *ret_each, struct np_err *err)
{
    const struct np_kept *kept = facts->evaluation->kept;
    const size_t bytes = kept->type == NP_LABEL_MULTI ? sizeof(struct np_multi_figures)
                                                      : sizeof(struct np_value_figures);
    void *each = np_try_array((size_t)kept->width, bytes, err);
    int code = each ? np_figures_make(kept, each, ret_figures, err) : -ENOMEM;

    if (code < 0)
        np_free(each);
    else
        ret_each->any = each;
    return code;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void put_class(struct np_json *json, const struct np_multi_figures *figures)
{
    np_json_int(json, "images", (int64_t)figures->images);
    np_json_int(json, "predicted", (int64_t)figures->predicted);
    np_json_int(json, "correct", (int64_t)figures->correct);
    np_json_real(json, "precision", figures->precision);
    np_json_real(json, "recall", figures->recall);
    np_json_real(json, "f1", figures->f1);
    np_json_real(json, "average_precision", figures->ap);
}

static void put_points(struct np_json *json, const struct np_kept *kept, int value)
{
    const uint64_t most = (uint64_t)(POINTS / kept->width) + 1,
                   step = (kept->nr_rows + most - 1) / most;

    np_json_open(json, "points", '[');
    for (uint64_t i = 0; i < kept->nr_rows; i += step) {
        const size_t at = i * (size_t)kept->width + (size_t)value;

        np_json_open(json, NULL, '[');
        np_json_real(json, NULL, (double)kept->targets[at]);
        np_json_real(json, NULL, (double)kept->outputs[at]);
        np_json_close(json, ']');
    }
    np_json_close(json, ']');
}

static void put_value(struct np_json *json, const struct np_kept *kept, int value,
    const struct np_value_figures *figures, bool page)
{
    struct np_error_bins errors;

    np_json_real(json, "mae", figures->mae);
    np_json_real(json, "rmse", figures->rmse);
    np_json_real(json, "r2", figures->r2);
    np_kept_errors(kept, value, &errors);
    np_json_open(json, "errors", '{');
    np_json_real(json, "most", errors.most);
    np_json_open(json, "images", '[');
    for (int b = 0; b < NP_ERROR_BINS; b++)
        np_json_int(json, NULL, (int64_t)errors.images[b]);
    np_json_close(json, ']');
    np_json_close(json, '}');
    if (page)
        put_points(json, kept, value);
}

/* A label or an answer: the classes in it, above the limit, or the numbers. */
static void put_answer(struct np_json *json, const char *key, const struct np_eval_facts *facts,
    const float *values, float limit)
{
    const struct np_kept *kept = facts->evaluation->kept;

    np_json_open(json, key, '[');
    for (int i = 0; i < kept->width; i++)
        if (kept->type == NP_LABEL_VALUE)
            np_json_real(json, NULL, (double)values[i]);
        else if (values[i] > limit)
            np_json_text(json, NULL, name_of(facts, i));
    np_json_close(json, ']');
}

static int put_worst(struct np_json *json, const struct np_eval_facts *facts, char *const *pictures,
    struct np_err *err)
{
    const struct np_kept *kept = facts->evaluation->kept;
    const char *measure = kept->type == NP_LABEL_MULTI ? "loss" : "distance";
    uint64_t places[NP_WORST];
    double losses[NP_WORST];
    char name[NAME];
    int nr;

    if (np_kept_worst(kept, NP_WORST, places, losses, &nr, err) < 0)
        return -ENOMEM;
    np_json_open(json, "worst", '[');
    for (int i = 0; i < nr; i++) {
        const size_t at = places[i] * (size_t)kept->width;

        np_eval_sample_name(facts, kept->samples[places[i]], name, sizeof(name));
        np_json_open(json, NULL, '{');
        np_json_text(json, "path", name);
        np_json_real(json, measure, losses[i]);
        put_answer(json, "label", facts, kept->targets + at, 0.5f);
        put_answer(json, "predicted", facts, kept->outputs + at, 0);
        if (pictures)
            np_json_text(json, "picture", pictures[i]);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    return 0;
}

int np_eval_kept_put(struct np_json *json, const struct np_eval_facts *facts, char *const *pictures,
    struct np_err *err)
{
    const struct np_kept *kept = facts->evaluation->kept;
    const bool multi = kept->type == NP_LABEL_MULTI;
    struct np_figures figures;
    union each each;
    int code = make(facts, &figures, &each, err);

    if (code < 0)
        return code;
    np_json_text(json, "label_type", np_label_types[kept->type]);
    np_json_int(json, "images", (int64_t)kept->nr_rows);
    np_json_real(json, "loss", facts->report->loss);
    if (multi)
        np_json_real(json, "accuracy", figures.accuracy);
    np_figures_put(json, "", kept->type, &figures);
    np_json_open(json, multi ? "classes" : "values", '[');
    for (int i = 0; i < kept->width; i++) {
        np_json_open(json, NULL, '{');
        np_json_text(json, multi ? "class" : "value", name_of(facts, i));
        if (multi)
            put_class(json, &each.multi[i]);
        else
            put_value(json, kept, i, &each.value[i], pictures != NULL);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_free(each.any);
    return put_worst(json, facts, pictures, err);
}

/* --- image by image, and a table --------------------------------------------------------------- */

void np_eval_kept_lines(FILE *out, const void *facts_)
{
    const struct np_eval_facts *facts = facts_;
    const struct np_kept *kept = facts->evaluation->kept;
    char name[NAME];

    fputs("path", out);
    for (int i = 0; i < kept->width; i++) {
        fputc(',', out);
        np_csv_text(out, name_of(facts, i));
        snprintf(name, sizeof(name), "%s_predicted", name_of(facts, i));
        fputc(',', out);
        np_csv_text(out, name);
    }
    for (uint64_t r = 0; r < kept->nr_rows; r++) {
        fputc('\n', out);
        np_eval_sample_name(facts, kept->samples[r], name, sizeof(name));
        np_csv_text(out, name);
        for (int i = 0; i < kept->width; i++) {
            const size_t at = r * (size_t)kept->width + (size_t)i;
            const double output = (double)kept->outputs[at];

            fprintf(out, ",%.9g,%.9g", (double)kept->targets[at],
                kept->type == NP_LABEL_MULTI ? 1 / (1 + exp(-output)) : output);
        }
    }
    fputc('\n', out);
}

static const struct np_column multi_columns[] = {
    {"class", .cuts = true},
    {"images", .right = true},
    {"AP", .right = true},
    {"precision", .right = true},
    {"recall", .right = true},
    {"F1", .right = true},
    {NULL},
};
static const struct np_column value_columns[] = {
    {"value", .cuts = true},
    {"MAE", .right = true},
    {"RMSE", .right = true},
    {"R2", .right = true},
    {NULL},
};

static void fill_multi(struct np_table_row *row, const struct np_multi_figures *figures)
{
    const double shares[] = {figures->ap, figures->precision, figures->recall, figures->f1};

    snprintf(row->cells[1], NP_TABLE_CELL, "%llu", (unsigned long long)figures->images);
    for (int i = 0; i < 4; i++)
        if (!isnan(shares[i]))
            snprintf(row->cells[2 + i], NP_TABLE_CELL, "%.2f%%", 100 * shares[i]);
}

static void fill_value(struct np_table_row *row, const struct np_value_figures *figures)
{
    snprintf(row->cells[1], NP_TABLE_CELL, "%.4g", figures->mae);
    snprintf(row->cells[2], NP_TABLE_CELL, "%.4g", figures->rmse);
    snprintf(row->cells[3], NP_TABLE_CELL, "%.4f", figures->r2);
}

int np_eval_kept_table(const struct np_eval_facts *facts, FILE *out, struct np_err *err)
{
    const struct np_kept *kept = facts->evaluation->kept;
    const bool multi = kept->type == NP_LABEL_MULTI;
    const struct np_table_look look = {.chosen = -1};
    struct np_table table = {.columns = multi ? multi_columns : value_columns, .coloured = -1};
    struct np_figures figures;
    union each each = {NULL};
    int code = make(facts, &figures, &each, err);

    for (int i = 0; code == 0 && i < kept->width; i++) {
        struct np_table_row *row = np_table_add(&table, err);

        code = row ? 0 : -ENOMEM;
        if (row)
            snprintf(row->cells[0], NP_TABLE_CELL, "%s", name_of(facts, i));
        if (row && multi)
            fill_multi(row, &each.multi[i]);
        else if (row)
            fill_value(row, &each.value[i]);
    }
    if (code == 0)
        np_table_print(&table, &look, out);
    np_table_fini(&table);
    np_free(each.any);
    return code;
}
