/* --tune on made-up response surfaces: rates that saturate with readers, reads in flight and batches ahead,
 * fall again where there are too many, jump with the kind of cache, and scatter from trial to trial. The
 * best of all is known, since a surface is computed everywhere. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/profile/tune.h"
#include "tests/test.h"

enum { SURFACES = 200 };
#define GIB (1ull << 30)

static uint64_t rng;
static double uniform(double from, double to)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return from + (to - from) * ((double)(rng >> 11) / 9007199254740992.0);
}

static double normal(void)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += uniform(0, 1);
    return sum;
}

/* A log-uniform number. */
static double spread(double from, double to)
{
    return from * pow(to / from, uniform(0, 1));
}

struct surface {
    struct np_knobs knobs; /* the config as it is */
    double cores, decompress_s, decode_s, augment_s, read_s;
    double disk, half, crowd; /* the disk's rate; reads in flight for half of it; for too many */
    double contention, coherence; /* of readers with each other */
    double copy, step, ring_loss, ring_weight;
    double hit_s, whole; /* a picture out of the cache; augmenting a whole one, times */
    double noise;
    int nr_trials;
};

static void surface_make(uint64_t seed, struct surface *s)
{
    rng = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 8; i++)
        uniform(0, 1);
    const int cores = (int)spread(2, 33);
    const bool careless = uniform(0, 1) < 0.4; /* a config with values of its own, bad ones */
    *s = (struct surface){.cores = cores,
        .decompress_s = uniform(0, 1) < 0.5 ? 0 : spread(2e-5, 5e-4),
        .decode_s = spread(5e-5, 5e-3),
        .augment_s = spread(2e-5, 1e-3),
        .read_s = spread(2e-6, 5e-5),
        .disk = spread(300, 3e5),
        .half = spread(0.5, 40),
        .crowd = uniform(0, 1) < 0.5 ? INFINITY : spread(100, 2000),
        .contention = uniform(0, 0.03),
        .coherence = uniform(0, 1) < 0.6 ? 0 : spread(1e-4, 2e-3),
        .copy = spread(3e3, 3e5),
        .step = spread(300, 3e4),
        .ring_loss = uniform(0, 0.5),
        .ring_weight = uniform(0, 1) < 0.7 ? 0 : uniform(0, 0.02),
        .hit_s = spread(2e-6, 5e-5),
        .whole = uniform(0, 1) < 0.7 ? 1 : uniform(1, 3),
        .noise = uniform(0.01, 0.02)};
    s->knobs = (struct np_knobs){.readers = careless ? (int)spread(1, cores + 0.99) : cores,
        .depth = careless ? (int)spread(1, 8) : (int)spread(2, 16),
        .prefetch = careless ? 2 : (int)uniform(4, 8.99),
        .batch = 128,
        .io = "uring",
        .cache = "none",
        .device = "sim",
        .nr_samples = (uint64_t)spread(1e4, 2e6),
        .memory_bytes = 64 * GIB,
        .free_bytes = 48 * GIB,
        .cores = cores,
        .device_has_memory = true};
    s->knobs.picture_bytes = (uint64_t)spread(3e3, 6e5);
    s->knobs.set_bytes = s->knobs.nr_samples * (uint64_t)((double)s->knobs.picture_bytes * 0.15);
}

/* Bounds that are soft where they meet. */
static double meet(const double *bounds, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        if (bounds[i] > 0)
            sum += pow(bounds[i], -10);
    return pow(sum, -0.1);
}

static double true_rate(const struct surface *s, const struct np_knobs *k)
{
    const bool decoded = strcmp(k->cache, "decoded") == 0;
    const bool cached = decoded || strcmp(k->cache, "encoded") == 0;
    const double r = k->readers, in_flight = strcmp(k->io, "uring") == 0 ? r * k->depth : r;
    const double speed = r / (1 + s->contention * (r - 1) + s->coherence * r * (r - 1));
    const double each = (cached ? s->hit_s : s->read_s + s->decompress_s) +
                        (decoded ? 0 : s->decode_s) + s->augment_s * (decoded ? s->whole : 1);
    const double disk =
        cached ? 0 : s->disk * in_flight / (in_flight + s->half) / (1 + in_flight / s->crowd);
    const double bounds[] = {fmin(speed, s->cores - 0.3) / each, disk, s->copy, s->step};
    const double ahead = k->prefetch;

    return meet(bounds, 4) * (1 - s->ring_loss / ahead) *
           (1 - s->ring_weight * fmax(0, log2(ahead / 8)));
}

static int trial(void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err)
{
    struct surface *s = context;

    (void)err;
    s->nr_trials++;
    *ret_rate = true_rate(s, knobs) * (1 + s->noise * normal());
    return 0;
}

