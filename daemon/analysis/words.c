/* See words.h. Nothing here measures or decides: the verdict is the model's, this puts it in words. */
#include "daemon/analysis/words.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"

/* --- numbers ---------------------------------------------------------------------------------- */

/* 1234567 -> "1,234,567" */
static void group_digits(double value, char text[NP_TELLING_BYTES])
{
    char digits[NP_TELLING_BYTES];
    int n = snprintf(digits, sizeof(digits), "%.0f", value), at = 0;

    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
}

char *np_words_rate(double rate, char text[NP_TELLING_BYTES])
{
    if (!isfinite(rate))
        snprintf(text, NP_TELLING_BYTES, "no limit");
    else if (rate < 0 || rate >= 1e12)
        snprintf(text, NP_TELLING_BYTES, "%.3g", rate);
    else if (rate < 99.95)
        snprintf(text, NP_TELLING_BYTES, rate < 9.995 ? "%.2f" : "%.1f", rate);
    else
        group_digits(rate, text);
    return text;
}

/* Three digits at most, without a point that says nothing. */
static void three_digits(double value, char text[NP_TELLING_BYTES])
{
    snprintf(text, NP_TELLING_BYTES, value < 9.95 ? "%.1f" : value < 1e9 ? "%.0f" : "%.3g", value);
}

char *np_words_time(double seconds, char text[NP_TELLING_BYTES])
{
    double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
    char digits[NP_TELLING_BYTES];

    three_digits(value, digits);
    snprintf(text, NP_TELLING_BYTES, "%.20s %s", digits,
        seconds < 1e-3 ? "µs"
        : seconds < 1  ? "ms"
                       : "s");
    return text;
}

char *np_words_share(double share, char text[NP_TELLING_BYTES])
{
    double percent = share * 100;

    if (!isfinite(percent) || fabs(percent) >= 1e6)
        snprintf(text, NP_TELLING_BYTES, "-");
    else
        snprintf(text, NP_TELLING_BYTES, fabs(percent) < 9.95 && percent != 0 ? "%.1f%%" : "%.0f%%",
            percent);
    return text;
}

char *np_words_size(uint64_t bytes, char text[NP_TELLING_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    char digits[NP_TELLING_BYTES];

    for (; value >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units); unit++)
        value /= 1024;
    three_digits(value, digits);
    if (unit == 0)
        snprintf(digits, sizeof(digits), "%.0f", value);
    snprintf(text, NP_TELLING_BYTES, "%.20s %s", digits, units[unit]);
    return text;
}

char *np_words_gain(double gain, char text[NP_TELLING_BYTES])
{
    if (!isfinite(gain) || gain >= 1e6)
        snprintf(text, NP_TELLING_BYTES, "no limit");
    else
        snprintf(text, NP_TELLING_BYTES, gain < 9.995 ? "%.2fx" : "%.0fx", gain);
    return text;
}

char *np_words_spread(double gain, double noise, char text[NP_TELLING_BYTES])
{
    double spread = gain * noise;

    text[0] = '\0';
    if (noise > 0 && isfinite(spread))
        snprintf(text, NP_TELLING_BYTES, gain < 9.995 ? " ±%.2f" : " ±%.0f", fmin(spread, 1e6));
    return text;
}

char *np_words_loud(enum np_stage stage, char text[NP_TELLING_BYTES])
{
    size_t n = 0;

    for (const char *name = np_stage_names[stage]; name[n] && n + 1 < NP_TELLING_BYTES; n++)
        text[n] = (char)toupper((unsigned char)name[n]);
    text[n] = '\0';
    return text;
}

/* --- rows ------------------------------------------------------------------------------------- */

static bool in_readers(enum np_stage stage)
{
    return stage == NP_STAGE_DECOMPRESS || stage == NP_STAGE_DECODE || stage == NP_STAGE_AUGMENT;
}

/* Of the readers' CPU stages the one that the ceiling is named after. */
static enum np_stage named_reader_stage(const struct np_profile *profile)
{
    enum np_stage named = NP_STAGE_DECODE;

