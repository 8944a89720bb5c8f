/* Writes the parts of the picture that depend on the values; page/curves.svg has the fixed parts.
 * Plain shapes: many viewers run no script and support no CSS variables. */
#include "daemon/ui/curves.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/ui/page.h"

/* Of a panel; its upper left corner is the origin. */
#define WIDTH       380.0
#define HEIGHT      250.0
#define REACH       (NP_CURVE_COLUMNS / 60)
#define NR_COLOURS  8   /* in compare.svg */
#define NAMES_Y     396 /* of the first line of names below the panels */
#define NAME_HEIGHT 22
#define DOT         "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n"
#define FAR         "<path class=\"dot %s far\" d=\"M%.1f 5l4 -7l4 7z\"><title>%.4g</title></path>\n"
#define TICK        "<text class=\"tick %s\" x=\"%.1f\" y=\"%.1f\">%g%s</text>\n"
#define LEGEND                                                                                     \
    "<circle class=\"dot %s\" cx=\"%d\" cy=\"-20\" r=\"4\"/><text class=\"legend\" x=\"%d\" "      \
    "y=\"-16\">%s <tspan class=\"value\">%.*f%s</tspan></text>\n"

static const char train_name[] = "train";

struct panel {
    bool percent;
    double min_y, max_y, tick_y;
};

void np_curve_add(struct np_curve *curve, double at, double y)
{
    if (!(at >= 0) || !isfinite(y))
        return;
    const int i = (int)(fmin(at, 1) * (NP_CURVE_COLUMNS - 1));
    curve->last = i > curve->last ? i : curve->last;
    curve->nr_points += curve->nr[i]++ == 0;
    curve->sum[i] += y;
}

/* The mean of column i and of `reach` columns on both sides, fewer near the ends. */
static double mean(const struct np_curve *curve, int i, int reach)
{
    const int near = (int)fmin(reach, fmin(i, curve->last - i));
    double sum = 0, nr = 0;

    for (int j = i - near; j <= i + near; j++) {
        sum += curve->sum[j];
        nr += curve->nr[j];
    }
    return sum / nr;
}

double np_curve_mean(const struct np_curve *curve, int i)
{
    return mean(curve, i, 0);
}

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

/* The axis of several curves. Of a loss, leaves out the upper 4 % if they are far above all others:
 * a loss begins with a spike that would flatten the rest. */
static struct panel fit(const struct np_curve *const *curves, int nr_curves, bool percent)
{
    static double values[NP_OVERLAY_MAX_RUNS * NP_CURVE_COLUMNS]; /* main thread */
    int n = 0;

    for (int c = 0; c < nr_curves; c++)
        for (int i = 0; i < NP_CURVE_COLUMNS; i++)
            if (curves[c]->nr[i] > 0)
                values[n++] = mean(curves[c], i, 0);
    qsort(values, (size_t)n, sizeof(*values), ascending);
    const double min = n > 0 ? values[0] : 0;
    double max = n > 0 ? values[n - 1] : 1;
    const double usual = percent || n < 20 ? max : values[n * 24 / 25 - 1];
    if (usual > min && max > usual + 2 * (usual - min))
        max = usual;
    const double tick = nice_step(max > min ? max - min : 1), low = floor(min / tick) * tick;
    return (struct panel){percent, low, fmax(ceil(max / tick) * tick, low + tick), tick};
}

static double place_x(int column)
{
    return WIDTH * column / (NP_CURVE_COLUMNS - 1);
}

static double place_y(const struct panel *panel, double y)
{
    const double part = (y - panel->min_y) / (panel->max_y - panel->min_y);

    return HEIGHT * (1 - fmin(fmax(part, -0.02), 1.02));
}

static void draw_line(FILE *out, const struct panel *panel, const struct np_curve *curve,
    const char *class, int reach)
{
    fprintf(out, "<polyline class=\"line %s\" points=\"", class);
    for (int i = 0; i <= curve->last; i++)
        if (curve->nr[i] > 0)
            fprintf(out, "%.1f,%.1f ", place_x(i), place_y(panel, mean(curve, i, reach)));
    fputs("\"/>\n", out);
}

static void draw_series(FILE *out, const struct panel *panel, const struct np_curve *curve,
    const char *class, const char *name, int legend_x)
{
    const bool dots = name != train_name && curve->nr_points <= 40;

    if (curve->nr_points == 0)
        return;
    draw_line(out, panel, curve, class, name == train_name ? REACH : 0);
    for (int i = 0; i <= curve->last; i++) {
        const double x = place_x(i), y = mean(curve, i, 0); /* NAN: an empty column */

        if (y > panel->max_y)
            fprintf(out, FAR, class, x - 4, y);
        else if (dots && curve->nr[i] > 0)
            fprintf(out, DOT, class, x, place_y(panel, y));
    }
    fprintf(out, LEGEND, class, legend_x, legend_x + 9, name, panel->percent ? 2 : 4,
        mean(curve, curve->last, 0) * (panel->percent ? 100 : 1), panel->percent ? "%" : "");
}

static void draw_axes(FILE *out, const struct panel *panel, double nr_epochs)
{
    const double tick_x = nice_step(nr_epochs);

    for (double y = panel->min_y; y <= panel->max_y + panel->tick_y / 2; y += panel->tick_y) {
        const double at = place_y(panel, y);

        fprintf(out, "<path class=\"grid\" d=\"M0 %.1fh380\"/>" TICK, at, "end", -8.0, at + 4,
            panel->percent ? 100 * y : y, panel->percent ? "%" : "");
    }
    for (double x = 0; x <= nr_epochs + tick_x / 1e6; x += tick_x)
        fprintf(out, TICK, "middle", WIDTH * x / nr_epochs, HEIGHT + 18, x, "");
}

