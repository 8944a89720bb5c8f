/* The terminal's picture of a profile: the verdict's sentence, a bar a stage that says what it could do,
 * the line of what the run does, where a step's time goes, and how far to trust it. Every line is built
 * in memory, counted in columns, and cut at the terminal's width; what is red says so in words too. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/profile/trial.h"
#include "daemon/analysis/words.h"

#define RED  "\033[1;31m"
#define BOLD "\033[1m"
#define DIM  "\033[2m"

struct line {
    char text[1024];
    size_t used;
    int columns, width;
    bool colour;
};

/* Appends text up to the width: whole characters of one column each. */
static void add(struct line *line, const char *text)
{
    for (; *text; text++) {
        bool begins = ((unsigned char)*text & 0xc0) != 0x80;

        if ((begins && line->columns == line->width) || line->used + 16 > sizeof(line->text))
            break;
        line->columns += begins;
        line->text[line->used++] = *text;
    }
    line->text[line->used] = '\0';
}

static void addf(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void addf(struct line *line, const char *format, ...)
{
    char text[768];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    add(line, text);
}

/* Escapes take no column. */
static void paint(struct line *line, const char *escape)
{
    size_t n = strlen(escape);

    if (!line->colour || line->used + n + 8 > sizeof(line->text))
        return;
    memcpy(line->text + line->used, escape, n + 1);
    line->used += n;
}

static void plain(struct line *line)
{
    paint(line, "\033[0m");
}

static void pad_to(struct line *line, int column)
{
    while (line->columns < column && line->columns < line->width)
        add(line, " ");
}

static void put(struct line *line, FILE *out)
{
    fprintf(out, "%s\n", line->text);
    line->used = 0;
    line->columns = 0;
    line->text[0] = '\0';
}

static void rule(struct line *line, FILE *out)
{
    paint(line, DIM);
    add(line, " ");
    while (line->columns < line->width - 1)
        add(line, "─");
    plain(line);
    put(line, out);
}

/* --- the verdict ------------------------------------------------------------------------------ */

#define INDENT 9 /* where sentences begin, behind " LIMIT:  " */

/* A text after its label, broken between words. */
static void wrap(struct line *line, FILE *out, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, " ");
        int columns = 0;

        for (size_t i = 0; i < n; i++)
            columns += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (line->columns > INDENT && line->columns + 1 + columns >= line->width)
            put(line, out);
        if (line->columns > INDENT)
            add(line, " ");
        pad_to(line, INDENT);
        addf(line, "%.*s", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
    put(line, out);
}

static void label(struct line *line, const char *text, const char *escape)
{
    add(line, " ");
    paint(line, escape);
    add(line, text);
    plain(line);
    pad_to(line, INDENT);
}

static void tell_limit(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char name[NP_TELLING_BYTES], now[NP_TELLING_BYTES], then[NP_TELLING_BYTES];
    char gain[NP_TELLING_BYTES], spread[NP_TELLING_BYTES];

    label(line, "LIMIT:", RED);
    paint(line, RED);
    add(line, np_words_loud(verdict->limiter, name));
    plain(line);
    addf(line, "   %s img/s now → ", np_words_rate(profile->model.rate, now));
    paint(line, BOLD);
    add(line, np_words_rate(verdict->next_rate, then));
    plain(line);
    addf(line, " (%s%s) if fixed%s", np_words_gain(verdict->gain, gain),
        np_words_spread(verdict->gain, profile->noise, spread),
        profile->deep && profile->stubbed[verdict->limiter].rate > 0 ? ", measured" : "");
    put(line, out);
}

static void tell_advice(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_advice *advice = &profile->verdict.advice;
    char cost[96], rate[NP_TELLING_BYTES], gain[NP_TELLING_BYTES];

    if (profile->verdict.kind != NP_LIMITED || (!advice->key[0] && !advice->text[0]))
        return;
    label(line, "DO:", BOLD);
    if (advice->key[0]) {
        paint(line, BOLD);
        addf(line, "%s: %s -> %s", advice->key, advice->from, advice->to);
        plain(line);
        addf(line, "   %s img/s (%s)", np_words_rate(advice->rate, rate),
            np_words_gain(advice->rate / profile->model.rate, gain));
        np_words_cost(profile, cost, sizeof(cost));
        if (cost[0] && line->columns + (int)strlen(cost) + 12 > line->width) {
            put(line, out);
            pad_to(line, INDENT);
            addf(line, "needs %s", cost);
        } else if (cost[0]) {
            addf(line, ", needs %s", cost);
        }
        put(line, out);
    }
    if (advice->text[0])
        wrap(line, out, advice->text);
}

static void tell_next(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char name[NP_TELLING_BYTES], rate[NP_TELLING_BYTES], headroom[NP_TELLING_BYTES];

    label(line, "THEN:", BOLD);
    if (isfinite(verdict->next_rate))
        addf(line, "next limit is %s at %s img/s", np_words_loud(verdict->next, name),
            np_words_rate(verdict->next_rate, rate));
    else
        add(line, "nothing else limits");
    if (isfinite(verdict->next_rate) && verdict->headroom > 0)
        addf(line, " (headroom %s)", np_words_share(verdict->headroom, headroom));
    put(line, out);
}

static void tell_verified(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_advice *advice = &profile->verdict.advice;
    char rate[NP_TELLING_BYTES], gain[NP_TELLING_BYTES], told[NP_TELLING_BYTES];

    if (!profile->verified && !profile->verify_fills)
        return;
    label(line, "TRIED:", BOLD);
    if (profile->verify_fills) {
        wrap(line, out,
            "the cache's first epoch took longer than a trial waits; it pays from the second on");
        return;
    }
    addf(line, "%s: %s gave %s img/s (%s), predicted %s", advice->key, advice->to,
        np_words_rate(profile->verified_rate, rate),
        np_words_gain(profile->verified_rate / profile->model.rate, gain),
        np_words_rate(advice->rate, told));
    put(line, out);
}

static void tell_verdict(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char now[NP_TELLING_BYTES];

    if (verdict->kind == NP_LIMITED) {
        tell_limit(line, out, profile);
    } else {
        const char *word = verdict->kind == NP_BALANCED ? "BALANCED" : "INCONCLUSIVE";
        add(line, " ");
        paint(line, BOLD);
        addf(line, "%s:", word);
        plain(line);
        addf(line, " %s img/s now;", np_words_rate(profile->model.rate, now));
        wrap(line, out, verdict->reason);
    }
    tell_advice(line, out, profile);
    if (verdict->kind == NP_LIMITED)
        tell_next(line, out, profile);
    tell_verified(line, out, profile);
}

/* --- the chart -------------------------------------------------------------------------------- */

#define BAR_AT  13 /* column of the first block */
#define RIGHT_W 25 /* columns of the numbers behind the bars */

struct chart {
    const struct np_words_row *rows;
    int nr_rows;
    int bar_w; /* columns */
    double scale, rate;
};

static int now_column(const struct chart *chart)
{
    int column = (int)(chart->rate / chart->scale * chart->bar_w);

    return column < 0 ? 0 : column >= chart->bar_w ? chart->bar_w - 1 : column;
}

static void chart_head(struct line *line, FILE *out, const struct chart *chart)
{
    char now[NP_TELLING_BYTES];

    add(line, "  stage");
    pad_to(line, BAR_AT + now_column(chart) - (int)strlen("could do"));
    if (now_column(chart) >= (int)strlen("could do"))
        add(line, "could do");
    pad_to(line, BAR_AT + now_column(chart));
    addf(line, "│ now, %s", np_words_rate(chart->rate, now));
    pad_to(line, BAR_AT + chart->bar_w);
    addf(line, "%9s  %5s  %6s", "img/s", "busy", "queue");
    put(line, out);
}

/* Blocks to an eighth of a column, the line of the present rate on top; one that leaves the scale ends
 * in an arrow. */
static void bar(struct line *line, const struct chart *chart, const struct np_words_row *row)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double length = fmin(row->ceiling / chart->scale, 1) * chart->bar_w;
    int blocks = (int)length, part = (int)((length - blocks) * 8);
    bool beyond = row->ceiling > chart->scale * 1.001;

    paint(line, row->limiter ? RED : "");
    for (int i = 0; i < chart->bar_w; i++) {
        if (i == now_column(chart))
            add(line, "│");
        else if (i < blocks)
            add(line, beyond && i == chart->bar_w - 1 ? "»" : "█");
        else if (i == blocks && part > 0)
            add(line, eighths[part]);
        else if (i > blocks)
            break;
        else
            add(line, " ");
    }
    if (row->limiter)
        add(line, " ◄ LIMIT");
    plain(line);
}

