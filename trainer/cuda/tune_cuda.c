/* np_cuda_program_tune(): chooses the cuDNN plan of each convolution, and whether it sums channels
 * for the batchnorm after it, by timing on the program's own memory.
 *
 * A trial is a captured graph of some runs, like a step: the host's time in cuDNN, longer than
 * many kernels, is not in it. A plan that cannot be captured is used only if there is no other.
 * cuDNN's first choice stays unless another plan is clearly faster, so that noise changes
 * little. */
#include <errno.h>
#include <string.h>

#include "trainer/cuda/program_cuda.h"

#define NR_TRIALS  3     /* trials; the median counts */
#define TRIAL_MS   2.0f  /* target length of a trial, with at most */
#define TRIAL_RUNS 20    /* runs */
#define MARGIN     0.97f /* share of the first choice's time that another plan must be below */
#define HOPELESS   4     /* times the best: a slower plan is not timed again */
#define HOST_MS    1.0f  /* beyond this the host's time in a run may dominate */
#define WARM_MS    50.0f /* of work, until the GPU's clocks are up */

typedef int (*run_fn)(
    struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err);

struct tuner {
    struct np_cuda_program *program;
    struct np_engines *engines;
    cudaStream_t stream;
    cudaEvent_t events[2];
    int timed; /* shapes */
    bool warm;
};
struct trial { /* some runs of a call */
    struct tuner *tuner;
    struct np_cuda_call *call;
    run_fn run;
    int runs;
    cudaGraphExec_t graph; /* of the runs; or NULL: they are queued one by one */
};
struct timing {
    float ms; /* of one run; < 0: it fails */
    bool captured;
};

static int run_conv(struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err)
{
    return np_cuda_conv_run(call->sums ? call->summing : call->conv, err);
}

/* Queues a convolution and the statistics after it, as a step does; running statistics are
 * discarded. */
static int run_pair(struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err)
{
    struct np_cuda_call stats = *call->reader;
    int code = np_cuda_call_queue(program, call, err);

    stats.p[1] = call->spare[0];
    stats.p[2] = call->spare[1];
    return code == 0 ? np_cuda_call_queue(program, &stats, err) : code;
}

/* --- timing ----------------------------------------------------------------------------------- */

static int queue_runs(void *context, struct np_err *err)
{
    const struct trial *trial = context;
    int code = 0;

    for (int i = 0; code == 0 && i < trial->runs; i++)
        code = trial->run(trial->tuner->program, trial->call, err);
    return code;
}

/* Milliseconds between the events around the trial; < 0: it fails. */
static float elapsed(struct trial *trial, struct np_err *err)
{
    struct tuner *tuner = trial->tuner;
    cudaError_t status = cudaEventRecord(tuner->events[0], tuner->stream);
    float ms = 0;

    if (status == cudaSuccess && trial->graph) {
        status = cudaGraphLaunch(trial->graph, tuner->stream);
    } else if (status == cudaSuccess && queue_runs(trial, err) < 0) {
        cudaGetLastError(); /* cleared, so that checks of kernel launches do not find it */
        return -1;
    }
    if (status == cudaSuccess)
        status = cudaEventRecord(tuner->events[1], tuner->stream);
    if (status == cudaSuccess)
        status = cudaEventSynchronize(tuner->events[1]);
    if (status == cudaSuccess)
        status = cudaEventElapsedTime(&ms, tuner->events[0], tuner->events[1]);
    return np_cuda_check(NULL, status, "to time it", err) < 0 ? -1 : ms;
}

static int runs_of(float ms, float of_ms, int max)
{
    float runs = ms > 0 ? of_ms / ms : (float)max;

    return runs < 1 ? 1 : runs > (float)max ? max : (int)runs;
}

static float median(const float ms[NR_TRIALS])
{
    float low = ms[0] < ms[1] ? ms[0] : ms[1], high = ms[0] < ms[1] ? ms[1] : ms[0];

    return ms[2] < low ? low : ms[2] > high ? high : ms[2];
}