    if (profile->verdict.kind == NP_LIMITED && in_readers(profile->verdict.limiter))
        return profile->verdict.limiter;
    for (int s = NP_STAGE_DECOMPRESS; s <= NP_STAGE_AUGMENT; s++)
        if (profile->model.thread_s[s] > profile->model.thread_s[named])
            named = (enum np_stage)s;
    return named;
}

static double queue_of(const struct np_profile *profile, enum np_stage stage)
{
    const struct np_observation *observation = &profile->observation;
    double device = (double)(observation->feed.compute_ns + observation->feed.idle_ns);

    switch (stage) {
    case NP_STAGE_READ: return observation->reads_full;
    case NP_STAGE_BATCH: return observation->ring_full;
    case NP_STAGE_COPY:
        return device > 0 ? (double)observation->feed.compute_ns / device
                          : -1; /* a batch was there */
    default: return -1;
    }
}

/* A checkpoint stops everything, and handing over slows everything: neither has a rate of its own. Where a
 * checkpoint limits, the bar is the run's. */
static double ceiling_of(const struct np_profile *profile, enum np_stage stage, bool limiter)
{
    if (stage == NP_STAGE_CHECKPOINT)
        return limiter ? profile->model.rate : INFINITY;
    if (stage == NP_STAGE_BATCH && !limiter) /* hand-over costs every rate a share */
        return INFINITY;
    return np_model_ceiling(&profile->model, stage,
        profile->verdict.kind == NP_LIMITED ? profile->verdict.limiter : NP_NR_STAGES);
}

int np_words_rows(const struct np_profile *profile, struct np_words_row ret_rows[NP_NR_STAGES])
{
    enum np_stage named = named_reader_stage(profile);
    int n = 0;

    for (int s = 0; s < NP_NR_STAGES; s++) {
        enum np_stage stage = (enum np_stage)s;
        const bool limiter =
            profile->verdict.kind == NP_LIMITED && profile->verdict.limiter == stage;
        double ceiling = ceiling_of(profile, stage, limiter);
        bool there = in_readers(stage) || stage == NP_STAGE_BATCH ? profile->model.thread_s[s] > 0
                     : stage == NP_STAGE_CHECKPOINT ? profile->model.checkpoint_share > 0 ||
                                                          profile->observation.nr_checkpoints > 0
                                                    : isfinite(ceiling);

        if (!there && !limiter)
            continue;
        ret_rows[n++] = (struct np_words_row){
            .stage = stage,
            .name = np_stage_names[s],
            .limiter = limiter,
            .shares = in_readers(stage) && stage != named,
            .ceiling = in_readers(stage) && stage != named ? INFINITY : ceiling,
            .could_do = ceiling,
            .busy = stage == NP_STAGE_CHECKPOINT ? profile->model.checkpoint_share
                                                 : np_model_busy(&profile->model, stage),
            .queue = queue_of(profile, stage),
        };
    }
    return n;
}

double np_words_scale(
    const struct np_profile *profile, const struct np_words_row *rows, int nr_rows)
{
    double most = profile->model.rate;

    for (int i = 0; i < nr_rows; i++)
        if (isfinite(rows[i].ceiling) && rows[i].ceiling > most)
            most = rows[i].ceiling;
    if (most > 5 * profile->model.rate && profile->model.rate > 0)
        most = 5 * profile->model.rate;
    return most > 0 ? most : 1;
}

/* --- sentences -------------------------------------------------------------------------------- */

static void sort_parts(struct np_words_part *parts, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && parts[j].share > parts[j - 1].share; j--) {
            struct np_words_part part = parts[j];
            parts[j] = parts[j - 1];
            parts[j - 1] = part;
        }
}

/* The device's own clock where it has one; on a device that reads the host's memory, the trainer's. */
static double compute_s(const struct np_observation *observation)
{
    if (observation->feed.nr_batches > 0)
        return (double)observation->feed.compute_ns * 1e-9;
    return observation->stages[NP_STAGE_STEP].work_s;
}

