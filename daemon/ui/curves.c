/* See curves.h. Two panels side by side. The style has plain rules: many viewers do not support CSS
 * variables. */
#include "daemon/ui/curves.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/ui/page.h"

void np_curve_add(struct np_curve *curve, double x, double y)
{
    if (!isfinite(y))
        return;
    curve->stride += curve->stride == 0;
    curve->sum_x += x;
    curve->sum_y += y;
    if (++curve->nr_pending < curve->stride)
        return;
    if (curve->nr_points == NP_CURVE_POINTS) { /* full: merges pairs of neighbours */
        for (int i = 0; i < NP_CURVE_POINTS / 2; i++) {
            curve->x[i] = (curve->x[2 * i] + curve->x[2 * i + 1]) / 2;
            curve->y[i] = (curve->y[2 * i] + curve->y[2 * i + 1]) / 2;
        }
        curve->nr_points = NP_CURVE_POINTS / 2;
        curve->stride *= 2;
    }
    curve->x[curve->nr_points] = curve->sum_x / (double)curve->nr_pending;
    curve->y[curve->nr_points++] = curve->sum_y / (double)curve->nr_pending;
    curve->sum_x = curve->sum_y = 0;
    curve->nr_pending = 0;
}

#define PANEL_W 380.0
#define PANEL_H 250.0
#define TOP     84.0
/* With fewer values none counts as an outlier. */
#define MANY_VALUES 20
/* class (in page/curves.css, which also sets the alignment to x), x, y */
#define TEXT   "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">"
#define LEGEND "<circle class=\"dot %s\" cx=\"%g\" cy=\"%g\" r=\"4\"/>\n"
#define DOT    "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n"
#define FAR    "<path class=\"dot %s far\" d=\"M%.1f %gl4 -7l4 7z\"><title>%.4g</title></path>\n"

struct panel {
    const char *title, *unit;
    double left, scale; /* scale: of y in labels: 100 for percent */
    bool clips;         /* values far above all others are marked at the upper edge */
    const struct np_curve *train, *eval;
    double max_x, min_y, max_y, tick_y; /* the y: fit_y() */
};

