/* The bars of profile.html: what each stage could do, and the same before and after. A row's picture is as
 * high as the row, so that the line of the present rate runs through all of them. */
#include <math.h>
#include <string.h>

#include "daemon/profile/html_page.h"

#define ROW_PX 36
#define BAR_PX 20

/* `near`: of a balanced run one of the limits that it reaches together. */
static void put_bar(FILE *out, const struct np_words_row *row, double scale, bool near)
{
    double width = np_html_percent(row->ceiling, scale);
    char rate[NP_TELLING_BYTES], name[NP_TELLING_BYTES];

    np_words_rate(row->ceiling, rate);
    fprintf(out,
        "<rect class=\"bar%s\" data-stage=\"%s\" x=\"0\" y=\"%d\" width=\"%.2f%%\" "
        "height=\"%d\" rx=\"2\"><title>%s could do %s img/s</title></rect>",
        row->limiter ? " limit"
        : near       ? " near"
                     : "",
        row->name, (ROW_PX - BAR_PX) / 2, width, BAR_PX, np_words_loud(row->stage, name), rate);
    if (row->ceiling > scale * 1.001)
        fprintf(out, "<text class=\"beyond\" x=\"99%%\" y=\"%d\" text-anchor=\"end\">»</text>",
            ROW_PX / 2 + 5);
    if (row->limiter)
        fprintf(out, "<text class=\"flag\" x=\"%.2f%%\" y=\"%d\" dx=\"9\">◄ LIMIT</text>", width,
            ROW_PX / 2 + 5);
}

static void put_now_line(FILE *out, double rate, double scale)
{
    double x = np_html_percent(rate, scale);

    fprintf(
        out, "<line class=\"now\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>", x, x, ROW_PX);
}

static void put_queue(FILE *out, const struct np_words_row *row)
{
    double full = np_html_percent(row->queue, 1);

    if (row->queue < 0) {
        fputs("<td class=\"queue\"></td>", out);
        return;
    }
    fprintf(out,
        "<td class=\"queue\"><svg width=\"12\" height=\"16\" aria-hidden=\"true\"><rect "
        "class=\"trough\" width=\"12\" height=\"16\"/><rect class=\"level\" y=\"%.1f\" "
        "width=\"12\" height=\"%.1f\"/></svg> %.0f%%</td>",
        16 - full * 0.16, full * 0.16, full);
}

static void put_row(
    FILE *out, const struct np_profile *profile, const struct np_words_row *row, double scale)
{
    char rate[NP_TELLING_BYTES] = "", note[160];

    fprintf(out,
        "<tr%s><th scope=\"row\">%s</th><td class=\"picture\"><svg width=\"100%%\" height=\"%d\">",
        row->limiter ? " class=\"limit\"" : "", row->name, ROW_PX);
    if (isfinite(row->ceiling))
        put_bar(out, row, scale,
            profile->verdict.kind == NP_BALANCED && row->ceiling < 1.05 * profile->model.rate);
    put_now_line(out, profile->model.rate, scale);
    np_words_note(profile, row, note, sizeof(note));
    if (row->stage ==
        NP_STAGE_CHECKPOINT) /* the sentence is too long for a telephone: put_hints() */
        snprintf(note, sizeof(note), "%s of the time", np_words_share(row->busy, rate));
    if (!isfinite(row->ceiling) || row->limiter)
        fprintf(out, "<text class=\"note\" x=\"%.2f%%\" y=\"%d\" dx=\"%d\">%s</text>",
            np_html_percent(isfinite(row->ceiling) ? row->ceiling : profile->model.rate, scale),
            ROW_PX / 2 + 4, row->limiter ? 80 : 9, note);
    rate[0] = '\0';
    if (isfinite(row->ceiling))
        np_words_rate(row->ceiling, rate);
    fprintf(out, "</svg></td><td class=\"rate\">%s</td><td class=\"busy\">%.0f%%</td>", rate,
        np_html_percent(row->busy, 1));
    put_queue(out, row);
    fputs("</tr>\n", out);
}

static void put_hints(FILE *out, const struct np_profile *profile, const struct np_words_row *rows,
    int n, double scale)
{
    char note[160];

    for (int i = 0; i < n; i++)
        if (isfinite(rows[i].ceiling) && rows[i].ceiling > scale * 1.001) {
            fputs(
                "<p class=\"hint\">» goes on: the picture ends at 5 times the present rate.</p>\n",
                out);
            break;
        }
    if (n > 0 && rows[n - 1].stage == NP_STAGE_CHECKPOINT) {
        np_words_note(profile, &rows[n - 1], note, sizeof(note));
        fprintf(out, "<p class=\"hint\">checkpoints: %s</p>\n", note);
    }
}

