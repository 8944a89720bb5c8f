/* Learning-rate schedules: option tables and formulas. Pure; any thread. */
#include "trainer/schedule.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>

#define AT(field) offsetof(struct np_schedule_options, field)

#define WARMUP                                                                                     \
    {"warmup", NP_OPT_SHARE, AT(warmup), "0", 0, 1, NULL,                                          \
        "Share of the run in which the rate rises linearly."},                                     \
        {"warmup_epochs", NP_OPT_FLOAT, AT(warmup_epochs), "0", 0, 1e6, NULL,                      \
            "The same in epochs, instead of `warmup`."},                                           \
        {"warmup_steps", NP_OPT_INT, AT(warmup_steps), "0", 0, 1e12, NULL,                         \
            "The same in updates of the weights, instead of `warmup`."},                           \
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
    {"momentum_high", NP_OPT_FLOAT, AT(momentum_high), "0", 0, 0.999999, NULL,
        "Momentum (beta1 of the adams) at both ends, with `momentum_low` at the rate's peak; 0: it "
        "stays as it is."},
    {"momentum_low", NP_OPT_FLOAT, AT(momentum_low), "0", 0, 0.999999, NULL,
        "Momentum at the rate's peak; torch's OneCycleLR has 0.85, and 0.95 at the ends."},
    NP_OPTIONS_END,
};

