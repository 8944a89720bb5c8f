/* np_cuda_program_tune(): which of cuDNN's plans a convolution runs, and whether it sums channels for the
 * batchnorm behind it, timed on the program's own memory. */
#include <errno.h>

#include "trainer/cuda/calls_cuda.h"

#define NR_TRIALS 5 /* the fastest of these counts */

typedef int (*run_fn)(
    struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err);

static int run_conv(struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err)
{
    (void)program;
    return np_cuda_conv_run(call->sums ? call->summing : call->conv, err);
}

/* A convolution and the statistics behind it, as a step queues them; running ones go nowhere. */
static int run_pair(struct np_cuda_program *program, struct np_cuda_call *call, struct np_err *err)
{
    struct np_cuda_call stats = *call->reader;
    int code = np_cuda_call_queue(program, call, err);

    stats.p[1] = call->spare[0];
    stats.p[2] = call->spare[1];
    return code == 0 ? np_cuda_call_queue(program, &stats, err) : code;
}

/* Milliseconds of one run, at best; < 0: it failed. */
static float time_run(struct np_cuda_program *program, struct np_cuda_call *call, run_fn run,
    cudaEvent_t events[2], struct np_err *err)
{
    cudaStream_t stream = program->cuda->streams[NP_STREAM_COMPUTE];
    float best = -1;

    for (int trial = 0; trial <= NR_TRIALS; trial++) { /* the first one loads */
        cudaError_t status = cudaEventRecord(events[0], stream);
        float ms = 0;

        if (status == cudaSuccess && run(program, call, err) < 0) {
            cudaGetLastError(); /* not to be found by who looks for kernels' errors */
            return -1;
        }
        if (status == cudaSuccess)
            status = cudaEventRecord(events[1], stream);
        if (status == cudaSuccess)
            status = cudaEventSynchronize(events[1]);
        if (status == cudaSuccess)
            status = cudaEventElapsedTime(&ms, events[0], events[1]);
        if (np_cuda_check(NULL, status, "to time it", err) < 0)
            return -1;
        if (trial > 0 && (best < 0 || ms < best))
            best = ms;
    }
    return best;
}

/* Takes the fastest of the plans that the call now runs; one that fails is passed over. */
static int time_plans(struct np_cuda_program *program, struct np_cuda_call *call,
    cudaEvent_t events[2], struct np_err *err)
{
    struct np_cuda_conv *conv = call->sums ? call->summing : call->conv;
    float best = -1;
    int fastest = -1;
    struct np_err why = {0};

    for (int i = 0; i < np_cuda_conv_plans(conv); i++) {
        float ms;

        np_cuda_conv_take(conv, i);
        ms = time_run(program, call, run_conv, events, &why);
        if (ms >= 0 && (fastest < 0 || ms < best)) {
            best = ms;
            fastest = i;
        }
    }
    if (fastest < 0)
        return np_err_set(err, -EIO, "none of cuDNN's plans runs: %s", why.text);
    np_cuda_conv_take(conv, fastest);
    return fastest;
}

/* Alone: its plan. */
static int tune_conv(struct np_cuda_program *program, struct np_cuda_call *call,
    struct np_engines *engines, cudaEvent_t events[2], int *timed, struct np_err *err)
{
    char key[NP_ENGINE_KEY];
    int plan;

    np_engine_key(program->graph, call->node, np_conv_patterns[np_cuda_conv_pattern(call->conv)],
        &program->rules, key);
    plan = np_engines_find(engines, key);
    if (plan >= 0 && plan < np_cuda_conv_plans(call->conv)) {
        np_cuda_conv_take(call->conv, plan);
        return 0;
    }
    plan = np_cuda_conv_plans(call->conv) > 1 ? time_plans(program, call, events, err) : 0;
    if (plan < 0)
        return plan;
    ++*timed;
    return np_engines_put(engines, key, plan, err);
}

/* With the sums of channels: the choice is 0 where convolution and statistics are two, else 1 + its
 * plan. Both are timed as pairs, with all that a step queues for them. */
static int tune_sums(struct np_cuda_program *program, struct np_cuda_call *call,
    struct np_engines *engines, cudaEvent_t events[2], int *timed, struct np_err *err)
{
    char key[NP_ENGINE_KEY];
    int choice, plan;
    float apart, as_one = -1;

    np_engine_key(
        program->graph, call->node, np_conv_patterns[NP_CONV_STATS], &program->rules, key);
    choice = np_engines_find(engines, key);
    if (choice < 0 || choice > np_cuda_conv_plans(call->summing)) {
        apart = time_run(program, call, run_pair, events, err);
        if (apart < 0)
            return np_err_set(err, -EIO, "its statistics do not run");
        call->sums = true;
        plan = time_plans(program, call, events, NULL);
        if (plan >= 0)
            as_one = time_run(program, call, run_pair, events, NULL);
        choice = as_one >= 0 && as_one < apart ? plan + 1 : 0;
        ++*timed;
    }
    call->sums = choice > 0;
    if (call->sums)
        np_cuda_conv_take(call->summing, choice - 1);
    return np_engines_put(engines, key, choice, err);
}

static int tune_call(struct np_cuda_program *program, struct np_cuda_call *call,
    struct np_engines *engines, cudaEvent_t events[2], int *timed, struct np_err *err)
{
    int code;

    call->sums = false;
    code = tune_conv(program, call, engines, events, timed, err);
    if (code == 0 && call->summing)
        code = tune_sums(program, call, engines, events, timed, err);
    return code < 0 ? np_err_context(err, "%s", call->node->name) : 0;
}

int np_cuda_program_tune(
    struct np_cuda_program *program, struct np_engines *engines, int *ret_timed, struct np_err *err)
{
    cudaStream_t stream = program->cuda->streams[NP_STREAM_COMPUTE];
    cudaEvent_t events[2] = {NULL, NULL};
    int code = 0, timed = 0;

    if (cudaEventCreate(&events[0]) != cudaSuccess || cudaEventCreate(&events[1]) != cudaSuccess)
        code = np_err_set(err, -EIO, "no event to time cuDNN's plans with");
    /* Small numbers everywhere: zeros would be faster than what is real. */
    if (code == 0)
        cudaMemsetAsync(program->arena, 0x3c, program->memory.arena_bytes, stream);
    for (int n = 0; code == 0 && n < program->graph->nr_nodes; n++)
        if (program->calls[n].conv)
            code = tune_call(program, &program->calls[n], engines, events, &timed, err);
    for (int i = 0; i < 2; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    *ret_timed += timed;
    return code;
}
