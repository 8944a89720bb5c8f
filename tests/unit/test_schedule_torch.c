/* Schedules against torch's own numbers, as tests/golden/torch_schedule.py made them. */
#include <math.h>
#include <string.h>

#include "loader/base/yaml.h"
#include "tests/test.h"
#include "tests/unit/golden_schedule.h"
#include "trainer/early.h"
#include "trainer/plateau.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void parse(const char *config, struct np_schedule_options *options)
{
    struct np_node *node = NULL;
    struct np_report report;

    np_report_init(&report, "x.yaml");
    cr_assert(np_yaml_parse(config, strlen(config), &node, &report) == 0);
    cr_assert(np_schedule_parse(node, options, &report) == 0, "%s", config);
    np_report_fini(&report);
    np_node_free(node);
}

Test(schedule_torch, rates_and_momenta_equal_torch)
{
    for (size_t c = 0; c < COUNT(golden_schedules); c++) {
        struct np_schedule_options options;

        parse(golden_schedules[c].config, &options);
        for (uint64_t u = 0; u < GOLDEN_UPDATES; u++) {
            const double rate = np_schedule_factor(&options, u, GOLDEN_UPDATES, 10);
            const double momentum = np_schedule_momentum(&options, u, GOLDEN_UPDATES);

            cr_expect(fabs(rate - golden_schedules[c].rates[u]) < 1e-9, "%s: %g at update %d",
                golden_schedules[c].config, rate, (int)u);
            cr_expect(fabs(momentum - golden_schedules[c].momenta[u]) < 1e-9,
                "%s: momentum %g at update %d", golden_schedules[c].config, momentum, (int)u);
        }
        np_schedule_fini(&options);
    }
}

/* The script's metrics(). */
static double metric_of(int i, bool loss, uint32_t *state, double *value)
{
    *state = *state * 1664525 + 1013904223;
    *value = loss ? *value * (1 - 0.1 / (1 + i)) : *value + 0.5 / (1 + i);
    return *value + ((double)(*state >> 8) / 16777216 - 0.5) * 0.02;
}

Test(schedule_torch, plateau_falls_when_torch_does)
{
    for (size_t c = 0; c < COUNT(golden_plateaus); c++) {
        struct np_schedule_options options;
        struct np_plateau plateau = {0};
        uint32_t state = 11;
        double value = 1;
        bool fell = false;

        parse(golden_plateaus[c].config, &options);
        cr_expect(np_plateau_factor(&plateau) == 1);
        for (int i = 0; i < GOLDEN_EVALS; i++) {
            const bool loss = options.metric == NP_METRIC_LOSS;

            np_plateau_step(&options, metric_of(i, loss, &state, &value), &plateau);
            cr_expect(fabs(np_plateau_factor(&plateau) - golden_plateaus[c].rates[i]) < 1e-9,
                "%s: %g after evaluation %d", golden_plateaus[c].config, plateau.factor, i);
            fell |= plateau.factor < 1;
        }
        cr_expect(fell, "%s", golden_plateaus[c].config);
    }
}

Test(schedule_torch, a_metric_that_is_not_a_number_is_no_improvement)
{
    const struct np_schedule_options options = {
        .kind = NP_PLATEAU, .gamma = 0.5, .patience = 1, .threshold = 0.1};
    struct np_plateau plateau = {0};

    np_plateau_step(&options, NAN, &plateau);
    np_plateau_step(&options, 2, &plateau);
    cr_expect(plateau.best == 2 && plateau.factor == 1);
    np_plateau_step(&options, NAN, &plateau);
    np_plateau_step(&options, NAN, &plateau);
    cr_expect(plateau.best == 2 && plateau.factor == 0.5);
}

Test(schedule_torch, early_stopping_counts_evaluations_as_plateau_does)
{
    for (size_t c = 0; c < COUNT(golden_plateaus); c++) {
        struct np_schedule_options options;
        struct np_plateau plateau = {0};
        struct np_early early = {0};
        uint32_t state = 11, other = 11;
        double value = 1, copy = 1;
        uint64_t fell = 0;

        parse(golden_plateaus[c].config, &options);
        const struct np_early_options stop = {
            options.metric, options.patience, options.threshold, 0};
        for (int i = 0; i < GOLDEN_EVALS; i++) {
            const bool loss = options.metric == NP_METRIC_LOSS;

            np_plateau_step(&options, metric_of(i, loss, &state, &value), &plateau);
            np_early_step(&stop, metric_of(i, loss, &other, &copy), (uint64_t)i + 1, i, &early);
            if (fell == 0 && plateau.factor < 1)
                fell = (uint64_t)i + 1;
        }
        cr_expect(fell > 0 && early.stopped == fell, "%s: %d", golden_plateaus[c].config,
            (int)early.stopped);
    }
}

Test(schedule_torch, early_stopping_waits_for_min_epochs)
{
    const struct np_early_options stop = {NP_METRIC_ACCURACY, 1, 0, 5};
    struct np_early early = {0};

    for (int i = 1; i <= 8; i++)
        np_early_step(&stop, 0.5, (uint64_t)i * 10, i, &early);
    cr_expect(early.stopped == 50 && early.nr_bad == 4 && early.best == 0.5);
}

Test(schedule_torch, a_metric_has_its_direction_also_below_zero)
{
    static const struct {
        enum np_metric metric;
        double best, better, worse;
    } cases[] = {
        {NP_METRIC_LOSS, 1, 0.89, 0.91},
        {NP_METRIC_MAE, 1, 0.89, 1.2},
        {NP_METRIC_RMSE, 1, 0.89, 1.2},
        {NP_METRIC_MAP, 0.5, 0.56, 0.54},
        {NP_METRIC_R2, 0.5, 0.56, 0.54},
        {NP_METRIC_R2, -0.5, -0.44, -0.46},
        {NP_METRIC_R2, -0.5, 0.1, -0.54},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_expect(np_metric_better(cases[i].metric, 0.1, cases[i].better, cases[i].best), "%zu", i);
        cr_expect(!np_metric_better(cases[i].metric, 0.1, cases[i].worse, cases[i].best), "%zu", i);
    }
}
