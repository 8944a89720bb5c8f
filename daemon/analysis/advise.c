/* From the limiter to the key that moves it, with what that brings and costs. Pure arithmetic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "daemon/analysis/words.h"

#define ENOUGH       0.97 /* of what a key can bring: more of it is not worth its price */
#define MIN_WORTH    1.03 /* of the rate: less is no advice */
#define MAX_SLOTS    16
#define SAVING_SHARE 0.01 /* of the time, that checkpoints may take */

static void take(struct np_advice *advice, const char *key, double from, double to)
{
    snprintf(advice->key, sizeof(advice->key), "%s", key);
    snprintf(advice->from, sizeof(advice->from), "%g", from);
    snprintf(advice->to, sizeof(advice->to), "%g", to);
}

/* The smallest value of one knob that brings nearly all that it can. */
static int smallest(const struct np_model *model, struct np_knobs *knobs, int *knob, int most)
{
    const int from = *knob;
    int to = from;

    *knob = most;
    const double best = np_model_rate_with(model, knobs);
    for (to = from; to < most; to++) {
        *knob = to;
        if (np_model_rate_with(model, knobs) >= ENOUGH * best)
            break;
    }
    *knob = to;
    return to;
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
        "keep %s in memory (%s); it pays from the second epoch on", what,
        np_words_size(bytes).text);
}

/* Into what a cache without a size of its own gets (loader.c), and half of what is free. */
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

/* decompress, decode, augment: more threads while cores are idle, then pictures kept decoded. */
static void advise_readers(
    const struct np_model *model, enum np_stage limiter, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const uint64_t decoded = knobs.picture_bytes * knobs.nr_samples;
    const int from = knobs.readers, most = (int)ceil(model->cores);

    if (most > from) {
        const int to = smallest(model, &knobs, &knobs.readers, most);

        advice->rate = np_model_rate_with(model, &knobs);
        if (to > from && advice->rate > model->rate * MIN_WORTH) {
            take(advice, "loader.readers", from, to);
            advice->cores = advice->rate * (model->thread_s[NP_STAGE_DECOMPRESS] +
                                               model->thread_s[NP_STAGE_DECODE] +
                                               model->thread_s[NP_STAGE_AUGMENT]) -
                            from;
            advice->cores = advice->cores > 0 ? advice->cores : to - from;
            snprintf(advice->text, sizeof(advice->text),
                "more reader threads: %d instead of %d, cores are idle", to, from);
            return;
        }
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
            ? "all cores work: cheaper operations in loader.augment, or pictures packed at the "
              "size they are trained at (nnpipe data pack --resize)"
            : "all cores work: pack the pictures smaller (nnpipe data pack --resize), or take "
              "a box with more cores");
}

static void advise_read(const struct np_model *model, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const int from = knobs.depth;

    if (model->read_max > model->read_rate && from < NP_MAX_DEPTH) {
        const int to = smallest(model, &knobs, &knobs.depth, NP_MAX_DEPTH);

        advice->rate = np_model_rate_with(model, &knobs);
        if (to > from && advice->rate > model->rate * MIN_WORTH) {
            take(advice, "loader.depth", from, to);
            advice->memory_bytes = (uint64_t)(knobs.readers * (to - from)) *
                                   (knobs.set_bytes / (knobs.nr_samples + 1));
            snprintf(advice->text, sizeof(advice->text),
                "more reads in flight a reader: %d instead of %d, the disk can do more at once", to,
                from);
            return;
        }
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
            ? "each open and read waits for the file system: more loader.readers, also more than "
              "there are cores, or archives in place of single files (nnpipe data pack)"
            : "the disk gives no more: a faster disk, or smaller files (nnpipe data pack "
              "--resize)");
}

static void advise_copy(const struct np_model *model, struct np_advice *advice)
{
    const uint64_t decoded = model->knobs.picture_bytes * model->knobs.nr_samples;

    if (fits_device(model, decoded))
        advise_cache(model, "device", decoded, "the pictures on the device", advice);
    else
        snprintf(advice->text, sizeof(advice->text),
            "the bus to the device gives no more: train on smaller pictures, or give the device a "
            "wider link");
}

static void advise_batch(const struct np_model *model, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const int from = knobs.prefetch;
    const int to = smallest(model, &knobs, &knobs.prefetch, from < MAX_SLOTS ? MAX_SLOTS : from);

    if (to == from) {
        snprintf(advice->text, sizeof(advice->text),
            "readers and device wait for each other, and %d slots do not bridge it: what holds the "
            "readers up lies outside of the run",
            from);
        return;
    }
    take(advice, "loader.prefetch", from, to);
    advice->rate = np_model_rate_with(model, &knobs);
    advice->memory_bytes = (uint64_t)(to - from) * (uint64_t)knobs.batch * knobs.row_bytes;
    snprintf(advice->text, sizeof(advice->text),
        "more batches ready ahead: %d instead of %d; readers and device wait for each other", to,
        from);
}

static void advise_checkpoint(const struct np_model *model, struct np_advice *advice)
{
    struct np_knobs knobs = model->knobs;
    const double saving = model->checkpoint_share / (1 - model->checkpoint_share);

    knobs.checkpoint_steps = ceil(model->knobs.checkpoint_steps * saving / SAVING_SHARE);
    take(advice, "checkpoint.every", model->knobs.checkpoint_steps, knobs.checkpoint_steps);
    snprintf(advice->from, sizeof(advice->from), "%.0f steps", model->knobs.checkpoint_steps);
    snprintf(advice->to, sizeof(advice->to), "%.0f steps", knobs.checkpoint_steps);
    advice->rate = np_model_rate_with(model, &knobs);
    snprintf(advice->text, sizeof(advice->text),
        "save less often: a kill then costs up to %.0f s of training again",
        knobs.checkpoint_steps * knobs.batch / advice->rate);
}

static void advise_step(const struct np_model *model, struct np_advice *advice)
{
    snprintf(advice->text, sizeof(advice->text),
        "the device is the limit, and the loader keeps it busy: nothing of the loader gains; %s "
        "may",
        strcmp(model->knobs.precision, "f32") == 0 ? "a half precision or a larger batch"
                                                   : "a larger batch");
}

/* Does the stage's work end once the cache is filled? */
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
    const struct np_model *model, enum np_stage limiter, double most, struct np_advice *ret_advice)
{
    memset(ret_advice, 0, sizeof(*ret_advice));
    if (spared_by_cache(model, limiter)) {
        snprintf(ret_advice->text, sizeof(ret_advice->text),
            "nothing to change: the cache (%s) still fills, and from the second epoch on this "
            "stage has no work; a profile with longer trials (--seconds) sees that",
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
    ret_advice->rate = fmin(ret_advice->rate, most);
    if (ret_advice->rate < model->rate) { /* what has no key has no rate either */
        ret_advice->key[0] = '\0';
        ret_advice->rate = model->rate;
    }
}
