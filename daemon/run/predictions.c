#include "daemon/run/predictions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/run/inference.h"
#include "daemon/ui/csv.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

const char *const np_prediction_formats[] = {"text", "jsonl", "csv", NULL};

static int nr_top(const struct np_predictions *predictions)
{
    const int n = predictions->classes->nr_items;

    return predictions->top < n ? predictions->top : n;
}

static const char *class_name(const struct np_predictions *predictions, int class)
{
    return predictions->classes->items[class]->text;
}

/* --- formats ------------------------------------------------------------------------------- */

static void put_text(struct np_predictions *predictions, const char *path, FILE *out)
{
    fprintf(out, "%s: ", path);
    for (int k = 0; k < nr_top(predictions); k++) {
        const int best = np_take_best(predictions->odds, predictions->classes->nr_items);

        fprintf(out, "%s%.60s %.2f%%", k ? ", " : "", class_name(predictions, best),
            100 * predictions->odds[best]);
        predictions->odds[best] = -1;
    }
}

static void put_csv(struct np_predictions *predictions, const char *path, FILE *out)
{
    np_csv_text(out, path);
    for (int k = 0; k < nr_top(predictions); k++) {
        const int best = np_take_best(predictions->odds, predictions->classes->nr_items);

        fputc(',', out);
        np_csv_text(out, class_name(predictions, best));
        fprintf(out, ",%.6g", predictions->odds[best]);
        predictions->odds[best] = -1;
    }
    fputc('\n', out);
}

static struct np_node *take_top(struct np_predictions *predictions)
{
    struct np_node *top = np_node_new(NP_NODE_LIST, 0, 0);

    for (int k = 0; k < nr_top(predictions); k++) {
        const int best = np_take_best(predictions->odds, predictions->classes->nr_items);
        struct np_node *item = np_node_new(NP_NODE_MAP, 0, 0);
        char number[32];

        snprintf(number, sizeof(number), "%.6g", predictions->odds[best]);
        struct np_node *name = np_node_scalar(class_name(predictions, best), 0, 0);
        name->quoted = true;
        np_node_add(item, "class", name);
        np_node_add(item, "probability", np_node_scalar(number, 0, 0));
        np_node_add(top, NULL, item);
        predictions->odds[best] = -1;
    }
    return top;
}

/* The line is valid until the next one; NULL: out of memory. */
static const char *json_line(struct np_predictions *predictions, const char *path)
{
    struct np_json *line = &predictions->ui->object;
    const int first = np_take_best(predictions->odds, predictions->classes->nr_items);
    const double odds = predictions->odds[first];

    np_json_begin(line, "prediction");
    np_json_text(line, "path", path);
    if (predictions->several)
        np_odds_classes(line, predictions->classes, predictions->odds);
    np_json_int(line, "label", first);
    np_json_text(line, "class", class_name(predictions, first));
    np_json_real(line, "probability", odds);
    struct np_node *top = take_top(predictions);
    np_json_node(line, "top", top);
    np_node_free(top);
    return np_json_end(line);
}

/* --- numbers ------------------------------------------------------------------------------- */

static void put_numbers_text(
    const struct np_predictions *predictions, const char *path, const float *outputs, FILE *out)
{
    fprintf(out, "%s: ", path);
    for (int i = 0; i < predictions->classes->nr_items; i++)
        fprintf(out, "%s%.60s %.6g", i ? ", " : "", class_name(predictions, i), (double)outputs[i]);
}

static void put_numbers_csv(
    const struct np_predictions *predictions, const char *path, const float *outputs, FILE *out)
{
    np_csv_text(out, path);
    for (int i = 0; i < predictions->classes->nr_items; i++)
        fprintf(out, ",%.9g", (double)outputs[i]);
    fputc('\n', out);
}

/* Of several classes: a column for each, as that of the numbers. */
static void put_odds_csv(const struct np_predictions *predictions, const char *path, FILE *out)
{
    np_csv_text(out, path);
    for (int i = 0; i < predictions->classes->nr_items; i++)
        fprintf(out, ",%.6g", predictions->odds[i]);
    fputc('\n', out);
}

