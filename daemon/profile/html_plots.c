/* The plots of profile.html: waits over time by cause, and the run's rate over the limiter's speed-up. Lines
 * and areas lie in an inner picture that stretches sideways; words and marks lie in the outer, and do not. */
#include <math.h>
#include <string.h>

#include "daemon/profile/html_page.h"

#define WIDE 1000.0 /* units across an inner picture */

static void open_inner(FILE *out, double top, double height)
{
    fprintf(out,
        "<svg x=\"0\" y=\"%.0f\" width=\"100%%\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
        "preserveAspectRatio=\"none\">\n",
        top, height, WIDE, height);
}

/* --- waits over time -------------------------------------------------------------------------- */

#define MAX_COLUMNS 200
#define RATE_TOP    18.0
#define RATE_PX     52.0
#define WAIT_TOP    96.0
#define WAIT_PX     150.0

struct column {
    double rate, wait[NP_NR_STAGES]; /* shares of its time */
};
struct ribbon {
    struct column columns[MAX_COLUMNS];
    int n;
    double seconds, max_rate;
};

/* A tenth of a second a row; many rows a column. */
static void make_columns(const struct np_profile *profile, struct ribbon *ribbon)
{
    const struct np_ribbon *rows = profile->ribbon;
    int n = profile->nr_ribbon;
    double each = n > 1 ? (rows[n - 1].at_s - rows[0].at_s) / (n - 1) : 0.1;

    memset(ribbon, 0, sizeof(*ribbon));
    each = isfinite(each) && each > 0 ? each : 0.1;
    ribbon->n = n < MAX_COLUMNS ? n : MAX_COLUMNS;
    ribbon->seconds = each * n;
    for (int i = 0; i < ribbon->n; i++) {
        struct column *column = &ribbon->columns[i];
        int from = (int)((int64_t)i * n / ribbon->n), to = (int)((int64_t)(i + 1) * n / ribbon->n);
        for (int k = from; k < to; k++) {
            column->rate += fmax(0, rows[k].rate) / (to - from);
            for (int s = 0; s < NP_NR_STAGES; s++)
                column->wait[s] += fmin(fmax(0, rows[k].wait_s[s]) / each, 1) / (to - from);
        }
        column->rate = isfinite(column->rate) ? column->rate : 0;
        ribbon->max_rate = fmax(ribbon->max_rate, column->rate);
    }
}

static double column_x(const struct ribbon *ribbon, int i)
{
    return WIDE * i / ribbon->n;
}

/* One cause's band: along the tops of its columns, and back along their feet. */
static void put_band(FILE *out, const struct ribbon *ribbon, const double *feet, const double *tops,
    const char *class, const char *name)
{
    fprintf(out, "<path class=\"band %s\" data-cause=\"%s\" d=\"M0 %.1f", class, name,
        WAIT_PX * (1 - feet[0]));
    for (int i = 0; i < ribbon->n; i++)
        fprintf(out, "V%.1fH%.1f", WAIT_PX * (1 - tops[i]), column_x(ribbon, i + 1));
    for (int i = ribbon->n; i-- > 0;)
        fprintf(out, "V%.1fH%.1f", WAIT_PX * (1 - feet[i]), column_x(ribbon, i));
    fputs("Z\"/>\n", out);
}

static void put_cause(FILE *out, const struct np_profile *profile, const struct ribbon *ribbon,
    enum np_stage stage, double *feet)
{
    double tops[MAX_COLUMNS] = {0};
    bool any = false;

    for (int i = 0; i < ribbon->n; i++) {
        tops[i] = fmin(1, feet[i] + ribbon->columns[i].wait[stage]);
        any |= tops[i] > feet[i];
    }
    if (any)
        put_band(out, ribbon, feet, tops, np_html_class(profile, stage), np_stage_names[stage]);
    memcpy(feet, tops, sizeof(tops[0]) * (size_t)ribbon->n);
}

/* The limiter's band at the bottom, where it is seen best. */
static void put_bands(FILE *out, const struct np_profile *profile, const struct ribbon *ribbon)
{
    double feet[MAX_COLUMNS] = {0};
    enum np_stage first = profile->verdict.limiter;

    open_inner(out, WAIT_TOP, WAIT_PX);
    fprintf(out, "<rect class=\"compute\" width=\"%.0f\" height=\"%.0f\"/>\n", WIDE, WAIT_PX);
    put_cause(out, profile, ribbon, first, feet);
    for (int s = 0; s < NP_NR_STAGES; s++)
        if ((enum np_stage)s != first)
            put_cause(out, profile, ribbon, (enum np_stage)s, feet);
    fputs("</svg>\n", out);
}

static void put_rates(FILE *out, const struct ribbon *ribbon)
{
    double scale = ribbon->max_rate > 0 ? ribbon->max_rate * 1.05 : 1;

    open_inner(out, RATE_TOP, RATE_PX);
    fprintf(out, "<path class=\"rates\" d=\"M0 %.1f", RATE_PX);
    for (int i = 0; i < ribbon->n; i++)
        fprintf(out, "V%.1fH%.1f", RATE_PX * (1 - ribbon->columns[i].rate / scale),
            column_x(ribbon, i + 1));
    fprintf(out, "V%.1fZ\"/>\n</svg>\n", RATE_PX);
}

