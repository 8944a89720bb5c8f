/* `nnpipe data stats`: sizes, classes, and each channel's mean and standard deviation over all
 * pixels of a set, in 0..1, for `normalize:`. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "daemon/data/data.h"
#include "loader/base/mem.h"

#define MAX_CLASS_LINES 100

struct spread {
    uint64_t min, max, sum;
};

struct stats {
    uint64_t samples, good, bad, unlabelled;
    struct spread bytes, width, height;
    uint64_t pixels, sum[3];
    long double squares[3]; /* a u64 overflows after 2.8e14 pixels, which a large set can have */
    bool colour;            /* true: some picture has three channels */
    uint64_t *of_class;     /* (nr_classes): samples of each */
};

static void add(struct spread *spread, uint64_t value)
{
    spread->min = spread->sum == 0 || value < spread->min ? value : spread->min;
    spread->max = value > spread->max ? value : spread->max;
    spread->sum += value;
}

/* A grey picture counts as three equal channels. */
static void add_pixels(struct stats *stats, const struct np_pixels *pixels)
{
    uint64_t sum[3] = {0}, squares[3] = {0};

    for (int y = 0; y < pixels->height; y++) {
        const uint8_t *row = pixels->data + y * pixels->stride;

        for (int x = 0; x < pixels->width; x++)
            for (int c = 0; c < 3; c++) {
                const uint64_t value = row[x * pixels->channels + (pixels->channels == 3 ? c : 0)];

                sum[c] += value;
                squares[c] += value * value;
            }
    }
    for (int c = 0; c < 3; c++) {
        stats->sum[c] += sum[c];
        stats->squares[c] += (long double)squares[c];
    }
    stats->pixels += (uint64_t)pixels->width * (uint64_t)pixels->height;
    stats->colour = stats->colour || pixels->channels == 3;
}

static void add_sample(
    struct stats *stats, const struct np_index *index, struct np_data_pixels *pixels, uint64_t i)
{
    const struct np_record *record = np_index_record(index, i);
    struct np_data_sample sample;
    struct np_err why = {0};

    stats->samples++;
    if (record->no_label)
        stats->unlabelled++;
    else
        stats->of_class[record->label]++;
    if (np_data_pixels_get(pixels, i, &sample, &why)) {
        char place[4096];

        np_data_place(index, i, place, sizeof(place));
        fprintf(stderr, "bad: %s: %s\n", place, why.text);
        stats->bad++;
        return;
    }
    stats->good++;
    add(&stats->bytes, sample.nr_bytes);
    add(&stats->width, (uint64_t)sample.pixels.width);
    add(&stats->height, (uint64_t)sample.pixels.height);
    add_pixels(stats, &sample.pixels);
}

static double mean(const struct stats *stats, int channel)
{
    return stats->pixels ? (double)stats->sum[channel] / (double)stats->pixels / 255 : 0;
}

static double deviation(const struct stats *stats, int channel)
{
    const long double n = stats->pixels ? stats->pixels : 1, m = stats->sum[channel] / n;
    const long double variance = stats->squares[channel] / n - m * m;

    return variance > 0 ? (double)sqrtl(variance) / 255 : 0;
}

/* [0.4914, 0.4822, 0.4465] */
static void put_channels(struct np_ui *ui, const char *key, const struct stats *stats,
    double (*value)(const struct stats *stats, int channel))
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int c = 0; c < (stats->colour ? 3 : 1); c++) {
        char text[32];

        snprintf(text, sizeof(text), "%.6f", value(stats, c));
        np_node_add(list, NULL, np_node_scalar(text, 0, 0));
    }
    np_json_node(&ui->object, key, list);
    np_node_free(list);
}

static void put_spread(struct np_ui *ui, const char *what, const struct spread *spread, uint64_t n)
{
    char key[32];

    snprintf(key, sizeof(key), "%s_min", what);
    np_json_int(&ui->object, key, (int64_t)spread->min);
    snprintf(key, sizeof(key), "%s_mean", what);
    np_json_real(&ui->object, key, n ? (double)spread->sum / (double)n : 0);
    snprintf(key, sizeof(key), "%s_max", what);
    np_json_int(&ui->object, key, (int64_t)spread->max);
}

static void put_facts(
    struct np_ui *ui, const char *event, const struct np_index *index, const struct stats *stats)
{
    np_json_begin(&ui->object, event);
    np_json_int(&ui->object, "samples", (int64_t)stats->samples);
    np_json_int(&ui->object, "classes", index->nr_classes);
    np_json_int(&ui->object, "bytes", (int64_t)stats->bytes.sum);
    np_json_int(&ui->object, "bad", (int64_t)stats->bad);
    np_json_int(&ui->object, "unlabelled", (int64_t)stats->unlabelled);
    put_spread(ui, "record_bytes", &stats->bytes, stats->good);
    put_spread(ui, "width", &stats->width, stats->good);
    put_spread(ui, "height", &stats->height, stats->good);
    put_channels(ui, "mean", stats, mean);
    put_channels(ui, "std", stats, deviation);
}