/* As a profile of the config sees it: costs that are off by some per cent, nothing of contention, the disk
 * as it is at this depth. */
static void model_of(const struct surface *s, struct np_model *model)
{
    const double n = s->knobs.readers * s->knobs.depth;

    *model = (struct np_model){.knobs = s->knobs, .cores = s->cores, .coupling = 1};
    model->thread_s[NP_STAGE_READ] = s->read_s * uniform(0.8, 1.2);
    model->thread_s[NP_STAGE_DECOMPRESS] = s->decompress_s * uniform(0.9, 1.1);
    model->thread_s[NP_STAGE_DECODE] = s->decode_s * uniform(0.9, 1.1);
    model->thread_s[NP_STAGE_AUGMENT] = s->augment_s * uniform(0.9, 1.1);
    model->read_rate = s->disk * n / (n + s->half) * uniform(0.9, 1.1);
    model->copy_rate = s->copy * uniform(0.95, 1.05);
    model->step_rate = s->step * uniform(0.95, 1.05);
    const double rate = true_rate(s, &s->knobs) * (1 + s->noise * normal());
    const double bound = np_model_rate(model, NULL);
    model->coupling = rate < bound ? rate / bound : 1;
    for (int i = 0; i < NP_FEED_BRIDGES; i++) { /* as if half the loss went with twice the slots */
        const double slots = s->knobs.prefetch, left = slots / (slots + (1 << i));

        model->bridged[i] = 1 - model->coupling / (1 - (1 - model->coupling) * left);
    }
    model->rate = rate;
}

static const char *const kinds[] = {"none", "encoded", "decoded"};

static double grid_best(const struct surface *s, int max_readers, uint64_t max_memory)
{
    struct np_knobs k = s->knobs;
    double best = 0;

    for (k.readers = 1; k.readers <= max_readers; k.readers++)
        for (k.depth = 1; k.depth <= 64; k.depth *= 2)
            for (k.prefetch = 2; k.prefetch <= 32; k.prefetch *= 2)
                for (int c = 0; c < 3; c++) {
                    snprintf(k.cache, sizeof(k.cache), "%s", kinds[c]);
                    if (np_tune_memory(&k) <= max_memory)
                        best = fmax(best, true_rate(s, &k));
                }
    return best;
}

/* The best measured of as many random points, the config as it is among them. */
static double random_search(const struct surface *s, uint64_t max_memory)
{
    struct np_knobs k = s->knobs, best = k;
    double most = true_rate(s, &k) * (1 + s->noise * normal());

    for (int i = 1; i < NP_TUNE_TRIALS;) {
        k.readers = 1 + (int)uniform(0, s->cores - 1e-9);
        k.depth = 1 << (int)uniform(0, 6.999);
        k.prefetch = 2 << (int)uniform(0, 4.999);
        snprintf(k.cache, sizeof(k.cache), "%s", kinds[(int)uniform(0, 2.999)]);
        if (np_tune_memory(&k) > max_memory)
            continue;
        const double rate = true_rate(s, &k) * (1 + s->noise * normal());
        if (rate > most) {
            most = rate;
            best = k;
        }
        i++;
    }
    return true_rate(s, &best);
}

Test(tune, finds_the_best_of_two_hundred_surfaces)
{
    double total = 0, total_random = 0, total_threads = 0, worst = INFINITY;
    int near = 0, max_trials = 0;

    for (int i = 0; i < SURFACES; i++) {
        struct surface s;
        struct np_model model;
        struct np_tuned tuned;

        surface_make((uint64_t)i + 1, &s);
        model_of(&s, &model);
        const struct np_tune_options options = {.noise = s.noise, .trial = trial, .context = &s};
        cr_assert_eq(np_tune(&model, &options, &tuned, NULL), 0);
        const uint64_t memory = s.knobs.free_bytes / 2;
        const double best = grid_best(&s, (int)s.cores, memory);
        const double found = true_rate(&s, &tuned.best) / best;
        const double base = true_rate(&s, &s.knobs) / best;
        struct np_knobs threads = s.knobs;
        threads.readers = (int)s.cores;
        near += found >= 0.97;
        total += found;
        total_random += random_search(&s, memory) / best;
        total_threads += true_rate(&s, &threads) / best;
        worst = fmin(worst, found / base);
        max_trials = s.nr_trials > max_trials ? s.nr_trials : max_trials;
    }
    cr_assert_geq(near, SURFACES * 95 / 100);
    cr_assert_geq(worst, 0.99);
    cr_assert_leq(max_trials, NP_TUNE_TRIALS);
    cr_assert_gt(total, total_random);
    cr_assert_gt(total, total_threads);
}

