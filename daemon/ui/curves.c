/* See curves.h. Two panels side by side; colours are CSS variables, so that one file serves
 * a light and a dark page. */
#include "daemon/ui/curves.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

/* --- data ------------------------------------------------------------------------------------ */

/* Full: two neighbours become one, and each further point takes twice as many values. */
static void thin_out(struct np_curve *curve)
{
    for (int i = 0; i < NP_CURVE_POINTS / 2; i++) {
        curve->x[i] = (curve->x[2 * i] + curve->x[2 * i + 1]) / 2;
        curve->y[i] = (curve->y[2 * i] + curve->y[2 * i + 1]) / 2;
    }
    curve->nr_points = NP_CURVE_POINTS / 2;
    curve->stride *= 2;
}

void np_curve_add(struct np_curve *curve, double x, double y)
{
    if (!isfinite(y))
        return;
    if (curve->stride == 0)
        curve->stride = 1;
    curve->sum_x += x;
    curve->sum_y += y;
    if (++curve->nr_pending < curve->stride)
        return;
    if (curve->nr_points == NP_CURVE_POINTS)
        thin_out(curve);
    curve->x[curve->nr_points] = curve->sum_x / (double)curve->nr_pending;
    curve->y[curve->nr_points++] = curve->sum_y / (double)curve->nr_pending;
    curve->sum_x = curve->sum_y = 0;
    curve->nr_pending = 0;
}

/* --- axes ------------------------------------------------------------------------------------ */

#define PANEL_W 380.0
#define PANEL_H 250.0
#define TOP     84.0
/* Of fewer values none is an outlier. */
#define MANY_VALUES 20

struct panel {
    const char *title, *unit;
    double left;
    double min_x, max_x, min_y, max_y;
    double scale; /* of y in labels: 100 for percent */
    double tick_y;
    const struct np_curve *train, *eval;
    const char *evaluated;
    bool clips; /* far values are marked at the upper end */
};

/* 1, 2 or 5 times a power of ten, at least span / 5. */
static double nice_step(double span)
{
    double power = pow(10, floor(log10(span / 5)));

    for (int i = 0; i < 3; i++) {
        double step = power * (double[]){1, 2, 5}[i];
        if (step >= span / 5)
            return step;
    }
    return power * 10;
}

static void widen(const struct np_curve *curve, int first, double *min, double *max)
{
    for (int i = first; i < curve->nr_points; i++) {
        *min = fmin(*min, curve->y[i]);
        *max = fmax(*max, curve->y[i]);
    }
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* The largest value, or where the upper 2 % of many lie far above all others, the largest below them. */
static double without_outliers(const struct panel *panel, double min, double max)
{
    static double values[2 * NP_CURVE_POINTS]; /* main thread */
    const int first = panel->train->nr_points / 50;
    int n = 0;

    for (int i = first; i < panel->train->nr_points; i++)
        values[n++] = panel->train->y[i];
    for (int i = 0; i < panel->eval->nr_points; i++)
        values[n++] = panel->eval->y[i];
    if (n < MANY_VALUES)
        return max;
    qsort(values, (size_t)n, sizeof(*values), ascending);
    const int nr_far = n / 50 > 1 ? n / 50 : 1;
    const double usual = values[n - 1 - nr_far];
    return max > usual + 2 * (usual - min) && usual > min ? usual : max;
}

/* y reaches from the smallest to the largest value; the first few of many are let go: a loss
 * begins with a spike that would flatten the rest. */
static void fit_y(struct panel *panel)
{
    double min = INFINITY, max = -INFINITY;

    widen(panel->train, panel->train->nr_points / 50, &min, &max);
    widen(panel->eval, 0, &min, &max);
    if (panel->clips && max > min)
        max = without_outliers(panel, min, max);
    if (!(max > min)) { /* nothing, or one value */
        double middle = isfinite(min) ? min : 0.5;
        min = middle - 0.5;
        max = middle + 0.5;
    }
    panel->tick_y = nice_step(max - min);
    panel->min_y = fmax(0, floor(min / panel->tick_y) * panel->tick_y);
    panel->max_y = ceil(max / panel->tick_y) * panel->tick_y;
    if (!(panel->max_y > panel->min_y))
        panel->max_y = panel->min_y + panel->tick_y;
}

static double place_x(const struct panel *panel, double x)
{
    return panel->left + PANEL_W * (x - panel->min_x) / (panel->max_x - panel->min_x);
}

static double place_y(const struct panel *panel, double y)
{
    double part = (y - panel->min_y) / (panel->max_y - panel->min_y);

    return TOP + PANEL_H * (1 - fmin(fmax(part, -0.02), 1.02));
}

/* --- drawing --------------------------------------------------------------------------------- */

static void draw_grid(FILE *out, const struct panel *panel)
{
    double step_x = nice_step(panel->max_x - panel->min_x);

    for (double y = panel->min_y; y <= panel->max_y + panel->tick_y / 2; y += panel->tick_y) {
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
            panel->left, place_y(panel, y), panel->left + PANEL_W, place_y(panel, y));
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g%s</text>\n",
            panel->left - 8, place_y(panel, y) + 4, y * panel->scale, panel->unit);
    }
    for (double x = panel->min_x; x <= panel->max_x + step_x / 1e6; x += step_x)
        fprintf(out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
            place_x(panel, x), TOP + PANEL_H + 18, x);
    fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">epoch</text>\n",
        panel->left + PANEL_W / 2, TOP + PANEL_H + 36);
}

