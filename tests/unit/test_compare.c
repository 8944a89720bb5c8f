/* --compare: a slow-down of 5 % is found and its stage named, equal runs raise no alarm, with trials that
 * scatter as those of a quiet box do. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/profile/trial.h"
#include "tests/test.h"
#include "tests/unit/made_pipeline.h"

enum { BATCHES = 120, PAIRS = 100 };
#define SCATTER 0.008 /* standard deviation of a trial's rate, relative */

static uint64_t rng = 99;
static double normal(void)
{
    double sum = -6;

    for (int i = 0; i < 12; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(rng >> 11) / 9007199254740992.0;
    }
    return sum;
}

/* As cmd_profile.c does it: three trials, the one in the middle speaks. */
static void profile_of(const struct made_pipeline *p, struct np_profile *ret_profile)
{
    double scatter[3] = {normal(), normal(), normal()}, middle;

    *ret_profile = (struct np_profile){0};
    made_pipeline_run(
        p, BATCHES, &ret_profile->observation, &ret_profile->ceilings, &ret_profile->knobs);
    middle = fmax(fmin(scatter[0], scatter[1]), fmin(fmax(scatter[0], scatter[1]), scatter[2]));
    for (int i = 0; i < 3; i++)
        ret_profile->noise = fmax(ret_profile->noise, fabs(SCATTER * (scatter[i] - middle)));
    ret_profile->observation.seconds /= 1 + SCATTER * middle;
    np_model_make(&ret_profile->observation, &ret_profile->ceilings, &ret_profile->knobs,
        &ret_profile->model);
}

static struct made_pipeline step_limited(uint64_t seed)
{
    struct made_pipeline p = {.readers = 4,
        .depth = 8,
        .slots = 6,
        .batch = 32,
        .cores = 8,
        .spread = 0.2,
        .seed = seed,
        .copy_s = 0.002,
        .step_s = 0.020};

    p.stage_s[NP_STAGE_DECODE] = 1.2e-3;
    p.stage_s[NP_STAGE_AUGMENT] = 0.4e-3;
    return p;
}

static struct made_pipeline decode_limited(uint64_t seed)
{
    struct made_pipeline p = step_limited(seed);

    p.stage_s[NP_STAGE_DECODE] = 4e-3;
    return p;
}

/* Of PAIRS comparisons those that are found slower, and by `stage`. */
static int nr_found(
    struct made_pipeline (*made)(uint64_t), enum np_stage stage, double slower, int *ret_by_stage)
{
    int found = 0;

    *ret_by_stage = 0;
    for (uint64_t i = 0; i < PAIRS; i++) {
        const struct made_pipeline a = made(i);
        struct made_pipeline b = made(i + 1000);
        struct np_profile then, now;
        struct np_comparison comparison;

        /* the run, not the stage, becomes so much slower */
        b = made_pipeline_with(
            &b, stage, stage == NP_STAGE_DECODE ? 1 / (1 + 1.1 * (slower - 1)) : 1 / slower);
        profile_of(&a, &then);
        profile_of(&b, &now);
        if (np_profile_compare(&then, &now, &comparison, NULL) < 0)
            continue;
        found += comparison.regressed;
        *ret_by_stage += comparison.regressed && comparison.stage == stage;
    }
    return found;
}

Test(compare, equal_runs_raise_no_alarm, .timeout = 120)
{
    int by_stage;

    cr_assert_leq(nr_found(step_limited, NP_STAGE_STEP, 1, &by_stage), PAIRS * 5 / 100);
    cr_assert_leq(nr_found(decode_limited, NP_STAGE_DECODE, 1, &by_stage), PAIRS * 5 / 100);
}

Test(compare, a_loss_of_5_percent_is_found_and_named, .timeout = 120)
{
    int by_stage;

    cr_assert_geq(nr_found(step_limited, NP_STAGE_STEP, 1.0527, &by_stage), PAIRS * 95 / 100);
    cr_assert_geq(by_stage, PAIRS * 95 / 100);
    cr_assert_geq(nr_found(decode_limited, NP_STAGE_DECODE, 1.0527, &by_stage), PAIRS * 95 / 100);
    cr_assert_geq(by_stage, PAIRS * 95 / 100);
}

Test(compare, runs_with_other_batches_or_devices_are_not_compared)
{
    const struct made_pipeline p = step_limited(1);
    struct np_profile then, now;
    struct np_comparison comparison;
    struct np_err err = {0};

    profile_of(&p, &then);
    profile_of(&p, &now);
    now.knobs.batch *= 2;
    cr_assert_eq(np_profile_compare(&then, &now, &comparison, &err), -EINVAL);
    cr_assert(strstr(err.text, "32") && strstr(err.text, "64"), "%s", err.text);
    profile_of(&p, &now);
    snprintf(now.knobs.device, sizeof(now.knobs.device), "cuda:0");
    cr_assert_eq(np_profile_compare(&then, &now, &comparison, &err), -EINVAL);
}
