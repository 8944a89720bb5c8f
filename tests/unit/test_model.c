/* The profiler's model against pipelines with computed events: predictions of what a faster
 * stage brings, the limiter and the next one, balanced ones, advice. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "tests/test.h"
#include "tests/unit/made_pipeline.h"

enum { BATCHES = 240, CASES = 200 };

static uint64_t rng;
static double between(double low, double high)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(rng >> 11) / 9007199254740992.0;
}

/* Balanced to a factor: every resource could do between 1 and 3 times 1,000 images a second. */
static struct made_pipeline any_pipeline(uint64_t seed)
{
    rng = seed * 77 + 5;
    struct made_pipeline p = {.readers = (int)between(1, 8.99),
        .depth = (int)between(2, 16.99),
        .slots = (int)between(4, 8.99),
        .batch = (int)between(16, 64.99),
        .cores = 8,
        .spread = between(0, 0.5),
        .seed = seed};
    const double threads = p.readers / between(1000, 3000), decode = between(0.4, 0.8);

    p.stage_s[NP_STAGE_DECODE] = threads * decode;
    p.stage_s[NP_STAGE_AUGMENT] = threads * (1 - decode) * 0.6;
    p.stage_s[NP_STAGE_DECOMPRESS] = threads * (1 - decode) * 0.35;
    p.stage_s[NP_STAGE_BATCH] = threads * (1 - decode) * 0.05;
    p.disk_s = 1 / between(1000, 3000);
    p.copy_s = p.batch / between(1000, 3000);
    p.step_s = p.batch / between(1000, 3000);
    return p;
}

static void model_of(const struct made_pipeline *p, struct np_model *ret_model)
{
    struct np_observation observation;
    struct np_ceilings ceilings;
    struct np_knobs knobs;

    made_pipeline_run(p, BATCHES, &observation, &ceilings, &knobs);
    np_model_make(&observation, &ceilings, &knobs, ret_model);
}

