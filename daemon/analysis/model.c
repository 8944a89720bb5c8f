/* Costs per image, and the rate they allow. Each resource bounds the rate: its capacity divided
 * by what an image takes of it (the utilisation law: Denning and Buzen, "The Operational
 * Analysis of Queueing Network Models", ACM Computing Surveys 10(3), 1978). The smallest bound
 * is the rate of a pipeline whose queues never run empty; the loss when they do is measured as
 * one factor, `coupling`. Pure arithmetic. */
#include <math.h>
#include <string.h>

#include "daemon/analysis/model.h"

#define NR_THREAD_STAGES (NP_STAGE_BATCH + 1) /* the first ones are those of a reader thread */

#define WAITS_FOR_DISK 0.3  /* share of the readers' time; above it the disk can be the limit */
#define TOUCHES_DISK   0.02 /* below it the files come from the page cache */
#define MAX_BRIDGED    0.95 /* of the time */
#define LOOSE          0.97 /* a coupling above this is no limit */

/* --- making the model ---------------------------------------------------------------------- */

/* Images that the readers made: each passes `batch` once, masked rows too. */
static double images_made(const struct np_observation *o)
{
    uint64_t max = o->stages[NP_STAGE_BATCH].items;

    for (int s = 0; s < NR_THREAD_STAGES; s++)
        if (o->stages[s].items > max)
            max = o->stages[s].items;
    return max ? (double)max : fmax((double)o->images, 1);
}

/* Distributes `seconds` in which readers waited inside a call without a core, as `open` does on
 * a network file system: to `read` first, the rest to the other stages in proportion to their
 * work. */
static void make_blocked(double seconds, double images, struct np_model *model)
{
    double *const read_s = &model->blocked_s[NP_STAGE_READ];
    double others = 0;

    *read_s = fmin(seconds / images, model->thread_s[NP_STAGE_READ]);
    for (int s = NP_STAGE_READ + 1; s < NR_THREAD_STAGES; s++)
        others += model->thread_s[s];
    const double left = others > 0 ? fmin((seconds / images - *read_s) / others, 1) : 0;
    for (int s = NP_STAGE_READ + 1; s < NR_THREAD_STAGES; s++)
        model->blocked_s[s] = left * model->thread_s[s];
}

/* Stages measure wall-clock time; subtracts the time spent runnable but without a core. */
static void make_threads(const struct np_observation *o, struct np_model *model)
{
    double work = 0, images = images_made(o);

    for (int s = 0; s < NR_THREAD_STAGES; s++)
        work += o->stages[s].work_s;
    const double on_core = work > 0 ? fmax((work - o->reader_delay_s) / work, 0.1) : 1;
    for (int s = 0; s < NR_THREAD_STAGES; s++)
        model->thread_s[s] = o->stages[s].work_s * on_core / images;
    if (o->reader_cpu_s > 0)
        make_blocked(fmax(work * on_core - o->reader_cpu_s, 0), images, model);
}

static double disk_waits(const struct np_observation *o)
{
    return o->reader_s[NP_STATE_IO_WAIT] / fmax(o->nr_readers * o->seconds, 1e-9);
}

/* The disk's rate at this depth: as observed if the readers waited for it; as measured cold if they
 * sometimes did; the page cache's if they never did. 0: unknown. */
static double read_rate(const struct np_observation *o, const struct np_ceilings *ceilings)
{
    if (o->stages[NP_STAGE_READ].items == 0)
        return 0;
    if (disk_waits(o) > WAITS_FOR_DISK && o->stall_s > 0.05 * o->seconds)
        return o->images_per_second; /* also while a checkpoint is written */
    if (disk_waits(o) > TOUCHES_DISK)
        return ceilings->read_cold;
    return ceilings->read_warm > 0 ? ceilings->read_warm : ceilings->read_cold;
}

/* The step's rate in this run, without waits; 0: unknown. */
static double step_speed(const struct np_observation *o)
{
    const double work_s = o->stages[NP_STAGE_STEP].work_s;

    return work_s > 0 ? (double)o->images / work_s : 0;
}

