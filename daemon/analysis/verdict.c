/* Finds the limiter: the stage without whose cost the run would be fastest. Pure arithmetic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"

#define UNEXPLAINED 0.80 /* a coupling below this, with enough slots, has another cause */
#define FEW_SLOTS   4
#define ALIKE       1e-6

const char *const np_verdict_names[] = {"limited", "balanced", "inconclusive"};

/* The stage whose removal, together with that of `given` (NP_NR_STAGES: none), makes the run
 * fastest. If two gain the same (they share the readers' threads), the busier one. */
static enum np_stage best_beside(
    const struct np_model *model, enum np_stage given, double *ret_rate)
{
    enum np_stage best = NP_NR_STAGES;

    *ret_rate = 0;
    for (int s = 0; s < NP_NR_STAGES; s++) {
        const enum np_stage stage = (enum np_stage)s;
        const double rate = np_model_rate_without(model, given, stage);
        const bool alike = best != NP_NR_STAGES && fabs(rate / *ret_rate - 1) < ALIKE;

        if (stage == given ||
            (alike ? np_model_busy(model, stage) <= np_model_busy(model, best) : rate < *ret_rate))
            continue;
        best = stage;
        *ret_rate = rate > *ret_rate ? rate : *ret_rate;
    }
    return best;
}

/* The step is the useful work. So if checkpoints or an empty ring interrupt it and removing them
 * gains enough, they are the limiter, even if a step without cost would gain more. */
static enum np_stage limiter_of(const struct np_model *model, double enough, double *ret_rate)
{
    static const enum np_stage stops[] = {NP_STAGE_BATCH, NP_STAGE_CHECKPOINT};
    const double now = np_model_rate(model, NULL);
    double rate, max = now * (1 + enough);
    const enum np_stage best = best_beside(model, NP_NR_STAGES, &rate);
    enum np_stage limiter = best;

    *ret_rate = rate;
    for (size_t i = 0; best == NP_STAGE_STEP && i < sizeof(stops) / sizeof(*stops); i++) {
        rate = np_model_rate_without(model, NP_NR_STAGES, stops[i]);
        if (rate > max) {
            *ret_rate = max = rate;
            limiter = stops[i];
        }
    }
    return limiter;
}

static double enough_gain(double noise)
{
    return fmax(NP_MIN_GAIN, 2 * noise);
}

static void find_limiter(
    const struct np_model *model, double noise, struct np_profile_verdict *verdict)
{
    const double now = np_model_rate(model, NULL);
    double best, unused;

    verdict->limiter = limiter_of(model, enough_gain(noise), &best);
    verdict->gain = best / now;
    verdict->next_rate = best;
    verdict->next = best_beside(model, verdict->limiter, &unused);
}

static double headroom(const struct np_model *model, enum np_stage limiter)
{
    double lowest = INFINITY;

    for (int s = 0; s < NP_NR_STAGES; s++)
        if (s != NP_STAGE_CHECKPOINT && s != NP_STAGE_BATCH &&
            !(s == (int)limiter || (np_model_shares(limiter) && np_model_shares((enum np_stage)s))))
            lowest = fmin(lowest, np_model_ceiling(model, (enum np_stage)s, limiter));
    return isinf(lowest) ? 0 : fmax(lowest / model->rate - 1, 0);
}

void np_verdict_judge(const struct np_model *model, double noise, struct np_profile_verdict *v)
{
    v->kind = NP_LIMITED;
    v->reason[0] = '\0';
    v->headroom = headroom(model, v->limiter);
    if (noise > NP_MAX_NOISE) {
        v->kind = NP_INCONCLUSIVE;
        snprintf(v->reason, sizeof(v->reason),
            "equal trials differ by %.0f %%: other programs use this machine; try again when it "
            "is idle",
            100 * noise);
    } else if (model->coupling < UNEXPLAINED && model->knobs.prefetch > FEW_SLOTS &&
               v->limiter == NP_STAGE_BATCH) {
        v->kind = NP_INCONCLUSIVE;
        snprintf(v->reason, sizeof(v->reason),
            "the run reaches %.0f %% of the rate its parts allow, and the ring has enough slots: "
            "something outside the run slows it down",
            100 * model->coupling);
    } else if (v->gain - 1 >= NP_MIN_GAIN && v->gain - 1 < enough_gain(noise)) {
        v->kind = NP_BALANCED;
        snprintf(v->reason, sizeof(v->reason),
            "%s would gain at most %.0f %%, and equal trials differ by %.0f %%: too close to "
            "decide",
            np_stage_names[v->limiter], 100 * (v->gain - 1), 100 * noise);
    } else if (v->gain - 1 < NP_MIN_GAIN) {
        v->kind = NP_BALANCED;
        snprintf(v->reason, sizeof(v->reason),
            "%s and %s reach their limits together: removing only one gains %.0f %%",
            np_stage_names[v->limiter], np_stage_names[v->next], 100 * (v->gain - 1));
    }
    np_advise(model, v->limiter, v->next_rate, &v->advice);
    if (v->kind != NP_LIMITED)
        v->advice.key[0] = '\0';
}

void np_verdict_make(
    const struct np_model *model, double noise, struct np_profile_verdict *ret_verdict)
{
    memset(ret_verdict, 0, sizeof(*ret_verdict));
    find_limiter(model, noise, ret_verdict);
    np_verdict_judge(model, noise, ret_verdict);
}

/* The curve goes up to a limiter MAX_CURVE times faster; its last point is one without cost. */
#define MAX_CURVE 16.0

void np_profile_curve(struct np_profile *profile)
{
    const enum np_stage limiter = profile->verdict.limiter;
    double faster[NP_NR_STAGES];

    profile->nr_curve = NP_PROFILE_MAX_CURVE;
    for (int i = 0; i < profile->nr_curve; i++) {
        for (int s = 0; s < NP_NR_STAGES; s++)
            faster[s] = 1;
        faster[limiter] = pow(MAX_CURVE, (double)i / (profile->nr_curve - 1));
        if (i + 1 == profile->nr_curve)
            faster[limiter] = INFINITY;
        profile->curve_faster[i] = faster[limiter];
        profile->curve_rate[i] = np_model_rate(&profile->model, faster);
    }
    const double from = profile->curve_rate[0], to = profile->curve_rate[profile->nr_curve - 1];
    const double wanted = profile->verdict.next_rate - profile->model.rate;

    if (!profile->deep || !isfinite(to))
        return;
    if (to <= from) /* the model cannot reach the measured gain */
        profile->nr_curve = 0;
    for (int i = 0; i < profile->nr_curve; i++)
        profile->curve_rate[i] =
            profile->model.rate + (profile->curve_rate[i] - from) / (to - from) * wanted;
}

void np_profile_think(struct np_profile *profile)
{
    np_ceilings_settle(&profile->observation, &profile->ceilings);
    np_model_make(&profile->observation, &profile->ceilings, &profile->knobs, &profile->model);
    np_verdict_make(&profile->model, profile->noise, &profile->verdict);
    np_profile_curve(profile);
}

void np_profile_look(const struct np_observation *observation, const struct np_knobs *knobs,
    struct np_profile *ret_profile)
{
    const double step_s = observation->stages[NP_STAGE_STEP].work_s;

    memset(ret_profile, 0, sizeof(*ret_profile));
    ret_profile->observation = *observation;
    ret_profile->knobs = *knobs;
    if (step_s > 0)
        ret_profile->ceilings.step = (double)observation->images / step_s;
    np_model_make(observation, &ret_profile->ceilings, knobs, &ret_profile->model);
    np_verdict_make(&ret_profile->model, 0, &ret_profile->verdict);
}
