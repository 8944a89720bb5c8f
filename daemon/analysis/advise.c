/* From the limiter to the key that raises it, with the gain and the cost. Pure arithmetic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/analysis/words.h"

#define ENOUGH       0.97 /* of the best rate a key can reach: more is not worth its cost */
#define MIN_WORTH    1.03 /* of the rate: less is not advised */
#define MAX_SLOTS    16
#define SAVING_SHARE 0.01 /* of the time, for checkpoints */

static void take(struct np_advice *advice, const char *key, int from, int to)
{
    snprintf(advice->key, sizeof(advice->key), "%s", key);
    snprintf(advice->from, sizeof(advice->from), "%d", from);
    snprintf(advice->to, sizeof(advice->to), "%d", to);
}

/* The smallest value of a knob that reaches nearly its best rate. */
static int smallest(const struct np_model *model, struct np_knobs *knobs, int *knob, int max)
{
    const int from = *knob;

    *knob = max;
    const double best = np_model_rate_with(model, knobs);
    for (*knob = from; *knob < max; ++*knob)
        if (np_model_rate_with(model, knobs) >= ENOUGH * best)
            break;
    return *knob;
}

/* False: not worth advising. */
static bool raise_knob(const struct np_model *model, struct np_knobs *knobs, int *knob, int max,
    const char *key, struct np_advice *advice)
{
    const int from = *knob, to = smallest(model, knobs, knob, max);

    advice->rate = np_model_rate_with(model, knobs);
    if (to <= from || advice->rate <= model->rate * MIN_WORTH)
        return false;
    take(advice, key, from, to);
    return true;
}

static void advise_cache(const struct np_model *model, const char *kind, uint64_t bytes,
    const char *what, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;

    snprintf(knobs.cache, sizeof(knobs.cache), "%s", kind);
    snprintf(advice->key, sizeof(advice->key), "loader.cache");
    snprintf(advice->from, sizeof(advice->from), "%s", model->knobs.cache);
    snprintf(advice->to, sizeof(advice->to), "%s", kind);
    advice->rate = np_model_rate_with(model, &knobs);
    advice->memory_bytes = bytes;
    snprintf(advice->text, sizeof(advice->text),
        "keep %s in memory (%s); faster from the second epoch on", what, np_words_size(bytes).text);
}

/* Does it fit a cache of default size (loader.c), and half of the free memory? */
static bool fits(const struct np_model *model, uint64_t bytes)
{
    return bytes > 0 && bytes < model->knobs.free_bytes / 2 &&
           bytes < model->knobs.memory_bytes / 4;
}

static bool fits_device(const struct np_model *model, uint64_t bytes)
{
    return fits(model, bytes) && model->knobs.geometry_only &&
           bytes < model->knobs.device_room / 2 && strcmp(model->knobs.cache, "device") != 0;
}

/* decompress, decode, augment: more threads while cores are idle, then a cache of decoded
 * pictures. */
static void advise_readers(
    const struct np_model *model, enum np_stage limiter, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const uint64_t decoded = knobs.picture_bytes * knobs.nr_samples;
    const int from = knobs.readers, max = (int)ceil(model->cores);

    if (max > from && raise_knob(model, &knobs, &knobs.readers, max, "loader.readers", advice)) {
        advice->cores = advice->rate * (model->thread_s[NP_STAGE_DECOMPRESS] +
                                           model->thread_s[NP_STAGE_DECODE] +
                                           model->thread_s[NP_STAGE_AUGMENT]) -
                        from;
        advice->cores = advice->cores > 0 ? advice->cores : knobs.readers - from;
        snprintf(advice->text, sizeof(advice->text),
            "more reader threads: %d instead of %d; cores are idle", knobs.readers, from);
        return;
    }
    if (strncmp(model->knobs.device, "cuda", 4) == 0 && fits_device(model, decoded))
        advise_cache(model, "device", decoded, "the pictures on the GPU and the host", advice);
    else if (fits(model, decoded) && strcmp(model->knobs.cache, "decoded") != 0)
        advise_cache(model, "decoded", decoded, "the decoded pictures", advice);
    if (advice->rate > model->rate * MIN_WORTH) /* decoding shares the threads with the others */
        return;
    *advice = (struct np_advice){0};
    snprintf(advice->text, sizeof(advice->text),
        limiter == NP_STAGE_AUGMENT
            ? "all cores are busy: use cheaper operations in loader.augment, or pack the pictures "
              "at their training size (nnpipe data pack --resize)"
            : "all cores are busy: pack the pictures smaller (nnpipe data pack --resize), or use "
              "a machine with more cores");
}

