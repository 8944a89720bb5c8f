/* Schedules against values of torch 1.13's lr_scheduler classes, and their options' mistakes. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/schedule.h"

struct point {
    uint64_t update;
    double factor;
};

/* The largest difference over all points. */
static double worst(
    const struct np_schedule_options *options, uint64_t n, const struct point *points, int count)
{
    double error = 0;
    for (int i = 0; i < count; i++)
        error = fmax(
            error, fabs(np_schedule_factor(options, points[i].update, n, 1) - points[i].factor));
    return error;
}

Test(schedule, one_cycle_along_cosines_is_torch_OneCycleLR)
{
    struct np_schedule_options options = {
        .kind = NP_ONE_CYCLE, .warmup = 0.3, .warmup_from = 0.04, .final = 4e-6};
    struct point points[] = {{0, 0.04}, {10, 0.29516394846410077}, {29, 1},
        {30, 0.9994965352845243}, {60, 0.5892800902855287}, {99, 4e-6}};
    cr_assert_lt(worst(&options, 100, points, 6), 1e-12);
}

Test(schedule, one_cycle_along_lines_is_torch_OneCycleLR)
{
    struct np_schedule_options options = {.kind = NP_ONE_CYCLE,
        .warmup = 0.2,
        .warmup_from = 0.2,
        .final = 0.07,
        .anneal = NP_ANNEAL_LINEAR};
    struct point points[] = {
        {0, 0.2}, {10, 0.6210526315789473}, {19, 1}, {20, 0.988375}, {60, 0.523375}, {99, 0.07}};
    cr_assert_lt(worst(&options, 100, points, 6), 1e-12);
}

Test(schedule, one_cycle_without_warmup_starts_at_the_peak)
{
    struct np_schedule_options options = {.kind = NP_ONE_CYCLE, .final = 0.5};
    struct point points[] = {{0, 1}, {99, 0.5}};
    cr_assert_lt(worst(&options, 100, points, 2), 1e-12);
    cr_assert_float_eq(np_schedule_factor(&options, 0, 1, 1), 1, 1e-12);
}

Test(schedule, cosine_is_torch_CosineAnnealingLR)
{
    struct np_schedule_options options = {.kind = NP_COSINE, .final = 0.01};
    struct point points[] = {
        {0, 1}, {1, 0.9996183729391579}, {40, 0.505}, {79, 0.010381627060842164}};
    cr_assert_lt(worst(&options, 80, points, 4), 1e-12);
}

Test(schedule, warmup_is_torch_LinearLR_and_the_cosine_starts_after_it)
{
    struct np_schedule_options options = {
        .kind = NP_COSINE, .warmup = 0.2, .warmup_from = 0.04, .final = 0.01};
    struct point points[] = {{0, 0.04}, {1, 0.088}, {10, 0.52}, {19, 0.952}, {20, 1},
        {21, 0.9996183729391579}, {60, 0.505}, {99, 0.010381627060842164}};
    cr_assert_lt(worst(&options, 100, points, 8), 1e-12);
}

Test(schedule, multistep_falls_at_epochs_whatever_the_updates_in_one)
{
    double milestones[] = {30, 60};
    struct np_schedule_options options = {
        .kind = NP_MULTISTEP, .gamma = 0.1, .milestones = {milestones, 2}};
    struct point points[] = {{0, 1}, {29, 1}, {30, 0.1}, {59, 0.1}, {60, 0.01}, {99, 0.01}};
    cr_assert_lt(worst(&options, 100, points, 6), 1e-12);
    cr_assert_float_eq(np_schedule_factor(&options, 45, 1000, 1.5), 0.1, 1e-12);
    cr_assert_float_eq(np_schedule_factor(&options, 44, 1000, 1.5), 1, 1e-12);
}

Test(schedule, every_factor_lies_between_0_and_1_over_odd_runs)
{
    for (int kind = 0; kind < NP_NR_SCHEDULES; kind++)
        for (uint64_t n = 1; n < 12; n++)
            for (int share = 0; share <= 10; share++)
                for (uint64_t update = 0; update < n + 2; update++) {
                    struct np_schedule_options options = {.kind = kind,
                        .warmup = share / 10.0,
                        .warmup_from = 0.04,
                        .gamma = 0.1,
                        .every = 2,
                        .growth = 1.5,
                        .power = 2};
                    double factor = np_schedule_factor(&options, update, n, 2);
                    cr_assert(factor >= 0 && factor <= 1);
                }
}

