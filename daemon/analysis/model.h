/* The steps of np_profile_think(), from an observation to a verdict and advice: for --deep,
 * tuning and tests. Pure; any thread. */
#ifndef NP_MODEL_H
#define NP_MODEL_H

#include "daemon/analysis/profile.h"

#define NP_DEEPER    8
#define NP_MAX_DEPTH 64 /* measured or advised */

/* A part alone cannot be slower than in the run. Raises the step to its rate in the run; sets other
 * ceilings below that rate to 0, for they were not measured under the run's conditions. */
void np_ceilings_settle(const struct np_observation *observation, struct np_ceilings *ceilings);

/* Makes the model from an observation of the whole run and the ceilings of its parts. */
void np_model_make(const struct np_observation *observation, const struct np_ceilings *ceilings,
    const struct np_knobs *knobs, struct np_model *ret_model);
/* The run reached `rate`, or a trial without the cost of one stage did (NP_NR_STAGES: with all
 * costs): lowers the other costs so that the model allows that rate. */
void np_model_reach(struct np_model *model, double rate, enum np_stage without);
/* The rate if each stage's cost were divided by faster[stage] (>= 1; INFINITY: no cost; NULL:
 * all 1). The smallest of: readers / sum(thread_s); cores / (sum(thread_s - blocked_s) +
 * step_cpu_s); each rate; times coupling, less the time for checkpoints. */
double np_model_rate(const struct np_model *model, const double faster[NP_NR_STAGES]);
/* The rate if stages a and b cost nothing; NP_NR_STAGES: no stage. */
double np_model_rate_without(const struct np_model *model, enum np_stage a, enum np_stage b);
/* Is it a CPU stage of the loader? These three share the readers' threads, and have one ceiling. */
bool np_model_shares(enum np_stage stage);
/* The rate with other knobs (readers, depth, prefetch, cache, checkpoint_steps). */
double np_model_rate_with(const struct np_model *model, const struct np_knobs *knobs);
/* The ceiling of a stage: the rate if all stages cost nothing but it and those that share its
 * threads. `limiter` (NP_NR_STAGES: none), if another stage, costs nothing too, so that no
 * ceiling is below the rate without the limiter. INFINITY: the run has no such stage. */
double np_model_ceiling(const struct np_model *model, enum np_stage stage, enum np_stage limiter);
/* How busy the stage keeps its resource: a share of the time of readers, disk, bus or device. */
double np_model_busy(const struct np_model *model, enum np_stage stage);

#define NP_MAX_NOISE 0.10
#define NP_MIN_GAIN  0.05 /* less than that from any one stage: balanced */
/* noise: relative difference of equal trials (A/A), 0: unknown. Limited: removing the limiter
 * gains more than 5 % (and more than twice the noise). Balanced: removing any one stage gains
 * less. Inconclusive: noise above 10 %, or the parts do not explain the rate. */
void np_verdict_make(
    const struct np_model *model, double noise, struct np_profile_verdict *ret_verdict);
/* Completes a verdict whose limiter and gain are set: headroom, kind, reason and advice. */
void np_verdict_judge(
    const struct np_model *model, double noise, struct np_profile_verdict *verdict);
/* advise.c: for np_verdict_judge(). No advice predicts more than `max`, the rate without the
 * limiter. */
void np_advise(
    const struct np_model *model, enum np_stage limiter, double max, struct np_advice *ret_advice);

#endif
