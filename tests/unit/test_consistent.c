/* No profile contradicts itself: for any measurements the report obeys the rules of consistent.c,
 * on the screen and on the page too; and each rule finds the profile that breaks it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/profile/trial.h"
#include "daemon/analysis/words.h"
#include "tests/test.h"
#include "tests/unit/made_pipeline.h"

enum { CASES = 2000, PIPELINES = 120, BATCHES = 120 };

static uint64_t rng;
static double between(double low, double high)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(rng >> 11) / 9007199254740992.0;
}

static bool chance(double share)
{
    return between(0, 1) < share;
}

/* 0.1 to 10 times as much, or (one in four) nothing. */
static double about(double value)
{
    return chance(0.25) ? 0 : value * pow(10, between(-1, 1));
}

static void any_knobs(struct np_knobs *knobs)
{
    static const char *const caches[] = {"none", "encoded", "decoded", "device"};
    const bool sim = chance(0.5);

    *knobs = (struct np_knobs){.readers = (int)between(1, 16.99),
        .depth = (int)between(1, 64.99),
        .prefetch = (int)between(2, 8.99),
        .batch = (int)between(1, 256.99),
        .io = "uring",
        .checkpoint_steps = chance(0.5) ? floor(between(5, 500)) : 0,
        .nr_samples = (uint64_t)between(100, 1e6),
        .memory_bytes = 16ull << 30,
        .free_bytes = (uint64_t)between(0, 16e9),
        .cores = floor(between(1, 16.99)),
        .device_has_memory = sim,
        .device_room = chance(0.5) ? 8ull << 30 : 0,
        .geometry_only = chance(0.5),
        .cache_fills = chance(0.3)};
    knobs->set_bytes = knobs->nr_samples * (uint64_t)between(1e3, 1e5);
    knobs->picture_bytes = (uint64_t)between(1e3, 1e6);
    knobs->row_bytes = knobs->picture_bytes;
    snprintf(knobs->cache, sizeof(knobs->cache), "%s", caches[(int)between(0, 3.99)]);
    snprintf(knobs->device, sizeof(knobs->device), sim ? "cuda:0" : "cpu");
    snprintf(knobs->precision, sizeof(knobs->precision), chance(0.5) ? "f32" : "bf16");
}

/* Readers that work, wait for calls, for cores and for the disk in any shares. */
static void any_readers(struct np_observation *o)
{
    const double whole = o->nr_readers * o->seconds, work = between(0.01, 1) * whole;
    double left = 1, rest = whole - work;

    for (int s = NP_STAGE_READ; s <= NP_STAGE_BATCH; s++) {
        const double share = s == NP_STAGE_BATCH ? left : left * between(0, 1);

        left -= share;
        if (s == NP_STAGE_BATCH || chance(0.8))
            o->stages[s] = (struct np_observed_stage){
                .items = (uint64_t)((double)o->images * between(0.9, 1.1)),
                .work_s = work * share,
                .p50_s = 1e-3,
                .p99_s = 2e-3};
    }
    o->reader_s[NP_STATE_WORK] = work;
    o->reader_s[NP_STATE_IO_WAIT] = rest * between(0, 1);
    o->reader_s[NP_STATE_BLOCKED] = rest - o->reader_s[NP_STATE_IO_WAIT];
    o->reader_delay_s = work * between(0, 0.5);
    o->reader_cpu_s = chance(0.1) ? 0 : (work - o->reader_delay_s) * between(0.02, 1.05);
}

