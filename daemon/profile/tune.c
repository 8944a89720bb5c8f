/* The model ranks the settings. The best of each kind of cache is measured; then one knob after
 * the other is moved from the best so far, as long as that gains. Last, the winner and the
 * unchanged config run in turn (A B B A), and the winner is taken only if it is better beyond
 * noise. */
#include "daemon/profile/tune.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/analysis/model.h"

#define NR_LAST       4 /* trials in turn at the end */
#define NR_SEARCH     (NP_TUNE_TRIALS - NR_LAST)
#define MIN_GAIN      0.01
#define MAX_PREFETCH  32
#define FAR_FROM_HOME 0.004 /* of the predicted rate, for each doubling of a knob */
#define HOPELESS      0.8   /* prediction / best: the model's error is smaller than that */
#define HARDLY        0.98  /* the same for depth and prefetch, where more is seldom worse */
#define HELD_BACK     0.4   /* of the best: a cache that slow cannot win with other numbers */
#define NEAR_DISK     4     /* times the disk's rate: closer to it, reads may matter */

enum move { MOVE_READERS, MOVE_DEPTH, MOVE_PREFETCH, MOVE_IO, NR_MOVES };

static const char *const kinds[] = {"none", "encoded", "decoded", "device"};

struct search {
    const struct np_model *model;
    const struct np_tune_options *options;
    struct np_tuned *tuned;
    struct np_err *err;
    int max_readers;
    uint64_t max_memory;
    int best; /* index of a trial */
};

/* --- knobs --------------------------------------------------------------------------------- */

static bool caches(const struct np_knobs *knobs, const char *kind)
{
    return strcmp(knobs->cache, kind) == 0;
}

uint64_t np_tune_memory(const struct np_knobs *knobs)
{
    const uint64_t batches = (uint64_t)knobs->prefetch * (uint64_t)knobs->batch;
    const uint64_t reads = (uint64_t)knobs->readers * (uint64_t)knobs->depth;
    const uint64_t each = knobs->nr_samples ? knobs->set_bytes / knobs->nr_samples : 0;
    const uint64_t cache = caches(knobs, "encoded") ? knobs->set_bytes
                           : caches(knobs, "none")  ? 0
                                                    : knobs->picture_bytes * knobs->nr_samples;

    return cache + batches * knobs->picture_bytes + reads * each;
}

static bool allowed(const struct search *s, const struct np_knobs *knobs)
{
    return knobs->readers >= 1 && knobs->readers <= s->max_readers && knobs->depth >= 1 &&
           knobs->depth <= NP_MAX_DEPTH && knobs->prefetch >= 2 &&
           knobs->prefetch <= MAX_PREFETCH && np_tune_memory(knobs) <= s->max_memory;
}

#define PLACE(knob) offsetof(struct np_knobs, knob)
#define BYTES(knob) sizeof(((struct np_knobs *)0)->knob)
static const struct {
    const char *name;
    size_t place, bytes; /* bytes of a text; 0: an int */
} keys[NP_TUNE_KEYS] = {
    {"loader.readers", PLACE(readers), 0},
    {"loader.depth", PLACE(depth), 0},
    {"loader.prefetch", PLACE(prefetch), 0},
    {"loader.cache", PLACE(cache), BYTES(cache)},
    {"loader.io", PLACE(io), BYTES(io)},
};

static void value_of(const struct np_knobs *knobs, int key, char value[16])
{
    const char *at = (const char *)knobs + keys[key].place;

    if (keys[key].bytes)
        snprintf(value, 16, "%s", at);
    else
        snprintf(value, 16, "%d", *(const int *)at);
}

int np_tune_settings(const struct np_knobs *from, const struct np_knobs *to,
    struct np_tune_setting ret_settings[NP_TUNE_KEYS])
{
    int n = 0;

    for (int i = 0; i < NP_TUNE_KEYS; i++) {
        struct np_tune_setting *setting = &ret_settings[n];

        setting->key = keys[i].name;
        value_of(from, i, setting->from);
        value_of(to, i, setting->to);
        n += strcmp(setting->from, setting->to) != 0;
    }
    return n;
}

bool np_tune_same(const struct np_knobs *a, const struct np_knobs *b)
{
    struct np_tune_setting settings[NP_TUNE_KEYS];

    return np_tune_settings(a, b, settings) == 0;
}