int np_words_parts(
    const struct np_profile *profile, struct np_words_part ret_parts[NP_TELLING_PARTS])
{
    const struct np_observation *observation = &profile->observation;
    double seconds = observation->seconds, rest = 1;
    int n = 0;

    if (!(seconds > 0))
        return 0;
    for (int s = 0; s < NP_NR_STAGES; s++)
        if (observation->blame_s[s] > 0)
            ret_parts[n++] = (struct np_words_part){
                NP_WHERE_WAIT, (enum np_stage)s, observation->blame_s[s] / seconds};
    if (observation->checkpoint_s > 0)
        ret_parts[n++] = (struct np_words_part){
            NP_WHERE_CHECKPOINT, NP_STAGE_CHECKPOINT, observation->checkpoint_s / seconds};
    for (int i = 0; i < n; i++)
        rest -= ret_parts[i].share;
    double compute = fmax(0, fmin(compute_s(observation) / seconds, rest));
    ret_parts[n++] = (struct np_words_part){NP_WHERE_COMPUTE, NP_STAGE_STEP, compute};
    if (rest - compute > 0.005)
        ret_parts[n++] = (struct np_words_part){NP_WHERE_ELSE, NP_STAGE_STEP, rest - compute};
    sort_parts(ret_parts, n);
    return n;
}

void np_words_cost(const struct np_profile *profile, char *text, size_t bytes)
{
    const struct np_advice *advice = &profile->verdict.advice;
    double idle = profile->model.cores -
                  profile->observation.process_cpu_s / fmax(profile->observation.seconds, 1e-9);
    char cores[32] = "", size[NP_TELLING_BYTES];

    text[0] = '\0';
    if (fabs(advice->cores) >= 0.05)
        snprintf(cores, sizeof(cores), "%+.1f cores", advice->cores);
    if (cores[0] && advice->memory_bytes)
        snprintf(text, bytes, "%s, +%s", cores, np_words_size(advice->memory_bytes, size));
    else if (advice->memory_bytes)
        snprintf(text, bytes, "+%s", np_words_size(advice->memory_bytes, size));
    else
        snprintf(text, bytes, "%s", cores);
    if (advice->cores >= 0.05 && isfinite(idle) && strlen(text) < bytes)
        snprintf(text + strlen(text), bytes - strlen(text), "; %.1f idle", fmax(0, idle));
}

static void tell_checkpoints(const struct np_profile *profile, char *text, size_t bytes)
{
    char each[NP_TELLING_BYTES] = "", share[NP_TELLING_BYTES], every[48] = "";

    if (profile->observation.checkpoint_each_s > 0)
        np_words_time(profile->observation.checkpoint_each_s, each);
    if (profile->knobs.checkpoint_steps >= 1)
        snprintf(
            every, sizeof(every), " every %.0f steps", fmin(profile->knobs.checkpoint_steps, 1e9));
    np_words_share(profile->model.checkpoint_share, share);
    snprintf(
        text, bytes, "%s%s%s%s of the time", each, every, each[0] || every[0] ? " = " : "", share);
}

void np_words_note(
    const struct np_profile *profile, const struct np_words_row *row, char *text, size_t bytes)
{
    char share[NP_TELLING_BYTES];

    text[0] = '\0';
    if (row->shares)
        snprintf(text, bytes, "in the same %d reader%s", profile->knobs.readers,
            profile->knobs.readers == 1 ? "" : "s");
    else if (row->stage == NP_STAGE_CHECKPOINT)
        tell_checkpoints(profile, text, bytes);
    else if (row->stage == NP_STAGE_BATCH && profile->model.coupling < 1)
        snprintf(
            text, bytes, "hand-over costs %s", np_words_share(1 - profile->model.coupling, share));
}

void np_words_trust(const struct np_profile *profile, char *text, size_t bytes)
{
    char noise[NP_TELLING_BYTES], cost[NP_TELLING_BYTES];
    char noise_text[64] = "noise not measured", cost_text[64] = "profiler's cost not measured";

    if (profile->noise > 0)
        snprintf(noise_text, sizeof(noise_text), "noise ±%s (A/A)",
            np_words_share(profile->noise, noise));
    if (profile->overhead != 0)
        snprintf(cost_text, sizeof(cost_text), "profiler's cost %s",
            np_words_share(profile->overhead, cost));
    snprintf(text, bytes, "%s · %s · other tenants %.1f cores", noise_text, cost_text,
        fmin(profile->observation.other_cores, 1e6));
}