/* best: of the plans timed so far; < 0: none. */
static struct timing time_run(
    struct tuner *tuner, struct np_cuda_call *call, run_fn run, float best, struct np_err *err)
{
    struct trial trial = {.tuner = tuner, .call = call, .run = run, .runs = 1};
    struct timing timing = {.captured = true};
    float ms[NR_TRIALS] = {0};

    timing.ms = elapsed(&trial, err); /* loads the kernels */
    if (timing.ms >= 0)
        timing.ms = elapsed(&trial, err);
    if (timing.ms < 0 || (best >= 0 && timing.ms > HOPELESS * best + HOST_MS))
        return timing;
    trial.runs = runs_of(timing.ms, TRIAL_MS, TRIAL_RUNS);
    if (np_cuda_graphs())
        timing.captured =
            np_cuda_capture(tuner->stream, queue_runs, &trial, &trial.graph, NULL) == 0;
    timing.ms = elapsed(&trial, err);
    for (int i = 0; i < NR_TRIALS && timing.ms >= 0; i++)
        timing.ms = ms[i] = elapsed(&trial, err);
    if (timing.ms >= 0)
        timing.ms = median(ms) / (float)trial.runs;
    if (trial.graph)
        cudaGraphExecDestroy(trial.graph);
    return timing;
}

/* Raises the clocks with work; numbers of a realistic size draw realistic power. */
static void warm_up(struct tuner *tuner, struct np_cuda_call *call)
{
    const struct np_cuda_program *program = tuner->program;
    const struct np_cuda_arrays *arrays = &program->arrays;
    bool f32 = program->dtype == NP_CUDA_F32;
    struct trial trial = {.tuner = tuner, .call = call, .run = run_conv, .runs = 1};
    float ms, sum = 0;

    if (tuner->warm)
        return;
    tuner->warm = true;
    np_cuda_fill(tuner->stream, program->dtype, program->arena,
        program->memory.arena_bytes / (f32 ? 4 : 2), 1.0f);
    np_cuda_fill(tuner->stream, program->dtype, f32 ? arrays->params : arrays->half,
        arrays->layout->nr_params, 0.05f);
    ms = elapsed(&trial, NULL);
    for (int i = 0; i < 50 && ms >= 0 && sum < WARM_MS && !program->cuda->warm; i++) {
        trial.runs = runs_of(ms / (float)trial.runs, WARM_MS / 8, 100);
        ms = elapsed(&trial, NULL);
        sum += ms;
    }
    program->cuda->warm = true;
}

/* --- choosing -------------------------------------------------------------------------------- */

struct pick { /* the fastest of some plans */
    int plan; /* < 0: none yet */
    float ms;
};

static void offer(struct pick *pick, int plan, float ms)
{
    if (pick->plan < 0 || ms < pick->ms)
        *pick = (struct pick){plan, ms};
}

/* Chooses one of the call's plans; *ret_ms: its time. Skips a plan that fails. */
static int choose(struct tuner *tuner, struct np_cuda_call *call, float *ret_ms, struct np_err *err)
{
    struct np_cuda_conv *conv = call->sums ? call->summing : call->conv;
    struct pick first = {-1, -1}, best = first, other = first; /* other: cannot be captured */
    struct np_err why = {0};

    for (int i = 0; i < conv->shape->nr_plans; i++) {
        struct timing timing;

        conv->shape->taken = i;
        timing = time_run(tuner, call, run_conv, best.ms, &why);
        if (timing.ms < 0)
            continue;
        offer(timing.captured ? &best : &other, i, timing.ms);
        if (first.plan < 0)
            first = best;
    }
    if (best.plan < 0 && other.plan < 0)
        return np_err_set(err, -EIO, "none of cuDNN's plans runs: %s", why.text);
    if (best.ms > MARGIN * first.ms)
        best = first;
    if (best.plan < 0)
        best = other;
    conv->shape->taken = best.plan;
    *ret_ms = best.ms;
    np_cuda_conv_keep(conv);
    return 0;
}

