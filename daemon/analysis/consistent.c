/* Finds figures of a profile that contradict each other. Each rule is one function, and reads
 * the figures that the screen, the page and profile.json show. Pure. */
#include <stdio.h>
#include <math.h>
#include <stdarg.h>

#include "daemon/analysis/model.h"
#include "daemon/analysis/words.h"

#define ALIKE 1e-6 /* relative, for figures computed in two ways */

struct check {
    const struct np_profile *profile;
    struct np_words_row rows[NP_NR_STAGES];
    int nr_rows;
    char *text;
    size_t bytes;
};

/* Returns false, so that a rule can end with it. */
__attribute__((format(printf, 2, 3))) static bool wrong(
    const struct check *check, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(check->text, check->bytes, format, args);
    va_end(args);
    return false;
}

static bool below(double value, double least)
{
    return !(value >= least * (1 - ALIKE));
}

static bool alike(double a, double b)
{
    return a == b || fabs(a - b) <= ALIKE * fmax(fabs(a), fabs(b));
}

static bool rate_is_a_number(const struct check *check)
{
    const double rate = check->profile->model.rate;

    return (rate > 0 && isfinite(rate)) || wrong(check, "the run's rate is %g", rate);
}

static bool no_bar_lies_below_the_rate(const struct check *check)
{
    const double rate = check->profile->model.rate;

    for (int i = 0; i < check->nr_rows; i++)
        if (below(check->rows[i].could_do, rate))
            return wrong(check, "%s could do %.4g and does %.4g", check->rows[i].name,
                check->rows[i].could_do, rate);
    return true;
}

static bool next_limit_lies_below_all_other_bars(const struct check *check)
{
    const struct np_profile_verdict *verdict = &check->profile->verdict;

    for (int i = 0; i < check->nr_rows && verdict->kind == NP_LIMITED; i++) {
        const struct np_words_row *row = &check->rows[i];

        if (row->limiter || (np_model_shares(verdict->limiter) && np_model_shares(row->stage)))
            continue;
        if (below(row->could_do, verdict->next_rate))
            return wrong(check, "%.4g is predicted, and %s could do %.4g", verdict->next_rate,
                row->name, row->could_do);
    }
    return true;
}

static bool gain_is_what_the_rates_say(const struct check *check)
{
    const struct np_profile *profile = check->profile;
    const struct np_profile_verdict *verdict = &profile->verdict;

    if (verdict->kind != NP_LIMITED)
        return true;
    if (!alike(verdict->next_rate, verdict->gain * profile->model.rate))
        return wrong(check, "%.4g is not %.4g times %.4g", verdict->next_rate, verdict->gain,
            profile->model.rate);
    if (verdict->gain < 1 + NP_MIN_GAIN * (1 - ALIKE))
        return wrong(
            check, "%s limits, and gains %.4g", np_stage_names[verdict->limiter], verdict->gain);
    return verdict->next != verdict->limiter ||
           wrong(check, "%s limits, and is the next limit", np_stage_names[verdict->limiter]);
}

static bool limiter_is_shown(const struct check *check)
{
    int marked = 0;

    for (int i = 0; i < check->nr_rows; i++)
        marked += check->rows[i].limiter;
    return marked == (check->profile->verdict.kind == NP_LIMITED) ||
           wrong(check, "%d rows are marked as the limit", marked);
}

static bool noise_and_verdict_agree(const struct check *check)
{
    const struct np_profile *profile = check->profile;

    return profile->noise <= NP_MAX_NOISE || profile->verdict.kind == NP_INCONCLUSIVE ||
           wrong(check, "noise of %.2g, and %s", profile->noise,
               np_verdict_names[profile->verdict.kind]);
}