void np_ceilings_settle(const struct np_observation *o, struct np_ceilings *c)
{
    const double reads = (double)o->stages[NP_STAGE_READ].items / fmax(o->seconds, 1e-9);
    const bool elsewhere = c->read_warm > 0 && c->read_warm < reads;

    if (c->step > 0)
        c->step = fmax(c->step, step_speed(o));
    if (c->loader < o->images_per_second)
        c->loader = 0;
    /* A run that does not wait for the disk has its files in memory: the cold rate may be lower. */
    if (elsewhere || (c->read_cold < reads && (c->read_warm <= 0 || disk_waits(o) > TOUCHES_DISK)))
        c->read_cold = 0;
    if (elsewhere)
        c->read_warm = 0;
    if (elsewhere || c->read_deep < reads)
        c->read_deep = 0;
}

static void make_device(
    const struct np_observation *o, const struct np_ceilings *ceilings, struct np_model *model)
{
    const double batch = model->knobs.batch, images = fmax((double)o->images, 1);

    if (model->knobs.device_has_memory && o->feed.nr_batches > 0) {
        const double batches = (double)o->feed.nr_batches;

        model->copy_rate = batches * batch / fmax((double)o->feed.copy_ns * 1e-9, 1e-9);
        model->step_rate = batches * batch / fmax((double)o->feed.compute_ns * 1e-9, 1e-9);
    } else if (ceilings->step > 0) {
        model->step_rate = fmax(ceilings->step, step_speed(o));
    }
    model->step_cpu_s = fmax(o->process_cpu_s - o->reader_cpu_s, 0) / images;
}

void np_model_make(const struct np_observation *o, const struct np_ceilings *ceilings,
    const struct np_knobs *knobs, struct np_model *ret_model)
{
    const double seconds = fmax(o->seconds - o->checkpoint_s, 1e-9);
    const double without = (double)o->images / seconds; /* without checkpoints */

    *ret_model = (struct np_model){.knobs = *knobs,
        .cores = fmax(o->cores - o->other_cores, 0.5),
        .read_rate = read_rate(o, ceilings),
        .read_max = ceilings->read_deep,
        .coupling = 1};
    make_threads(o, ret_model);
    make_device(o, ceilings, ret_model);
    np_model_reach(ret_model, (double)o->images / fmax(o->seconds, 1e-9), NP_NR_STAGES);
    const double bound = np_model_rate(ret_model, NULL);
    ret_model->coupling = bound > 0 && without < bound ? without / bound : 1;
    for (int i = 0; i < NP_FEED_BRIDGES; i++)
        ret_model->bridged[i] = fmin(o->bridged_s[i] / seconds, MAX_BRIDGED);
    if (knobs->checkpoint_steps > 0 && without > 0) {
        const double interval = knobs->checkpoint_steps * knobs->batch / without;

        ret_model->checkpoint_each_s = o->checkpoint_each_s;
        ret_model->checkpoint_share = o->checkpoint_each_s / (interval + o->checkpoint_each_s);
    }
    ret_model->rate = isfinite(bound) && bound > 0 ? np_model_rate(ret_model, NULL)
                                                   : without * (1 - ret_model->checkpoint_share);
}

void np_model_reach(struct np_model *model, double rate, enum np_stage without)
{
    double threads = 0, cores = without == NP_STAGE_STEP ? 0 : model->step_cpu_s;

    for (int s = 0; s < NR_THREAD_STAGES; s++)
        threads += s == (int)without ? 0 : model->thread_s[s];
    const double less = rate * threads > model->knobs.readers && model->knobs.readers > 0
                            ? model->knobs.readers / (rate * threads)
                            : 1;
    for (int s = 0; s < NR_THREAD_STAGES; s++) {
        if (s == (int)without)
            continue;
        model->thread_s[s] *= less;
        model->blocked_s[s] *= less;
        cores += model->thread_s[s] - model->blocked_s[s];
    }
    model->cores = fmax(model->cores, rate * cores);
    if (model->read_rate > 0 && without != NP_STAGE_READ)
        model->read_rate = fmax(model->read_rate, rate);
    if (model->copy_rate > 0 && without != NP_STAGE_COPY)
        model->copy_rate = fmax(model->copy_rate, rate);
    if (model->step_rate > 0 && without != NP_STAGE_STEP)
        model->step_rate = fmax(model->step_rate, rate);
}