static int tune_conv(struct tuner *tuner, struct np_cuda_call *call, struct np_err *err)
{
    struct np_cuda_conv *conv = call->conv;
    float ms = 0;
    int code = 0;

    call->sums = false;
    if (conv->shape->settled)
        return 0;
    tuner->timed++;
    if (conv->shape->nr_plans > 1) {
        warm_up(tuner, call);
        code = choose(tuner, call, &ms, err);
    } else {
        np_cuda_conv_keep(conv);
    }
    return code == 0
               ? np_engines_put(tuner->engines, conv->shape->key, np_cuda_conv_taken(conv), ms, err)
               : code;
}

/* Chooses whether a convolution and its statistics run as two kernels or as one: times both, with
 * all calls that a step queues for them. */
static int choose_sums(struct tuner *tuner, struct np_cuda_call *call, struct np_err *err)
{
    const char *key = call->summing->shape->key;
    struct timing apart, as_one = {.ms = -1};
    float ms;

    tuner->timed++;
    warm_up(tuner, call);
    np_cuda_zero(tuner->stream, call->sum,
        2 * np_cuda_pitch(np_cuda_channels(tuner->program, call->node->outs[0])));
    apart = time_run(tuner, call, run_pair, -1, err);
    if (apart.ms < 0)
        return np_err_set(err, -EIO, "its statistics do not run");
    call->sums = true;
    if (choose(tuner, call, &ms, NULL) == 0)
        as_one = time_run(tuner, call, run_pair, -1, NULL);
    else
        np_cuda_conv_keep(call->summing);
    call->sums =
        as_one.ms >= 0 && as_one.captured >= apart.captured && as_one.ms < MARGIN * apart.ms;
    return call->sums ? np_engines_put(
                            tuner->engines, key, np_cuda_conv_taken(call->summing), as_one.ms, err)
                      : np_engines_put(tuner->engines, key, NP_ENGINE_APART, apart.ms, err);
}

/* The same for a convolution that can sum channels. A choice of this or an earlier run stays. */
static int tune_sums(struct tuner *tuner, struct np_cuda_call *call, struct np_err *err)
{
    const char *key = call->summing->shape->key;
    const struct np_engine *engine = np_engines_find(tuner->engines, key);
    int code = 0;

    call->sums =
        call->summing->shape->settled && !(engine && strcmp(engine->id, NP_ENGINE_APART) == 0);
    if (!call->summing->shape->settled)
        code = choose_sums(tuner, call, err);
    if (code == 0 && !call->sums) {
        np_cuda_conv_free(call->summing);
        call->summing = NULL;
    }
    return code;
}

static int tune_call(struct tuner *tuner, struct np_cuda_call *call, struct np_err *err)
{
    int code = tune_conv(tuner, call, err);

    if (code == 0 && call->summing)
        code = tune_sums(tuner, call, err);
    return code < 0 ? np_err_context(err, "%s", call->node->name) : 0;
}

int np_cuda_program_tune(
    struct np_cuda_program *program, struct np_engines *engines, int *timed, struct np_err *err)
{
    struct tuner tuner = {.program = program,
        .engines = engines,
        .stream = program->cuda->streams[NP_STREAM_COMPUTE]};
    int code = 0;

    for (int i = 0; i < 2; i++)
        if (code == 0 && cudaEventCreate(&tuner.events[i]) != cudaSuccess)
            code = np_err_set(err, -EIO, "no event to time cuDNN's plans with");
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++)
        if (program->calls[n].conv)
            code = tune_call(&tuner, &program->calls[n], err);
    for (int i = 0; i < 2; i++)
        if (tuner.events[i])
            cudaEventDestroy(tuner.events[i]);
    *timed += tuner.timed;
    return code;
}