static bool advice_promises_no_more_than_the_fix(const struct check *check)
{
    const struct np_profile *profile = check->profile;
    const struct np_profile_verdict *verdict = &profile->verdict;
    const struct np_advice *advice = &verdict->advice;

    if (advice->key[0] == '\0')
        return !profile->verified || wrong(check, "advice was verified, but there is none");
    if (verdict->kind != NP_LIMITED)
        return wrong(check, "%s, and %s is advised", np_verdict_names[verdict->kind], advice->key);
    if (below(advice->rate, profile->model.rate) || below(verdict->next_rate, advice->rate))
        return wrong(check, "%s promises %.4g, from %.4g to %.4g", advice->key, advice->rate,
            profile->model.rate, verdict->next_rate);
    return true;
}

static bool curve_begins_at_the_rate_and_ends_at_the_next_limit(const struct check *check)
{
    const struct np_profile *profile = check->profile;
    const struct np_profile_verdict *verdict = &profile->verdict;

    if (profile->nr_curve == 0 || verdict->kind == NP_INCONCLUSIVE)
        return true;
    if (profile->curve_faster[0] != 1 || !alike(profile->curve_rate[0], profile->model.rate))
        return wrong(check, "the curve begins at %.4g, the run does %.4g", profile->curve_rate[0],
            profile->model.rate);
    for (int i = 1; i < profile->nr_curve; i++)
        if (below(profile->curve_rate[i], profile->curve_rate[i - 1]))
            return wrong(check, "the curve falls to %.4g", profile->curve_rate[i]);
    const double last = profile->curve_rate[profile->nr_curve - 1];

    return verdict->kind != NP_LIMITED || !below(verdict->next_rate, last) ||
           wrong(check, "the curve ends at %.4g, the next limit is %.4g", last, verdict->next_rate);
}

static bool parts_alone_are_no_slower_than_in_the_run(const struct check *check)
{
    const struct np_ceilings *parts = &check->profile->ceilings;
    struct np_ceilings settled = *parts;

    np_ceilings_settle(&check->profile->observation, &settled);
    if (settled.step != parts->step)
        return wrong(check, "the step alone does %.4g, %.4g in the run", parts->step, settled.step);
    if (settled.loader != parts->loader)
        return wrong(check, "the loader alone does %.4g, less than in the run", parts->loader);
    return (settled.read_cold == parts->read_cold && settled.read_warm == parts->read_warm &&
               settled.read_deep == parts->read_deep) ||
           wrong(check, "reading alone does %.4g, less than in the run", parts->read_warm);
}

static bool is_share(double share)
{
    return share >= 0 && share <= 1 + 1e-3;
}

static bool shares_are_shares(const struct check *check)
{
    const struct np_observation *seen = &check->profile->observation;
    double blame = 0;

    for (int i = 0; i < check->nr_rows; i++) {
        const struct np_words_row *row = &check->rows[i];

        if (!is_share(row->busy) || (row->queue >= 0 && !is_share(row->queue)))
            return wrong(
                check, "%s is busy %.4g, its queue %.4g full", row->name, row->busy, row->queue);
        blame += seen->blame_s[row->stage];
    }
    for (int s = 0; s < NP_NR_STAGES; s++)
        if (seen->stages[s].p50_s > seen->stages[s].p99_s)
            return wrong(check, "%s: the median is above the 99th percentile", np_stage_names[s]);
    return blame <= seen->stall_s + 1e-3 * seen->seconds ||
           wrong(check, "waits of %.4g s in a stall of %.4g", blame, seen->stall_s);
}

bool np_profile_contradicts(const struct np_profile *profile, char *text, size_t bytes)
{
    static bool (*const rules[])(const struct check *check) = {
        rate_is_a_number,
        no_bar_lies_below_the_rate,
        next_limit_lies_below_all_other_bars,
        gain_is_what_the_rates_say,
        limiter_is_shown,
        noise_and_verdict_agree,
        advice_promises_no_more_than_the_fix,
        curve_begins_at_the_rate_and_ends_at_the_next_limit,
        parts_alone_are_no_slower_than_in_the_run,
        shares_are_shares,
    };
    struct check check = {.profile = profile, .text = text, .bytes = bytes};

    check.nr_rows = np_words_rows(profile, check.rows);
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (!rules[i](&check))
            return true;
    return false;
}