static void advise_read(const struct np_model *model, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const int from = knobs.depth;

    if (model->read_max > model->read_rate && from < NP_MAX_DEPTH &&
        raise_knob(model, &knobs, &knobs.depth, NP_MAX_DEPTH, "loader.depth", advice)) {
        advice->memory_bytes = (uint64_t)(knobs.readers * (knobs.depth - from)) *
                               (knobs.set_bytes / (knobs.nr_samples + 1));
        snprintf(advice->text, sizeof(advice->text),
            "more reads in flight per reader: %d instead of %d; the disk can serve more",
            knobs.depth, from);
        return;
    }
    knobs = model->knobs;
    if (fits(model, knobs.set_bytes) && strcmp(knobs.cache, "none") == 0) {
        advise_cache(model, "encoded", knobs.set_bytes, "the set's files", advice);
        if (advice->rate > model->rate * MIN_WORTH)
            return;
    }
    *advice = (struct np_advice){0};
    snprintf(advice->text, sizeof(advice->text),
        2 * model->blocked_s[NP_STAGE_READ] > model->thread_s[NP_STAGE_READ] &&
                model->read_rate > 1.5 * model->rate
            ? "each open and read waits for the file system: use more loader.readers, even more "
              "than cores, or archives instead of single files (nnpipe data pack)"
            : "the disk is at its limit: use a faster disk, or smaller files (nnpipe data pack "
              "--resize)");
}

static void advise_copy(const struct np_model *model, struct np_advice *advice)
{
    const uint64_t decoded = model->knobs.picture_bytes * model->knobs.nr_samples;

    if (fits_device(model, decoded))
        advise_cache(model, "device", decoded, "the pictures on the device", advice);
    else
        snprintf(advice->text, sizeof(advice->text),
            "the bus to the device is at its limit: train on smaller pictures, or use a wider "
            "link");
}

static void advise_batch(const struct np_model *model, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const int from = knobs.prefetch;
    const int to = smallest(model, &knobs, &knobs.prefetch, from < MAX_SLOTS ? MAX_SLOTS : from);

    if (to == from) {
        snprintf(advice->text, sizeof(advice->text),
            "readers and device wait for each other, and %d slots are not enough: something "
            "outside the run delays the readers",
            from);
        return;
    }
    take(advice, "loader.prefetch", from, to);
    advice->rate = np_model_rate_with(model, &knobs);
    advice->memory_bytes = (uint64_t)(to - from) * (uint64_t)knobs.batch * knobs.row_bytes;
    snprintf(advice->text, sizeof(advice->text),
        "prefetch more batches: %d instead of %d; readers and device wait for each other", to,
        from);
}

static void advise_checkpoint(const struct np_model *model, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const double saving = model->checkpoint_share / (1 - model->checkpoint_share);

    knobs.checkpoint_steps = ceil(model->knobs.checkpoint_steps * saving / SAVING_SHARE);
    snprintf(advice->key, sizeof(advice->key), "checkpoint.every");
    snprintf(advice->from, sizeof(advice->from), "%.0f steps", model->knobs.checkpoint_steps);
    snprintf(advice->to, sizeof(advice->to), "%.0f steps", knobs.checkpoint_steps);
    advice->rate = np_model_rate_with(model, &knobs);
    snprintf(advice->text, sizeof(advice->text),
        "save less often; after a kill up to %.0f s of training are repeated",
        knobs.checkpoint_steps * knobs.batch / advice->rate);
}

static void advise_step(const struct np_model *model, struct np_advice *advice)
{
    snprintf(advice->text, sizeof(advice->text),
        "the device is the limit, and the loader keeps it busy: no loader key helps; %s may",
        strcmp(model->knobs.precision, "f32") == 0 ? "half precision or a larger batch"
                                                   : "a larger batch");
}

/* Does a filled cache save this stage's work? */
static bool spared_by_cache(const struct np_model *model, enum np_stage limiter)
{
    const char *cache = model->knobs.cache;
    const bool device = strcmp(cache, "device") == 0;

    return model->knobs.cache_fills &&
           (limiter == NP_STAGE_READ || limiter == NP_STAGE_DECOMPRESS ||
               (limiter == NP_STAGE_DECODE && (device || strcmp(cache, "decoded") == 0)) ||
               (limiter == NP_STAGE_COPY && device));
}

void np_advise(
    const struct np_model *model, enum np_stage limiter, double max, struct np_advice *ret_advice)
{
    memset(ret_advice, 0, sizeof(*ret_advice));
    if (spared_by_cache(model, limiter)) {
        snprintf(ret_advice->text, sizeof(ret_advice->text),
            "nothing to change: the cache (%s) still fills, and from the second epoch on "
            "this stage has no work; longer trials (--seconds) will show that",
            model->knobs.cache);
        ret_advice->rate = model->rate;
        return;
    }
    switch (limiter) {
    case NP_STAGE_READ: advise_read(model, ret_advice); break;
    case NP_STAGE_BATCH: advise_batch(model, ret_advice); break;
    case NP_STAGE_COPY: advise_copy(model, ret_advice); break;
    case NP_STAGE_STEP: advise_step(model, ret_advice); break;
    case NP_STAGE_CHECKPOINT: advise_checkpoint(model, ret_advice); break;
    default: advise_readers(model, limiter, ret_advice);
    }
    ret_advice->rate = fmin(ret_advice->rate, max);
    if (ret_advice->rate < model->rate) { /* advice without a key has no rate */
        ret_advice->key[0] = '\0';
        ret_advice->rate = model->rate;
    }
}