void np_html_chart(FILE *out, const struct np_profile *profile)
{
    struct np_words_row rows[NP_NR_STAGES];
    int n = np_words_rows(profile, rows);
    double scale = np_words_scale(profile, rows, n);
    double x = np_html_percent(profile->model.rate, scale);
    char now[NP_TELLING_BYTES];

    fputs("<section id=\"ceilings\">\n<h2>What each stage could do</h2>\n"
          "<p class=\"hint\">Images a second, were it alone. The shortest bar is the limit; the "
          "line is "
          "where the run is.</p>\n<table class=\"chart\">\n<thead><tr><th></th>",
        out);
    fprintf(out,
        "<td class=\"picture\"><svg width=\"100%%\" height=\"22\"><text class=\"nowtext\" "
        "x=\"%.2f%%\" y=\"15\" text-anchor=\"%s\">now %s</text></svg></td>",
        x,
        x > 85   ? "end"
        : x < 12 ? "start"
                 : "middle",
        np_words_rate(profile->model.rate, now));
    fputs("<th>img/s</th><th>busy</th><th>queue</th></tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < n; i++)
        put_row(out, profile, &rows[i], scale);
    fputs("</tbody>\n</table>\n", out);
    put_hints(out, profile, rows, n, scale);
    fputs("</section>\n", out);
}

/* --- before and after ------------------------------------------------------------------------- */

struct pair {
    const char *name;
    double before, after; /* not finite: no such stage, or it shares another's bar */
    bool limit_before, limit_after;
};

static void put_half(FILE *out, double rate, double scale, bool limit, bool before, int y)
{
    if (isfinite(rate) && rate > 0)
        fprintf(out,
            "<rect class=\"bar%s%s\" x=\"0\" y=\"%d\" width=\"%.2f%%\" height=\"11\" rx=\"2\"/>",
            limit ? " limit" : "", before ? " before" : "", y, np_html_percent(rate, scale));
}

/* "-12%", "+3.1%", "3.9x", "same". */
static const char *say_change(double change, char text[NP_TELLING_BYTES])
{
    char share[NP_TELLING_BYTES];

    if (fabs(change) < 0.0005)
        return "same";
    if (change >= 1)
        return np_words_gain(change + 1, text);
    snprintf(
        text, NP_TELLING_BYTES, "%s%.20s", change > 0 ? "+" : "", np_words_share(change, share));
    return text;
}

static void put_pair(FILE *out, const struct pair *pair, double scale)
{
    double change = pair->after / pair->before - 1;
    char before[NP_TELLING_BYTES], after[NP_TELLING_BYTES];

    fprintf(out,
        "<tr><th scope=\"row\">%s</th><td class=\"picture\"><svg width=\"100%%\" height=\"%d\">",
        pair->name, ROW_PX);
    put_half(out, pair->before, scale, pair->limit_before, true, 6);
    put_half(out, pair->after, scale, pair->limit_after, false, 19);
    fprintf(out, "</svg></td><td class=\"rate\">%s → %s</td>",
        isfinite(pair->before) ? np_words_rate(pair->before, before) : "none",
        isfinite(pair->after) ? np_words_rate(pair->after, after) : "none");
    if (isfinite(change))
        fprintf(out, "<td class=\"change%s\">%s</td></tr>\n", change < -0.02 ? " worse" : "",
            say_change(change, after));
    else
        fputs("<td class=\"change\"></td></tr>\n", out);
}

static const struct np_words_row *find_row(
    const struct np_words_row *rows, int n, enum np_stage stage)
{
    for (int i = 0; i < n; i++)
        if (rows[i].stage == stage)
            return &rows[i];
    return NULL;
}

static int make_pairs(const struct np_profile *profile, struct pair pairs[NP_NR_STAGES + 1])
{
    struct np_words_row was[NP_NR_STAGES], is[NP_NR_STAGES];
    int nr_was = np_words_rows(profile->before, was), nr_is = np_words_rows(profile, is), n = 0;

    pairs[n++] =
        (struct pair){"the run", profile->before->model.rate, profile->model.rate, false, false};
    for (int s = 0; s < NP_NR_STAGES; s++) {
        const struct np_words_row *a = find_row(was, nr_was, (enum np_stage)s);
        const struct np_words_row *b = find_row(is, nr_is, (enum np_stage)s);
        struct pair pair = {np_stage_names[s], a ? a->ceiling : INFINITY, b ? b->ceiling : INFINITY,
            a && a->limiter, b && b->limiter};
        if (isfinite(pair.before) || isfinite(pair.after))
            pairs[n++] = pair;
    }
    return n;
}

void np_html_pair(FILE *out, const struct np_profile *profile)
{
    struct pair pairs[NP_NR_STAGES + 1];
    double scale = 0, most;

    if (!profile->before)
        return;
    int n = make_pairs(profile, pairs);
    most = 5 * fmax(profile->model.rate, profile->before->model.rate);
    for (int i = 0; i < n; i++) {
        scale = isfinite(pairs[i].before) ? fmax(scale, pairs[i].before) : scale;
        scale = isfinite(pairs[i].after) ? fmax(scale, pairs[i].after) : scale;
    }
    scale = scale > most ? most : scale;
    fputs("<section id=\"pair\">\n<h2>Before and after</h2>\n<p class=\"hint\">The upper bar is ",
        out);
    np_html_text(out, profile->before->config);
    fputs(" ", out);
    np_html_text(out, profile->before->started_at);
    fputs(", the lower one this profile; red is the limit of each.</p>\n<table "
          "class=\"chart\"><tbody>\n",
        out);
    for (int i = 0; i < n; i++)
        put_pair(out, &pairs[i], scale);
    fputs("</tbody></table>\n</section>\n", out);
}
