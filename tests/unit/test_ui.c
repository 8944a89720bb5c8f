/* The progress line, durations, and the picture of a run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ui/curves.h"
#include "daemon/ui/progress.h"
#include "daemon/client/runs.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

static const struct np_progress progress = {.step = 50,
    .total_steps = 200,
    .epoch = 1.5,
    .total_epochs = 6,
    .images_per_second = 4811.6,
    .stall_ratio = 0.02,
    .loss = 1.23456,
    .accuracy = 0.7125,
    .eta_seconds = 75};

Test(progress, line_has_all_parts)
{
    char text[256];

    np_progress_text(&progress, 160, text, sizeof(text));
    cr_assert_str_eq(text, "epoch 1.50/6 [#####...............]  25%  4812 img/s  stall 2%  loss "
                           "1.2346  accuracy 71.25%  ETA 1:15");
}

Test(progress, line_names_the_main_cause_of_a_stall)
{
    struct np_progress stalled = progress;
    char text[256];

    stalled.stall_ratio = 0.12;
    strcpy(stalled.cause, "decode");
    np_progress_text(&stalled, 160, text, sizeof(text));
    cr_assert_not_null(strstr(text, "  stall 12% decode  loss "));
}

Test(progress, line_fits_a_narrow_terminal)
{
    char text[256];

    for (int width = 0; width < 160; width++) {
        np_progress_text(&progress, width, text, sizeof(text));
        cr_assert((int)strlen(text) <= width);
    }
    np_progress_text(&progress, 60, text, sizeof(text));
    cr_assert_str_eq(text, "epoch 1.50/6  25%  4812 img/s  stall 2%  loss 1.2346");
}

Test(progress, fields_read_back_and_null_is_unknown)
{
    struct np_progress back = np_progress_unknown;
    struct np_json json = {0};
    struct np_node *node = NULL;

    strcpy(back.doing, "opening");
    np_json_begin(&json, NULL);
    np_progress_write(&json, &progress, true);
    np_json_end(&json);
    cr_assert_null(strstr(json.text, "null"));
    cr_assert_eq(np_json_parse(json.text, strlen(json.text), &node, NULL), 0);
    np_progress_read(node, &back);
    np_node_free(node);
    cr_assert(back.step == 50 && back.total_steps == 200 && back.epoch == 1.5);
    cr_assert(back.loss == 1.23456 && back.accuracy == 0.7125 && back.eta_seconds == 75);
    cr_assert(back.images_per_second == 4811.6 && back.stall_ratio == 0.02);
    cr_assert_str_eq(back.doing, "opening"); /* not written, so as it was */

    np_json_begin(&json, NULL);
    np_progress_write(&json, &np_progress_unknown, false);
    np_json_end(&json);
    cr_assert_eq(np_json_parse(json.text, strlen(json.text), &node, NULL), 0);
    np_progress_read(node, &back);
    np_node_free(node);
    cr_assert(isnan(back.step) && isnan(back.eta_seconds) && isnan(back.said));
    cr_assert_str_eq(back.doing, "");
    np_json_fini(&json);
}

Test(progress, durations_have_short_forms)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0:00"}, {9.4, "0:09"}, {75, "1:15"}, {3599.6, "1:00:00"}, {4000, "1:06:40"},
        {-1, "0:00"}, {1e300, "0:00"}};
    char text[32];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        np_duration_text(cases[i].seconds, text, sizeof(text));
        cr_assert_str_eq(text, cases[i].text);
    }
}

Test(curves, a_long_run_is_thinned_and_keeps_its_mean)
{
    struct np_curve curve = {0};
    int nr = 0;

    for (int i = 0; i < 1 << 16; i++)
        np_curve_add(&curve, i / 65536.0, i % 7);
    cr_assert_eq(curve.nr_points, NP_CURVE_COLUMNS - 1);
    for (int i = 0; i < NP_CURVE_COLUMNS - 1; i++) {
        nr += curve.nr[i];
        cr_assert_float_eq(curve.sum[i] / curve.nr[i], 3, 0.05);
    }
    cr_assert_eq(nr, 1 << 16);
    np_curve_add(&curve, NAN, 1); /* left out */
    np_curve_add(&curve, 0.5, NAN);
    np_curve_add(&curve, 1.5, 1); /* a longer run than was known: the last column */
    cr_assert_eq(curve.nr_points, NP_CURVE_COLUMNS);
    cr_assert_eq(curve.nr[NP_CURVE_COLUMNS - 1], 1);
}

