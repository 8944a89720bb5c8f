#include "daemon/run/figures.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/run/outcomes.h"
#include "loader/base/mem.h"

int np_kept_add(struct np_kept *kept, uint64_t sample, const float *outputs, const float *targets,
    struct np_err *err)
{
    const size_t width = (size_t)kept->width, at = kept->nr_rows * width;

    if (np_try_grow(&kept->samples, &kept->samples_room, kept->nr_rows + 1, sizeof(sample), err) ||
        np_try_grow(&kept->outputs, &kept->outputs_room, at + width, sizeof(*outputs), err) ||
        np_try_grow(&kept->targets, &kept->targets_room, at + width, sizeof(*targets), err))
        return -ENOMEM;
    kept->samples[kept->nr_rows++] = sample;
    memcpy(kept->outputs + at, outputs, width * sizeof(*outputs));
    memcpy(kept->targets + at, targets, width * sizeof(*targets));
    return 0;
}

void np_kept_fini(struct np_kept *kept)
{
    np_free(kept->samples);
    np_free(kept->outputs);
    np_free(kept->targets);
    *kept = (struct np_kept){0};
}

/* --- several classes --------------------------------------------------------------------------- */

struct answer {
    float output;
    bool is;
};

static int by_output(const void *left, const void *right)
{
    const struct answer *a = left, *b = right;

    return a->output > b->output ? -1 : a->output < b->output;
}

/* The sum over the distinct outputs, largest first, of precision times the growth of recall. */
static double average_precision(struct answer *answers, uint64_t n, uint64_t images)
{
    uint64_t right = 0, before = 0;
    double sum = 0;

    qsort(answers, n, sizeof(*answers), by_output);
    for (uint64_t i = 0; i < n; i++) {
        right += answers[i].is;
        if (i + 1 < n && answers[i + 1].output == answers[i].output)
            continue;
        sum += (double)(right - before) * (double)right / (double)(i + 1);
        before = right;
    }
    return images ? sum / (double)images : NAN;
}

static double share(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 0;
}

static void look_at_class(
    const struct np_kept *kept, int class, struct answer *answers, struct np_multi_figures *figures)
{
    *figures = (struct np_multi_figures){0};
    for (uint64_t i = 0; i < kept->nr_rows; i++) {
        const size_t at = i * (size_t)kept->width + (size_t) class;
        const bool is = kept->targets[at] > 0.5f, predicted = kept->outputs[at] > 0;

        answers[i] = (struct answer){kept->outputs[at], is};
        figures->images += is;
        figures->predicted += predicted;
        figures->correct += is && predicted;
    }
    figures->precision = share(figures->correct, figures->predicted);
    figures->recall = share(figures->correct, figures->images);
    figures->f1 = share(2 * figures->correct, figures->predicted + figures->images);
    figures->ap = average_precision(answers, kept->nr_rows, figures->images);
}

static double exact(const struct np_kept *kept)
{
    const size_t width = (size_t)kept->width;
    uint64_t right = 0;

    for (uint64_t i = 0; i < kept->nr_rows; i++) {
        bool all = true;

        for (size_t at = i * width; all && at < (i + 1) * width; at++)
            all = (kept->targets[at] > 0.5f) == (kept->outputs[at] > 0);
        right += all;
    }
    return share(right, kept->nr_rows);
}

static int make_multi(const struct np_kept *kept, struct np_multi_figures *each,
    struct np_figures *figures, struct np_err *err)
{
    struct answer *answers = np_try_array(kept->nr_rows, sizeof(*answers), err);
    struct np_multi_figures all = {0};
    int nr_occur = 0;

    if (!answers)
        return -ENOMEM;
    for (int c = 0; c < kept->width; c++) {
        struct np_multi_figures one;

        look_at_class(kept, c, answers, &one);
        all.images += one.images;
        all.predicted += one.predicted;
        all.correct += one.correct;
        figures->f1 += one.f1 / kept->width;
        if (one.images) {
            figures->map += one.ap;
            nr_occur++;
        }
        if (each)
            each[c] = one;
    }
    figures->map /= nr_occur ? nr_occur : 1;
    figures->f1_micro = share(2 * all.correct, all.predicted + all.images);
    figures->accuracy = exact(kept);
    np_free(answers);
    return 0;
}

/* --- numbers ----------------------------------------------------------------------------------- */

static size_t place_of(const struct np_kept *kept, uint64_t row, int value)
{
    return row * (size_t)kept->width + (size_t)value;
}

static double difference(const struct np_kept *kept, uint64_t row, int value)
{
    const size_t at = place_of(kept, row, value);

    return (double)kept->outputs[at] - (double)kept->targets[at];
}

/* The variance of a number's labels. */
static double variance(const struct np_kept *kept, int value)
{
    const double n = (double)kept->nr_rows;
    double mean = 0, sum = 0;

    for (uint64_t i = 0; i < kept->nr_rows; i++)
        mean += (double)kept->targets[place_of(kept, i, value)] / n;
    for (uint64_t i = 0; i < kept->nr_rows; i++) {
        const double d = (double)kept->targets[place_of(kept, i, value)] - mean;

        sum += d * d / n;
    }
    return sum;
}

static void make_values(
    const struct np_kept *kept, struct np_value_figures *each, struct np_figures *figures)
{
    const double n = (double)kept->nr_rows;
    double squares = 0;

    for (int v = 0; v < kept->width; v++) {
        const double around = variance(kept, v);
        double absolute = 0, square = 0;

        for (uint64_t i = 0; i < kept->nr_rows; i++) {
            const double d = difference(kept, i, v);

            absolute += fabs(d) / n;
            square += d * d / n;
        }
        const struct np_value_figures one = {absolute, sqrt(square),
            around > 0   ? 1 - square / around
            : square > 0 ? 0
                         : 1};
        figures->value.mae += absolute / kept->width;
        figures->value.r2 += one.r2 / kept->width;
        squares += square / kept->width;
        if (each)
            each[v] = one;
    }
    figures->value.rmse = sqrt(squares);
}