static const struct np_option step_table[] = {
    {"every", NP_OPT_FLOAT, AT(every), NULL, 1e-3, 1e6, NULL,
        "Epochs after which the rate is multiplied by `gamma`, again and again."},
    {"gamma", NP_OPT_FLOAT, AT(gamma), "0.1", 0, 1, NULL, "Factor."},
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option exponential_table[] = {
    {"gamma", NP_OPT_FLOAT, AT(gamma), NULL, 1e-6, 1, NULL,
        "Factor of an epoch; the rate falls at each update. In stairs: `step`."},
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option polynomial_table[] = {
    {"power", NP_OPT_FLOAT, AT(power), "1", 0.01, 100, NULL,
        "1: along a line; more: faster at first."},
    {"final", NP_OPT_SHARE, AT(final), "0", 0, 1, NULL, "Share of the peak rate at the end."},
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option restarts_table[] = {
    {"every", NP_OPT_FLOAT, AT(every), NULL, 1e-3, 1e6, NULL, "Epochs of the first cycle."},
    {"growth", NP_OPT_FLOAT, AT(growth), "1", 1, 100, NULL,
        "Each cycle is so many times as long as the one before."},
    {"final", NP_OPT_SHARE, AT(final), "0", 0, 1, NULL,
        "Share of the peak rate at the end of a cycle."},
    WARMUP,
    NP_OPTIONS_END,
};

static const struct np_option plateau_table[] = {
    {"metric", NP_OPT_WORD, AT(metric), "loss", 0, 0, NP_METRIC_WORDS, NP_METRIC_HELP},
    {"gamma", NP_OPT_FLOAT, AT(gamma), "0.1", 0, 1, NULL, "Factor."},
    {"patience", NP_OPT_INT, AT(patience), "10", 0, 1e9, NULL,
        "Evaluations without an improvement that are allowed; the next one lowers the rate."},
    {"threshold", NP_OPT_FLOAT, AT(threshold), "1e-4", 0, 1, NULL,
        "A smaller improvement, as a share of the best value so far, does not count."},
    {"cooldown", NP_OPT_INT, AT(cooldown), "0", 0, 1e9, NULL,
        "Evaluations after each fall that do not count."},
    {"min", NP_OPT_SHARE, AT(min), "0", 0, 1, NULL, "Least share of the peak rate."},
    WARMUP,
    NP_OPTIONS_END,
};

/* Indices are enum np_schedule_kind; NP_RANGE is the end. */
const struct np_choice np_schedule_choices[] = {
    {"constant", constant_table, "The peak rate, after an optional warm-up."},
    {"multistep", multistep_table, "Falls by a factor at given epochs."},
    {"cosine", cosine_table, "Falls along half a cosine."},
    {"one_cycle", one_cycle_table,
        "Rises, then falls to almost nothing. Momentum stays as it is, as with torch's "
        "`cycle_momentum=False`, or moves the other way."},
    {"step", step_table, "Falls by a factor every so many epochs."},
    {"exponential", exponential_table, "Falls by the same factor in each epoch, smoothly."},
    {"polynomial", polynomial_table, "Falls along a line or a power of it."},
    {"restarts", restarts_table, "Falls along half a cosine, again and again."},
    {"plateau", plateau_table,
        "Falls by a factor when evaluations no longer improve, as torch's ReduceLROnPlateau. Such "
        "a "
        "run resumes only with its own `eval_every` and evaluated set."},
    {NULL, NULL, NULL},
};

static int complain(
    const struct np_node *args, const char *key, const char *text, struct np_report *report)
{
    const struct np_node *at = args ? np_node_get(args, key) : NULL;

    return np_report_add(
        report, at ? at->line : 0, at ? at->column : 0, "schedule.%s: %s", key, text);
}

static int check_keys(
    const struct np_schedule_options *o, const struct np_node *args, struct np_report *report)
{
    const int nr_warmups =
        (o->kind != NP_ONE_CYCLE && o->warmup > 0) + (o->warmup_epochs > 0) + (o->warmup_steps > 0);

    if (nr_warmups > 1)
        return complain(args, o->warmup_steps > 0 ? "warmup_steps" : "warmup_epochs",
            "there is another warm-up; give one of warmup, warmup_epochs and warmup_steps", report);
    if ((o->momentum_high > 0) != (o->momentum_low > 0))
        return complain(args, o->momentum_high > 0 ? "momentum_high" : "momentum_low",
            "give both momentum_high and momentum_low", report);
    if (o->growth > 1 && o->growth < 1.01)
        return complain(args, "growth", "expected 1, or at least 1.01", report);
    return 0;
}

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
        check_milestones(&options, args, report) < 0 || check_keys(&options, args, report) < 0) {
        np_options_fini(choice->table, &options);
        return -EINVAL;
    }
    *ret_options = options;
    return 0;
}

/* Keys that are 0 unless given stay out: runs older than they are have them in no config. */
struct np_node *np_schedule_node(const struct np_schedule_options *options)
{
    static const char *const rare[] = {
        "warmup_epochs", "warmup_steps", "momentum_high", "momentum_low"};
    if (options->kind == NP_RANGE)
        return np_node_scalar("range", 0, 0);
    struct np_node *node = np_choice_node(&np_schedule_choices[options->kind], options);

    for (size_t i = 0; i < sizeof(rare) / sizeof(*rare); i++)
        np_node_drop_zero(node->items[0], rare[i]);
    return node;
}

void np_schedule_fini(struct np_schedule_options *options)
{
    if (options->kind != NP_RANGE)
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

/* An update: u of n, with so many in an epoch and in the warm-up. */
struct clock {
    double u, n, per_epoch, warm;
};

/* Before and after the peak at update W - 1, up to update n - 1. A warm-up of at most one update
 * starts at the peak. */
static double up_and_down(const struct np_schedule_options *options, const struct clock *c,
    double first, double peak, double final)
{
    double top = options->warmup * c->n - 1, last = c->n - 1;

    if (top > 0 && c->u <= top)
        return anneal(options->anneal, first, peak, c->u / top);
    if (top < 0)
        top = 0;
    return last > top ? anneal(options->anneal, peak, final, (c->u - top) / (last - top)) : peak;
}

static double one_cycle(const struct np_schedule_options *options, const struct clock *c)
{
    return up_and_down(options, c, options->warmup_from, 1, options->final);
}

static double constant(const struct np_schedule_options *options, const struct clock *c)
{
    return 1;
}

static double multistep(const struct np_schedule_options *options, const struct clock *c)
{
    double factor = 1;

    for (int i = 0; i < options->milestones.nr_values; i++)
        if (c->u >= options->milestones.values[i] * c->per_epoch)
            factor *= options->gamma;
    return factor;
}

/* An update that begins an epoch belongs to it, whatever the division rounds to. */
static double step_decay(const struct np_schedule_options *options, const struct clock *c)
{
    double nr = floor(c->u / (options->every * c->per_epoch));

    nr += c->u >= (nr + 1) * options->every * c->per_epoch;
    return pow(options->gamma, nr);
}

static double exponential(const struct np_schedule_options *options, const struct clock *c)
{
    return pow(options->gamma, c->u / c->per_epoch);
}

static double cosine(const struct np_schedule_options *options, const struct clock *c)
{
    return c->n > c->warm
               ? anneal(NP_ANNEAL_COSINE, 1, options->final, (c->u - c->warm) / (c->n - c->warm))
               : 1;
}

static double restarts(const struct np_schedule_options *options, const struct clock *c)
{
    double at = (c->u - c->warm) / c->per_epoch, length = options->every;

    if (options->growth == 1)
        at = fmod(at, length);
    for (; at >= length; length *= options->growth)
        at -= length;
    return anneal(NP_ANNEAL_COSINE, 1, options->final, at / length);
}

static double polynomial(const struct np_schedule_options *options, const struct clock *c)
{
    double left = c->n > c->warm ? 1 - (c->u - c->warm) / (c->n - c->warm) : 1;

    return options->final + (1 - options->final) * pow(left > 0 ? left : 0, options->power);
}

static double range(const struct np_schedule_options *options, const struct clock *c)
{
    return pow(options->growth, c->u);
}

static const struct {
    double (*factor)(const struct np_schedule_options *options, const struct clock *clock);
    bool after;   /* counts from the end of the warm-up; false: is multiplied by it */
    bool extends; /* no part of it is a share of the run */
} kinds[NP_NR_SCHEDULES + 1] = {
    [NP_CONSTANT] = {constant, false, true},
    [NP_MULTISTEP] = {multistep, false, true},
    [NP_COSINE] = {cosine, true, false},
    [NP_ONE_CYCLE] = {one_cycle, true, false},
    [NP_STEP_DECAY] = {step_decay, false, true},
    [NP_EXPONENTIAL] = {exponential, false, true},
    [NP_POLYNOMIAL] = {polynomial, true, false},
    [NP_RESTARTS] = {restarts, true, true},
    [NP_PLATEAU] = {constant, false, true},
    [NP_RANGE] = {range, false, true},
};

/* Updates of the warm-up before the schedule. */
static double warm_updates(
    const struct np_schedule_options *options, double n, double updates_per_epoch)
{
    if (options->kind == NP_ONE_CYCLE)
        return 0;
    if (options->warmup_steps > 0)
        return (double)options->warmup_steps;
    return options->warmup_epochs > 0 ? options->warmup_epochs * updates_per_epoch
                                      : options->warmup * n;
}

double np_schedule_factor(const struct np_schedule_options *options, uint64_t update,
    uint64_t nr_updates, double updates_per_epoch)
{
    struct clock c = {(double)update, (double)nr_updates, updates_per_epoch, 0};
    double factor = 1;

    c.warm = warm_updates(options, c.n, updates_per_epoch);
    if (c.u < c.warm)
        factor = options->warmup_from + (1 - options->warmup_from) * c.u / c.warm;
    if (c.u < c.warm && kinds[options->kind].after)
        return factor;
    return factor * kinds[options->kind].factor(options, &c);
}

double np_schedule_momentum(
    const struct np_schedule_options *options, uint64_t update, uint64_t nr_updates)
{
    const struct clock c = {(double)update, (double)nr_updates, 1, 0};

    if (options->kind != NP_ONE_CYCLE)
        return 0;
    return up_and_down(
        options, &c, options->momentum_high, options->momentum_low, options->momentum_high);
}

bool np_schedule_extends(const struct np_schedule_options *options)
{
    return kinds[options->kind].extends && options->warmup == 0;
}