bool np_tune_set(struct np_knobs *knobs, const char *key, const char *value)
{
    for (int i = 0; i < NP_TUNE_KEYS; i++) {
        char *at = (char *)knobs + keys[i].place;

        if (strcmp(keys[i].name, key) != 0)
            continue;
        if (keys[i].bytes)
            snprintf(at, keys[i].bytes, "%s", value);
        else
            *(int *)at = atoi(value);
        return true;
    }
    return false;
}

/* Reduces knobs to the caps, the most expensive first. */
static void clamp(const struct search *s, struct np_knobs *knobs)
{
    if (knobs->readers > s->max_readers)
        knobs->readers = s->max_readers;
    if (np_tune_memory(knobs) > s->max_memory && !caches(knobs, "none"))
        snprintf(knobs->cache, sizeof(knobs->cache), "none");
    while (np_tune_memory(knobs) > s->max_memory && knobs->prefetch > 2)
        knobs->prefetch--;
    while (np_tune_memory(knobs) > s->max_memory && knobs->depth > 1)
        knobs->depth--;
    while (np_tune_memory(knobs) > s->max_memory && knobs->readers > 1)
        knobs->readers--;
}

static int refuse_cap(const struct search *s, const struct np_knobs *least)
{
    const uint64_t kib = (np_tune_memory(least) + 1023) / 1024;

    return np_err_set(s->err, -ERANGE,
        "--max-memory: the loader needs at least %" PRIu64 "K (%d batches of %d, one read, no "
        "cache), not %" PRIu64 " bytes",
        kib, least->prefetch, least->batch, s->max_memory);
}

/* --- measuring ----------------------------------------------------------------------------- */

static double best_rate(const struct search *s)
{
    return s->tuned->trials[s->best].rate;
}

static const struct np_knobs *best_knobs(const struct search *s)
{
    return &s->tuned->trials[s->best].knobs;
}

static double distance(const struct np_knobs *a, const struct np_knobs *b)
{
    return fabs(log2((double)a->readers / b->readers)) + fabs(log2((double)a->depth / b->depth)) +
           fabs(log2((double)a->prefetch / b->prefetch)) + 2 * (strcmp(a->cache, b->cache) != 0) +
           2 * (strcmp(a->io, b->io) != 0);
}

static bool cannot_be_had(int code)
{
    return code == -EINVAL || code == -ENOMEM || code == -EOPNOTSUPP;
}

static int add_trial(struct search *s, const struct np_knobs *knobs)
{
    struct np_tuned *tuned = s->tuned;
    struct np_tune_trial *trial = &tuned->trials[tuned->nr_trials];
    int code;

    *trial =
        (struct np_tune_trial){.knobs = *knobs, .predicted = np_model_rate_with(s->model, knobs)};
    code = s->options->trial(s->options->context, knobs, &trial->rate, s->err);
    if (code < 0 && cannot_be_had(code) && !np_tune_same(knobs, &tuned->base)) {
        *s->err = (struct np_err){0};
        trial->rate = 0;
        code = 0;
    }
    tuned->nr_trials += code == 0;
    return code;
}

/* Makes one trial of the search, if the knobs are allowed and new, and a trial is left.
 * *ret_better: it is the best so far. */
static int try_knobs(struct search *s, const struct np_knobs *knobs, bool *ret_better)
{
    *ret_better = false;
    if (s->tuned->nr_trials >= NR_SEARCH || !allowed(s, knobs))
        return 0;
    for (int i = 0; i < s->tuned->nr_trials; i++)
        if (np_tune_same(knobs, &s->tuned->trials[i].knobs))
            return 0;
    int code = add_trial(s, knobs);
    const int last = s->tuned->nr_trials - 1;

    if (code == 0 && s->tuned->trials[last].rate > best_rate(s)) {
        s->best = last;
        *ret_better = true;
    }
    return code;
}

/* --- what the model would take ------------------------------------------------------------- */

static double worth(const struct search *s, const struct np_knobs *knobs)
{
    return np_model_rate_with(s->model, knobs) *
           (1 - FAR_FROM_HOME * distance(knobs, &s->tuned->base));
}

static int next_reader(int readers)
{
    return readers + (readers >= 8 ? readers / 4 : 1);
}

/* The numbers that the model predicts to be best with this kind of cache; false: the caps allow
 * none. */
