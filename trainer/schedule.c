/* Learning-rate schedules: option tables and formulas. Pure; any thread. */
#include "trainer/schedule.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>

#define AT(field) offsetof(struct np_schedule_options, field)

#define WARMUP                                                                                     \
    {"warmup", NP_OPT_SHARE, AT(warmup), "0", 0, 1, NULL,                                          \
        "Share of the run in which the rate rises linearly."},                                     \
    {                                                                                              \
        "warmup_from", NP_OPT_SHARE, AT(warmup_from), "0.04", 0, 1, NULL,                          \
            "Share of the peak rate that the warm-up starts from."                                 \
    }

static const struct np_option constant_table[] = {
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option multistep_table[] = {
    {"milestones", NP_OPT_FLOATS, AT(milestones), NULL, 0, 1e6, NULL,
        "Increasing epochs after which the rate is multiplied by `gamma`."},
    {"gamma", NP_OPT_FLOAT, AT(gamma), "0.1", 0, 1, NULL, "Factor at each milestone."},
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option cosine_table[] = {
    {"final", NP_OPT_SHARE, AT(final), "0", 0, 1, NULL, "Share of the peak rate at the end."},
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option one_cycle_table[] = {
    {"warmup", NP_OPT_SHARE, AT(warmup), "0.3", 0, 1, NULL,
        "Share of the run in which the rate rises to its peak."},
    {"warmup_from", NP_OPT_SHARE, AT(warmup_from), "0.04", 0, 1, NULL,
        "Share of the peak rate at the first update."},
    {"final", NP_OPT_SHARE, AT(final), "4e-6", 0, 1, NULL,
        "Share of the peak rate at the last update."},
    {"anneal", NP_OPT_WORD, AT(anneal), "cosine", 0, 0, "cosine|linear", "Shape of both halves."},
    NP_OPTIONS_END,
};

const struct np_choice np_schedule_choices[] = {
    {"constant", constant_table, "The peak rate, after an optional warm-up."},
    {"multistep", multistep_table, "Falls by a factor at given epochs."},
    {"cosine", cosine_table, "Falls along half a cosine."},
    {"one_cycle", one_cycle_table,
        "Rises, then falls to almost nothing. Momentum stays as it is, as with torch's "
        "`cycle_momentum=False`."},
    {NULL, NULL, NULL},
};

static int check_milestones(
    const struct np_schedule_options *options, const struct np_node *args, struct np_report *report)
{
    const struct np_node *at = args ? np_node_get(args, "milestones") : NULL;

    for (int i = 1; i < options->milestones.nr_values; i++) {
        if (options->milestones.values[i] <= options->milestones.values[i - 1])
            return np_report_add(report, at ? at->line : 0, at ? at->column : 0,
                "multistep.milestones: %g does not come after %g", options->milestones.values[i],
                options->milestones.values[i - 1]);
    }
    return 0;
}

int np_schedule_parse(
    const struct np_node *node, struct np_schedule_options *ret_options, struct np_report *report)
{
    struct np_schedule_options options = {0};
    const struct np_node *args = NULL;
    int kind = np_choice_find(np_schedule_choices, node, "schedule", "constant", &args, report);

    if (kind < 0)
        return -EINVAL;
    options.kind = kind;
    const struct np_choice *choice = &np_schedule_choices[kind];
    if (np_options_parse(choice->table, args, choice->name, NULL, &options, report) < 0 ||
        check_milestones(&options, args, report) < 0) {
        np_options_fini(choice->table, &options);
        return -EINVAL;
    }
    *ret_options = options;
    return 0;
}

struct np_node *np_schedule_node(const struct np_schedule_options *options)
{
    return np_choice_node(&np_schedule_choices[options->kind], options);
}

void np_schedule_fini(struct np_schedule_options *options)
{
    np_options_fini(np_schedule_choices[options->kind].table, options);
}

static double anneal(int kind, double from, double to, double share)
{
    if (share > 1)
        share = 1;
    if (kind == NP_ANNEAL_LINEAR)
        return from + (to - from) * share;
    return to + (from - to) * (1 + cos(M_PI * share)) / 2;
}

/* The peak is at update W - 1, the end at update n - 1. A warm-up of at most one update starts
 * at the peak. */
static double one_cycle(const struct np_schedule_options *options, double update, double nr_updates)
{
    double peak = options->warmup * nr_updates - 1, last = nr_updates - 1;

    if (peak > 0 && update <= peak)
        return anneal(options->anneal, options->warmup_from, 1, update / peak);
    if (peak < 0)
        peak = 0;
    return last > peak ? anneal(options->anneal, 1, options->final, (update - peak) / (last - peak))
                       : 1;
}

static double multistep(
    const struct np_schedule_options *options, double update, double updates_per_epoch)
{
    double factor = 1;

    for (int i = 0; i < options->milestones.nr_values; i++)
        if (update >= options->milestones.values[i] * updates_per_epoch)
            factor *= options->gamma;
    return factor;
}

double np_schedule_factor(const struct np_schedule_options *options, uint64_t update,
    uint64_t nr_updates, double updates_per_epoch)
{
    double u = (double)update, n = (double)nr_updates, warm = options->warmup * n;
    double factor = 1;

    if (options->kind == NP_ONE_CYCLE)
        return one_cycle(options, u, n);
    if (u < warm)
        factor = options->warmup_from + (1 - options->warmup_from) * u / warm;
    if (options->kind == NP_MULTISTEP)
        factor *= multistep(options, u, updates_per_epoch);
    if (options->kind == NP_COSINE && u >= warm && n > warm)
        factor = anneal(NP_ANNEAL_COSINE, 1, options->final, (u - warm) / (n - warm));
    return factor;
}

bool np_schedule_extends(const struct np_schedule_options *options)
{
    return (options->kind == NP_CONSTANT || options->kind == NP_MULTISTEP) && options->warmup == 0;
}
