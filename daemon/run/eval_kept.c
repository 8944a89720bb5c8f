#include "daemon/run/eval_kept.h"

#include <errno.h>
#include <math.h>

#include "daemon/ui/csv.h"
#include "daemon/ui/table.h"
#include "loader/base/mem.h"

#define NAME 1024

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

int np_eval_kept_put(struct np_json *json, const struct np_eval_facts *facts, struct np_err *err)
{
    const struct np_kept *kept = facts->evaluation->kept;
    const bool multi = kept->type == NP_LABEL_MULTI;
    struct np_figures figures;
    union each each;
    int code = make(facts, &figures, &each, err);

    if (code < 0)
        return code;
    np_json_int(json, "images", (int64_t)kept->nr_rows);
    np_json_real(json, "loss", facts->report->loss);
    if (multi)
        np_json_real(json, "accuracy", figures.accuracy);
    np_figures_put(json, "", kept->type, &figures);
    np_json_open(json, multi ? "classes" : "values", '[');
    for (int i = 0; i < kept->width; i++) {
        np_json_open(json, NULL, '{');
        np_json_text(json, multi ? "class" : "value", name_of(facts, i));
        if (multi) {
            np_json_int(json, "images", (int64_t)each.multi[i].images);
            np_json_int(json, "predicted", (int64_t)each.multi[i].predicted);
            np_json_int(json, "correct", (int64_t)each.multi[i].correct);
            np_json_real(json, "precision", each.multi[i].precision);
            np_json_real(json, "recall", each.multi[i].recall);
            np_json_real(json, "f1", each.multi[i].f1);
            np_json_real(json, "average_precision", each.multi[i].ap);
        } else {
            np_json_real(json, "mae", each.value[i].mae);
            np_json_real(json, "rmse", each.value[i].rmse);
            np_json_real(json, "r2", each.value[i].r2);
        }
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_free(each.any);
    return 0;
}

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
        if (np_index_name(facts->evaluation->index, kept->samples[r], name, sizeof(name)) < 0)
            snprintf(name, sizeof(name), "sample %llu", (unsigned long long)kept->samples[r]);
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
