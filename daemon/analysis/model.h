/* From an observation to a verdict and an advice: the steps of np_profile_think(), for --deep, tuning and tests.
 * Pure; any thread. */
#ifndef NP_MODEL_H
#define NP_MODEL_H

#include "daemon/analysis/profile.h"

#define NP_DEEPER    8
#define NP_MAX_DEPTH 64 /* that is measured or advised */

/* What a part alone did cannot be less than it did in the run: of the step the larger of both holds; another
 * part that was slower alone was not measured under the run's conditions, and is left out (0). */
void np_ceilings_settle(const struct np_observation *observation, struct np_ceilings *ceilings);

/* From an observation of the whole run and the parts' ceilings. */
void np_model_make(const struct np_observation *observation, const struct np_ceilings *ceilings,
    const struct np_knobs *knobs, struct np_model *ret_model);
/* The run, or a trial without one stage's cost (NP_NR_STAGES: with all), did so many images a second: what
 * the model says that the others could do is raised to it. */
void np_model_reach(struct np_model *model, double rate, enum np_stage without);
/* The rate if each stage's cost were divided by faster[stage] (>= 1; INFINITY: it costs nothing).
 * The smallest of: readers / sum(thread_s); cores / (sum(thread_s - blocked_s) + step_cpu_s); each rate; times
 * coupling, less what saves cost. NULL: as it is. */
double np_model_rate(const struct np_model *model, const double faster[NP_NR_STAGES]);
/* The rate with other knobs (readers, depth, prefetch, cache, checkpoint_steps). */
double np_model_rate_with(const struct np_model *model, const struct np_knobs *knobs);
/* What a stage could do: the rate were all else free, but for those that share its threads; of these too
 * `limiter` (NP_NR_STAGES: none) is left out, if it is another one, so that no ceiling lies below the rate
 * without it. The three CPU stages of the loader have one ceiling together. INFINITY: the run has no such
 * stage. */
double np_model_ceiling(const struct np_model *model, enum np_stage stage, enum np_stage limiter);
/* Its share of what it runs on: of the readers' time, the disk's, the bus's, the device's. */
double np_model_busy(const struct np_model *model, enum np_stage stage);

#define NP_MAX_NOISE 0.10
#define NP_MIN_GAIN  0.05 /* less, from any one stage: balanced */
/* noise: relative spread of equal trials (A/A), 0: not known. Limited: removing the limiter gains more
 * than 5 % (and than twice the noise); balanced: removing any one stage gains less; inconclusive: noise
 * above 10 %, or the parts do not explain the rate. */
void np_verdict_make(
    const struct np_model *model, double noise, struct np_profile_verdict *ret_verdict);
/* Of a verdict whose limits and gain are known: headroom, its kind, the reason and the advice. */
void np_verdict_judge(
    const struct np_model *model, double noise, struct np_profile_verdict *verdict);
/* advise.c: for verdict_judge. No advice promises more than `most`, the rate without the limiter's cost. */
void np_advise(
    const struct np_model *model, enum np_stage limiter, double most, struct np_advice *ret_advice);

#endif