static void numbers(struct line *line, const struct chart *chart, const struct np_words_row *row)
{
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    char rate[NP_TELLING_BYTES] = "", busy[NP_TELLING_BYTES], queue[NP_TELLING_BYTES];

    pad_to(line, BAR_AT + chart->bar_w);
    if (isfinite(row->ceiling))
        np_words_rate(row->ceiling, rate);
    snprintf(busy, sizeof(busy), "%.0f%%", fmin(fmax(row->busy, 0), 1) * 100);
    addf(line, "%9s  %5s  ", rate, busy);
    if (row->queue < 0) {
        add(line, "     -");
        return;
    }
    double full = fmin(fmax(row->queue, 0), 1);
    snprintf(queue, sizeof(queue), "%.0f%%", full * 100);
    addf(line, "%s %4s", levels[(int)(full * 7.999)], queue);
}

/* A stage without a bar of its own says in words what it is. */
static void chart_row(struct line *line, FILE *out, const struct np_profile *profile,
    const struct chart *chart, const struct np_words_row *row)
{
    char name[NP_TELLING_BYTES], note[160];

    np_words_note(profile, row, note, sizeof(note));
    paint(line, row->limiter ? RED : "");
    add(line, row->limiter ? " >" : "  ");
    add(line, row->limiter ? np_words_loud(row->stage, name) : row->name);
    plain(line);
    pad_to(line, BAR_AT);
    if (isfinite(row->ceiling))
        bar(line, chart, row);
    pad_to(line, BAR_AT + now_column(chart));
    if (!isfinite(row->ceiling))
        add(line, "│");
    if (line->columns + 1 + (int)strlen(note) <= BAR_AT + chart->bar_w ||
        row->stage == NP_STAGE_CHECKPOINT) {
        paint(line, DIM);
        addf(line, " %s", note);
        plain(line);
    }
    if (row->stage != NP_STAGE_CHECKPOINT)
        numbers(line, chart, row);
    put(line, out);
}