static bool choose(const struct search *s, const char *cache, struct np_knobs *ret_knobs)
{
    struct np_knobs knobs = s->tuned->base;
    const int readers = knobs.readers, depth = knobs.depth, prefetch = knobs.prefetch;
    double most = 0;

    snprintf(knobs.cache, sizeof(knobs.cache), "%s", cache);
    for (int r = 0; r <= s->max_readers; r = next_reader(r))
        for (int d = 0; d <= NP_MAX_DEPTH; d = d ? 2 * d : 1)
            for (int p = 1; p <= MAX_PREFETCH; p *= 2) { /* the first of each: unchanged */
                knobs.readers = r ? r : readers;
                knobs.depth = d ? d : depth;
                knobs.prefetch = p > 1 ? p : prefetch;
                const double value = allowed(s, &knobs) ? worth(s, &knobs) : 0;
                if (value > most) {
                    most = value;
                    *ret_knobs = knobs;
                }
            }
    return most > 0;
}

static int by_prediction(const void *left, const void *right)
{
    const double a = ((const struct np_tune_trial *)left)->predicted;
    const double b = ((const struct np_tune_trial *)right)->predicted;

    return (a < b) - (a > b);
}

static int nr_kinds(const struct search *s)
{
    return strncmp(s->model->knobs.device, "cuda", 4) == 0 ? 4 : 3;
}

static double best_of_kind(const struct search *s, const char *kind)
{
    double most = 0;

    for (int i = 0; i < s->tuned->nr_trials; i++)
        if (caches(&s->tuned->trials[i].knobs, kind))
            most = fmax(most, s->tuned->trials[i].rate);
    return most;
}

static int try_caches(struct search *s)
{
    struct np_tune_trial choices[4] = {{.rate = 0}};
    int n = 0, code = 0;
    bool better;

    for (int i = 0; i < nr_kinds(s); i++)
        if (choose(s, kinds[i], &choices[n].knobs)) {
            choices[n].predicted = worth(s, &choices[n].knobs);
            n++;
        }
    qsort(choices, (size_t)n, sizeof(*choices), by_prediction);
    for (int i = 0; i < n && code == 0; i++)
        if (choices[i].predicted > HOPELESS * best_rate(s))
            code = try_knobs(s, &choices[i].knobs, &better);
    return code;
}

/* --- one knob at a time -------------------------------------------------------------------- */

/* Does the run still read, near the disk's limit? */
static bool disk_matters(const struct search *s)
{
    return s->model->read_rate > 0 && s->model->read_rate < NEAR_DISK * best_rate(s) &&
           (caches(best_knobs(s), "none") || caches(best_knobs(s), s->tuned->base.cache));
}

/* Moves a knob one step from the best so far; false: it has no further value. */
static bool step(
    const struct search *s, enum move move, bool up, bool fine, struct np_knobs *ret_knobs)
{
    struct np_knobs *to = ret_knobs;

    *to = *best_knobs(s);
    const int some = (to->readers + (fine ? 7 : 3)) / (fine ? 8 : 4);
    switch (move) {
    case MOVE_READERS:
        to->readers = up && !fine ? 2 * to->readers : to->readers + (up ? 1 : -1) * some;
        if (to->readers > s->max_readers)
            to->readers = s->max_readers;
        break;
    case MOVE_PREFETCH:
        to->prefetch = up ? 2 * to->prefetch : to->prefetch / 2;
        if (to->prefetch < 2)
            to->prefetch = 2;
        break;
    case MOVE_DEPTH:
        if (!disk_matters(s))
            return false;
        to->depth = !up ? to->depth / 2 : fine ? 2 * to->depth : 4 * to->depth;
        if (to->depth > NP_MAX_DEPTH)
            to->depth = NP_MAX_DEPTH;
        break;
    default:
        if (!up || !disk_matters(s))
            return false;
        snprintf(to->io, sizeof(to->io), "%s", strcmp(to->io, "uring") == 0 ? "pread" : "uring");
    }
    return !np_tune_same(to, best_knobs(s));
}

/* The model predicts a loss, and its prediction for the best so far was right. */
static bool hopeless(const struct search *s, enum move move, const struct np_knobs *to)
{
    const double here = s->tuned->trials[s->best].predicted;

    return best_rate(s) > HOPELESS * here &&
           np_model_rate_with(s->model, to) < here * (move == MOVE_READERS ? HOPELESS : HARDLY);
}

/* Moves up as long as that gains; if the first step up does not gain, moves down. */
static int climb(struct search *s, enum move move, bool fine)
{
    struct np_knobs to;
    int code = 0;

    for (int up = 1; up >= 0 && code == 0; up--) {
        bool better = true, moved = false;

        while (better && code == 0) {
            better = false;
            if (!step(s, move, up, fine, &to) || hopeless(s, move, &to))
                break;
            code = try_knobs(s, &to, &better);
            moved |= better;
        }
        if (moved)
            break;
    }
    return code;
}