/* Whatever may be measured, though parts and run were so at different moments of a box that is not quiet. */
static void any_measurement(uint64_t seed, struct np_profile *profile)
{
    struct np_observation *o = &profile->observation;

    rng = seed * 77 + 5;
    memset(profile, 0, sizeof(*profile));
    any_knobs(&profile->knobs);
    *o = (struct np_observation){.seconds = between(0.5, 4),
        .images = (uint64_t)between(10, 50000),
        .nr_readers = profile->knobs.readers,
        .cores = profile->knobs.cores,
        .other_cores = between(0, 1.2) * profile->knobs.cores,
        .ring_full = between(0, 1),
        .reads_full = between(0, 1)};
    o->steps = o->images / (uint64_t)profile->knobs.batch + 1;
    o->images_per_second = (double)o->images / o->seconds;
    any_readers(o);
    o->process_cpu_s = o->reader_cpu_s + between(0, o->cores) * o->seconds;
    o->stages[NP_STAGE_STEP] = (struct np_observed_stage){
        .items = o->steps, .work_s = between(0.01, 1) * o->seconds, .p50_s = 1e-3, .p99_s = 1e-3};
    o->stall_s = between(0, 1) * o->seconds;
    o->blame_s[(int)between(0, 5.99)] = o->stall_s;
    if (profile->knobs.device_has_memory)
        o->feed = (struct np_feed_times){.nr_batches = o->steps,
            .copy_ns = (uint64_t)(between(0, 1) * o->seconds * 1e9),
            .compute_ns = (uint64_t)(between(0.01, 1) * o->seconds * 1e9)};
    if (profile->knobs.checkpoint_steps > 0) {
        o->nr_checkpoints = (uint64_t)between(0, 3.99);
        o->checkpoint_each_s = between(0, 0.3) * o->seconds;
        o->checkpoint_s = (double)o->nr_checkpoints * o->checkpoint_each_s;
    }
    for (int i = 0; i < NP_FEED_BRIDGES; i++)
        o->bridged_s[i] = o->stall_s * between(0, 1);
    const double rate = o->images_per_second;
    profile->ceilings = (struct np_ceilings){.read_cold = about(rate),
        .read_warm = about(3 * rate),
        .read_deep = about(rate),
        .loader = about(rate),
        .step = about(rate)};
    profile->noise = chance(0.3) ? 0 : between(0, 0.12);
}

static void agrees(const struct np_profile *profile, const char *what, uint64_t seed)
{
    char text[192] = "";

    (void)what;
    (void)seed; /* not every runner says them */
    cr_assert(
        !np_profile_contradicts(profile, text, sizeof(text)), "%s %d: %s", what, (int)seed, text);
}
Test(consistent, measured_profiles_make_no_contradiction, .timeout = 120)
{
    int limited[NP_NR_STAGES] = {0}, advised = 0;

    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct np_profile profile;

        any_measurement(seed, &profile);
        np_profile_think(&profile);
        agrees(&profile, "measurement", seed);
        limited[profile.verdict.limiter] += profile.verdict.kind == NP_LIMITED;
        advised += profile.verdict.advice.key[0] != '\0';
    }
    for (int s = 0; s < NP_NR_STAGES; s++) /* all sorts are among them */
        fprintf(stderr, "# %s limits %d\n", np_stage_names[s], limited[s]);
    fprintf(stderr, "# %d advised\n", advised);
    cr_assert_gt(advised, CASES / 10);
}

/* What the run did without one stage, a little more or less than it can be. */
Test(consistent, measured_gains_make_no_contradiction, .timeout = 120)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct np_profile profile;
        struct np_deep deep = {0};

        any_measurement(seed, &profile);
        np_profile_think(&profile);
        const double base = profile.model.rate * between(0.9, 1.1);
        for (int s = 0; s < NP_STAGE_CHECKPOINT; s++) {
            deep.rate[s] = chance(0.2) ? 0 : base * between(0.9, 3);
            deep.next[s] = (enum np_stage)(int)between(0, NP_STAGE_CHECKPOINT + 0.99);
        }
        profile.deep = true;
        np_deep_judge(&deep, base, &profile.model, profile.noise, &profile.verdict);
        np_profile_curve(&profile);
        agrees(&profile, "deep", seed);
    }
}

Test(consistent, computed_pipelines_make_no_contradiction, .timeout = 120)
{
    for (uint64_t seed = 0; seed < PIPELINES; seed++) {
        struct np_profile profile = {.noise = 0.01};

        rng = seed;
        struct made_pipeline p = {.readers = (int)between(1, 8.99),
            .depth = 4,
            .slots = 6,
            .batch = 32,
            .cores = between(1, 8),
            .spread = between(0, 0.5),
            .seed = seed};

        for (int s = NP_STAGE_DECOMPRESS; s <= NP_STAGE_BATCH; s++)
            p.stage_s[s] = between(0, 1e-3);
        p.disk_s = between(0, 2e-3);
        p.copy_s = between(0, 2e-3) * p.batch;
        p.step_s = between(0, 2e-3) * p.batch;
        p.checkpoint_steps = chance(0.3) ? 20 : 0;
        p.checkpoint_s = p.checkpoint_steps > 0 ? between(0, 0.3) : 0;
        made_pipeline_run(&p, BATCHES, &profile.observation, &profile.ceilings, &profile.knobs);
        np_profile_think(&profile);
        agrees(&profile, "pipeline", seed);
    }
}