static void put_seconds(FILE *out, const struct ribbon *ribbon)
{
    static const char *const anchors[] = {"start", "middle", "middle", "middle", "end"};

    for (int i = 0; i <= 4; i++)
        fprintf(out,
            "<text class=\"tick\" x=\"%d%%\" y=\"%.0f\" text-anchor=\"%s\">%.3g s</text>\n", i * 25,
            WAIT_TOP + WAIT_PX + 18, anchors[i], ribbon->seconds * i / 4);
}

/* The whole run's shares, in words and in the colours of the bands. */
static void put_legend(FILE *out, const struct np_profile *profile)
{
    static const char *const words[] = {"computing", "waiting for ", "checkpoints", "else"};
    struct np_words_part parts[NP_TELLING_PARTS];
    int n = np_words_parts(profile, parts);
    char share[NP_TELLING_BYTES];

    fputs("<ul class=\"legend\">\n", out);
    for (int i = 0; i < n; i++) {
        bool wait = parts[i].where == NP_WHERE_WAIT;
        if (parts[i].share < 0.0005)
            continue;
        fprintf(out, "<li><i class=\"%s\"></i>%s%s <b>%s</b></li>\n",
            wait || parts[i].where == NP_WHERE_CHECKPOINT ? np_html_class(profile, parts[i].stage)
            : parts[i].where == NP_WHERE_ELSE             ? "else"
                                                          : "compute",
            words[parts[i].where], wait ? np_stage_names[parts[i].stage] : "",
            np_words_share(parts[i].share, share));
    }
    fputs("</ul>\n", out);
}

void np_html_ribbon(FILE *out, const struct np_profile *profile)
{
    struct ribbon ribbon;
    char most[NP_TELLING_BYTES];

    fputs("<section id=\"waits\">\n<h2>What the trainer waits for</h2>\n"
          "<p class=\"hint\">Shares of its time; each wait is shared out as the reader of the late "
          "batch spent it.</p>\n",
        out);
    put_legend(out, profile);
    if (profile->nr_ribbon > 0) {
        make_columns(profile, &ribbon);
        fprintf(out,
            "<svg class=\"plot ribbon\" role=\"img\" aria-label=\"waits over time\" "
            "width=\"100%%\" height=\"%.0f\">\n",
            WAIT_TOP + WAIT_PX + 26);
        put_rates(out, &ribbon);
        put_bands(out, profile, &ribbon);
        fprintf(out,
            "<text class=\"tick\" x=\"0\" y=\"12\">images a second, up to %s</text>\n"
            "<text class=\"tick\" x=\"0\" y=\"%.0f\">share of the time, up to 100%%</text>\n",
            np_words_rate(ribbon.max_rate, most), WAIT_TOP - 6);
        put_seconds(out, &ribbon);
        fputs("</svg>\n", out);
    }
    fputs("</section>\n", out);
}

/* --- what if ---------------------------------------------------------------------------------- */

#define CURVE_PX  220.0
#define CURVE_TOP 10.0

struct curve {
    const struct np_profile *profile;
    double max_faster, max_rate; /* finite */
    bool endless;                /* the last point: it costs nothing */
    bool far;                    /* the next limit lies above the picture */
};

static bool fit_curve(const struct np_profile *profile, struct curve *curve)
{
    *curve = (struct curve){profile, 1, profile->model.rate, false, false};
    for (int i = 0; i < profile->nr_curve; i++) {
        double faster = profile->curve_faster[i], rate = profile->curve_rate[i];
        if (isfinite(faster))
            curve->max_faster = fmax(curve->max_faster, faster);
        else
            curve->endless = true;
        if (isfinite(rate))
            curve->max_rate = fmax(curve->max_rate, rate);
    }
    curve->far = profile->verdict.next_rate > 2.5 * curve->max_rate;
    if (!curve->far)
        curve->max_rate = fmax(curve->max_rate, profile->verdict.next_rate);
    return profile->nr_curve >= 2 && curve->max_faster > 1 && curve->max_rate > 0;
}

/* Percent across: doublings; the last tenth for what costs nothing. */
static double curve_x(const struct curve *curve, double faster)
{
    double most = curve->endless ? 90 : 100;

    if (!isfinite(faster))
        return 100;
    return most * np_html_percent(log2(fmax(faster, 1)), log2(curve->max_faster)) / 100;
}

static double curve_y(const struct curve *curve, double rate)
{
    return CURVE_TOP +
           (CURVE_PX - CURVE_TOP) * (1 - np_html_percent(rate, curve->max_rate * 1.18) / 100);
}

/* The first point at the next limit: being faster brings nothing more. -1: the curve does not get there. */
static int find_knee(const struct curve *curve)
{
    for (int i = 0; i < curve->profile->nr_curve; i++)
        if (curve->profile->curve_rate[i] >= 0.995 * curve->profile->verdict.next_rate)
            return i;
    return -1;
}

