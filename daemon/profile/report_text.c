/* Prints a profile on the terminal: the verdict, a bar per stage for its ceiling, a line at the
 * run's rate, where a step's time goes, and how reliable the figures are. Each line is built in
 * memory, counted in columns, and cut at the terminal's width. Words repeat what colours mean. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/profile/trial.h"
#include "daemon/analysis/words.h"
#include "loader/base/text.h"

/* Marks in a line's text that change the style from here on; they take no column. */
#define PLAIN "\001"
#define RED   "\002"
#define BOLD  "\003"
#define DIM   "\004"

struct screen {
    const struct np_profile *profile;
    FILE *out;
    int width;
    bool colour;
    char text[1024];
    size_t used;
    int columns;
};

/* Appends text up to the width: whole characters of one column each. */
static void add(struct screen *screen, const char *text)
{
    static const char *const escapes[] = {"", "\033[0m", "\033[1;31m", "\033[1m", "\033[2m"};
    bool full = false;

    for (; *text && screen->used + 16 < sizeof(screen->text); text++) {
        const unsigned char byte = (unsigned char)*text;
        const bool begins = (byte & 0xc0) != 0x80;

        if (byte < sizeof(escapes) / sizeof(*escapes)) {
            if (screen->colour)
                screen->used += (size_t)sprintf(screen->text + screen->used, "%s", escapes[byte]);
            continue;
        }
        full |= begins && screen->columns == screen->width;
        if (full)
            continue;
        screen->columns += begins;
        screen->text[screen->used++] = *text;
    }
    screen->text[screen->used] = '\0';
}