/* Tries the other kinds of cache with the best numbers found, in case their own numbers slowed
 * them down. */
static int cross(struct search *s)
{
    const struct np_knobs from = *best_knobs(s);
    const double most = np_model_rate_with(s->model, &from);
    int code = 0;
    bool better;

    for (int i = 0; i < nr_kinds(s) && code == 0; i++) {
        struct np_knobs to = from;
        const double tried = best_of_kind(s, kinds[i]);

        snprintf(to.cache, sizeof(to.cache), "%s", kinds[i]);
        if (np_model_rate_with(s->model, &to) > HOPELESS * most &&
            (tried == 0 || tried > HELD_BACK * best_rate(s)))
            code = try_knobs(s, &to, &better);
    }
    return code;
}

static int search(struct search *s)
{
    bool better;
    int code = s->options->advised ? try_knobs(s, s->options->advised, &better) : 0;

    if (code == 0)
        code = try_caches(s);
    if (code == 0)
        code = climb(s, MOVE_READERS, false);
    if (code == 0)
        code = cross(s);
    for (int move = MOVE_DEPTH; move < NR_MOVES && code == 0; move++)
        code = climb(s, (enum move)move, false);
    for (int move = 0; move < MOVE_IO && code == 0; move++)
        code = climb(s, (enum move)move, true);
    return code;
}

/* --- the end ------------------------------------------------------------------------------- */

/* Runs A B B A. *ret_agree: both pairs have the same winner. */
static int in_turn(struct search *s, const struct np_knobs *winner, double sum[2], bool *ret_agree)
{
    double rate[NR_LAST];
    int code = 0;

    for (int i = 0; i < NR_LAST && code == 0; i++) {
        const bool applied = i == 1 || i == 2;

        code = add_trial(s, applied ? winner : &s->tuned->base);
        rate[i] = code == 0 ? s->tuned->trials[s->tuned->nr_trials - 1].rate : 0;
        sum[applied] += rate[i];
    }
    *ret_agree = code == 0 && (rate[1] > rate[0]) == (rate[2] > rate[3]);
    return code;
}

/* Runs both in turn, and again if the pairs disagree and trials are left. The winner's trials of
 * the search do not count: they are the luckiest of many. */
static int judge(struct search *s)
{
    struct np_tuned *tuned = s->tuned;
    const struct np_knobs winner = *best_knobs(s);
    double sum[2] = {0, 0}, gain = 0;
    bool agree = false;
    int code = 0, rounds = 0;

    if (np_tune_same(&winner, &tuned->base))
        return 0;
    while (tuned->nr_trials + NR_LAST <= NP_TUNE_TRIALS && code == 0) {
        code = in_turn(s, &winner, sum, &agree);
        gain = sum[1] / sum[0] - 1;
        rounds++;
        tuned->better = gain > fmax(MIN_GAIN, tuned->least / sqrt(rounds)) && (agree || rounds > 1);
        if (tuned->better || gain < -tuned->least)
            break;
    }
    if (code < 0)
        return code;
    tuned->base_rate = sum[0] / (2 * rounds);
    tuned->best_rate = sum[tuned->better] / (2 * rounds);
    if (tuned->better)
        tuned->best = winner;
    return 0;
}

int np_tune(const struct np_model *model, const struct np_tune_options *options,
    struct np_tuned *ret_tuned, struct np_err *err)
{
    struct np_err unasked = {0};
    struct search s = {.model = model,
        .options = options,
        .tuned = ret_tuned,
        .err = err ? err : &unasked,
        .max_readers = options->max_cores > 0 ? options->max_cores : (int)ceil(model->knobs.cores),
        .max_memory = options->max_memory ? options->max_memory : model->knobs.free_bytes / 2};
    struct np_tuned *tuned = ret_tuned;

    *tuned = (struct np_tuned){.base = model->knobs, .least = fmax(MIN_GAIN, options->noise)};
    if (options->max_cores <= 0 && s.max_readers < model->knobs.readers)
        s.max_readers = model->knobs.readers; /* the user may have chosen more readers than cores */
    clamp(&s, &tuned->base);
    if (options->max_memory && np_tune_memory(&tuned->base) > s.max_memory)
        return refuse_cap(&s, &tuned->base);
    tuned->beyond = !np_tune_same(&tuned->base, &model->knobs);
    tuned->best = tuned->base;
    int code = add_trial(&s, &tuned->base);
    if (code == 0) {
        tuned->base_rate = tuned->best_rate = tuned->trials[0].rate;
        code = search(&s);
    }
    return code == 0 ? judge(&s) : code;
}
