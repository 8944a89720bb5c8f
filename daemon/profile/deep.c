/* Measured gains: the rate with a stage replayed / the rate of the unchanged run. The model only
 * finds the next limiter, from the counters of that trial. Pure arithmetic. */
#include <math.h>

#include "daemon/analysis/model.h"
#include "daemon/profile/trial.h"

#define CLEARLY 0.05 /* more gain than the model's limiter, to replace it */

void np_deep_add(struct np_deep *deep, enum np_stage stage, const struct np_observation *seen,
    const struct np_ceilings *ceilings, const struct np_knobs *knobs)
{
    struct np_ceilings left = *ceilings;
    struct np_profile_verdict verdict;
    struct np_model model;

    if (stage == NP_STAGE_STEP)
        left.step = 0; /* it is replayed */
    np_model_make(seen, &left, knobs, &model);
    np_verdict_make(&model, 0, &verdict);
    deep->rate[stage] = seen->images_per_second;
    deep->next[stage] = verdict.limiter;
}

static double gain_of(const struct np_deep *deep, double base, int stage)
{
    return deep->rate[stage] > 0 ? deep->rate[stage] / base : 0;
}

/* Raises the other stages to the rates they reached without this one. The run's rate does not
 * change. */
static void reach(const struct np_deep *deep, double base, struct np_model *model)
{
    const double rate = np_model_rate(model, NULL);

    for (int s = 0; s < NP_NR_STAGES; s++)
        if (deep->rate[s] > 0)
            np_model_reach(model, model->rate * deep->rate[s] / base, (enum np_stage)s);
    model->coupling *= rate / np_model_rate(model, NULL);
}

void np_deep_judge(const struct np_deep *deep, double base, struct np_model *model, double noise,
    struct np_profile_verdict *verdict)
{
    const double computed = verdict->gain;
    int best = verdict->limiter;
    double best_gain = deep->rate[best] > 0 ? gain_of(deep, base, best) : computed;

    if (base <= 0)
        return;
    reach(deep, base, model);
    for (int s = 0; s < NP_NR_STAGES; s++) {
        const double clearly = best == (int)verdict->limiter ? fmax(CLEARLY, 2 * noise) : 0;

        if (s ==
            NP_STAGE_STEP) /* the step is the useful work: the limiter only if no other stage is */
            continue;
        if (gain_of(deep, base, s) > best_gain * (1 + clearly)) {
            best = s;
            best_gain = gain_of(deep, base, s);
        }
    }
    if (best_gain - 1 < fmax(CLEARLY, 2 * noise) &&
        gain_of(deep, base, NP_STAGE_STEP) > best_gain) {
        best = NP_STAGE_STEP;
        best_gain = gain_of(deep, base, NP_STAGE_STEP);
    }
    if (deep->rate[best] > 0) {
        if (deep->next[best] != (enum np_stage)best)
            verdict->next = deep->next[best];
        else if (verdict->next == (enum np_stage)best)
            verdict->next = verdict->limiter;
        verdict->gain = fmax(best_gain, 1); /* less is noise */
        verdict->next_rate = model->rate * verdict->gain;
    }
    verdict->limiter = (enum np_stage)best;
    np_verdict_judge(model, noise, verdict);
}