static void draw_curve(FILE *out, const struct panel *panel, const struct np_curve *curve,
    const char *class, bool dots)
{
    if (curve->nr_points > 1) {
        fprintf(out, "<polyline class=\"line %s\" clip-path=\"url(#c%d)\" points=\"", class,
            (int)panel->left);
        for (int i = 0; i < curve->nr_points; i++)
            fprintf(out, "%.1f,%.1f ", place_x(panel, curve->x[i]), place_y(panel, curve->y[i]));
        fputs("\"/>\n", out);
    }
    if (dots && curve->nr_points <= 40)
        for (int i = 0; i < curve->nr_points; i++)
            if (curve->y[i] <= panel->max_y)
                fprintf(out, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", class,
                    place_x(panel, curve->x[i]), place_y(panel, curve->y[i]));
}

/* A triangle at the upper end for each value above it, its value as a tooltip. */
static void mark_far(
    FILE *out, const struct panel *panel, const struct np_curve *curve, const char *class)
{
    for (int i = 0; i < curve->nr_points; i++)
        if (curve->y[i] > panel->max_y)
            fprintf(out,
                "<path class=\"dot %s far\" d=\"M%.1f %.1fl4 -7l4 "
                "7z\"><title>%.4g</title></path>\n",
                class, place_x(panel, curve->x[i]) - 4, TOP + 5, curve->y[i]);
}

/* The rate over the loss, thin, from 0 at the bottom to its largest value at the top. */
static void draw_lr(FILE *out, const struct panel *panel, const struct np_curve *lr)
{
    double max = 0;

    for (int i = 0; i < lr->nr_points; i++)
        max = fmax(max, lr->y[i]);
    if (lr->nr_points < 2 || !(max > 0))
        return;
    fputs("<polyline class=\"line lr\" points=\"", out);
    for (int i = 0; i < lr->nr_points; i++)
        fprintf(out, "%.1f,%.1f ", place_x(panel, lr->x[i]), TOP + PANEL_H * (1 - lr->y[i] / max));
    fputs("\"/>\n", out);
    fprintf(out,
        "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">dotted: learning rate "
        "%.3g, at most %.3g</text>\n",
        panel->left + PANEL_W, TOP + PANEL_H + 54, lr->y[lr->nr_points - 1], max);
}

/* A curve of many points is drawn faint, and over it what an eye would draw through it: the mean
 * of the points around each. */
static void draw_smooth(FILE *out, const struct panel *panel, const struct np_curve *curve)
{
    struct np_curve smooth = {.nr_points = curve->nr_points};
    int reach = curve->nr_points / 60;

    if (reach < 1) {
        draw_curve(out, panel, curve, "train", false);
        return;
    }
    draw_curve(out, panel, curve, "raw train", false);
    for (int i = 0; i < curve->nr_points; i++) {
        int near = i < reach ? i : reach;
        near = curve->nr_points - 1 - i < near ? curve->nr_points - 1 - i : near;
        for (int j = i - near; j <= i + near; j++)
            smooth.y[i] += curve->y[j] / (2 * near + 1);
        smooth.x[i] = curve->x[i];
    }
    draw_curve(out, panel, &smooth, "train", false);
}