/* A file system that makes `open` wait: two readers, 1.7 of 2 cores taken by others. The readers' threads
 * do little, and can do more than the run does. */
Test(consistent, readers_that_wait_in_calls_do_not_make_decoding_slow)
{
    struct np_profile profile = {.noise = 0.04,
        .knobs = {.readers = 2,
            .depth = 4,
            .prefetch = 4,
            .batch = 16,
            .cores = 2,
            .cache = "none",
            .device = "cpu",
            .precision = "bf16",
            .nr_samples = 321,
            .set_bytes = 42u << 20,
            .free_bytes = 4ull << 30,
            .memory_bytes = 8ull << 30},
        .observation = {.seconds = 3,
            .images = 83,
            .steps = 5,
            .images_per_second = 27.6,
            .nr_readers = 2,
            .reader_s = {3.9, 0.1, 0, 2},
            .reader_cpu_s = 0.16,
            .process_cpu_s = 0.8,
            .cores = 2,
            .other_cores = 1.7,
            .stall_s = 2.4},
        .ceilings = {.read_cold = 9.44, .read_warm = 9.45, .step = 136}};
    struct np_observation *o = &profile.observation;

    o->stages[NP_STAGE_READ] = (struct np_observed_stage){.items = 83, .work_s = 3.74};
    o->stages[NP_STAGE_DECODE] = (struct np_observed_stage){.items = 83, .work_s = 0.15};
    o->stages[NP_STAGE_BATCH] = (struct np_observed_stage){.items = 83, .work_s = 0.01};
    o->stages[NP_STAGE_STEP] = (struct np_observed_stage){.items = 5, .work_s = 0.6};
    o->blame_s[NP_STAGE_READ] = o->stall_s;
    np_profile_think(&profile);
    agrees(&profile, "slow storage", 0);
    cr_assert_eq(profile.verdict.kind, NP_LIMITED);
    cr_assert_eq(profile.verdict.limiter, NP_STAGE_READ);
    cr_assert_float_eq(profile.model.rate, 83 / 3.0, 1e-6);
    cr_assert_gt(np_model_ceiling(&profile.model, NP_STAGE_DECODE, NP_STAGE_READ), 136);
    cr_assert_leq(profile.verdict.next_rate, 138.4, "no more than the step can do");
    cr_assert_eq(profile.ceilings.read_cold, 0, "reading alone was slower than in the run");
    cr_assert_eq(profile.ceilings.read_warm, 0);
}

Test(consistent, half_precision_is_not_advised_to_a_run_that_has_it)
{
    struct np_model model = {.rate = 100, .step_rate = 101, .coupling = 1};
    struct np_advice advice;

    snprintf(model.knobs.precision, sizeof(model.knobs.precision), "f32");
    np_advise(&model, NP_STAGE_STEP, 200, &advice);
    cr_assert(strstr(advice.text, "half precision"), "%s", advice.text);
    snprintf(model.knobs.precision, sizeof(model.knobs.precision), "bf16");
    np_advise(&model, NP_STAGE_STEP, 200, &advice);
    cr_assert_null(strstr(advice.text, "half precision"), "%s", advice.text);
    cr_assert(strstr(advice.text, "larger batch"), "%s", advice.text);
}

Test(consistent, a_cache_that_still_fills_is_reported)
{
    struct np_model model = {.rate = 26, .read_rate = 26, .coupling = 1};
    struct np_advice advice;

    snprintf(model.knobs.cache, sizeof(model.knobs.cache), "encoded");
    np_advise(&model, NP_STAGE_READ, 200, &advice);
    cr_assert_null(strstr(advice.text, "fills"), "%s", advice.text);
    model.knobs.cache_fills = true;
    np_advise(&model, NP_STAGE_READ, 200, &advice);
    cr_assert(strstr(advice.text, "still fills"), "%s", advice.text);
    np_advise(&model, NP_STAGE_DECODE, 200, &advice);
    cr_assert_null(strstr(advice.text, "fills"), "decoding continues: %s", advice.text);
}

