/* The order of a profile's measurements: a trial and the parts, then a first verdict; more
 * trials, then the final verdict; then the optional ones. model.c and verdict.c evaluate them.
 * Main thread. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/analysis/model.h"
#include "daemon/profile/trial.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define AGAIN_S 3.0 /* each trial after the first */
#define PART_S  1.0
/* `bench loader` always makes that many batches: if that takes too long, the loader is not
 * measured. */
#define LOADER_BATCHES 64
#define MAX_LOADER_S   5.0
#define NR_TRIALS      3
#define MAX_TRIALS     6 /* if three differ too much for a verdict */

struct measuring {
    struct np_rig *rig;
    struct np_profile *profile;
    struct np_ceilings parts; /* as measured */
    struct np_observation trials[MAX_TRIALS];
    int nr_trials;
};

static int trial(struct measuring *m, double seconds, struct np_err *err)
{
    const struct np_trial_options options = {.warmup_s = NP_WARMUP_S,
        .seconds = seconds,
        .ribbon = m->profile->ribbon,
        .nr_ribbon = &m->profile->nr_ribbon};

    m->profile->nr_ribbon = 0; /* the report shows the last trial's */
    int code = np_trial_run(m->rig, &options, &m->trials[m->nr_trials], err);

    m->nr_trials += code == 0;
    return code;
}

/* Leaves out a part that cannot be measured (a synthetic set has no reads). */
static void part(struct measuring *m, enum np_part part, double *ret_rate)
{
    struct np_err unmeasured = {0};

    if (np_trial_part(m->rig, part, PART_S, ret_rate, &unmeasured) < 0)
        *ret_rate = 0;
}

static int compare_rates(const void *left, const void *right)
{
    const double a = ((const struct np_observation *)left)->images_per_second;
    const double b = ((const struct np_observation *)right)->images_per_second;

    return (a > b) - (a < b);
}

/* The largest relative difference of n sorted trials from their median. */
static double noise_of(const struct np_observation *trials, int n)
{
    const double middle = trials[n / 2].images_per_second;

    return fmax(
        1 - trials[0].images_per_second / middle, trials[n - 1].images_per_second / middle - 1);
}

/* Uses all of three trials; of more, the majority that lies closest together, because a
 * disturbance of a single trial is not the run's. Their median is reported; the largest
 * difference from it is the noise. */
static void take_trials(struct measuring *m)
{
    struct np_profile *profile = m->profile;
    const int n = m->nr_trials, most = n > NR_TRIALS ? n / 2 + 1 : n;
    int from = 0;

    qsort(m->trials, (size_t)n, sizeof(*m->trials), compare_rates);
    for (int i = 1; i + most <= n; i++)
        if (noise_of(m->trials + i, most) < noise_of(m->trials + from, most))
            from = i;
    profile->observation = m->trials[from + most / 2];
    profile->noise = noise_of(m->trials + from, most);
    profile->knobs = m->rig->knobs;
}

static void think(struct measuring *m)
{
    struct np_profile *profile = m->profile;

    take_trials(m);
    profile->ceilings = m->parts;
    np_profile_think(profile);
}

#define PRICE_LAPS      200000
#define PRICE_WARMUP_NS 30000000u

/* Measures the seconds per count. It counts laps as readers do: the counter is set by the clock
 * after some ms, and only read after that. */
static double price_of_lap(void)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "price", NULL);
    const uint64_t warm_ns = np_now_ns() + PRICE_WARMUP_NS;

    while (np_now_ns() < warm_ns)
        np_stat_lap(block, NP_STAGE_DECODE, 1, 0);
    const uint64_t start = np_now_ns();
    for (int i = 0; i < PRICE_LAPS; i++)
        np_stat_lap(block, NP_STAGE_DECODE, 1, 0);
    const double each = (double)(np_now_ns() - start) * 1e-9 / PRICE_LAPS;
    np_stat_free(stat);
    return each;
}

/* The cost of the counters: seconds per count here, times the number of counts. */
static double overhead(const struct np_observation *observation)
{
    const double each = price_of_lap();
    uint64_t items = 0;

    for (int s = 0; s < NP_NR_STAGES; s++)
        items += observation->stages[s].items;
    return each * (double)items / (observation->seconds * observation->nr_readers);
}

static int stubbed_trial(
    struct measuring *m, unsigned stubs, struct np_observation *ret_seen, struct np_err *err)
{
    const struct np_trial_options options = {
        .warmup_s = NP_WARMUP_S, .seconds = NP_TRIAL_S, .stubs = stubs};

    return np_trial_run(m->rig, &options, ret_seen, err);
}

/* Leaves out each stage in turn. Measures the unchanged run before and after, so that a machine
 * that slows down in between does not make the gains look smaller. */
