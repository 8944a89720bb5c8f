/* Only formats: the figures and the verdict come from the model. */
#include "daemon/analysis/words.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"

static const struct np_words none = {""};

static struct np_words words(const char *format, ...) __attribute__((format(printf, 1, 2)));
static struct np_words words(const char *format, ...)
{
    struct np_words words;
    va_list args;

    va_start(args, format);
    vsnprintf(words.text, sizeof(words.text), format, args);
    va_end(args);
    return words;
}

struct np_words np_words_count(double value)
{
    const struct np_words digits = words("%.0f", value);
    struct np_words grouped;
    int at = 0;

    for (int i = 0, n = (int)strlen(digits.text); i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            grouped.text[at++] = ',';
        grouped.text[at++] = digits.text[i];
    }
    grouped.text[at] = '\0';
    return grouped;
}

struct np_words np_words_rate(double rate)
{
    if (!isfinite(rate))
        return words("no limit");
    if (rate < 0 || rate >= 1e12)
        return words("%.3g", rate);
    return rate < 9.995   ? words("%.2f", rate)
           : rate < 99.95 ? words("%.1f", rate)
                          : np_words_count(rate);
}

/* Three digits at most, without zeros at the end of a fraction. */
static struct np_words three_digits(double value)
{
    return value < 9.95  ? words("%.1f", value)
           : value < 1e9 ? words("%.0f", value)
                         : words("%.3g", value);
}

struct np_words np_words_time(double seconds)
{
    if (seconds < 1e-3)
        return words("%.20s µs", three_digits(seconds * 1e6).text);
    if (seconds < 1)
        return words("%.20s ms", three_digits(seconds * 1e3).text);
    return words("%.20s s", three_digits(seconds).text);
}

struct np_words np_words_share(double share)
{
    const double percent = share * 100;

    if (!isfinite(percent) || fabs(percent) >= 1e6)
        return words("-");
    return words("%.*f%%", fabs(percent) < 9.95 && percent != 0, percent);
}

struct np_words np_words_size(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units); unit++)
        value /= 1024;
    if (unit == 0)
        return words("%.0f bytes", value);
    return words("%.20s %s", three_digits(value).text, units[unit]);
}

struct np_words np_words_gain(double gain)
{
    if (!isfinite(gain) || gain >= 1e6)
        return words("no limit");
    return words(gain < 9.995 ? "%.2fx" : "%.0fx", gain);
}

struct np_words np_words_spread(double gain, double noise)
{
    const double spread = gain * noise;

    if (!(noise > 0) || !isfinite(spread))
        return none;
    return words(gain < 9.995 ? " ±%.2f" : " ±%.0f", fmin(spread, 1e6));
}

struct np_words np_words_loud(enum np_stage stage)
{
    struct np_words loud = words("%s", np_stage_names[stage]);

    for (char *at = loud.text; *at; at++)
        *at = (char)toupper((unsigned char)*at);
    return loud;
}

/* The reader stage whose row has the bar for all CPU stages of the readers. */
static enum np_stage named_reader_stage(const struct np_profile *profile)
{
    enum np_stage named = NP_STAGE_DECODE;

    if (profile->verdict.kind == NP_LIMITED && np_model_shares(profile->verdict.limiter))
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
                          : -1; /* a batch was ready */
    default: return -1;
    }
}

/* Checkpoints stop everything and hand-over slows everything: neither has a rate of its own. If
 * checkpoints are the limiter, their bar is the run's rate. */