/* --- each rule has a profile that breaks it --------------------------------------------------- */

/* Limited by the disk, with advice, a curve and parts. */
static void sound(struct np_profile *profile)
{
    struct made_pipeline p = {
        .readers = 2, .depth = 4, .slots = 6, .batch = 32, .cores = 4, .disk_s = 4e-3};

    memset(profile, 0, sizeof(*profile));
    p.stage_s[NP_STAGE_DECODE] = 1e-3;
    p.step_s = 32e-3;
    made_pipeline_run(&p, BATCHES, &profile->observation, &profile->ceilings, &profile->knobs);
    profile->knobs.set_bytes = 1 << 20;
    profile->knobs.free_bytes = profile->knobs.memory_bytes = 1ull << 30;
    snprintf(profile->knobs.cache, sizeof(profile->knobs.cache), "none");
    profile->noise = 0.01;
    np_profile_think(profile);
    agrees(profile, "sound", 0);
    cr_assert_eq(profile->verdict.limiter, NP_STAGE_READ);
    cr_assert_str_eq(profile->verdict.advice.key, "loader.cache");
}

static void breaks(const struct np_profile *profile, const char *says)
{
    char text[192] = "";

    cr_assert(np_profile_contradicts(profile, text, sizeof(text)), "%s: not found", says);
    cr_assert(strstr(text, says), "%s: %s", says, text);
}

Test(consistent, a_bar_below_the_rate_is_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.model.step_rate = 0.9 * profile.model.rate;
    breaks(&profile, "step could do");
    sound(&profile);
    profile.model.rate = NAN;
    breaks(&profile, "the run's rate");
}

Test(consistent, a_prediction_above_another_bar_is_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.verdict.gain *= 4;
    profile.verdict.next_rate *= 4;
    breaks(&profile, "is predicted, and");
    sound(&profile);
    profile.verdict.next_rate *= 0.9;
    breaks(&profile, "times");
    sound(&profile);
    profile.verdict.next = NP_STAGE_READ;
    breaks(&profile, "is the next limit");
    sound(&profile);
    profile.verdict.gain = 1.01;
    profile.verdict.next_rate = 1.01 * profile.model.rate;
    breaks(&profile, "limits, and gains");
}

Test(consistent, a_limiter_that_no_row_shows_is_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.noise = 0.11;
    breaks(&profile, "noise");
    sound(&profile);
    profile.verdict.kind = NP_BALANCED;
    breaks(&profile, "is advised");
}

Test(consistent, advice_beyond_the_fix_is_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.verdict.advice.rate = 1.1 * profile.verdict.next_rate;
    breaks(&profile, "promises");
    sound(&profile);
    profile.verdict.advice.rate = 0.9 * profile.model.rate;
    breaks(&profile, "promises");
    sound(&profile);
    profile.verified = true;
    profile.verdict.advice.key[0] = '\0';
    breaks(&profile, "was verified");
}

Test(consistent, a_curve_that_does_not_fit_is_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.curve_rate[0] *= 0.5;
    breaks(&profile, "the curve begins");
    sound(&profile);
    profile.curve_rate[5] = profile.curve_rate[0] * 0.5;
    breaks(&profile, "the curve falls");
    sound(&profile);
    profile.curve_rate[profile.nr_curve - 1] *= 2;
    breaks(&profile, "the curve ends");
}

Test(consistent, a_part_that_was_slower_alone_is_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.ceilings.loader = 0.9 * profile.model.rate;
    breaks(&profile, "the loader alone");
    sound(&profile);
    profile.ceilings.read_warm = 0.9 * profile.model.rate;
    breaks(&profile, "reading alone");
    sound(&profile);
    profile.observation.stages[NP_STAGE_STEP].work_s = 1e-3;
    profile.ceilings.step = profile.model.rate;
    breaks(&profile, "the step alone");
}

Test(consistent, shares_out_of_range_are_found)
{
    struct np_profile profile;

    sound(&profile);
    profile.observation.reads_full = 1.2;
    breaks(&profile, "its queue");
    sound(&profile);
    profile.observation.stages[NP_STAGE_READ].p50_s = 1;
    breaks(&profile, "median");
    sound(&profile);
    profile.observation.blame_s[NP_STAGE_READ] += profile.observation.seconds;
    breaks(&profile, "waits of");
}