static int stubbed(struct measuring *m, struct np_err *err)
{
    struct np_profile *profile = m->profile;
    struct np_observation seen, before, after;
    struct np_deep deep = {0};
    int code = stubbed_trial(m, 0, &before, err);

    for (int s = 0; s < NP_NR_STAGES && code == 0; s++) {
        if (profile->observation.stages[s].items == 0 || s == NP_STAGE_CHECKPOINT)
            continue;
        code = stubbed_trial(m, 1u << s, &seen, err);
        if (code == 0)
            np_deep_add(&deep, (enum np_stage)s, &seen, &profile->ceilings, &profile->knobs);
    }
    if (code == 0)
        code = stubbed_trial(m, 0, &after, err);
    profile->deep = code == 0;
    if (code == 0) {
        const double base = (before.images_per_second + after.images_per_second) / 2;

        np_deep_judge(&deep, base, &profile->model, profile->noise, &profile->verdict);
        for (int i = 0; i < NP_NR_STAGES; i++)
            profile->stubbed[i].rate = deep.rate[i] * profile->model.rate / base;
        np_profile_curve(profile);
    }
    return code;
}

/* Measures the advice and the unchanged run in turn, twice. Advice on checkpoint.every cannot be
 * tried: a trial is too short to contain checkpoints. */
static int verify(struct measuring *m, struct np_err *err)
{
    const struct np_advice *advice = &m->profile->verdict.advice;
    struct np_overrides with = {.nr_texts = 1};
    char text[128];
    const bool caches = strcmp(advice->key, "loader.cache") == 0;
    double sum = 0, base = 0;
    int code = 0;

    if (!*advice->key || strcmp(advice->key, "checkpoint.every") == 0)
        return 0;
    snprintf(text, sizeof(text), "%s=%s", advice->key, advice->to);
    with.texts[0] = text;
    for (int i = 0; i < 4 && code == 0; i++) { /* A B B A */
        const bool applied = i == 1 || i == 2;
        const struct np_trial_options options = {.warmup_s = NP_WARMUP_S,
            .fill_s = applied && caches ? NP_FILL_S : 0,
            .seconds = NP_TRIAL_S,
            .overrides = applied ? &with : NULL};
        struct np_observation seen;

        code = np_trial_run(m->rig, &options, &seen, err);
        *(applied ? &sum : &base) += code == 0 ? seen.images_per_second : 0;
        if (applied && caches && m->rig->knobs.cache_fills) {
            m->profile->verify_fills = true;
            return code;
        }
    }
    m->profile->verified = code == 0;
    if (code == 0 && base > 0)
        m->profile->verified_rate = m->profile->model.rate * sum / base;
    return code;
}

static int measure_again(struct measuring *m, struct np_err *err)
{
    const struct np_profile *profile = m->profile;
    int code = 0;

    while (code == 0 && (m->nr_trials < NR_TRIALS ||
                            (m->nr_trials < MAX_TRIALS && profile->noise > NP_MAX_NOISE))) {
        code = trial(m, AGAIN_S, err);
        if (code == 0 && m->nr_trials >= NR_TRIALS)
            think(m);
    }
    return code;
}

/* Figures that contradict each other are a bug: the profile gets no verdict. With
 * NNPIPE_PROFILE_STRICT, which tests set, that is an error. */
static int doubt(struct np_profile *profile, struct np_err *err)
{
    struct np_profile_verdict *verdict = &profile->verdict;
    char what[192];

    if (!np_profile_contradicts(profile, what, sizeof(what)))
        return 0;
    if (getenv("NNPIPE_PROFILE_STRICT"))
        return np_err_set(err, -EPROTO, "the figures contradict each other: %s", what);
    verdict->kind = NP_INCONCLUSIVE;
    verdict->advice.key[0] = '\0';
    profile->verified = false;
    snprintf(verdict->reason, sizeof(verdict->reason),
        "the figures contradict each other (%s): measure again", what);
    return 0;
}

int np_profile_measure(struct np_rig *rig, const struct np_measure_options *options,
    struct np_profile *profile, struct np_err *err)
{
    struct measuring m = {.rig = rig, .profile = profile};
    const uint64_t start = np_now_ns();
    int code;

    profile->ribbon = np_alloc_array(NP_PROFILE_MAX_RIBBON, sizeof(*profile->ribbon));
    code = trial(&m, NP_TRIAL_S, err);
    if (code < 0)
        return code;
    part(&m, NP_PART_READ_WARM, &m.parts.read_warm);
    if (LOADER_BATCHES * (double)rig->knobs.batch < MAX_LOADER_S * m.trials[0].images_per_second)
        part(&m, NP_PART_LOADER, &m.parts.loader);
    part(&m, NP_PART_STEP, &m.parts.step);
    think(&m);
    if (options->so_far)
        options->so_far(options->context, profile, (double)(np_now_ns() - start) * 1e-9);
    code = measure_again(&m, err);
    if (code < 0)
        return code;
    /* Last, because it drops the set from the page cache: later trials would read from the disk. */
    part(&m, NP_PART_READ_COLD, &m.parts.read_cold);
    if (profile->verdict.limiter == NP_STAGE_READ)
        part(&m, NP_PART_READ_DEEP, &m.parts.read_deep);
    think(&m);
    profile->overhead = overhead(&profile->observation);
    if (options->deep)
        code = stubbed(&m, err);
    if (code == 0 && options->verify)
        code = verify(&m, err);
    return code ? code : doubt(profile, err);
}