static double predicted(const struct np_model *model, enum np_stage stage, double faster)
{
    double all[NP_NR_STAGES];

    for (int s = 0; s < NP_NR_STAGES; s++)
        all[s] = s == (int)stage ? faster : 1;
    return np_model_rate(model, all) / np_model_rate(model, NULL);
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Of n predictions, relative to what came true: asserted, and put in order. */
static void errors_are_small(const char *what, double *errors, int n)
{
    qsort(errors, (size_t)n, sizeof(*errors), compare);
    fprintf(stderr, "# %s: error median %.2f %%, 95 %% %.2f %%, most %.2f %%\n", what,
        100 * errors[n / 2], 100 * errors[n * 95 / 100], 100 * errors[n - 1]);
    cr_assert_lt(errors[n / 2], 0.03);
    cr_assert_lt(errors[n - 1], 0.10);
}

static const enum np_stage planted[] = {NP_STAGE_READ, NP_STAGE_DECOMPRESS, NP_STAGE_DECODE,
    NP_STAGE_AUGMENT, NP_STAGE_COPY, NP_STAGE_STEP};
enum { NR_PLANTED = sizeof(planted) / sizeof(*planted) };

/* The pipeline with `stage` slowed until the run is `severity` times slower; false: it cannot be, to
 * 1 %, by a cost up to a thousand times its own. */
static bool plant(const struct made_pipeline *p, enum np_stage stage, double severity,
    struct made_pipeline *ret_planted)
{
    const double clean = made_pipeline_run(p, BATCHES, NULL, NULL, NULL);
    double low = 1, high = 1000, rate = 1e-9;

    for (int i = 0; i < 30 && fabs(clean / rate / severity - 1) > 0.001; i++) {
        const double middle = sqrt(low * high);

        *ret_planted = made_pipeline_with(p, stage, 1 / middle);
        rate = made_pipeline_run(ret_planted, BATCHES, NULL, NULL, NULL);
        *(clean / rate < severity ? &low : &high) = middle;
    }
    return fabs(clean / rate / severity - 1) < 0.01;
}

/* Of stages that share the readers' threads the one is named that takes most of them, planted or not. */
static bool is_largest(const struct made_pipeline *p, enum np_stage stage)
{
    if (p->stage_s[stage] == 0)
        return true;
    for (int s = 0; s < NP_NR_STAGES; s++)
        if (p->stage_s[s] > p->stage_s[stage])
            return false;
    return true;
}

Test(model, a_planted_stage_is_named_with_the_gain_of_its_removal, .timeout = 300)
{
    static const double severities[] = {1.25, 2, 4};
    static double errors[CASES * 3];
    const int nr_cases = getenv("NNPIPE_LONG") ? CASES : CASES / 2;
    int n = 0, named = 0, next_right = 0;

    for (int i = 0; i < nr_cases; i++) {
        const struct made_pipeline clean = any_pipeline((uint64_t)i);
        const enum np_stage stage = planted[i % NR_PLANTED];

        for (int k = 0; k < 3; k++) {
            struct made_pipeline slow;
            struct np_model model;
            struct np_profile_verdict verdict;

            if (!plant(&clean, stage, severities[k], &slow) || !is_largest(&slow, stage))
                continue;
            const double before = made_pipeline_run(&slow, BATCHES, NULL, NULL, NULL);
            const struct made_pipeline freed = made_pipeline_with(&slow, stage, 1e9);
            const double after = made_pipeline_run(&freed, BATCHES, NULL, NULL, NULL);

            model_of(&slow, &model);
            np_verdict_make(&model, 0.01, &verdict);
            errors[n++] = fabs(predicted(&model, stage, INFINITY) / (after / before) - 1);
            if (verdict.kind != NP_LIMITED || verdict.limiter != stage)
                fprintf(stderr, "# case %d: %s planted %.2fx, %s %s named\n", i,
                    np_stage_names[stage], severities[k], np_verdict_names[verdict.kind],
                    np_stage_names[verdict.limiter]);
            named += verdict.kind == NP_LIMITED && verdict.limiter == stage;
            /* The next limit: without it too, nothing is faster than without any other. */
            double best_rate = 0, next_rate = after;
            for (int s = 0; s < NR_PLANTED; s++) {
                const struct made_pipeline two = made_pipeline_with(&freed, planted[s], 1e9);
                const double rate = made_pipeline_run(&two, BATCHES, NULL, NULL, NULL);

                best_rate = planted[s] != stage ? fmax(rate, best_rate) : best_rate;
                next_rate = planted[s] == verdict.next ? rate : next_rate;
            }
            next_right += next_rate > 0.99 * best_rate;
        }
    }
    fprintf(stderr, "# model: %d plants, %d named, next limit right in %d\n", n, named, next_right);
    cr_assert_geq(n, nr_cases * 3 / 2);
    cr_assert_eq(named, n);
    errors_are_small("model", errors, n);
    cr_assert_geq(next_right, n * 95 / 100);
}

Test(model, two_limits_at_once_are_balanced, .timeout = 120)
{
    for (uint64_t i = 0; i < 40; i++) {
        struct made_pipeline p = any_pipeline(i);
        struct np_model model;
        struct np_profile_verdict verdict;

        p.spread = 0.05;
        p.disk_s = 1 / 3000.0;
        p.copy_s = p.batch / 1003.0;
        p.step_s = p.batch / 1000.0;
        for (int s = 0; s < NP_NR_STAGES; s++)
            p.stage_s[s] *= 0.3; /* far from it */
        model_of(&p, &model);
        np_verdict_make(&model, 0.01, &verdict);
        cr_assert_eq(verdict.kind, NP_BALANCED, "case %d", (int)i);
        cr_assert_str_not_empty(verdict.reason);
        cr_assert_str_empty(verdict.advice.key);
    }
}

Test(model, noise_makes_it_inconclusive)
{
    const struct made_pipeline p = any_pipeline(1);
    struct np_model model;
    struct np_profile_verdict verdict;

    model_of(&p, &model);
    np_verdict_make(&model, 0.2, &verdict);
    cr_assert_eq(verdict.kind, NP_INCONCLUSIVE);
    cr_assert(strstr(verdict.reason, "20 %"), "%s", verdict.reason);
}

Test(model, one_reader_with_idle_cores_gets_advice_how_many_to_use)
{
    struct made_pipeline p = any_pipeline(3);
    struct np_model model;
    struct np_profile_verdict verdict;

    p.readers = 1;
    p.stage_s[NP_STAGE_DECODE] = 2e-3;
    p.stage_s[NP_STAGE_AUGMENT] = p.stage_s[NP_STAGE_DECOMPRESS] = p.stage_s[NP_STAGE_BATCH] = 0;
    p.disk_s = 1e-5;
    p.copy_s = 1e-4;
    p.step_s = p.batch / 2000.0; /* four readers' worth */
    model_of(&p, &model);
    np_verdict_make(&model, 0.01, &verdict);
    cr_assert_eq(verdict.limiter, NP_STAGE_DECODE);
    cr_assert_str_eq(verdict.advice.key, "loader.readers");
    cr_assert_str_eq(verdict.advice.to, "4");
    p.readers = 4;
    const double real = made_pipeline_run(&p, BATCHES, NULL, NULL, NULL);
    cr_assert_float_eq(verdict.advice.rate / real, 1, 0.03);
}

Test(model, for_checkpoints_that_take_a_third_of_the_time_a_longer_interval_is_advised)
{
    struct made_pipeline p = any_pipeline(4);
    struct np_model model;
    struct np_profile_verdict verdict;

    p.spread = 0;
    p.checkpoint_steps = 10;
    p.checkpoint_s = 0.5 * 10 * p.batch / made_pipeline_run(&p, BATCHES, NULL, NULL, NULL);
    model_of(&p, &model);
    np_verdict_make(&model, 0.01, &verdict);
    cr_assert_eq(verdict.limiter, NP_STAGE_CHECKPOINT);
    cr_assert_str_eq(verdict.advice.key, "checkpoint.every");
    p.checkpoint_steps = atof(verdict.advice.to);
    const double real = made_pipeline_run(&p, 20 * (int)p.checkpoint_steps, NULL, NULL, NULL);
    cr_assert_float_eq(verdict.advice.rate / real, 1, 0.05);
}

/* Readers that all stand still now and then: more slots bridge it, each by a step. */
Test(model, a_longer_ring_gives_the_predicted_rate, .timeout = 120)
{
    static double errors[300];
    int n = 0;

    for (uint64_t i = 0; i < 100; i++) {
        struct made_pipeline p = any_pipeline(i);
        struct np_model model;

        p.slots = 4;
        p.step_s = 3 * fmax(p.step_s, fmax(p.copy_s, p.batch * p.disk_s));
        p.pause_every_s = between(20, 40) * p.step_s;
        p.pause_s = between(5, 12) * p.step_s;
        model_of(&p, &model);
        const double before = made_pipeline_run(&p, BATCHES, NULL, NULL, NULL);
        struct np_knobs knobs = model.knobs;

        for (knobs.prefetch = 6; knobs.prefetch <= 16; knobs.prefetch += 5) {
            p.slots = knobs.prefetch;
            const double after = made_pipeline_run(&p, BATCHES, NULL, NULL, NULL);

            errors[n++] =
                fabs(np_model_rate_with(&model, &knobs) / model.rate / (after / before) - 1);
        }
    }
    errors_are_small("slots", errors, n);
}

/* The loader continues while a save is written, and the trainer catches up afterwards. */
Test(model, a_save_costs_the_time_that_prefetched_batches_do_not_hide, .timeout = 120)
{
    static double errors[100];
    int n = 0;

    for (uint64_t i = 0; i < 100; i++) {
        struct made_pipeline p = any_pipeline(i);
        struct np_model model;

        p.checkpoint_steps = 20;
        p.checkpoint_s = between(0.05, 0.5) * 20 * p.batch / 1000;
        model_of(&p, &model);
        const double before = made_pipeline_run(&p, BATCHES, NULL, NULL, NULL);
        const struct made_pipeline freed = made_pipeline_with(&p, NP_STAGE_CHECKPOINT, 1e9);
        const double after = made_pipeline_run(&freed, BATCHES, NULL, NULL, NULL);

        errors[n++] = fabs(predicted(&model, NP_STAGE_CHECKPOINT, INFINITY) / (after / before) - 1);
    }
    errors_are_small("saves", errors, n);
}

Test(model, a_set_larger_than_memory_is_not_kept_on_the_device)
{
    struct made_pipeline p = any_pipeline(3);
    struct np_model model;
    struct np_profile_verdict verdict;

    p.copy_s *= 8;
    model_of(&p, &model);
    np_verdict_make(&model, 0.01, &verdict);
    cr_assert_eq(verdict.limiter, NP_STAGE_COPY);
    cr_assert_str_empty(verdict.advice.key);
    cr_assert_str_not_empty(verdict.advice.text);
    model.knobs.picture_bytes = 1024;
    np_verdict_make(&model, 0.01, &verdict);
    cr_assert_str_eq(verdict.advice.to, "device");
}