static void put_level(FILE *out, const struct curve *curve, double rate, const char *class,
    const char *words, bool above)
{
    double y = curve_y(curve, rate);
    char text[NP_TELLING_BYTES];

    fprintf(out,
        "<line class=\"level-line %s\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
        "<text class=\"words\" x=\"100%%\" y=\"%.1f\" text-anchor=\"end\">%s %s</text>\n",
        class, y, y, above || y + 22 > CURVE_PX ? y - 7 : y + 16, words, np_words_rate(rate, text));
}

static void put_curve_line(FILE *out, const struct curve *curve)
{
    open_inner(out, 0, CURVE_PX);
    fputs("<polyline class=\"curve\" points=\"", out);
    for (int i = 0; i < curve->profile->nr_curve; i++)
        fprintf(out, "%.1f,%.1f ", curve_x(curve, curve->profile->curve_faster[i]) * WIDE / 100,
            curve_y(curve, curve->profile->curve_rate[i]));
    fputs("\"/>\n</svg>\n", out);
}

/* What lies between the run as it is and what it could be. */
static void put_gain(FILE *out, const struct curve *curve)
{
    double now = curve_y(curve, curve->profile->model.rate);

    open_inner(out, 0, CURVE_PX);
    fprintf(out, "<path class=\"gain\" d=\"M0 %.1f", now);
    for (int i = 0; i < curve->profile->nr_curve; i++)
        fprintf(out, "L%.1f %.1f", curve_x(curve, curve->profile->curve_faster[i]) * WIDE / 100,
            fmin(now, curve_y(curve, curve->profile->curve_rate[i])));
    fprintf(out, "V%.1fZ\"/>\n</svg>\n", now);
}

static void put_knee(FILE *out, const struct curve *curve)
{
    int knee = find_knee(curve);
    char gain[NP_TELLING_BYTES];

    if (knee < 0)
        return;
    double x = curve_x(curve, curve->profile->curve_faster[knee]);
    double y = curve_y(curve, curve->profile->curve_rate[knee]);
    fprintf(out,
        "<line class=\"drop\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.1f\" y2=\"%.0f\"/>\n"
        "<circle class=\"knee\" cx=\"%.2f%%\" cy=\"%.1f\" r=\"6\"/>\n",
        x, x, y, CURVE_PX, x, y);
    if (isfinite(curve->profile->curve_faster[knee]))
        fprintf(out,
            "<text class=\"words strong\" x=\"%.2f%%\" y=\"%.1f\" dx=\"%d\" "
            "text-anchor=\"%s\">%s faster is enough</text>\n",
            x, y + 26, x > 60 ? -12 : 12, x > 60 ? "end" : "start",
            np_words_gain(curve->profile->curve_faster[knee], gain));
}

static void put_faster(FILE *out, const struct curve *curve)
{
    double step = curve->max_faster > 16 ? 4 : 2;

    for (double faster = 1; faster <= curve->max_faster * 1.001 && faster < 1e6; faster *= step) {
        double x = curve_x(curve, faster);
        fprintf(out, "<text class=\"tick\" x=\"%.2f%%\" y=\"%.0f\" text-anchor=\"%s\">%gx</text>\n",
            x, CURVE_PX + 18,
            x < 2    ? "start"
            : x > 98 ? "end"
                     : "middle",
            faster);
    }
    if (curve->endless)
        fprintf(out,
            "<text class=\"tick\" x=\"100%%\" y=\"%.0f\" text-anchor=\"end\">free</text>\n",
            CURVE_PX + 18);
}

void np_html_curve(FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char name[NP_TELLING_BYTES], words[64];
    struct curve curve;

    if (verdict->kind == NP_INCONCLUSIVE || !fit_curve(profile, &curve))
        return;
    fprintf(out,
        "<section id=\"whatif\">\n<h2>What if %s were faster</h2>\n<p class=\"hint\">Images a "
        "second "
        "of the whole run; to the right %s so many times faster.</p>\n"
        "<svg class=\"plot whatif\" role=\"img\" aria-label=\"what-if\" width=\"100%%\" "
        "height=\"%.0f\">\n<line class=\"axis\" x1=\"0\" x2=\"100%%\" y1=\"%.0f\" y2=\"%.0f\"/>\n",
        np_words_loud(verdict->limiter, name), np_stage_names[verdict->limiter], CURVE_PX + 26,
        CURVE_PX, CURVE_PX);
    put_gain(out, &curve);
    put_level(out, &curve, profile->model.rate, "at-now", "now", false);
    snprintf(words, sizeof(words), "next limit: %s", np_words_loud(verdict->next, name));
    if (verdict->kind == NP_LIMITED && curve.far && isfinite(verdict->next_rate))
        fprintf(out, "<text class=\"words\" x=\"0\" y=\"%.0f\">%s, far above, at %s</text>\n",
            CURVE_TOP + 4, words, np_words_rate(verdict->next_rate, name));
    else if (verdict->kind == NP_LIMITED && isfinite(verdict->next_rate))
        put_level(out, &curve, verdict->next_rate, "at-next", words, true);
    put_curve_line(out, &curve);
    put_knee(out, &curve);
    put_faster(out, &curve);
    fputs("</svg>\n</section>\n", out);
}