static double ceiling_of(const struct np_profile *profile, enum np_stage stage, bool limiter)
{
    if (stage == NP_STAGE_CHECKPOINT)
        return limiter ? profile->model.rate : INFINITY;
    if (stage == NP_STAGE_BATCH && !limiter) /* hand-over lowers each rate by a share */
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
        bool there =
            np_model_shares(stage) || stage == NP_STAGE_BATCH ? profile->model.thread_s[s] > 0
            : stage == NP_STAGE_CHECKPOINT
                ? profile->model.checkpoint_share > 0 || profile->observation.nr_checkpoints > 0
                : isfinite(ceiling);

        if (!there && !limiter)
            continue;
        ret_rows[n++] = (struct np_words_row){
            .stage = stage,
            .name = np_stage_names[s],
            .limiter = limiter,
            .shares = np_model_shares(stage) && stage != named,
            .ceiling = np_model_shares(stage) && stage != named ? INFINITY : ceiling,
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
    double max = profile->model.rate;

    for (int i = 0; i < nr_rows; i++)
        if (isfinite(rows[i].ceiling) && rows[i].ceiling > max)
            max = rows[i].ceiling;
    if (max > 5 * profile->model.rate && profile->model.rate > 0)
        max = 5 * profile->model.rate;
    return max > 0 ? max : 1;
}

static void sort_parts(struct np_words_part *parts, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && parts[j].share > parts[j - 1].share; j--) {
            struct np_words_part part = parts[j];
            parts[j] = parts[j - 1];
            parts[j - 1] = part;
        }
}

/* By the device's clock if it has one, else (a device that uses the host's memory) by the
 * trainer's. */
static double compute_s(const struct np_observation *observation)
{
    if (observation->feed.nr_batches > 0)
        return (double)observation->feed.compute_ns * 1e-9;
    return observation->stages[NP_STAGE_STEP].work_s;
}

int np_words_parts(const struct np_profile *profile, struct np_words_part ret_parts[NP_WORDS_PARTS])
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
    const struct np_observation *seen = &profile->observation;
    const double idle = profile->model.cores - seen->process_cpu_s / fmax(seen->seconds, 1e-9);
    const bool takes_cores = fabs(advice->cores) >= 0.05, takes_memory = advice->memory_bytes > 0;
    const struct np_words cores = takes_cores ? words("%+.1f cores", advice->cores) : none;
    const struct np_words left =
        advice->cores >= 0.05 && isfinite(idle) ? words("; %.1f idle", fmax(0, idle)) : none;

    snprintf(text, bytes, "%s%s%s%s%s", cores.text, takes_cores && takes_memory ? ", " : "",
        takes_memory ? "+" : "", takes_memory ? np_words_size(advice->memory_bytes).text : "",
        left.text);
}

static void checkpoint_note(const struct np_profile *profile, char *text, size_t bytes)
{
    const double each = profile->observation.checkpoint_each_s,
                 steps = profile->knobs.checkpoint_steps;
    const struct np_words every = steps >= 1 ? words(" every %.0f steps", fmin(steps, 1e9)) : none;

    snprintf(text, bytes, "%s%s%s%s of the time", each > 0 ? np_words_time(each).text : "",
        every.text, each > 0 || steps >= 1 ? " = " : "",
        np_words_share(profile->model.checkpoint_share).text);
}

void np_words_note(
    const struct np_profile *profile, const struct np_words_row *row, char *text, size_t bytes)
{
    text[0] = '\0';
    if (row->shares)
        snprintf(text, bytes, "in the same %d reader%s", profile->knobs.readers,
            profile->knobs.readers == 1 ? "" : "s");
    else if (row->stage == NP_STAGE_CHECKPOINT)
        checkpoint_note(profile, text, bytes);
    else if (row->stage == NP_STAGE_BATCH && profile->model.coupling < 1)
        snprintf(
            text, bytes, "hand-over costs %s", np_words_share(1 - profile->model.coupling).text);
}

void np_words_trust(const struct np_profile *profile, char *text, size_t bytes)
{
    const double noise = profile->noise, cost = profile->overhead;

    snprintf(text, bytes, "%s%s%s · profiler's cost %s · other tenants %.1f cores",
        noise > 0 ? "noise ±" : "noise not measured", noise > 0 ? np_words_share(noise).text : "",
        noise > 0 ? " (A/A)" : "", cost != 0 ? np_words_share(cost).text : "not measured",
        fmin(profile->observation.other_cores, 1e6));
}