/* --- using the model ----------------------------------------------------------------------- */

static double lower(double bound, double rate, double faster)
{
    return rate > 0 && rate * faster < bound ? rate * faster : bound;
}

static double factor(const double *faster, enum np_stage stage)
{
    return faster ? faster[stage] : 1;
}

/* Seconds per image of a reader's thread in its stages, with or without the calls that need no
 * core. */
static double thread_seconds(const struct np_model *model, const double *faster, bool blocked)
{
    double sum = 0;

    for (int s = 0; s < NR_THREAD_STAGES; s++)
        sum += (model->thread_s[s] - (blocked ? 0 : model->blocked_s[s])) /
               factor(faster, (enum np_stage)s);
    return sum;
}

/* A checkpoint stops only the trainer. The stages before it continue until the batches ahead of
 * it are full, and the trainer catches up with these afterwards. So a stage loses the time of
 * the checkpoint less the time that filling `ahead` images takes; the step, with nothing ahead,
 * loses all of it. */
static double with_saving(double rate, double each_s, double interval, double ahead)
{
    const double lost = each_s - ahead / rate;

    return isinf(rate) || lost <= 0 ? rate : interval / (interval / rate + lost);
}

double np_model_rate(const struct np_model *model, const double faster[NP_NR_STAGES])
{
    const double threads = thread_seconds(model, faster, true);
    const double cores =
        thread_seconds(model, faster, false) + model->step_cpu_s / factor(faster, NP_STAGE_STEP);
    const double coupling = isinf(factor(faster, NP_STAGE_BATCH)) ? 1 : model->coupling;
    double rate = INFINITY, copy, step;

    if (threads > 0)
        rate = lower(rate, model->knobs.readers / threads, 1);
    if (cores > 0)
        rate = lower(rate, model->cores / cores, 1);
    rate = lower(rate, model->read_rate, factor(faster, NP_STAGE_READ));
    rate *= coupling;
    copy = lower(INFINITY, model->copy_rate, factor(faster, NP_STAGE_COPY)) * coupling;
    step = lower(INFINITY, model->step_rate, factor(faster, NP_STAGE_STEP)) * coupling;
    if (model->checkpoint_each_s > 0 && model->knobs.checkpoint_steps > 0) {
        const double batch = model->knobs.batch, interval = model->knobs.checkpoint_steps * batch;
        const double each_s = model->checkpoint_each_s / factor(faster, NP_STAGE_CHECKPOINT);
        const double buffers = model->knobs.device_has_memory ? NP_FEED_BUFFERS - 1 : 0;

        rate = with_saving(rate, each_s, interval, (model->knobs.prefetch + buffers) * batch);
        copy = with_saving(copy, each_s, interval, buffers * batch);
        step = with_saving(step, each_s, interval, 0);
    }
    return fmin(rate, fmin(copy, step));
}

/* The share of the time that `more` slots save. Each further slot saves less than the one
 * before, so linear interpolation between two known numbers never gives too much. */
static double bridged_by(const struct np_model *model, int more)
{
    double low = 0;
    int from = 0;

    for (int i = 0; i < NP_FEED_BRIDGES; i++) {
        const double high = fmax(model->bridged[i], low);
        const int to = 1 << i;

        if (more <= to)
            return low + (high - low) * (more - from) / (to - from);
        low = high;
        from = to;
    }
    return low;
}

static void leave_out(struct np_model *model, enum np_stage stage)
{
    model->thread_s[stage] = model->blocked_s[stage] = 0;
}