static char *picture(struct np_curves *curves, const char *title)
{
    char path[] = "/tmp/nnpipe-curves-XXXXXX", *text = calloc(1, 1 << 20);
    struct np_err err = {0};
    int fd = mkstemp(path);

    close(fd);
    curves->title = title;
    curves->nr_epochs = 4;
    if (np_curves_write(curves, path, &err) == 0) {
        FILE *file = fopen(path, "r");
        size_t n = fread(text, 1, (1 << 20) - 1, file);
        text[n] = '\0';
        fclose(file);
    }
    unlink(path);
    return text;
}

Test(curves, picture_holds_both_panels_and_a_safe_title)
{
    struct np_curves curves = {0};

    for (int i = 0; i < 40; i++) {
        np_curve_add(&curves.train_loss, i / 40.0, 2.0 / (1 + i));
        np_curve_add(&curves.train_accuracy, i / 40.0, i / 40.0);
    }
    np_curve_add(&curves.eval_loss, 0.5, 0.5);
    np_curve_add(&curves.eval_loss, 1, 0.25);
    np_curve_add(&curves.eval_accuracy, 0.5, 0.8);
    np_curve_add(&curves.eval_accuracy, 1, 0.9);
    char *text = picture(&curves, "a<b & c");
    cr_assert(strncmp(text, "<svg ", 5) == 0 && strstr(text, "</svg>"));
    cr_assert(strstr(text, "a&lt;b &amp; c"));
    cr_assert(
        strstr(text, "prefers-color-scheme: dark") && !strstr(text, "http://www.w3.org/1999"));
    cr_assert(strstr(text, ">90.00%<") && strstr(text, ">0.2500<"));
    cr_assert(!strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
}

/* The upper end of the loss axis: the largest label left of the first panel. */
static double top_of_loss(const char *text)
{
    double top = 0, x, y, value;

    const char *end = strstr(text, ">accuracy<");

    for (const char *at = text; (at = strstr(at, "<text class=\"tick end\"")) != NULL && at < end;
         at++)
        if (sscanf(at, "<text class=\"tick end\" x=\"%lf\" y=\"%lf\">%lf<", &x, &y, &value) == 3 &&
            value > top)
            top = value;
    return top;
}

Test(curves, one_loss_far_above_all_others_is_marked_and_does_not_stretch_the_axis)
{
    struct np_curves curves = {.evaluated = "val"};
    char *text;

    for (int i = 0; i < 73; i++)
        np_curve_add(&curves.train_loss, i / 72.0, 2.2 - i / 100.0);
    np_curve_add(&curves.eval_loss, 0.25, 12);
    for (int i = 2; i <= 4; i++)
        np_curve_add(&curves.eval_loss, i / 4.0, 2.3 - i / 10.0);
    text = picture(&curves, "x");
    cr_expect(top_of_loss(text) < 3, "%g", top_of_loss(text));
    cr_expect(strstr(text, "far\"") && strstr(text, "<title>12</title>"));
    cr_expect(strstr(text, ">val <tspan") && !strstr(text, ">test <tspan"));
    free(text);
}

Test(curves, a_loss_that_falls_steeply_is_drawn_whole)
{
    struct np_curves curves = {0};
    char *text;

    for (int i = 0; i < 200; i++)
        np_curve_add(&curves.train_loss, i / 200.0, 4.0 / (1 + i / 10.0));
    text = picture(&curves, "x");
    cr_expect(top_of_loss(text) >= 3, "%g", top_of_loss(text));
    free(text);
}

Test(curves, the_learning_rate_is_a_line_with_its_largest_value)
{
    struct np_curves curves = {0};
    char *text;

    for (int i = 0; i < 10; i++) {
        np_curve_add(&curves.train_loss, i / 9.0, 1);
        np_curve_add(&curves.lr, i / 9.0, 0.1 - i / 100.0);
    }
    text = picture(&curves, "x");
    cr_expect(strstr(text, "class=\"line lr\"") && strstr(text, "rate 0.01, maximum 0.1<"));
    free(text);
}

Test(curves, picture_of_nothing_and_of_one_value_is_a_picture)
{
    struct np_curves curves = {0};
    char *text = picture(&curves, "x");

    cr_assert(strstr(text, "</svg>") && !strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
    np_curve_add(&curves.train_loss, 0.1, 3);
    np_curve_add(&curves.train_loss, 0.2, 1.0 / 0.0); /* left out */
    text = picture(&curves, "x");
    cr_assert(strstr(text, "</svg>") && !strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
}

Test(curves, a_missing_folder_is_an_error)
{
    const struct np_curves curves = {.title = "x"};
    struct np_err err = {0};

    cr_assert(np_curves_write(&curves, "/no/such/folder/c.svg", &err) < 0);
    cr_assert(strstr(err.text, "/no/such/folder/c.svg"));
}

Test(overlay, each_run_has_a_line_in_both_panels_and_a_safe_name)
{
    static struct np_overlay_run runs[10];
    struct np_overlay overlay = {.title = "a & b", .nr_epochs = 2, .runs = runs, .nr_runs = 10};
    char path[] = "/tmp/nnpipe-overlay-XXXXXX", text[1 << 16] = "";
    struct np_err err = {0};

    for (int r = 0; r < 10; r++) {
        runs[r].name = r == 9 ? "<ten>" : "one";
        runs[r].best = r == 0 ? 0.875 : NAN;
        for (int i = 0; i < 30 && r < 9; i++) /* the last run has no point */
            np_curve_add(&runs[r].loss, i / 30.0, 1.0 / (i + r + 1));
        if (r < 9)
            np_curve_add(&runs[r].accuracy, 0.5, 0.1 * r);
    }
    close(mkstemp(path));
    cr_assert_eq(np_overlay_write(&overlay, path, &err), 0);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    cr_assert(strstr(text, "a &amp; b") && strstr(text, "&lt;ten>") && strstr(text, ">87.50%<"));
    cr_assert(!strstr(text, "nan") && !strstr(text, "inf") && !strstr(text, "{height}"));
    int nr = 0;
    for (const char *at = text; (at = strstr(at, "<polyline class=\"line r")); at++)
        nr++;
    cr_assert_eq(nr, 18);
    cr_assert(strstr(text, "\"line r0\"") && strstr(text, "\"line r0 more\"") &&
              strstr(text, "\"key r1 more\""));
    cr_assert(strstr(text, "viewBox=\"0 0 920 506\""));
}

/* The list of the runs, as `nnpipe ls` or (live) `top` prints it; free(). */
static char *list_of(bool live, const char *const *runs)
{
    const struct np_table_look look = {.chosen = -1};
    struct np_table table;
    struct np_err err = {0};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    np_runs_table(live, &table);
    for (; *runs; runs++) {
        struct np_node *run = NULL;

        cr_assert_eq(np_json_parse(*runs, strlen(*runs), &run, &err), 0);
        cr_assert_eq(np_runs_add(&table, run, &err), 0);
        np_node_free(run);
    }
    np_table_print(&table, &look, out);
    np_table_fini(&table);
    fclose(out);
    return text;
}

Test(runs, attempts_and_reasons_are_listed_if_there_are_any)
{
    static const char plain[] =
        "{\"id\": 1, \"name\": \"a\", \"state\": \"done\", \"attempts\": 1, "
        "\"reason\": \"\"}",
                      tried[] =
                          "{\"id\": 2, \"name\": \"b\", \"state\": \"failed\", \"attempts\": 4, "
                          "\"reason\": \"its process was ended by SIGKILL\"}";
    char *without = list_of(false, (const char *const[]){plain, NULL});
    char *with = list_of(false, (const char *const[]){plain, tried, NULL});

    cr_assert(!strstr(without, "tries") && !strstr(without, "why"));
    cr_assert(strstr(with, "tries") && strstr(with, "why"));
    cr_assert_not_null(strstr(with, "4  its process was ended by SIGKILL\n"));
    free(without);
    free(with);
}

Test(runs, a_run_of_a_folder_has_no_column_of_the_service)
{
    static const char folder[] =
        "{\"name\": \"a\", \"state\": \"running\", \"assigned\": \"sim\", \"progress\": {\"step\": "
        "7, "
        "\"total_steps\": 40, \"epoch\": 0.5, \"images_per_second\": 320, \"stall_ratio\": 0.25, "
        "\"cause\": \"decode\", \"eta_seconds\": 9}}";
    char *text = list_of(true, (const char *const[]){folder, NULL});

    cr_assert_str_eq(text,
        "id  state    device  step  epoch  loss  acc  img/s  stall        ETA\n"
        " a  running  sim     7/40   0.50     -    -    320  25% decode  0:09\n");
    free(text);
}

Test(runs, a_row_without_memory_is_an_error)
{
    struct np_table table;
    struct np_node *run = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_json_parse("{\"id\": 1}", 9, &run, &err), 0);
    np_runs_table(false, &table);
    made_memory_fail(1);
    cr_assert_eq(np_runs_add(&table, run, &err), -ENOMEM);
    made_memory_fail(0);
    cr_assert_eq(err.code, -ENOMEM);
    cr_assert_eq(np_runs_add(&table, run, &err), 0);
    np_table_fini(&table);
    np_node_free(run);
}