static void say_spread(struct np_ui *ui, const char *what, const struct spread *spread, uint64_t n)
{
    np_ui_say(ui, "  %-7s %" PRIu64 " to %" PRIu64 ", mean %.1f", what, spread->min, spread->max,
        n ? (double)spread->sum / (double)n : 0);
}

static void say_channels(const struct stats *stats, char *text, size_t text_bytes,
    double (*value)(const struct stats *stats, int channel))
{
    size_t used = 0;

    for (int c = 0; c < (stats->colour ? 3 : 1) && used < text_bytes; c++)
        used += (size_t)snprintf(
            text + used, text_bytes - used, "%s%.4f", c ? ", " : "", value(stats, c));
}

/* Prints a line per class; for many classes, the spread of their sizes. */
static void say_classes(struct np_ui *ui, const struct np_index *index, const struct stats *stats)
{
    const int classes = index->nr_classes;
    struct spread spread = {.min = UINT64_MAX};

    for (int c = 0; c < classes; c++) {
        const uint64_t n = stats->of_class[c];

        if (classes <= MAX_CLASS_LINES)
            np_ui_say(ui, "  %8" PRIu64 "  %s", n, index->classes[c]);
        spread.min = n < spread.min ? n : spread.min;
        spread.max = n > spread.max ? n : spread.max;
        spread.sum += n;
    }
    if (classes > MAX_CLASS_LINES) {
        say_spread(ui, "a class", &spread, (uint64_t)classes);
        np_ui_say(ui, "  (--json lists the classes)");
    }
}

static void say_set(struct np_ui *ui, const struct np_data_set *set, const struct np_index *index,
    const struct stats *stats)
{
    char means[64], deviations[64];

    say_channels(stats, means, sizeof(means), mean);
    say_channels(stats, deviations, sizeof(deviations), deviation);
    np_ui_say(ui, "%s: %" PRIu64 " samples in %d %s, %" PRIu64 " bytes, %" PRIu64 " bad", set->what,
        stats->samples, index->nr_classes, np_index_labels_word(index), stats->bytes.sum,
        stats->bad);
    say_spread(ui, "bytes", &stats->bytes, stats->good);
    say_spread(ui, "width", &stats->width, stats->good);
    say_spread(ui, "height", &stats->height, stats->good);
    say_classes(ui, index, stats);
    if (stats->unlabelled)
        np_ui_say(ui, "  %8" PRIu64 "  in no class: training %s", stats->unlabelled,
            set->options->unlabelled == NP_UNLABELLED_SKIP
                ? "leaves them out (`unlabelled: skip`)"
                : "refuses them, `unlabelled: skip` leaves them out");
    np_ui_say(ui, "  normalize: {mean: [%s], std: [%s]}", means, deviations);
}

static void put_classes(
    struct np_ui *ui, const char *what, const struct np_index *index, const struct stats *stats)
{
    for (int c = 0; c < index->nr_classes; c++) {
        np_json_begin(&ui->object, "class");
        np_json_text(&ui->object, "set", what);
        np_json_int(&ui->object, "label", c);
        np_json_text(&ui->object, "class", index->classes[c]);
        np_json_int(&ui->object, "samples", (int64_t)stats->of_class[c]);
        np_ui_event(ui, np_json_end(&ui->object));
    }
    put_facts(ui, "set", index, stats);
    np_json_text(&ui->object, "set", what);
    np_ui_event(ui, np_json_end(&ui->object));
}

/* The `done` object has the facts of the first set, because `normalize:` comes from training
 * data. */
struct describing {
    struct np_ui *ui;
    char *done;
};

static int describe(
    void *context, const struct np_data_set *set, struct np_index *index, struct np_err *err)
{
    struct describing *describing = context;
    struct np_ui *ui = describing->ui;
    struct np_data_pixels pixels;
    struct stats stats = {0};
    int code;

    stats.of_class = np_try_array((size_t)index->nr_classes + 1, sizeof(uint64_t), err);
    code = stats.of_class ? np_data_pixels_open(index, set->max_pixels, &pixels, err) : -ENOMEM;
    if (!code) {
        for (uint64_t i = 0; i < np_index_samples(index); i++)
            add_sample(&stats, index, &pixels, i);
        np_data_pixels_close(&pixels);
        say_set(ui, set, index, &stats);
        put_classes(ui, set->what, index, &stats);
        if (!describing->done) {
            put_facts(ui, "done", index, &stats);
            describing->done = np_strdup(np_json_end(&ui->object));
        }
    }
    np_free(stats.of_class);
    return code;
}

static int run(struct np_ui *ui, const struct np_data_sets *sets, void *context)
{
    struct describing describing = {.ui = ui};
    int code = np_data_each_set(ui, sets, describe, &describing);

    if (code == NP_EXIT_DONE)
        np_ui_event(ui, describing.done);
    np_free(describing.done);
    return code;
}

int np_data_stats(int argc, char **argv)
{
    return np_data_read_sets(argc, argv, NULL, run, NULL);
}
