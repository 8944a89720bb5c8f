#include "daemon/run/outcomes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

int np_outcomes_add(struct np_outcomes *outcomes, uint64_t sample, int32_t label,
    const float *logits, struct np_err *err)
{
    struct np_outcome row = {.sample = sample, .label = label};
    const float own = logits[label];
    double sum = 0;

    for (int i = 1; i < outcomes->nr_classes; i++)
        if (logits[i] > logits[row.predicted])
            row.predicted = i;
    const double max = (double)logits[row.predicted];
    for (int i = 0; i < outcomes->nr_classes; i++) {
        sum += exp((double)logits[i] - max);
        row.rank += logits[i] > own || (i < label && logits[i] == own);
    }
    if (outcomes->sigmoids) {
        row.probability = (float)(1 / (1 + exp(-max)));
        row.loss = fmax(0, -(double)own) + log1p(exp(-fabs((double)own)));
    } else {
        row.probability = (float)(1 / sum);
        /* cppcheck-suppress invalidFunctionArg ; there are classes: sum is at least 1 */
        row.loss = max + log(sum) - (double)own;
    }
    row.own = (float)exp(-row.loss);
    if (np_try_grow(&outcomes->rows, &outcomes->room, outcomes->nr_rows + 1, sizeof(row), err) < 0)
        return -ENOMEM;
    outcomes->rows[outcomes->nr_rows++] = row;
    return 0;
}

void np_outcomes_fini(struct np_outcomes *outcomes)
{
    np_free(outcomes->rows);
    *outcomes = (struct np_outcomes){0};
}

/* --- classes ------------------------------------------------------------------------------- */

static double share(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 0;
}

static void add_weighted(
    struct np_class_figures *sum, const struct np_class_figures *figures, double weight)
{
    sum->precision += weight * figures->precision;
    sum->recall += weight * figures->recall;
    sum->f1 += weight * figures->f1;
}

void np_outcomes_classes(const struct np_outcomes *outcomes, struct np_class_figures *ret_classes,
    struct np_class_means *ret_means)
{
    struct np_class_means means = {0};

    memset(ret_classes, 0, sizeof(*ret_classes) * (size_t)outcomes->nr_classes);
    for (uint64_t i = 0; i < outcomes->nr_rows; i++) {
        const struct np_outcome *row = &outcomes->rows[i];

        ret_classes[row->label].support++;
        ret_classes[row->predicted].predicted++;
        ret_classes[row->label].correct += row->rank == 0;
    }
    for (int c = 0; c < outcomes->nr_classes; c++) {
        struct np_class_figures *figures = &ret_classes[c];

        figures->precision = share(figures->correct, figures->predicted);
        figures->recall = share(figures->correct, figures->support);
        figures->f1 = share(2 * figures->correct, figures->predicted + figures->support);
        means.nr_classes += figures->predicted + figures->support > 0;
    }
    for (int c = 0; c < outcomes->nr_classes; c++) { /* a class that does not occur adds zeros */
        add_weighted(
            &means.macro, &ret_classes[c], 1.0 / (means.nr_classes ? means.nr_classes : 1));
        add_weighted(
            &means.weighted, &ret_classes[c], share(ret_classes[c].support, outcomes->nr_rows));
    }
    *ret_means = means;
}

double np_outcomes_top(const struct np_outcomes *outcomes, int k)
{
    uint64_t nr = 0;

    for (uint64_t i = 0; i < outcomes->nr_rows; i++)
        nr += outcomes->rows[i].rank < k;
    return share(nr, outcomes->nr_rows);
}

/* --- calibration --------------------------------------------------------------------------- */

void np_outcomes_calibration(
    const struct np_outcomes *outcomes, struct np_calibration *ret_calibration)
{
    struct np_calibration *all = ret_calibration;

    memset(all, 0, sizeof(*all));
    for (uint64_t i = 0; i < outcomes->nr_rows; i++) {
        const struct np_outcome *row = &outcomes->rows[i];
        const int bin = (int)ceil((double)row->probability * NP_CALIBRATION_BINS) - 1;
        const int b = bin < 0 ? 0 : bin < NP_CALIBRATION_BINS ? bin : NP_CALIBRATION_BINS - 1;

        all->bins[b].images++;
        all->bins[b].confidence += (double)row->probability;
        all->bins[b].accuracy += row->rank == 0;
    }
    for (int b = 0; b < NP_CALIBRATION_BINS; b++) {
        const double images = (double)all->bins[b].images;

        if (all->bins[b].images == 0)
            continue;
        all->bins[b].confidence /= images;
        all->bins[b].accuracy /= images;
        const double gap = fabs(all->bins[b].accuracy - all->bins[b].confidence);
        all->error += gap * images / (double)outcomes->nr_rows;
        all->max_error = fmax(all->max_error, gap);
    }
}

/* --- confusions ---------------------------------------------------------------------------- */

static int by_cell(const void *left, const void *right)
{
    const struct np_confusion *a = left, *b = right;

    if (a->label != b->label)
        return a->label < b->label ? -1 : 1;
    return a->predicted < b->predicted ? -1 : a->predicted > b->predicted;
}

int np_outcomes_confusions(const struct np_outcomes *outcomes, struct np_confusion **ret_cells,
    uint64_t *ret_nr, struct np_err *err)
{
    struct np_confusion *cells = np_try_array(outcomes->nr_rows + 1, sizeof(*cells), err);
    uint64_t nr = 0;

    if (!cells)
        return -ENOMEM;
    for (uint64_t i = 0; i < outcomes->nr_rows; i++)
        cells[i] = (struct np_confusion){outcomes->rows[i].label, outcomes->rows[i].predicted, 1};
    qsort(cells, outcomes->nr_rows, sizeof(*cells), by_cell);
    for (uint64_t i = 0; i < outcomes->nr_rows; i++)
        if (nr > 0 && by_cell(&cells[nr - 1], &cells[i]) == 0)
            cells[nr - 1].images++;
        else
            cells[nr++] = cells[i];
    *ret_cells = cells;
    *ret_nr = nr;
    return 0;
}

/* --- worst --------------------------------------------------------------------------------- */

static double loss_at(const double *losses, size_t stride, uint64_t row)
{
    return *(const double *)(const void *)((const char *)losses + row * stride);
}

int np_worst_rows(
    const double *losses, size_t stride, uint64_t nr_rows, int n, uint64_t *ret_places)
{
    int nr = 0;

    for (uint64_t i = 0; i < nr_rows; i++) {
        const double loss = loss_at(losses, stride, i);
        int at = nr;

        while (at > 0 && loss_at(losses, stride, ret_places[at - 1]) < loss)
            at--;
        if (at == n)
            continue;
        nr += nr < n;
        memmove(&ret_places[at + 1], &ret_places[at], sizeof(*ret_places) * (size_t)(nr - 1 - at));
        ret_places[at] = i;
    }
    return nr;
}

int np_outcomes_worst(const struct np_outcomes *outcomes, int n, uint64_t *ret_places)
{
    return outcomes->nr_rows ? np_worst_rows(&outcomes->rows->loss, sizeof(*outcomes->rows),
                                   outcomes->nr_rows, n, ret_places)
                             : 0;
}