static void tell_chart(struct line *line, FILE *out, const struct np_profile *profile)
{
    struct np_words_row rows[NP_NR_STAGES];
    struct chart chart = {.rows = rows, .rate = profile->model.rate};
    bool beyond = false;

    chart.nr_rows = np_words_rows(profile, rows);
    chart.scale = np_words_scale(profile, rows, chart.nr_rows);
    chart.bar_w = line->width - BAR_AT - RIGHT_W;
    if (chart.bar_w < 8)
        chart.bar_w = 8;
    chart_head(line, out, &chart);
    for (int i = 0; i < chart.nr_rows; i++) {
        chart_row(line, out, profile, &chart, &rows[i]);
        beyond |= isfinite(rows[i].ceiling) && rows[i].ceiling > chart.scale * 1.001;
    }
    if (beyond) {
        paint(line, DIM);
        add(line, "  » goes on: the picture ends at 5 times the present rate");
        plain(line);
        put(line, out);
    }
}

/* --- the rest --------------------------------------------------------------------------------- */

/* One part of a step's time, on a line of its own where this one is full. */
static void put_part(struct line *line, FILE *out, const char *between, const char *text)
{
    int columns = 0;

    for (const char *at = text; *at; at++)
        columns += ((unsigned char)*at & 0xc0) != 0x80;
    if (line->columns + (int)strlen(between) + columns + 1 > line->width) {
        add(line, between[0] == ',' ? "," : "");
        put(line, out);
        pad_to(line, INDENT);
    } else {
        add(line, between);
    }
    add(line, text);
}