/* "train 0.52" in the colour of its line, right of the title. */
static void draw_legend(FILE *out, const struct panel *panel, const struct np_curve *curve,
    const char *class, const char *name, double x)
{
    if (curve->nr_points == 0)
        return;
    double last = curve->y[curve->nr_points - 1] * panel->scale;
    fprintf(out, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", class, x, TOP - 20);
    fprintf(out,
        "<text class=\"legend\" x=\"%.1f\" y=\"%.1f\">%s <tspan "
        "class=\"value\">%.*f%s</tspan></text>\n",
        x + 9, TOP - 16, name, panel->scale > 1 ? 2 : 4, last, panel->unit);
}

static void draw_panel(FILE *out, struct panel *panel)
{
    fit_y(panel);
    fprintf(out,
        "<clipPath id=\"c%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
        "height=\"%.1f\"/></clipPath>\n",
        (int)panel->left, panel->left, TOP - 4, PANEL_W, PANEL_H + 8);
    fprintf(out, "<text class=\"head\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", panel->left, TOP - 16,
        panel->title);
    draw_grid(out, panel);
    draw_smooth(out, panel, panel->train);
    draw_curve(out, panel, panel->eval, "test", true);
    mark_far(out, panel, panel->train, "train");
    mark_far(out, panel, panel->eval, "test");
    draw_legend(out, panel, panel->train, "train", "train", panel->left + PANEL_W - 220);
    draw_legend(out, panel, panel->eval, "test", panel->evaluated, panel->left + PANEL_W - 105);
}

static void escape(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else
            fputc(*text, out);
    }
}

/* Colours stand in plain rules, not in variables: many viewers know no variables. */
static const char head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 920 400\" role=\"img\">\n"
    "<style>\n"
    "svg { font-family: system-ui, sans-serif; }\n"
    ".page { fill: #ffffff; } .title, .head, .value { fill: #1d2733; font-weight: 600; }\n"
    ".title { font-size: 20px; } .head { font-size: 14px; } .legend { font-size: 13px; }\n"
    ".tick { font-size: 12px; } .tick, .legend { fill: #6b7785; } .grid { stroke: #e4e8ed; }\n"
    ".line { fill: none; stroke-width: 2; stroke-linejoin: round; }\n"
    ".raw { stroke-width: 1; opacity: 0.35; }\n"
    ".line.lr { stroke: #6b7785; stroke-width: 1; stroke-dasharray: 2 3; }\n"
    ".line.train { stroke: #3f7fc4; } .line.test { stroke: #d9581c; }\n"
    ".dot.train { fill: #3f7fc4; } .dot.test { fill: #d9581c; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    ".page { fill: #14181d; } .title, .head, .value { fill: #e6eaef; }\n"
    ".tick, .legend { fill: #93a0ad; } .grid { stroke: #2a323b; }\n"
    ".line.train { stroke: #6aa5e6; } .line.test { stroke: #ff8a4c; }\n"
    ".dot.train { fill: #6aa5e6; } .dot.test { fill: #ff8a4c; }\n"
    "}\n"
    "</style>\n<rect class=\"page\" width=\"920\" height=\"400\"/>\n";

static void draw(FILE *out, const struct np_curves *curves, const char *title, double nr_epochs)
{
    const char *evaluated = curves->evaluated ? curves->evaluated : "test";
    struct panel loss = {"loss", "", 60, 0, nr_epochs, 0, 1, 1, 1, &curves->train_loss,
        &curves->eval_loss, evaluated, true};
    struct panel accuracy = {"accuracy", "%", 515, 0, nr_epochs, 0, 1, 100, 1,
        &curves->train_accuracy, &curves->eval_accuracy, evaluated, false};

    fputs(head, out);
    fputs("<text class=\"title\" x=\"24\" y=\"36\">", out);
    escape(out, title);
    fputs("</text>\n", out);
    draw_panel(out, &loss);
    draw_lr(out, &loss, &curves->lr);
    draw_panel(out, &accuracy);
    fputs("</svg>\n", out);
}

int np_curves_write(const struct np_curves *curves, const char *title, double nr_epochs,
    const char *path, struct np_err *err)
{
    char *beside = np_format("%s.new", path);
    FILE *out = beside ? fopen(beside, "we") : NULL;
    int code = out ? 0 : -errno;

    if (out) {
        draw(out, curves, title, nr_epochs > 0 ? nr_epochs : 1);
        bool bad = ferror(out) != 0;
        if (fclose(out) != 0 || bad)
            code = errno ? -errno : -EIO;
    }
    if (code == 0 && rename(beside, path) < 0)
        code = -errno;
    if (code < 0)
        np_err_set(err, code, "%s: cannot be written: %s", path, strerror(-code));
    np_free(beside);
    return code;
}
