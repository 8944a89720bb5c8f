/* Compares two profiles. A change that equal trials of both also show, their noise, may be
 * chance. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/analysis/words.h"
#include "daemon/profile/trial.h"

#define MIN_CHANGE 0.025 /* half of the slow-down that must be found */
#define NOISES     1.5   /* times both profiles' noise */

static double cost(double rate)
{
    return rate > 0 ? 1 / rate : 0;
}

/* Seconds per image that a stage takes of its resource. */
static double stage_cost(const struct np_model *model, enum np_stage stage)
{
    const double base = model->rate / (1 - model->checkpoint_share);

    switch (stage) {
    case NP_STAGE_READ: return cost(model->read_rate) + model->thread_s[stage];
    case NP_STAGE_COPY: return cost(model->copy_rate);
    case NP_STAGE_STEP: return cost(model->step_rate);
    case NP_STAGE_CHECKPOINT: return base > 0 ? model->checkpoint_share / base : 0;
    case NP_STAGE_BATCH: return model->thread_s[stage] + (1 - model->coupling) * cost(model->rate);
    default: return model->thread_s[stage];
    }
}

/* The old rate, if the stage had its new cost. */
static double rate_with(
    const struct np_model *then, const struct np_model *now, enum np_stage stage)
{
    struct np_model mixed = *then;

    mixed.thread_s[stage] = now->thread_s[stage];
    mixed.blocked_s[stage] = now->blocked_s[stage];
    mixed.knobs.readers = now->knobs.readers; /* all readers of now */
    mixed.cores = now->cores;
    if (stage == NP_STAGE_READ)
        mixed.read_rate = now->read_rate;
    else if (stage == NP_STAGE_COPY)
        mixed.copy_rate = now->copy_rate;
    else if (stage == NP_STAGE_STEP) {
        mixed.step_rate = now->step_rate;
        mixed.step_cpu_s = now->step_cpu_s;
    } else if (stage == NP_STAGE_CHECKPOINT) {
        mixed.checkpoint_each_s = now->checkpoint_each_s;
        mixed.knobs.checkpoint_steps = now->knobs.checkpoint_steps;
    } else if (stage == NP_STAGE_BATCH) {
        mixed.coupling = now->coupling;
    }
    return np_model_rate(&mixed, NULL);
}

/* The stage whose new cost slows the old run most; if none does, the one whose cost has grown
 * most. */
static void find_stage(
    const struct np_model *then, const struct np_model *now, struct np_comparison *comparison)
{
    const double before = np_model_rate(then, NULL);
    double max_slower = 0.005, max_grown = 0;
    bool slows = false;

    for (int s = 0; s < NP_NR_STAGES; s++) {
        const enum np_stage stage = (enum np_stage)s;
        const double slower = 1 - rate_with(then, now, stage) / before;
        const double grown = stage_cost(now, stage) - stage_cost(then, stage);

        if (slower > max_slower) {
            max_slower = slower;
            comparison->stage = stage;
            slows = true;
        } else if (!slows && grown > max_grown) {
            max_grown = grown;
            comparison->stage = stage;
        }
    }
    comparison->share = rate_with(then, now, comparison->stage) / before - 1;
}

static void describe(
    const struct np_profile *then, const struct np_profile *now, struct np_comparison *comparison)
{
    const struct np_words was = np_words_rate(then->model.rate),
                          is = np_words_rate(now->model.rate);
    const double before = stage_cost(&then->model, comparison->stage);
    const double after = stage_cost(&now->model, comparison->stage);

    if (comparison->regressed)
        snprintf(comparison->text, sizeof(comparison->text),
            "slower: %s img/s, %s before (%+.1f%%; up to %.1f%% may be chance), because of %s: an "
            "image takes %.1f us of it, %.1f before",
            is.text, was.text, 100 * comparison->change, 100 * comparison->least,
            np_words_loud(comparison->stage).text, 1e6 * after, 1e6 * before);
    else
        snprintf(comparison->text, sizeof(comparison->text),
            "%s: %s img/s, %s before (%+.1f%%; up to %.1f%% may be chance)",
            comparison->change > comparison->least ? "faster" : "as fast as before", is.text,
            was.text, 100 * comparison->change, 100 * comparison->least);
}

int np_profile_compare(const struct np_profile *then, const struct np_profile *now,
    struct np_comparison *ret_comparison, struct np_err *err)
{
    const struct np_knobs *a = &then->knobs, *b = &now->knobs;

    if (a->batch != b->batch || strcmp(a->device, b->device) != 0 ||
        strcmp(a->precision, b->precision) != 0)
        return np_err_set(err, -EINVAL,
            "the old profile has batches of %d in %s on %s, this one of %d in %s on %s: they "
            "cannot be compared",
            a->batch, a->precision, a->device, b->batch, b->precision, b->device);
    if (!(then->model.rate > 0 && now->model.rate > 0 && isfinite(then->model.rate) &&
            isfinite(now->model.rate) && isfinite(then->noise) && isfinite(now->noise)))
        return np_err_set(
            err, -EINVAL, "a profile without a valid rate and noise cannot be compared");
    *ret_comparison = (struct np_comparison){.change = now->model.rate / then->model.rate - 1,
        .least = fmax(MIN_CHANGE, NOISES * hypot(then->noise, now->noise))};
    ret_comparison->regressed = ret_comparison->change < -ret_comparison->least;
    find_stage(&then->model, &now->model, ret_comparison);
    describe(then, now, ret_comparison);
    return 0;
}
