/* The learning-rate range test: when it ends, and which rates it gives. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/profile/range_test.h"
#include "tests/test.h"

#define POINTS 100
static struct np_range_point points[POINTS];

static double rate_of(int i)
{
    return 1e-7 * pow(1e8, i / (POINTS - 1.0));
}

/* Losses that fall around 1e-3, are lowest near 0.1 and rise behind it. Returns the points. */
static int fill(struct np_range_test *test, double rise)
{
    *test = (struct np_range_test){.points = points, .room = POINTS};
    for (int i = 0; i < POINTS; i++) {
        const double x = log10(rate_of(i));

        if (np_range_add(test, rate_of(i), 3 - 2 / (1 + exp(-4 * (x + 3))) + rise * pow(10, x)))
            break;
    }
    np_range_judge(test);
    return test->nr_points;
}

Test(range_test, smooths_as_fastai_does)
{
    struct np_range_test test = {.points = points, .room = POINTS};
    double mean = 0;

    for (int i = 0; i < 20; i++) {
        const double loss = 2 + sin(i);

        mean = 0.98 * mean + 0.02 * loss; /* AvgSmoothLoss */
        np_range_add(&test, rate_of(i), loss);
        cr_expect(fabs(points[i].smooth - mean / (1 - pow(0.98, i + 1))) < 1e-12);
    }
    cr_expect(!test.diverged && test.nr_points == 20);
}

Test(range_test, finds_the_steepest_fall_and_the_minimum)
{
    struct np_range_test test;

    cr_assert(fill(&test, 1) == POINTS && !test.diverged);
    cr_expect(test.steep > 1e-4 && test.steep < 0.1, "%g", test.steep);
    cr_expect(test.minimum > 1e-2 && test.minimum < 1, "%g", test.minimum);
    for (int i = POINTS / 10; i < POINTS; i++)
        cr_expect(points[i].smooth >= test.best);
}

Test(range_test, ends_when_the_loss_diverges)
{
    struct np_range_test test;
    const int nr = fill(&test, 1000);

    cr_assert(test.diverged && nr < POINTS);
    cr_expect(points[nr - 1].smooth > 4 * test.best && points[nr - 2].smooth <= 4 * test.best);
    cr_expect(test.minimum < points[nr - 6].lr / 9);
    cr_expect(np_range_add(&test, 1, 1) && test.nr_points == nr, "it is over");
}

Test(range_test, a_loss_that_is_not_a_number_ends_it)
{
    struct np_range_test test = {.points = points, .room = POINTS};

    cr_expect(!np_range_add(&test, 1e-7, 2) && np_range_add(&test, 1e-6, (double)NAN));
    cr_expect(test.diverged && test.nr_points == 1);
    np_range_judge(&test);
    cr_expect(isnan(test.steep) && isnan(test.minimum));
}

Test(range_test, a_loss_that_only_rises_has_no_steepest_fall)
{
    struct np_range_test test = {.points = points, .room = POINTS};

    for (int i = 0; i < POINTS; i++)
        np_range_add(&test, rate_of(i), 1 + 0.001 * i);
    np_range_judge(&test);
    cr_expect(isnan(test.steep) && !test.diverged);
}

Test(range_test, the_plot_has_twelve_lines_of_its_width)
{
    struct np_range_test test;
    char *text = NULL;
    size_t bytes = 0;
    int nr_lines = 0;

    fill(&test, 1);
    for (int columns = 0; columns <= 400; columns += 100) {
        FILE *out = open_memstream(&text, &bytes);

        np_range_plot(&test, columns, out);
        fclose(out);
        nr_lines = 0;
        for (const char *at = text; (at = strchr(at, '\n')); at++)
            nr_lines++;
        cr_expect(nr_lines == 13 && strstr(text, "1e-07") && strstr(text, "10\n"), "%s", text);
        free(text);
    }
}