static void addf(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void addf(struct screen *screen, const char *format, ...)
{
    char text[768];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    add(screen, text);
}

static void pad_to(struct screen *screen, int column)
{
    while (screen->columns < column && screen->columns < screen->width)
        add(screen, " ");
}

static void end_line(struct screen *screen)
{
    fprintf(screen->out, "%s\n", screen->text);
    screen->used = 0;
    screen->columns = 0;
    screen->text[0] = '\0';
}

static void rule(struct screen *screen)
{
    add(screen, DIM " ");
    while (screen->columns < screen->width - 1)
        add(screen, "─");
    add(screen, PLAIN);
    end_line(screen);
}

#define INDENT 9 /* where sentences begin, after " LIMIT:  " */

/* Adds a text after its label, wrapped between words. */
static void wrap(struct screen *screen, const char *text)
{
    while (*text) {
        char word[256];
        const size_t n = strcspn(text, " ");

        snprintf(word, sizeof(word), "%.*s", (int)n, text);
        if (screen->columns > INDENT &&
            screen->columns + 1 + np_text_columns(word) >= screen->width)
            end_line(screen);
        if (screen->columns > INDENT)
            add(screen, " ");
        pad_to(screen, INDENT);
        add(screen, word);
        text += n;
        text += strspn(text, " ");
    }
    end_line(screen);
}

static void label(struct screen *screen, const char *style, const char *text)
{
    addf(screen, " %s%s" PLAIN, style, text);
    pad_to(screen, INDENT);
}

/* --- the verdict --------------------------------------------------------------------------- */

static void put_limit(struct screen *screen)
{
    const struct np_profile *profile = screen->profile;
    const struct np_profile_verdict *verdict = &profile->verdict;

    label(screen, RED, "LIMIT:");
    addf(screen, RED "%s" PLAIN "   %s img/s now → " BOLD "%s" PLAIN " (%s%s) if fixed%s",
        np_words_loud(verdict->limiter).text, np_words_rate(profile->model.rate).text,
        np_words_rate(verdict->next_rate).text, np_words_gain(verdict->gain).text,
        np_words_spread(verdict->gain, profile->noise).text,
        profile->deep && profile->stubbed[verdict->limiter].rate > 0 ? ", measured" : "");
    end_line(screen);
}

static void put_advice(struct screen *screen)
{
    const struct np_advice *advice = &screen->profile->verdict.advice;
    char cost[96];

    if (!advice->key[0] && !advice->text[0])
        return;
    label(screen, BOLD, "DO:");
    if (advice->key[0]) {
        addf(screen, BOLD "%s: %s -> %s" PLAIN "   %s img/s (%s)", advice->key, advice->from,
            advice->to, np_words_rate(advice->rate).text,
            np_words_gain(advice->rate / screen->profile->model.rate).text);
        np_words_cost(screen->profile, cost, sizeof(cost));
        const bool wide = screen->columns + (int)strlen(cost) + 12 > screen->width;
        if (cost[0] && wide) {
            end_line(screen);
            pad_to(screen, INDENT);
        }
        if (cost[0])
            addf(screen, "%sneeds %s", wide ? "" : ", ", cost);
        end_line(screen);
    }
    if (advice->text[0])
        wrap(screen, advice->text);
}

static void put_next(struct screen *screen)
{
    const struct np_profile_verdict *verdict = &screen->profile->verdict;

    label(screen, BOLD, "THEN:");
    if (isfinite(verdict->next_rate))
        addf(screen, "next limit is %s at %s img/s", np_words_loud(verdict->next).text,
            np_words_rate(verdict->next_rate).text);
    else
        add(screen, "nothing else limits");
    if (isfinite(verdict->next_rate) && verdict->headroom > 0)
        addf(screen, " (headroom %s)", np_words_share(verdict->headroom).text);
    end_line(screen);
}

static void put_tried(struct screen *screen)
{
    const struct np_profile *profile = screen->profile;
    const struct np_advice *advice = &profile->verdict.advice;

    if (!profile->verified && !profile->verify_fills)
        return;
    label(screen, BOLD, "TRIED:");
    if (profile->verify_fills) {
        wrap(screen, "the cache's first epoch took longer than a trial waits; it is faster from "
                     "the second on");
        return;
    }
    addf(screen, "%s: %s gave %s img/s (%s), predicted %s", advice->key, advice->to,
        np_words_rate(profile->verified_rate).text,
        np_words_gain(profile->verified_rate / profile->model.rate).text,
        np_words_rate(advice->rate).text);
    end_line(screen);
}

static void put_verdict(struct screen *screen)
{
    const struct np_profile_verdict *verdict = &screen->profile->verdict;

    if (verdict->kind == NP_LIMITED) {
        put_limit(screen);
        put_advice(screen);
        put_next(screen);
    } else {
        addf(screen, " " BOLD "%s:" PLAIN " %s img/s now;",
            verdict->kind == NP_BALANCED ? "BALANCED" : "INCONCLUSIVE",
            np_words_rate(screen->profile->model.rate).text);
        wrap(screen, verdict->reason);
    }
    put_tried(screen);
}

/* --- the chart ----------------------------------------------------------------------------- */

#define BAR_AT  13 /* column of the first block */
#define RIGHT_W 25 /* columns of the numbers after the bars */

struct chart {
    int width, now; /* columns; now: of the line at the run's rate, from the first block */
    double scale;
};

static void put_head(struct screen *screen, const struct chart *chart)
{
    const int words = (int)strlen("could do");

    add(screen, "  stage");
    pad_to(screen, BAR_AT + chart->now - words);
    add(screen, chart->now >= words ? "could do" : "");
    pad_to(screen, BAR_AT + chart->now);
    addf(screen, "│ now, %s", np_words_rate(screen->profile->model.rate).text);
    pad_to(screen, BAR_AT + chart->width);
    addf(screen, "%9s  %5s  %6s", "img/s", "busy", "queue");
    end_line(screen);
}

static bool is_beyond(const struct chart *chart, const struct np_words_row *row)
{
    return isfinite(row->ceiling) && row->ceiling > chart->scale * 1.001;
}

/* Draws blocks to an eighth of a column, and over them the line at the run's rate; a bar beyond
 * the scale ends in an arrow. */
static void put_bar(
    struct screen *screen, const struct chart *chart, const struct np_words_row *row)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const double length = fmin(row->ceiling / chart->scale, 1) * chart->width;
    const int blocks = (int)length, part = (int)((length - blocks) * 8);

    add(screen, row->limiter ? RED : "");
    for (int i = 0; i < chart->width && (i <= blocks || i == chart->now); i++)
        add(screen, i == chart->now                                  ? "│"
                    : i == blocks                                    ? eighths[part]
                    : is_beyond(chart, row) && i == chart->width - 1 ? "»"
                                                                     : "█");
    add(screen, row->limiter ? " ◄ LIMIT" PLAIN : PLAIN);
}