/* Where no cache fits, numbers are all there is to choose. */
Test(tune, stays_within_its_caps_and_finds_the_best_there)
{
    double total = 0, total_random = 0, worst = INFINITY;
    int near = 0;

    for (int i = 0; i < SURFACES; i++) {
        struct surface s;
        struct np_model model;
        struct np_tuned tuned;

        surface_make((uint64_t)i + 7001, &s);
        s.knobs.depth = s.knobs.depth > 2 ? 2 : s.knobs.depth;
        const int cores = s.cores > 4 ? (int)s.cores - 1 : (int)s.cores;
        const uint64_t memory = s.knobs.picture_bytes * 128 * 40;
        struct np_knobs base = s.knobs;
        if (base.readers > cores)
            base.readers = cores;
        model_of(&s, &model);
        const struct np_tune_options options = {.noise = s.noise,
            .max_cores = cores,
            .max_memory = memory,
            .trial = trial,
            .context = &s};
        cr_assert_eq(np_tune(&model, &options, &tuned, NULL), 0);
        for (int t = 0; t < tuned.nr_trials; t++) {
            cr_assert_leq(tuned.trials[t].knobs.readers, cores);
            cr_assert_leq(np_tune_memory(&tuned.trials[t].knobs), memory);
        }
        cr_assert_eq(tuned.beyond, base.readers != s.knobs.readers);
        const double best = grid_best(&s, cores, memory);
        const double found = true_rate(&s, &tuned.best) / best;
        near += found >= 0.97;
        total += found;
        s.cores = cores;
        total_random += random_search(&s, memory) / best;
        s.cores = model.cores;
        worst = fmin(worst, found * best / true_rate(&s, &base));
    }
    cr_assert_geq(near, SURFACES * 95 / 100);
    cr_assert_geq(worst, 0.99);
    cr_assert_gt(total, total_random);
}

/* --- what a trial may answer ------------------------------------------------------------------ */

static struct np_model plain_model(void)
{
    struct np_model model = {
        .rate = 1000, .cores = 4, .coupling = 1, .read_rate = 2000, .step_rate = 9000};

    model.knobs = (struct np_knobs){.readers = 4,
        .depth = 4,
        .prefetch = 4,
        .batch = 32,
        .io = "uring",
        .cache = "none",
        .device = "sim",
        .nr_samples = 1000,
        .set_bytes = 10 << 20,
        .picture_bytes = 40000,
        .free_bytes = GIB,
        .cores = 4,
        .device_has_memory = true};
    model.thread_s[NP_STAGE_DECODE] = 4e-3;
    return model;
}

struct script {
    double factor; /* of anything but the config as it is */
    int fails_at, code, nr;
    bool base[NP_TUNE_TRIALS + 1];
};

static int scripted(
    void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err)
{
    struct script *script = context;
    const struct np_model model = plain_model();
    const bool base = np_tune_same(&model.knobs, knobs);

    if (script->nr == NP_TUNE_TRIALS)
        return np_err_set(err, -E2BIG, "too many trials");
    script->base[script->nr] = base;
    if (script->nr++ == script->fails_at || (script->fails_at == -2 && !base))
        return np_err_set(err, script->code, "as planned");
    *ret_rate = 1000 * (base ? 1 : script->factor);
    return 0;
}

static int tune_script(struct script *script, struct np_tuned *ret_tuned, struct np_err *err)
{
    const struct np_model model = plain_model();
    const struct np_tune_options options = {.noise = 0.02, .trial = scripted, .context = script};

    return np_tune(&model, &options, ret_tuned, err);
}

Test(tune, the_last_four_run_in_turn)
{
    struct script script = {.factor = 1.1, .fails_at = -1};
    struct np_tuned tuned;

    cr_assert_eq(tune_script(&script, &tuned, NULL), 0);
    const bool *last = &script.base[tuned.nr_trials - 4];
    cr_assert(script.base[0] && last[0] && !last[1] && !last[2] && last[3]);
    cr_assert(tuned.better && !tuned.beyond);
    cr_assert_float_eq(tuned.best_rate / tuned.base_rate, 1.1, 1e-9);
}

static int first_of_all(
    void *context, const struct np_knobs *knobs, double *ret_rate, struct np_err *err)
{
    struct np_knobs *tried = context;

    (void)err;
    if (tried[0].readers == 0 || tried[1].readers == 0)
        tried[tried[0].readers != 0] = *knobs;
    *ret_rate = 1000;
    return 0;
}

Test(tune, the_verdicts_advice_is_tried_first)
{
    const struct np_model model = plain_model();
    struct np_knobs advised = model.knobs, tried[2] = {{0}};
    struct np_tuned tuned;

    advised.prefetch = 5;
    const struct np_tune_options options = {
        .noise = 0.02, .trial = first_of_all, .context = tried, .advised = &advised};
    cr_assert_eq(np_tune(&model, &options, &tuned, NULL), 0);
    cr_assert(np_tune_same(&model.knobs, &tried[0]));
    cr_assert(np_tune_same(&advised, &tried[1]));
}

