/* See made_pipeline.h. Rows go to the reader that is free first, in the order of their tickets. */
#include "tests/unit/made_pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/feed.h"

#define MAX_READERS 64
#define BUFFERS     NP_FEED_BUFFERS

struct running {
    const struct made_pipeline *p;
    double reader_free[MAX_READERS];
    double *begun;               /* (rows) when a row was in a reader's hands */
    double *released, *step_end; /* (batches) its slot is free; its step has ended */
    double disk_free, copy_free;
    uint64_t rng;
    double from; /* the observation begins; before it nothing counts */
    struct np_observation seen;
};

static double uniform(struct running *run)
{
    run->rng = run->rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(run->rng >> 11) / 9007199254740992.0;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static const enum np_stage made_stages[] = {
    NP_STAGE_DECOMPRESS, NP_STAGE_DECODE, NP_STAGE_AUGMENT, NP_STAGE_BATCH};

/* One row: when it is done. */
static double row(struct running *run, int number, int batch)
{
    const struct made_pipeline *p = run->p;
    const int ahead = number - p->readers * p->depth;
    const double share = p->readers > p->cores ? p->readers / p->cores : 1;
    double open = batch >= p->slots ? run->released[batch - p->slots] : 0, at, ready = 0;
    int reader = 0;

    for (int i = 1; i < p->readers; i++)
        if (run->reader_free[i] < run->reader_free[reader])
            reader = i;
    const double was_free = run->reader_free[reader];
    at = later(was_free, open);
    if (at > run->from)
        run->seen.reader_s[NP_STATE_BLOCKED] += later(open - later(was_free, run->from), 0);
    if (p->disk_s >
        0) { /* asked for when the row that far ahead was begun, and its slot was open */
        ready = later(run->disk_free, later(ahead >= 0 ? run->begun[ahead] : 0, open)) + p->disk_s;
        run->disk_free = ready;
        if (ready > run->from)
            run->seen.reader_s[NP_STATE_IO_WAIT] += later(ready - later(at, run->from), 0);
        at = later(at, ready);
    }
    if (p->pause_s > 0 && fmod(at, p->pause_every_s) < p->pause_s) /* all of them stand still */
        at += p->pause_s - fmod(at, p->pause_every_s);
    run->begun[number] = at;
    for (int i = 0; i < 4; i++) {
        const double took =
            p->stage_s[made_stages[i]] * (1 + p->spread * (2 * uniform(run) - 1)) * share;

        if (at >= run->from) {
            run->seen.stages[made_stages[i]].items++;
            run->seen.stages[made_stages[i]].work_s += took;
            run->seen.reader_s[NP_STATE_WORK] += took;
            run->seen.reader_cpu_s += took / share;
            run->seen.reader_delay_s += took - took / share;
        }
        at += took;
    }
    if (p->disk_s > 0 && at >= run->from)
        run->seen.stages[NP_STAGE_READ].items++;
    run->reader_free[reader] = at;
    return at;
}

/* One batch, its rows done at `ready`: when its step has ended. */
static void step(struct running *run, int b, double ready)
{
    const struct made_pipeline *p = run->p;
    const double buffer = b >= BUFFERS ? run->step_end[b - BUFFERS] : 0;
    const double before = b > 0 ? run->step_end[b - 1] : 0;
    const double copied = later(later(ready, run->copy_free), buffer) + p->copy_s;
    const double begin = later(copied, before);

    run->copy_free = copied;
    run->released[b] = copied;
    run->step_end[b] = begin + p->step_s;
    if (before >= run->from) {
        run->seen.images += (uint64_t)p->batch;
        run->seen.steps++;
        run->seen.stall_s += later(ready - before, 0);
        for (int i = 0; i < NP_FEED_BRIDGES; i++)
            run->seen.bridged_s[i] += fmin(later(ready - before, 0), p->step_s * (1 << i));
        run->seen.feed.nr_batches++;
        run->seen.feed.copy_ns += (uint64_t)(p->copy_s * 1e9);
        run->seen.feed.compute_ns += (uint64_t)(p->step_s * 1e9);
        run->seen.feed.idle_ns += (uint64_t)((begin - before) * 1e9);
    }
    if (p->checkpoint_steps > 0 && (b + 1) % (int)p->checkpoint_steps == 0) {
        run->step_end[b] += p->checkpoint_s; /* the trainer writes, and queues nothing */
        if (before >= run->from) {
            run->seen.checkpoint_s += p->checkpoint_s;
            run->seen.nr_checkpoints++;
        }
    }
}

static void observe(struct running *run, double seconds, struct np_observation *ret_observation,
    struct np_ceilings *ret_ceilings, struct np_knobs *ret_knobs)
{
    const struct made_pipeline *p = run->p;
    double threads = 0;

    run->seen.seconds = seconds;
    run->seen.images_per_second = (double)run->seen.images / seconds;
    run->seen.nr_readers = p->readers;
    run->seen.cores = p->cores;
    run->seen.process_cpu_s = run->seen.reader_cpu_s;
    run->seen.checkpoint_each_s = p->checkpoint_steps > 0 ? p->checkpoint_s : 0;
    for (int i = 0; i < 4; i++)
        threads += p->stage_s[made_stages[i]];
    if (ret_observation)
        *ret_observation = run->seen;
    if (ret_ceilings)
        *ret_ceilings = (struct np_ceilings){.read_warm = p->disk_s > 0 ? 1 / p->disk_s : 0,
            .read_cold = p->disk_s > 0 ? 1 / p->disk_s : 0,
            .loader = threads > 0 ? fmin(p->readers, p->cores) / threads : 0,
            .step = p->batch / p->step_s};
    if (ret_knobs)
        *ret_knobs = (struct np_knobs){.readers = p->readers,
            .depth = p->depth,
            .prefetch = p->slots,
            .batch = p->batch,
            .io = "sim",
            .cache = "none",
            .device = "sim",
            .precision = "f32",
            .checkpoint_steps = p->checkpoint_steps,
            .nr_samples = 100000,
            .set_bytes = 10ull << 30,
            .picture_bytes = 1 << 20,
            .memory_bytes = 8ull << 30,
            .free_bytes = 4ull << 30,
            .device_room = 2ull << 30,
            .geometry_only = true,
            .cores = p->cores,
            .device_has_memory = true};
}

double made_pipeline_run(const struct made_pipeline *p, int nr_batches,
    struct np_observation *ret_observation, struct np_ceilings *ret_ceilings,
    struct np_knobs *ret_knobs)
{
    const int warm = nr_batches / 5;
    struct running run = {.p = p, .rng = p->seed * 2 + 1, .from = INFINITY};

    run.begun = calloc((size_t)(nr_batches * p->batch), sizeof(double));
    run.released = calloc((size_t)nr_batches, sizeof(double));
    run.step_end = calloc((size_t)nr_batches, sizeof(double));
    for (int b = 0; b < nr_batches; b++) {
        double ready = 0;

        for (int r = 0; r < p->batch; r++)
            ready = later(ready, row(&run, b * p->batch + r, b));
        step(&run, b, ready);
        if (b + 1 == warm)
            run.from = run.step_end[b];
    }
    const double seconds = run.step_end[nr_batches - 1] - run.from;
    observe(&run, seconds, ret_observation, ret_ceilings, ret_knobs);
    free(run.begun);
    free(run.released);
    free(run.step_end);
    return (double)(nr_batches - warm) * p->batch / seconds;
}

struct made_pipeline made_pipeline_with(
    const struct made_pipeline *pipeline, enum np_stage stage, double faster)
{
    struct made_pipeline other = *pipeline;

    other.stage_s[stage] /= faster;
    if (stage == NP_STAGE_READ)
        other.disk_s = pipeline->disk_s / faster;
    else if (stage == NP_STAGE_COPY)
        other.copy_s /= faster;
    else if (stage == NP_STAGE_STEP)
        other.step_s /= faster;
    else if (stage == NP_STAGE_CHECKPOINT)
        other.checkpoint_s /= faster;
    return other;
}