static void put_numbers(
    struct screen *screen, const struct chart *chart, const struct np_words_row *row)
{
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const double full = fmin(fmax(row->queue, 0), 1);

    pad_to(screen, BAR_AT + chart->width);
    addf(screen, "%9s  %4.0f%%  ", isfinite(row->ceiling) ? np_words_rate(row->ceiling).text : "",
        fmin(fmax(row->busy, 0), 1) * 100);
    if (row->queue < 0)
        add(screen, "     -");
    else
        addf(screen, "%s %3.0f%%", levels[(int)(full * 7.999)], full * 100);
}

static void put_row(
    struct screen *screen, const struct chart *chart, const struct np_words_row *row)
{
    const bool saves = row->stage == NP_STAGE_CHECKPOINT;
    char note[160];

    np_words_note(screen->profile, row, note, sizeof(note));
    if (row->limiter)
        addf(screen, RED " >%s" PLAIN, np_words_loud(row->stage).text);
    else
        addf(screen, "  %s", row->name);
    pad_to(screen, BAR_AT);
    if (isfinite(row->ceiling))
        put_bar(screen, chart, row);
    pad_to(screen, BAR_AT + chart->now);
    add(screen, isfinite(row->ceiling) ? "" : "│");
    if (screen->columns + 1 + (int)strlen(note) <= BAR_AT + chart->width || saves)
        addf(screen, DIM " %s" PLAIN, note);
    if (!saves)
        put_numbers(screen, chart, row);
    end_line(screen);
}

static void put_chart(struct screen *screen)
{
    const struct np_profile *profile = screen->profile;
    struct np_words_row rows[NP_NR_STAGES];
    const int n = np_words_rows(profile, rows);
    struct chart chart = {.scale = np_words_scale(profile, rows, n)};
    bool beyond = false;

    chart.width = screen->width - BAR_AT - RIGHT_W;
    chart.width = chart.width < 8 ? 8 : chart.width;
    chart.now = (int)(fmin(fmax(profile->model.rate / chart.scale, 0), 1) * chart.width);
    chart.now = chart.now == chart.width ? chart.width - 1 : chart.now;
    put_head(screen, &chart);
    for (int i = 0; i < n; i++) {
        put_row(screen, &chart, &rows[i]);
        beyond |= is_beyond(&chart, &rows[i]);
    }
    if (beyond) {
        add(screen, DIM "  » longer bar: the scale ends at 5 times the present rate" PLAIN);
        end_line(screen);
    }
}

/* --- the rest ------------------------------------------------------------------------------ */

/* Adds a part of a step's time, on a new line if this one is full. */
static void put_part(struct screen *screen, const char *between, const char *text)
{
    if (screen->columns + (int)strlen(between) + np_text_columns(text) + 1 > screen->width) {
        add(screen, between[0] == ',' ? "," : "");
        end_line(screen);
        pad_to(screen, INDENT);
    } else {
        add(screen, between);
    }
    add(screen, text);
}

/* "step 148 ms: compute 34% | waiting: decode 63%, read 2% | else 1%": shares of all the
 * trainer's time. */
static void put_step(struct screen *screen)
{
    static const char *const words[] = {
        [NP_WHERE_COMPUTE] = "compute", "waiting:", "checkpoints", "else"};
    static const enum np_words_where order[] = {
        NP_WHERE_COMPUTE, NP_WHERE_WAIT, NP_WHERE_CHECKPOINT, NP_WHERE_ELSE};
    const struct np_observation *seen = &screen->profile->observation;
    struct np_words_part parts[NP_WORDS_PARTS];
    const int n = np_words_parts(screen->profile, parts);
    const char *between = " ";

    if (n == 0 || seen->steps == 0)
        return;
    addf(screen, " step %s:", np_words_time(seen->seconds / (double)seen->steps).text);
    for (size_t k = 0; k < sizeof(order) / sizeof(*order); k++) {
        const char *name = words[order[k]]; /* within a kind, the largest first */
        for (int i = 0; i < n; i++) {
            const bool wait = order[k] == NP_WHERE_WAIT;
            char text[80];
            if (parts[i].where != order[k] || parts[i].share < 0.0005)
                continue;
            snprintf(text, sizeof(text), "%s%s%s %s", name, wait && *name ? " " : "",
                wait ? np_stage_names[parts[i].stage] : "", np_words_share(parts[i].share).text);
            put_part(screen, *name ? between : ", ", text);
            between = " | ";
            name = "";
        }
    }
    end_line(screen);
}