static void draw_panel(FILE *out, const struct np_curves *curves, const struct np_curve *train,
    const struct np_curve *eval, bool percent)
{
    const struct np_curve *const both[] = {train, eval};
    const struct panel panel = fit(both, 2, percent);

    draw_axes(out, &panel, curves->nr_epochs > 0 ? curves->nr_epochs : 1);
    draw_line(out, &panel, train, "raw train", 0);
    draw_series(out, &panel, train, "train", train_name, 160);
    draw_series(out, &panel, eval, "test", curves->evaluated ? curves->evaluated : "test", 275);
}

/* The learning rate is a thin line over the loss, from 0 at the bottom to its maximum. */
static void draw_loss(FILE *out, const void *what)
{
    const struct np_curves *curves = what;
    const struct np_curve *lr = &curves->lr;
    struct panel panel = {0};

    draw_panel(out, curves, &curves->train_loss, &curves->eval_loss, false);
    for (int i = 0; i <= lr->last; i++)
        panel.max_y = fmax(panel.max_y, mean(lr, i, 0));
    if (lr->nr_points < 2 || panel.max_y <= 0)
        return;
    draw_line(out, &panel, lr, "lr", 0);
    fprintf(out,
        "<text class=\"tick end\" x=\"380\" y=\"304\">dotted: learning rate %.3g, maximum "
        "%.3g</text>\n",
        mean(lr, lr->last, 0), panel.max_y);
}

static void draw_accuracy(FILE *out, const void *what)
{
    const struct np_curves *curves = what;

    draw_panel(out, curves, &curves->train_accuracy, &curves->eval_accuracy, true);
}

static void put_title(FILE *out, const void *title)
{
    for (const char *at = title; *at; at++)
        fputs(*at == '&' ? "&amp;" : *at == '<' ? "&lt;" : (char[]){*at, '\0'}, out);
}

static void draw(FILE *out, const void *what)
{
    const struct np_curves *curves = what;
    const struct np_hole holes[] = {{"title", put_title, curves->title},
        {"loss", draw_loss, curves}, {"accuracy", draw_accuracy, curves}, {NULL}};

    np_page_fill(out, "/assets/curves.svg", holes);
}

int np_curves_write(const struct np_curves *curves, const char *path, struct np_err *err)
{
    return np_page_write(path, draw, curves, err);
}

/* --- several runs ----------------------------------------------------------------------------- */

/* The second eight runs have the colours of the first eight, dashed. */
static void name_class(int run, char text[16])
{
    snprintf(text, 16, "r%d%s", run % NR_COLOURS, run < NR_COLOURS ? "" : " more");
}

static void draw_runs(FILE *out, const struct np_overlay *overlay, bool percent)
{
    const struct np_curve *curves[NP_OVERLAY_MAX_RUNS];
    char class[16];

    for (int i = 0; i < overlay->nr_runs; i++)
        curves[i] = percent ? &overlay->runs[i].accuracy : &overlay->runs[i].loss;
    const struct panel panel = fit(curves, overlay->nr_runs, percent);
    draw_axes(out, &panel, overlay->nr_epochs > 0 ? overlay->nr_epochs : 1);
    for (int i = 0; i < overlay->nr_runs; i++) {
        name_class(i, class);
        if (curves[i]->nr_points > 0)
            draw_line(out, &panel, curves[i], class, percent ? 0 : REACH);
        for (int x = 0; percent && curves[i]->nr_points <= 40 && x <= curves[i]->last; x++)
            if (curves[i]->nr[x] > 0)
                fprintf(out, DOT, class, place_x(x), place_y(&panel, mean(curves[i], x, 0)));
    }
}

static void draw_losses(FILE *out, const void *what)
{
    draw_runs(out, what, false);
}

static void draw_accuracies(FILE *out, const void *what)
{
    draw_runs(out, what, true);
}

static void draw_names(FILE *out, const void *what)
{
    const struct np_overlay *overlay = what;
    char class[16];

    for (int i = 0; i < overlay->nr_runs; i++) {
        const int x = i % 2 ? 515 : 60, y = NAMES_Y + NAME_HEIGHT * (i / 2);

        name_class(i, class);
        fprintf(out, "<path class=\"key %s\" d=\"M%d %dh24\"/>", class, x, y - 4);
        fprintf(out, "<text class=\"legend\" x=\"%d\" y=\"%d\">", x + 32, y);
        put_title(out, overlay->runs[i].name);
        if (isfinite(overlay->runs[i].best))
            fprintf(out, " <tspan class=\"value\">%.2f%%</tspan>", 100 * overlay->runs[i].best);
        fputs("</text>\n", out);
    }
}

static void put_height(FILE *out, const void *what)
{
    const struct np_overlay *overlay = what;

    fprintf(out, "%d", NAMES_Y + NAME_HEIGHT * ((overlay->nr_runs + 1) / 2));
}

static void draw_overlay(FILE *out, const void *what)
{
    const struct np_overlay *overlay = what;
    const struct np_hole holes[] = {{"title", put_title, overlay->title},
        {"height", put_height, overlay}, {"loss", draw_losses, overlay},
        {"accuracy", draw_accuracies, overlay}, {"names", draw_names, overlay}, {NULL}};

    np_page_fill(out, "/assets/compare.svg", holes);
}

int np_overlay_write(const struct np_overlay *overlay, const char *path, struct np_err *err)
{
    return np_page_write(path, draw_overlay, overlay, err);
}