/* 1, 2 or 5 times a power of ten, at least span / 5. */
static double nice_step(double span)
{
    const double power = pow(10, floor(log10(span / 5))), times = span / 5 / power;

    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* The range from the smallest to the largest value. Ignores the first few of many (a loss begins
 * with a spike that would flatten the rest), and the upper 2 % if they are far above all others. */
static void fit_y(struct panel *panel)
{
    static double values[2 * NP_CURVE_POINTS]; /* main thread */
    double min = 0.5, max = 0.5;
    int n = 0;

    for (int i = panel->train->nr_points / 50; i < panel->train->nr_points; i++)
        values[n++] = panel->train->y[i];
    for (int i = 0; i < panel->eval->nr_points; i++)
        values[n++] = panel->eval->y[i];
    qsort(values, (size_t)n, sizeof(*values), ascending);
    if (n > 0) {
        min = values[0];
        max = values[n - 1];
    }
    if (panel->clips && n >= MANY_VALUES) {
        const double usual = values[n - 1 - (n / 50 > 1 ? n / 50 : 1)];
        max = usual > min && max > usual + 2 * (usual - min) ? usual : max;
    }
    if (max <= min) {
        min -= 0.5;
        max = min + 1;
    }
    panel->tick_y = nice_step(max - min);
    panel->min_y = fmax(0, floor(min / panel->tick_y) * panel->tick_y);
    panel->max_y = fmax(ceil(max / panel->tick_y) * panel->tick_y, panel->min_y + panel->tick_y);
}

static double place_x(const struct panel *panel, double x)
{
    return panel->left + PANEL_W * x / panel->max_x;
}

static double place_y(const struct panel *panel, double y)
{
    const double part = (y - panel->min_y) / (panel->max_y - panel->min_y);

    return TOP + PANEL_H * (1 - fmin(fmax(part, -0.02), 1.02));
}

/* Each point is the mean of `reach` neighbours on both sides. */
static void draw_line(FILE *out, const struct panel *panel, const struct np_curve *curve,
    const char *class, int reach)
{
    const int last = curve->nr_points - 1;

    if (last < 1)
        return;
    fprintf(
        out, "<polyline class=\"line %s\" clip-path=\"url(#c%g)\" points=\"", class, panel->left);
    for (int i = 0; i <= last; i++) {
        const int near = fmin(reach, fmin(i, last - i));
        double y = 0;

        for (int j = i - near; j <= i + near; j++)
            y += curve->y[j] / (2 * near + 1);
        fprintf(out, "%.1f,%.1f ", place_x(panel, curve->x[i]), place_y(panel, y));
    }
    fputs("\"/>\n", out);
}

/* Draws a line and its legend, "train 0.52". A training curve of many points is faint, with a
 * smoothed one over it; the few values of an evaluation are dots, too. A value above the panel
 * is a triangle at the upper edge. */
static void draw_series(FILE *out, const struct panel *panel, const struct np_curve *curve,
    const char *class, const char *name)
{
    const bool train = curve == panel->train;
    const int n = curve->nr_points, reach = train ? n / 60 : 0;
    const double legend = panel->left + PANEL_W - (train ? 220 : 105);

    if (n == 0)
        return;
    if (reach > 0)
        draw_line(out, panel, curve, "raw train", 0);
    draw_line(out, panel, curve, class, reach);
    for (int i = 0; i < n; i++) {
        const double x = place_x(panel, curve->x[i]), y = curve->y[i];

        if (y > panel->max_y)
            fprintf(out, FAR, class, x - 4, TOP + 5, y);
        else if (!train && n <= 40)
            fprintf(out, DOT, class, x, place_y(panel, y));
    }
    fprintf(out, LEGEND TEXT "%s <tspan class=\"value\">%.*f%s</tspan></text>\n", class, legend,
        TOP - 20, "legend", legend + 9, TOP - 16, name, panel->scale > 1 ? 2 : 4,
        curve->y[n - 1] * panel->scale, panel->unit);
}

static void draw_panel(FILE *out, struct panel *panel, const char *evaluated)
{
    const double left = panel->left, step_x = nice_step(panel->max_x), bottom = TOP + PANEL_H;

    fit_y(panel);
    fprintf(out,
        "<clipPath id=\"c%g\"><path d=\"M%g %gh%gv%gh-%gz\"/></clipPath>\n" TEXT "%s</text>\n",
        left, left, TOP - 4, PANEL_W, PANEL_H + 8, PANEL_W, "head", left, TOP - 16, panel->title);
    for (double y = panel->min_y; y <= panel->max_y + panel->tick_y / 2; y += panel->tick_y) {
        const double at = place_y(panel, y);

        fprintf(out, "<path class=\"grid\" d=\"M%g %.1fh%g\"/>\n" TEXT "%g%s</text>\n", left, at,
            PANEL_W, "tick end", left - 8, at + 4, y * panel->scale, panel->unit);
    }
    for (double x = 0; x <= panel->max_x + step_x / 1e6; x += step_x)
        fprintf(out, TEXT "%g</text>\n", "tick middle", place_x(panel, x), bottom + 18, x);
    fprintf(out, TEXT "epoch</text>\n", "tick middle", left + PANEL_W / 2, bottom + 36);
    draw_series(out, panel, panel->train, "train", "train");
    draw_series(out, panel, panel->eval, "test", evaluated);
}

/* Draws the learning rate in the loss panel, thin, from 0 at the bottom to its maximum at the
 * top. */
static void draw_lr(FILE *out, struct panel panel, const struct np_curve *lr)
{
    panel.min_y = panel.max_y = 0;
    for (int i = 0; i < lr->nr_points; i++)
        panel.max_y = fmax(panel.max_y, lr->y[i]);
    if (lr->nr_points < 2 || panel.max_y <= 0)
        return;
    draw_line(out, &panel, lr, "lr", 0);
    fprintf(out, TEXT "dotted: learning rate %.3g, maximum %.3g</text>\n", "tick end",
        panel.left + PANEL_W, TOP + PANEL_H + 54, lr->y[lr->nr_points - 1], panel.max_y);
}

static void draw(FILE *out, const void *what)
{
    const struct np_curves *curves = what;
    const char *evaluated = curves->evaluated ? curves->evaluated : "test";
    const double nr_epochs = curves->nr_epochs > 0 ? curves->nr_epochs : 1;
    struct panel loss = {
        "loss", "", 60, 1, true, &curves->train_loss, &curves->eval_loss, nr_epochs, 0, 0, 0};
    struct panel accuracy = {"accuracy", "%", 515, 100, false, &curves->train_accuracy,
        &curves->eval_accuracy, nr_epochs, 0, 0, 0};

    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 920 400\" "
          "role=\"img\">\n<style>\n",
        out);
    np_page_put("/assets/curves.css", out);
    fputs("</style>\n<rect class=\"page\" width=\"920\" height=\"400\"/>\n"
          "<text class=\"title\" x=\"24\" y=\"36\">",
        out);
    for (const char *at = curves->title; *at; at++)
        fputs(*at == '&' ? "&amp;" : *at == '<' ? "&lt;" : (char[]){*at, '\0'}, out);
    fputs("</text>\n", out);
    draw_panel(out, &loss, evaluated);
    draw_lr(out, loss, &curves->lr);
    draw_panel(out, &accuracy, evaluated);
    fputs("</svg>\n", out);
}

int np_curves_write(const struct np_curves *curves, const char *path, struct np_err *err)
{
    return np_page_write(path, draw, curves, err);
}