static void put_times(struct screen *screen)
{
    const struct np_ceilings *parts = &screen->profile->ceilings;
    const enum np_stage stage = screen->profile->verdict.limiter;
    const struct np_observed_stage *seen = &screen->profile->observation.stages[stage];

    if (parts->read_cold > 0 || parts->read_warm > 0)
        addf(screen, " disk alone, cold/warm %s/%s img/s",
            parts->read_cold > 0 ? np_words_rate(parts->read_cold).text : "-",
            parts->read_warm > 0 ? np_words_rate(parts->read_warm).text : "-");
    if (seen->p99_s > 0)
        addf(screen, "%s p50/p99 %s %s/%s", screen->columns ? " ·" : "", np_stage_names[stage],
            np_words_time(seen->p50_s).text, np_words_time(seen->p99_s).text);
    if (screen->columns)
        end_line(screen);
}

/* Printed if decoding is the limiter and most entries are not known yet. */
static void put_entries(struct screen *screen)
{
    const struct np_observation *seen = &screen->profile->observation;

    if (screen->profile->verdict.limiter != NP_STAGE_DECODE || seen->entered >= seen->missed)
        return;
    add(screen, " JPEGs:");
    wrap(screen, "most were decoded from their start. After the first epoch, or after `nnpipe data "
                 "index --entries`, crops are decoded from their first row, which takes less.");
}

static void put_deep(struct screen *screen)
{
    const struct np_profile *profile = screen->profile;
    char text[NP_NR_STAGES * 48];
    int n = 0;

    for (int s = 0; profile->deep && s < NP_NR_STAGES; s++)
        if (profile->stubbed[s].rate > 0)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s %s",
                n ? " · " : "img/s without ", np_stage_names[s],
                np_words_rate(profile->stubbed[s].rate).text);
    if (n == 0)
        return;
    add(screen, " measured,");
    wrap(screen, text);
}

static void put_before(struct screen *screen)
{
    const struct np_profile *before = screen->profile->before;
    const double rate = screen->profile->model.rate;

    if (!before)
        return;
    addf(screen, " before: %s img/s, now %s (%+.1f%%)", np_words_rate(before->model.rate).text,
        np_words_rate(rate).text, fmin(fmax(rate / before->model.rate - 1, -1), 1e4) * 100);
    if (before->verdict.kind == NP_LIMITED)
        addf(screen, "; its limit was %s", np_words_loud(before->verdict.limiter).text);
    end_line(screen);
}

/* A path per line, never cut. */
static void put_files(const char *files, FILE *out)
{
    const char *name = " files:";

    while (*files) {
        const char *end = strstr(files, "  ");
        const int n = end ? (int)(end - files) : (int)strlen(files);

        fprintf(out, "%s %.*s\n", name, n, files);
        name = "       ";
        files += n;
        files += strspn(files, " ");
    }
}

void np_profile_screen(const struct np_profile *profile, int width, bool colour, FILE *out)
{
    struct screen screen = {.profile = profile,
        .out = out,
        .width = width < 40    ? 40
                 : width > 100 ? 100
                               : width,
        .colour = colour};
    char trust[256];

    put_verdict(&screen);
    rule(&screen);
    put_chart(&screen);
    rule(&screen);
    put_step(&screen);
    put_times(&screen);
    put_entries(&screen);
    put_deep(&screen);
    put_before(&screen);
    np_words_trust(profile, trust, sizeof(trust));
    addf(&screen, " trust: %s", trust);
    end_line(&screen);
    put_files(profile->files, out);
}