double np_model_rate_with(const struct np_model *model, const struct np_knobs *knobs)
{
    struct np_model other = *model;
    const bool decoded = strcmp(knobs->cache, "decoded") == 0,
               device = strcmp(knobs->cache, "device") == 0;
    const bool cached = decoded || device || strcmp(knobs->cache, "encoded") == 0;

    if (cached && strcmp(model->knobs.cache, knobs->cache) != 0) {
        other.read_rate = 0;
        leave_out(&other, NP_STAGE_READ);
        leave_out(&other, NP_STAGE_DECOMPRESS);
    }
    if (decoded || device)
        leave_out(&other, NP_STAGE_DECODE);
    if (device) {
        leave_out(&other, NP_STAGE_AUGMENT);
        other.copy_rate = 0;
    }
    if (knobs->depth > model->knobs.depth && model->knobs.depth > 0) {
        other.read_rate *= (double)knobs->depth / model->knobs.depth;
        if (model->read_max > 0)
            other.read_rate = fmin(other.read_rate, fmax(model->read_max, model->read_rate));
    }
    if (knobs->prefetch > model->knobs.prefetch)
        other.coupling = fmin(
            model->coupling / (1 - bridged_by(model, knobs->prefetch - model->knobs.prefetch)), 1);
    other.knobs = *knobs;
    return np_model_rate(&other, NULL);
}

bool np_model_shares(enum np_stage stage)
{
    return stage == NP_STAGE_DECOMPRESS || stage == NP_STAGE_DECODE || stage == NP_STAGE_AUGMENT;
}

double np_model_rate_without(const struct np_model *model, enum np_stage a, enum np_stage b)
{
    double faster[NP_NR_STAGES];

    for (int s = 0; s < NP_NR_STAGES; s++)
        faster[s] = s == (int)a || s == (int)b ? INFINITY : 1;
    return np_model_rate(model, faster);
}

/* The rate of the readers' threads if `without` cost nothing. */
static double threads_rate(const struct np_model *model, enum np_stage without)
{
    double faster[NP_NR_STAGES];

    for (int s = 0; s < NP_NR_STAGES; s++)
        faster[s] = s == (int)without ? INFINITY : 1;
    const double threads = thread_seconds(model, faster, true);
    const double cores = thread_seconds(model, faster, false);
    const double rate = threads > 0 ? model->knobs.readers / threads : INFINITY;

    return cores > 0 ? lower(rate, model->cores / cores, 1) : rate;
}

/* The rate of the stage's own disk, bus or device; INFINITY: it has none. */
static double own_rate(const struct np_model *model, enum np_stage stage)
{
    const double rate = stage == NP_STAGE_READ   ? model->read_rate
                        : stage == NP_STAGE_COPY ? model->copy_rate
                        : stage == NP_STAGE_STEP ? model->step_rate
                                                 : 0;

    return rate > 0 ? rate : INFINITY;
}

static double rate_without_checkpoints(const struct np_model *model)
{
    return model->checkpoint_each_s > 0
               ? np_model_rate_without(model, NP_STAGE_CHECKPOINT, NP_NR_STAGES)
               : model->rate;
}

double np_model_ceiling(const struct np_model *model, enum np_stage stage, enum np_stage limiter)
{
    if (np_model_shares(stage))
        return model->thread_s[stage] <= 0 ? INFINITY
               : np_model_shares(limiter)  ? threads_rate(model, NP_NR_STAGES)
                                           : threads_rate(model, limiter);
    if (stage == NP_STAGE_BATCH &&
        np_model_rate(model, NULL) < LOOSE * np_model_rate_without(model, stage, NP_NR_STAGES))
        return rate_without_checkpoints(model);
    if (stage == NP_STAGE_READ && stage == limiter)
        return fmin(own_rate(model, stage), threads_rate(model, NP_NR_STAGES));
    return own_rate(model, stage);
}

double np_model_busy(const struct np_model *model, enum np_stage stage)
{
    const double rate = rate_without_checkpoints(model);

    if (stage == NP_STAGE_CHECKPOINT)
        return model->checkpoint_share;
    const double threads = rate * model->thread_s[stage] / fmax(model->knobs.readers, 1);
    const double own = own_rate(model, stage);

    if (np_model_shares(stage) || stage == NP_STAGE_BATCH || isinf(own))
        return threads;
    return stage == NP_STAGE_READ ? fmin(fmax(rate / own, threads), 1) : fmin(rate / own, 1);
}