int np_figures_make(
    const struct np_kept *kept, void *each, struct np_figures *ret_figures, struct np_err *err)
{
    struct np_figures figures = {0};
    int code = 0;

    if (kept->nr_rows == 0 && each)
        memset(each, 0,
            (size_t)kept->width * (kept->type == NP_LABEL_MULTI ? sizeof(struct np_multi_figures)
                                                                : sizeof(struct np_value_figures)));
    else if (kept->nr_rows > 0 && kept->type == NP_LABEL_MULTI)
        code = make_multi(kept, each, &figures, err);
    else if (kept->nr_rows > 0)
        make_values(kept, each, &figures);
    if (code == 0)
        *ret_figures = figures;
    return code;
}

void np_kept_errors(const struct np_kept *kept, int value, struct np_error_bins *ret_bins)
{
    *ret_bins = (struct np_error_bins){0};
    for (uint64_t i = 0; i < kept->nr_rows; i++)
        ret_bins->most = fmax(ret_bins->most, fabs(difference(kept, i, value)));
    for (uint64_t i = 0; i < kept->nr_rows; i++) {
        const double share =
            ret_bins->most > 0 ? difference(kept, i, value) / ret_bins->most / 2 + 0.5 : 0.5;
        const int bin = (int)(share * NP_ERROR_BINS);

        ret_bins->images[bin < NP_ERROR_BINS ? bin : NP_ERROR_BINS - 1]++;
    }
}

/* --- worst ------------------------------------------------------------------------------------- */

/* Of a sigmoid: ln(1 + e^x) - target x. */
static double cross_entropy(double x, double target)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x))) - target * x;
}

static double loss_of(const struct np_kept *kept, uint64_t row, const double *variances)
{
    const bool multi = kept->type == NP_LABEL_MULTI;
    double sum = 0;

    for (int v = 0; v < kept->width; v++) {
        const size_t at = place_of(kept, row, v);
        const double d = difference(kept, row, v);

        sum += multi ? cross_entropy((double)kept->outputs[at], (double)kept->targets[at])
                     : d * d / (variances[v] > 0 ? variances[v] : 1);
    }
    return multi ? sum / kept->width : sqrt(sum / kept->width);
}

int np_kept_worst(const struct np_kept *kept, int n, uint64_t *ret_places, double *ret_losses,
    int *ret_nr, struct np_err *err)
{
    double *losses = np_try_array(kept->nr_rows + 1, sizeof(*losses), err);
    double *variances = np_try_array((size_t)kept->width, sizeof(*variances), err);
    const int code = losses && variances ? 0 : -ENOMEM;

    for (int v = 0; code == 0 && kept->type == NP_LABEL_VALUE && v < kept->width; v++)
        variances[v] = variance(kept, v);
    for (uint64_t i = 0; code == 0 && i < kept->nr_rows; i++)
        losses[i] = loss_of(kept, i, variances);
    if (code == 0)
        *ret_nr = np_worst_rows(losses, sizeof(*losses), kept->nr_rows, n, ret_places);
    for (int i = 0; code == 0 && i < *ret_nr; i++)
        ret_losses[i] = losses[ret_places[i]];
    np_free(losses);
    np_free(variances);
    return code;
}

/* --- words ------------------------------------------------------------------------------------- */

static void put(struct np_json *json, const char *prefix, const char *name, double value)
{
    char key[40];

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    np_json_real(json, key, value);
}

void np_figures_put(struct np_json *json, const char *prefix, enum np_label_type type,
    const struct np_figures *figures)
{
    if (type == NP_LABEL_MULTI) {
        put(json, prefix, "map", figures->map);
        put(json, prefix, "f1", figures->f1);
        put(json, prefix, "f1_micro", figures->f1_micro);
    } else {
        put(json, prefix, "mae", figures->value.mae);
        put(json, prefix, "rmse", figures->value.rmse);
        put(json, prefix, "r2", figures->value.r2);
    }
}

void np_figures_read(const struct np_node *line, const char *prefix, struct np_figures *ret_figures)
{
    static const struct {
        const char *name;
        size_t at;
    } fields[] = {
        {"accuracy", offsetof(struct np_figures, accuracy)},
        {"map", offsetof(struct np_figures, map)},
        {"f1", offsetof(struct np_figures, f1)},
        {"f1_micro", offsetof(struct np_figures, f1_micro)},
        {"mae", offsetof(struct np_figures, value.mae)},
        {"rmse", offsetof(struct np_figures, value.rmse)},
        {"r2", offsetof(struct np_figures, value.r2)},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        char key[40];

        snprintf(key, sizeof(key), "%s%s", prefix, fields[i].name);
        *(double *)(void *)((char *)ret_figures + fields[i].at) =
            np_node_number(line, key, (double)NAN);
    }
}

void np_figures_text(
    enum np_label_type type, const struct np_figures *figures, char text[NP_FIGURES_TEXT])
{
    if (type == NP_LABEL_MULTI)
        snprintf(text, NP_FIGURES_TEXT,
            ", mAP %.2f%%, F1 %.2f%% (micro %.2f%%), all classes right %.2f%%", 100 * figures->map,
            100 * figures->f1, 100 * figures->f1_micro, 100 * figures->accuracy);
    else
        snprintf(text, NP_FIGURES_TEXT, ", MAE %.4g, RMSE %.4g, R2 %.4f", figures->value.mae,
            figures->value.rmse, figures->value.r2);
}
