/* Verdicts from measured gains, on pipelines with computed events. */
#include <math.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/profile/trial.h"
#include "tests/test.h"
#include "tests/unit/made_pipeline.h"

enum { BATCHES = 240 };

struct deep_case {
    struct made_pipeline pipeline;
    struct np_observation observation;
    struct np_ceilings ceilings;
    struct np_knobs knobs;
    struct np_model model;
    struct np_profile_verdict verdict;
    struct np_deep deep;
};

static const enum np_stage stages[] = {NP_STAGE_READ, NP_STAGE_DECOMPRESS, NP_STAGE_DECODE,
    NP_STAGE_AUGMENT, NP_STAGE_COPY, NP_STAGE_STEP};
enum { NR = sizeof(stages) / sizeof(*stages) };

/* Readers that could do 2,000 images a second, a disk and a bus 4,000, a device 1,600; one of the stages
 * slowed `slower` times. Measured with each stage left out. */
static void make_case(enum np_stage slow, double slower, struct deep_case *c)
{
    struct made_pipeline p = {
        .readers = 4, .depth = 8, .slots = 8, .batch = 32, .cores = 16, .spread = 0.2, .seed = 3};

    memset(c, 0, sizeof(*c));
    p.stage_s[NP_STAGE_DECOMPRESS] = 0.0004;
    p.stage_s[NP_STAGE_DECODE] = 0.0010;
    p.stage_s[NP_STAGE_AUGMENT] = 0.0006;
    p.disk_s = 1 / 4000.0;
    p.copy_s = 32 / 4000.0;
    p.step_s = 32 / 1600.0;
    c->pipeline = made_pipeline_with(&p, slow, 1 / slower);
    made_pipeline_run(&c->pipeline, BATCHES, &c->observation, &c->ceilings, &c->knobs);
    np_model_make(&c->observation, &c->ceilings, &c->knobs, &c->model);
    np_verdict_make(&c->model, 0, &c->verdict);
    for (int i = 0; i < NR; i++) {
        const struct made_pipeline without = made_pipeline_with(&c->pipeline, stages[i], 1e9);
        struct np_observation seen;
        struct np_ceilings unused;
        struct np_knobs same;

        made_pipeline_run(&without, BATCHES, &seen, &unused, &same);
        np_deep_add(&c->deep, stages[i], &seen, &c->ceilings, &c->knobs);
    }
}

Test(deep, the_slow_stage_is_named_with_its_measured_gain, .timeout = 120)
{
    for (int i = 0; i < NR; i++) {
        struct deep_case c;

        make_case(stages[i], 6, &c);
        np_deep_judge(&c.deep, c.observation.images_per_second, &c.model, 0.01, &c.verdict);
        cr_expect_eq(c.verdict.kind, NP_LIMITED, "%s", c.verdict.reason);
        cr_expect_eq(c.verdict.limiter, stages[i], "%s: %s", np_stage_names[stages[i]],
            np_stage_names[c.verdict.limiter]);
        cr_expect_float_eq(
            c.verdict.gain, c.deep.rate[stages[i]] / c.observation.images_per_second, 1e-9);
        cr_expect_float_eq(c.verdict.next_rate, c.model.rate * c.verdict.gain, 1e-6);
        /* The device is the next; with it out of the way, the readers. */
        if (stages[i] == NP_STAGE_STEP)
            cr_expect_eq(c.verdict.next, NP_STAGE_DECODE, "%s", np_stage_names[c.verdict.next]);
        else
            cr_expect_eq(c.verdict.next, NP_STAGE_STEP, "%s: %s", np_stage_names[stages[i]],
                np_stage_names[c.verdict.next]);
    }
}

Test(deep, the_models_limiter_stays_unless_another_gains_clearly_more)
{
    struct deep_case c;
    double base;

    make_case(NP_STAGE_DECODE, 6, &c);
    base = c.observation.images_per_second;
    memset(c.deep.rate, 0, sizeof(c.deep.rate));
    c.deep.rate[NP_STAGE_DECODE] = 1.5 * base;
    c.deep.rate[NP_STAGE_AUGMENT] = 1.53 * base;
    np_deep_judge(&c.deep, base, &c.model, 0.01, &c.verdict);
    cr_expect_eq(c.verdict.limiter, NP_STAGE_DECODE);
    cr_expect_float_eq(c.verdict.gain, 1.5, 1e-9);
    c.deep.rate[NP_STAGE_AUGMENT] = 1.8 * base;
    np_deep_judge(&c.deep, base, &c.model, 0.01, &c.verdict);
    cr_expect_eq(c.verdict.limiter, NP_STAGE_AUGMENT);
    cr_expect_float_eq(c.verdict.gain, 1.8, 1e-9);
    cr_expect_neq(c.verdict.next, NP_STAGE_AUGMENT);
}

Test(deep, no_measured_gain_is_balanced_and_noise_stays_inconclusive)
{
    struct deep_case c;
    double base;

    make_case(NP_STAGE_DECODE, 6, &c);
    base = c.observation.images_per_second;
    for (int i = 0; i < NR; i++)
        c.deep.rate[stages[i]] = 0.98 * base;
    np_deep_judge(&c.deep, base, &c.model, 0.01, &c.verdict);
    cr_expect_eq(c.verdict.kind, NP_BALANCED);
    cr_expect_float_eq(c.verdict.gain, 1, 1e-9, "a smaller gain is noise");
    cr_expect_str_empty(c.verdict.advice.key);
    np_deep_judge(&c.deep, base, &c.model, 0.3, &c.verdict);
    cr_expect_eq(c.verdict.kind, NP_INCONCLUSIVE);
    c.deep.rate[NP_STAGE_DECODE] = 2 * base;
    np_deep_judge(&c.deep, base, &c.model, 0.01, &c.verdict);
    cr_expect_eq(c.verdict.kind, NP_LIMITED);
    cr_expect_str_empty(c.verdict.reason);
}