/* "step 148 ms: compute 34% | waiting: decode 63%, read 2% | else 1%": shares of all the trainer's time. */
static void tell_blame(struct line *line, FILE *out, const struct np_profile *profile)
{
    static const char *const words[] = {"compute", "waiting:", "checkpoints", "else"};
    static const enum np_words_where order[] = {
        NP_WHERE_COMPUTE, NP_WHERE_WAIT, NP_WHERE_CHECKPOINT, NP_WHERE_ELSE};
    const struct np_observation *observation = &profile->observation;
    struct np_words_part parts[NP_TELLING_PARTS];
    int n = np_words_parts(profile, parts), nr_put = 0;
    char share[NP_TELLING_BYTES], text[80];

    if (n == 0 || observation->steps == 0)
        return;
    np_words_time(observation->seconds / (double)observation->steps, share);
    addf(line, " step %s:", share);
    for (size_t where = 0; where < sizeof(order) / sizeof(*order); where++) {
        bool more = false; /* of one kind: the largest first, as they come */
        for (int i = 0; i < n; i++) {
            if (parts[i].where != order[where] || parts[i].share < 0.0005)
                continue;
            bool wait = parts[i].where == NP_WHERE_WAIT;
            snprintf(text, sizeof(text), "%s%s%s %s", more ? "" : words[parts[i].where],
                wait && !more ? " " : "", wait ? np_stage_names[parts[i].stage] : "",
                np_words_share(parts[i].share, share));
            put_part(line, out, more ? ", " : nr_put ? " | " : " ", text);
            more = true;
            nr_put++;
        }
    }
    put(line, out);
}

static void tell_times(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_ceilings *ceilings = &profile->ceilings;
    char a[NP_TELLING_BYTES], b[NP_TELLING_BYTES];
    enum np_stage stage = profile->verdict.limiter;
    const struct np_observed_stage *observed = &profile->observation.stages[stage];

    if (ceilings->read_cold > 0 || ceilings->read_warm > 0)
        addf(line, " disk alone, cold/warm %s/%s img/s",
            ceilings->read_cold > 0 ? np_words_rate(ceilings->read_cold, a) : "-",
            ceilings->read_warm > 0 ? np_words_rate(ceilings->read_warm, b) : "-");
    if (observed->p99_s > 0)
        addf(line, "%s p50/p99 %s %s/%s", line->columns ? " ·" : "", np_stage_names[stage],
            np_words_time(observed->p50_s, a), np_words_time(observed->p99_s, b));
    if (line->columns)
        put(line, out);
}

static void tell_deep(struct line *line, FILE *out, const struct np_profile *profile)
{
    char rate[NP_TELLING_BYTES], text[NP_NR_STAGES * 48];
    int n = 0;

    for (int s = 0; profile->deep && s < NP_NR_STAGES; s++)
        if (profile->stubbed[s].rate > 0)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s %s",
                n ? " · " : "img/s without ", np_stage_names[s],
                np_words_rate(profile->stubbed[s].rate, rate));
    if (n == 0)
        return;
    add(line, " measured,");
    wrap(line, out, text);
}

static void tell_before(struct line *line, FILE *out, const struct np_profile *profile)
{
    const struct np_profile *before = profile->before;
    char was[NP_TELLING_BYTES], is[NP_TELLING_BYTES];

    if (!before)
        return;
    addf(line, " before: %s img/s, now %s (%+.1f%%)", np_words_rate(before->model.rate, was),
        np_words_rate(profile->model.rate, is),
        fmin(fmax(profile->model.rate / before->model.rate - 1, -1), 1e4) * 100);
    if (before->verdict.kind == NP_LIMITED)
        addf(line, "; its limit was %s", np_words_loud(before->verdict.limiter, was));
    put(line, out);
}

/* A path a line, however long: a path that is cut is of no use. */
static void tell_files(const char *files, FILE *out)
{
    const char *label = " files:";

    while (*files) {
        const char *end = strstr(files, "  ");
        const int n = end ? (int)(end - files) : (int)strlen(files);

        fprintf(out, "%s %.*s\n", label, n, files);
        label = "       ";
        files += n;
        files += strspn(files, " ");
    }
}

void np_profile_screen(const struct np_profile *profile, int width, bool colour, FILE *out)
{
    struct line line = {.width = width < 40 ? 40 : width > 100 ? 100 : width, .colour = colour};
    char trust[256];

    tell_verdict(&line, out, profile);
    rule(&line, out);
    tell_chart(&line, out, profile);
    rule(&line, out);
    tell_blame(&line, out, profile);
    tell_times(&line, out, profile);
    tell_deep(&line, out, profile);
    tell_before(&line, out, profile);
    np_words_trust(profile, trust, sizeof(trust));
    addf(&line, " trust: %s", trust);
    put(&line, out);
    tell_files(profile->files, out);
}