static const char *numbers_line(
    struct np_predictions *predictions, const char *path, const float *outputs)
{
    struct np_json *line = &predictions->ui->object;

    np_json_begin(line, "prediction");
    np_json_text(line, "path", path);
    np_json_open(line, "values", '{');
    for (int i = 0; i < predictions->classes->nr_items; i++)
        np_json_real(line, class_name(predictions, i), (double)outputs[i]);
    np_json_close(line, '}');
    return np_json_end(line);
}

/* --- lines --------------------------------------------------------------------------------- */

static int failed(const struct np_predictions *predictions, struct np_err *err)
{
    return np_err_set(err, errno ? -errno : -EIO, "%s: cannot be written: %s", predictions->path,
        strerror(errno ? errno : EIO));
}

static FILE *output(const struct np_predictions *predictions)
{
    return predictions->file ? predictions->file : stdout;
}

int np_predictions_open(struct np_predictions *predictions, const char *path, struct np_err *err)
{
    const int n = predictions->classes->nr_items;

    predictions->path = path ? path : "standard output";
    predictions->odds = np_try_array((size_t)n, sizeof(*predictions->odds), err);
    if (!predictions->odds)
        return -ENOMEM;
    if (path && !(predictions->file = fopen(path, "we")))
        return np_err_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (predictions->format == NP_PREDICT_CSV) {
        fputs("path", output(predictions));
        const bool named = predictions->numbers || predictions->several;

        for (int k = 1; k <= nr_top(predictions) && !named; k++)
            fprintf(output(predictions), ",class_%d,probability_%d", k, k);
        for (int i = 0; i < n && named; i++) {
            fputc(',', output(predictions));
            np_csv_text(output(predictions), class_name(predictions, i));
        }
        fputc('\n', output(predictions));
    }
    return 0;
}

static void put_csv_of(
    struct np_predictions *predictions, const char *path, const float *logits, FILE *out)
{
    if (predictions->numbers)
        put_numbers_csv(predictions, path, logits, out);
    else if (predictions->several)
        put_odds_csv(predictions, path, out);
    else
        put_csv(predictions, path, out);
}

static void put_text_of(
    struct np_predictions *predictions, const char *path, const float *logits, FILE *out)
{
    if (predictions->numbers)
        put_numbers_text(predictions, path, logits, out);
    else
        put_text(predictions, path, out);
}

int np_predictions_put(
    struct np_predictions *predictions, const char *path, const float *logits, struct np_err *err)
{
    char *text = NULL;
    size_t bytes = 0;

    if (!predictions->numbers)
        np_odds(logits, predictions->classes->nr_items, predictions->sigmoids, predictions->odds);
    if (predictions->format == NP_PREDICT_CSV) {
        put_csv_of(predictions, path, logits, output(predictions));
    } else if (predictions->format == NP_PREDICT_JSONL) {
        const char *line = predictions->numbers ? numbers_line(predictions, path, logits)
                                                : json_line(predictions, path);

        fputs(line ? line : "", output(predictions));
    } else if (predictions->file) {
        put_text_of(predictions, path, logits, predictions->file);
        fputc('\n', predictions->file);
    } else {
        FILE *out = open_memstream(&text, &bytes);

        if (!out)
            return np_err_set(err, -ENOMEM, "%s: out of memory for its line", path);
        put_text_of(predictions, path, logits, out);
        fclose(out);
        np_ui_say(predictions->ui, "%s", text);
        free(text);
    }
    return predictions->file && ferror(predictions->file) ? failed(predictions, err) : 0;
}

int np_predictions_close(struct np_predictions *predictions, struct np_err *err)
{
    int code = 0;

    errno = 0;
    if (predictions->file && fclose(predictions->file) != 0)
        code = failed(predictions, err);
    else if (!predictions->file)
        fflush(stdout);
    np_free(predictions->odds);
    predictions->odds = NULL;
    predictions->file = NULL;
    return code;
}