Test(schedule, only_schedules_without_shares_of_the_run_extend)
{
    struct np_schedule_options constant = {.kind = NP_CONSTANT}, warm = {.warmup = 0.1};
    struct np_schedule_options multistep = {.kind = NP_MULTISTEP}, cosine = {.kind = NP_COSINE};
    cr_assert(np_schedule_extends(&constant));
    cr_assert(np_schedule_extends(&multistep));
    cr_assert_not(np_schedule_extends(&warm));
    cr_assert_not(np_schedule_extends(&cosine));
}

/* {name: {key: value}} */
static struct np_node *named(const char *name, const char *key, struct np_node *value)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 3, 5), *args = np_node_new(NP_NODE_MAP, 3, 9);
    np_node_add(args, key, value);
    np_node_add(map, name, args);
    return map;
}

Test(schedule, options_have_defaults_and_a_normal_form)
{
    struct np_report report;
    struct np_schedule_options options;
    np_report_init(&report, "x.yaml");
    struct np_node *node = named("one_cycle", "warmup", np_node_scalar("20%", 3, 20));
    cr_assert_eq(np_schedule_parse(node, &options, &report), 0);
    cr_assert_eq(options.kind, NP_ONE_CYCLE);
    cr_assert_float_eq(options.warmup, 0.2, 1e-12);
    cr_assert_float_eq(options.warmup_from, 0.04, 1e-12);
    cr_assert_float_eq(options.final, 4e-6, 1e-12);

    struct np_node *normal = np_schedule_node(&options);
    struct np_schedule_options again;
    cr_assert_eq(np_schedule_parse(normal, &again, &report), 0);
    cr_assert_eq(memcmp(&options, &again, sizeof(options)), 0);
    cr_assert_eq(np_schedule_parse(NULL, &again, &report), 0);
    cr_assert_eq(again.kind, NP_CONSTANT);
    cr_assert_eq(report.nr_errs, 0);
    np_node_free(normal);
    np_node_free(node);
    np_report_fini(&report);
}

Test(schedule, a_wrong_name_gets_the_nearest_one)
{
    struct np_report report;
    struct np_schedule_options options;
    np_report_init(&report, "x.yaml");
    struct np_node *node = np_node_scalar("cosin", 7, 11), *list = np_node_new(NP_NODE_LIST, 8, 2);
    cr_assert_eq(np_schedule_parse(node, &options, &report), -EINVAL);
    cr_assert_eq(np_schedule_parse(list, &options, &report), -EINVAL);
    cr_assert_eq(report.nr_errs, 2);
    cr_assert_eq(report.errs[0].line, 7);
    cr_assert_not_null(strstr(report.errs[0].text, "did you mean 'cosine'?"));
    cr_assert_not_null(strstr(report.errs[1].text, "one_cycle"));
    np_node_free(node);
    np_node_free(list);
    np_report_fini(&report);
}

Test(schedule, milestones_must_rise)
{
    struct np_report report;
    struct np_schedule_options options;
    struct np_node *list = np_node_new(NP_NODE_LIST, 4, 2);
    np_report_init(&report, "x.yaml");
    np_node_add(list, NULL, np_node_scalar("60", 4, 3));
    np_node_add(list, NULL, np_node_scalar("30", 4, 7));
    struct np_node *node = named("multistep", "milestones", list);
    cr_assert_eq(np_schedule_parse(node, &options, &report), -EINVAL);
    cr_assert_eq(report.nr_errs, 1);
    cr_assert_not_null(strstr(report.errs[0].text, "30 does not come after 60"));
    np_node_free(node);
    np_report_fini(&report);
}

Test(schedule, a_range_grows_by_its_factor_at_each_update)
{
    struct np_schedule_options options = {.kind = NP_RANGE, .growth = pow(1e8, 1 / 99.0)};

    cr_expect(np_schedule_factor(&options, 0, 1000000, 7) == 1);
    cr_expect(fabs(np_schedule_factor(&options, 99, 1000000, 7) / 1e8 - 1) < 1e-12);
    np_schedule_fini(&options);
}