Test(tune, a_gain_within_the_noise_changes_nothing)
{
    const struct np_model model = plain_model();

    for (int i = 0; i < 2; i++) {
        struct script script = {.factor = i ? 0.9 : 1.012, .fails_at = -1};
        struct np_tuned tuned;

        cr_assert_eq(tune_script(&script, &tuned, NULL), 0);
        cr_assert(!tuned.better && tuned.best_rate == tuned.base_rate);
        cr_assert(np_tune_same(&model.knobs, &tuned.best));
    }
}

Test(tune, a_setting_that_cannot_work_is_skipped)
{
    struct script script = {.factor = 1.1, .fails_at = -2, .code = -ENOMEM};
    struct np_tuned tuned;
    struct np_err err = {0};

    cr_assert_eq(tune_script(&script, &tuned, &err), 0);
    cr_assert(!tuned.better && err.code == 0 && tuned.nr_trials > 1);
    cr_assert(tuned.trials[1].rate == 0);
}

Test(tune, other_errors_end_it)
{
    for (int at = 0; at < 4; at++) {
        struct script script = {.factor = 1.1, .fails_at = at, .code = at ? -EINTR : -ENOMEM};
        struct np_tuned tuned;
        struct np_err err = {0};

        cr_assert_eq(tune_script(&script, &tuned, &err), script.code);
        cr_assert_str_eq(err.text, "as planned");
        cr_assert_eq(script.nr, at + 1);
    }
}

/* plain_model() with one read in flight and two batches of 32 ahead. */
#define MIN_BYTES (2 * 32 * 40000 + (10 << 20) / 1000)

Test(tune, a_cap_below_the_loaders_minimum_is_an_error)
{
    const struct np_model model = plain_model();
    struct script script = {.factor = 1.1, .fails_at = -1};
    struct np_tune_options options = {
        .max_memory = MIN_BYTES - 1, .noise = 0.02, .trial = scripted, .context = &script};
    struct np_tuned tuned;
    struct np_err err = {0};

    cr_assert_eq(np_tune(&model, &options, &tuned, &err), -ERANGE);
    cr_assert_eq(err.code, -ERANGE);
    cr_assert_not_null(strstr(err.text, "--max-memory: the loader needs at least 2511K"));
    cr_assert_eq(script.nr, 0);
    options.max_memory = 2511 << 10; /* as given */
    cr_assert_eq(np_tune(&model, &options, &tuned, NULL), 0);
    cr_assert_eq(script.nr, tuned.nr_trials);
}

Test(tune, a_cap_that_only_one_reader_meets_is_obeyed)
{
    const struct np_model model = plain_model();
    struct script script = {.factor = 1.1, .fails_at = -1};
    const struct np_tune_options options = {
        .max_memory = MIN_BYTES, .noise = 0.02, .trial = scripted, .context = &script};
    struct np_tuned tuned;

    cr_assert_eq(np_tune(&model, &options, &tuned, NULL), 0);
    cr_assert(tuned.beyond && tuned.nr_trials > 0);
    for (int i = 0; i < tuned.nr_trials; i++)
        cr_assert_leq(np_tune_memory(&tuned.trials[i].knobs), MIN_BYTES);
}

/* The default, half of the free memory, is not a user's limit. */
Test(tune, little_free_memory_is_no_error)
{
    struct np_model model = plain_model();
    struct script script = {.factor = 1.1, .fails_at = -1};
    const struct np_tune_options options = {.noise = 0.02, .trial = scripted, .context = &script};
    struct np_tuned tuned;

    model.knobs.free_bytes = 1000;
    cr_assert_eq(np_tune(&model, &options, &tuned, NULL), 0);
    cr_assert_eq(tuned.nr_trials, 1);
}

Test(tune, settings_name_what_differs)
{
    const struct np_model model = plain_model();
    struct np_knobs to = model.knobs;
    struct np_tune_setting settings[NP_TUNE_KEYS];

    to.depth = 16;
    snprintf(to.cache, sizeof(to.cache), "encoded");
    cr_assert_eq(np_tune_settings(&model.knobs, &to, settings), 2);
    cr_assert_str_eq(settings[0].key, "loader.depth");
    cr_assert_str_eq(settings[0].to, "16");
    cr_assert_str_eq(settings[1].key, "loader.cache");
    cr_assert_str_eq(settings[1].to, "encoded");
    cr_assert(np_tune_set(&to, "loader.depth", settings[0].from) &&
              np_tune_set(&to, "loader.cache", settings[1].from));
    cr_assert(np_tune_same(&model.knobs, &to) && !np_tune_set(&to, "loader.batch", "1"));
}
