/* `nnpipe bench step`: measures the training step alone (forward, backward, update), on one batch
 * of random pixels that is already on the device. Without data, size and classes come from the
 * config, or are guessed. A launcher (mpirun, srun, torchrun) may start it in several processes, each
 * with a part of the batch. Main thread. */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "daemon/bench/bench.h"
#include "daemon/config/config_lanes.h"
#include "daemon/run/compute.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "trainer/comm.h"
#include "trainer/plan.h"

#define WARMUP_STEPS 3
#define MAX_TIMES    100000 /* steps whose times are stored */

struct step_bench {
    struct np_comm *comm; /* NULL: one process */
    struct np_device *device;
    struct np_plan *plan;
    enum np_dtype precision;
    int threads;
    uint8_t *batch;     /* images, then labels */
    void *device_batch; /* of np_compute_copy() */
    size_t labels_at;
    struct np_event passed[NP_MAX_LATER + 1]; /* of the newest steps, by number */
    uint64_t last_ns;                         /* end of the newest finished step */
    double *ms;
    size_t nr_steps;
    double seconds;
    double cpu_start, cpu_seconds; /* of all threads, for the same steps */
};

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int write_weights(struct np_bench *bench, const struct step_bench *step, struct np_err *err)
{
    const struct np_graph *graph = bench->setup.graph;
    const struct np_plan_ops *ops = step->device->plan_ops;
    float *params = np_try_array(graph->nr_params + 1, sizeof(float), err);
    float *buffers = np_try_array(graph->nr_buffers + 1, sizeof(float), err);
    int code = err->code;

    if (code == 0)
        np_graph_init(graph, (uint64_t)bench->config->seed, params, buffers);
    if (code == 0)
        code = ops->write(step->plan, NP_ARRAY_PARAMS, params, err);
    if (code == 0)
        code = ops->write(step->plan, NP_ARRAY_BUFFERS, buffers, err);
    np_free(params);
    np_free(buffers);
    return code;
}

static int make_batch(struct np_bench *bench, struct step_bench *step, struct np_err *err)
{
    const struct np_graph *graph = bench->setup.graph;
    const size_t rows = (size_t)graph->batch,
                 pixels = np_tensor_elements(&graph->tensors[graph->images]);
    struct np_draws draws;

    step->labels_at = (pixels + NP_LABELS_AT - 1) / NP_LABELS_AT * NP_LABELS_AT;
    const size_t bytes = step->labels_at + rows * (1 + (size_t)graph->values) * sizeof(int32_t);
    if (!(step->batch = np_try_alloc(bytes, err)))
        return err->code;
    int32_t *labels = (int32_t *)(void *)(step->batch + step->labels_at);
    np_draws_init(&draws, (uint64_t)bench->config->seed, NP_STREAM_TEST, 0, 0, 0);
    for (size_t i = 0; i < pixels; i++)
        step->batch[i] = (uint8_t)np_draw_below(&draws, 256);
    for (size_t i = 0; i < rows; i++)
        labels[i] = (int32_t)np_draw_below(&draws, (uint32_t)graph->classes);
    return np_compute_copy(step->device, step->batch, bytes, &step->device_batch, err);
}

/* The other processes, and what a batch in lanes is to the device. */
static int open_lanes(struct np_bench *bench, struct step_bench *step,
    struct np_plan_options *ret_options, struct np_err *err)
{
    const struct np_config *config = bench->config;
    const int lanes = (int)config->run.lanes, over = (int)config->run.batchnorm_over;
    struct np_launch launch;
    int code = np_launch_find(&launch, err);

    if (code < 0)
        return code;
    if (launch.world > 1 && (lanes <= 0 || bench->steps <= 0))
        return np_err_set(err, -EINVAL,
            "%s started %d processes: `bench step` needs train.lanes, as many in each process, and "
            "--steps",
            launch.by, launch.world);
    if (launch.world > 1 && np_config_check_processes(config, launch.world, err) < 0)
        return err->code;
    if (lanes > 1 && !step->device->plan_ops->at_once)
        return np_err_set(
            err, -EINVAL, "`bench step` measures train.lanes with `device: cpu` only");
    if (launch.world > 1 && (code = np_comm_open(&launch, &step->comm, err)) < 0)
        return code;
    if (launch.rank > 0)
        np_ui_hush(&bench->ui);
    step->threads = (step->threads + launch.local_world - 1) / launch.local_world;
    bench->setup.processes = launch.world;
    ret_options->parts = lanes;
    ret_options->comm = step->comm;
    ret_options->batchnorm_over = over > 0                ? over
                                  : over == NP_BN_PROCESS ? NP_OVER_PROCESS
                                                          : NP_OVER_ALL;
    return 0;
}

static int open_step(struct np_bench *bench, struct step_bench *step, struct np_err *err)
{
    const struct np_config *config = bench->config;
    struct np_plan_options options;
    int code = np_device_open(config->device, &config->device_options, &step->device, err);

    if (code < 0)
        return code;
    if (*step->device->passed_over)
        np_ui_warn(&bench->ui, step->device->passed_over);
    step->precision = np_compute_precision(config, step->device);
    step->threads = np_compute_threads(config);
    options = (struct np_plan_options){.lanes = step->threads,
        .deterministic = config->run.deterministic,
        .tf32 = config->run.tf32,
        .recompute = config->run.recompute,
        .muon = config->optim.kind == NP_MUON};
    code = open_lanes(bench, step, &options, err);
    options.threads = step->threads;
    if (code == 0)
        code = np_compute_graph(config, step->precision, &bench->overrides, &bench->setup, err);
    if (code == 0)
        code = step->device->plan_ops->prepare(
            step->device, bench->setup.graph, NULL, &options, &step->plan, err);
    if (code == 0)
        code = write_weights(bench, step, err);
    if (code == 0)
        code = make_batch(bench, step, err);
    if (code == 0 && !(step->ms = np_try_array(MAX_TIMES, sizeof(*step->ms), err)))
        code = err->code;
    return code;
}

static int queue_step(
    const struct np_bench *bench, struct step_bench *step, uint64_t i, struct np_err *err)
{
    const struct np_device_ops *ops = step->device->ops;
    const struct np_plan_ops *plan_ops = step->device->plan_ops;
    const void *labels = (uint8_t *)step->device_batch + step->labels_at;
    const float scale = 1.0f / (float)(bench->setup.graph->batch * np_comm_world(step->comm));
    struct np_hyper hyper;
    int code;

    np_optim_hyper(&bench->config->optim, 0.01, i, &hyper);
    hyper.clip_norm = (float)bench->config->run.clip_norm;
    if (plan_ops->step_update) {
        code = plan_ops->step_update(step->plan, step->device_batch, labels, i, scale, &hyper, err);
    } else {
        code = plan_ops->step(step->plan, step->device_batch, labels, i, scale, false, err);
        if (code == 0)
            code = plan_ops->update(step->plan, &hyper, err);
    }
    if (code == 0)
        ops->record(step->device, NP_STREAM_COMPUTE, &step->passed[i % (NP_MAX_LATER + 1)]);
    return code;
}

/* Waits for step i. Its time is from the end of the previous step to its own end. */
static int finish_step(struct step_bench *step, uint64_t i, struct np_err *err)
{
    struct np_event *passed = &step->passed[i % (NP_MAX_LATER + 1)];
    uint64_t end;

    if (step->device->ops->done(step->device, passed, true) < 0)
        return np_err_set(err, -EIO, "%s: the step failed%s%s", step->device->name,
            *step->device->fault ? ": " : "", step->device->fault);
    end = passed->passed_ns > step->last_ns ? passed->passed_ns : step->last_ns;
    if (i >= WARMUP_STEPS) {
        step->ms[step->nr_steps++] = (double)(end - step->last_ns) * 1e-6;
        step->seconds += (double)(end - step->last_ns) * 1e-9;
        step->cpu_seconds = cpu_seconds() - step->cpu_start;
    } else {
        step->cpu_start = cpu_seconds();
    }
    step->last_ns = end;
    return 0;
}

/* Queues later steps before it waits for the current one, as the trainer does if they are short. */
static int run(const struct np_bench *bench, struct step_bench *step, struct np_err *err)
{
    const uint64_t most = bench->steps > 0 ? (uint64_t)bench->steps + WARMUP_STEPS : UINT64_MAX;
    const uint64_t later = step->device->plan_ops->synchronous ? 0 : NP_MAX_LATER;
    uint64_t nr_queued = 0, nr_done = 0;
    bool enough = false;
    int code = 0;

    while (code == 0 && (nr_done < nr_queued || !enough)) {
        enough = enough || nr_queued == most || step->nr_steps + 1 >= MAX_TIMES ||
                 (bench->steps == 0 && step->seconds >= bench->seconds);
        if (!enough)
            code = queue_step(bench, step, nr_queued++, err);
        if (code == 0 && (enough ? nr_done < nr_queued : nr_queued - nr_done > later))
            code = finish_step(step, nr_done++, err);
    }
    return code;
}

static int compare_times(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static void report(struct np_bench *bench, struct step_bench *step)
{
    struct np_json *json = &bench->ui.object;
    const int batch = bench->setup.graph->batch * np_comm_world(step->comm);
    const char *precision = np_precision_names[step->precision];
    const double rate = (double)step->nr_steps * batch / step->seconds;
    double p50, p99;

    qsort(step->ms, step->nr_steps, sizeof(*step->ms), compare_times);
    p50 = step->ms[step->nr_steps / 2];
    p99 = step->ms[step->nr_steps * 99 / 100];
    np_json_begin(json, "done");
    np_json_int(json, "steps", (int64_t)step->nr_steps);
    np_json_int(json, "batch", batch);
    np_json_real(json, "seconds", step->seconds);
    np_json_real(json, "cpu_seconds", step->cpu_seconds);
    np_json_real(json, "images_per_second", rate);
    np_json_real(json, "step_ms_p50", p50);
    np_json_real(json, "step_ms_p99", p99);
    np_json_text(json, "precision", precision);
    np_json_text(json, "device", step->device->name);
    np_json_int(json, "threads", step->threads);
    np_json_int(json, "parameters", (int64_t)bench->setup.graph->nr_params);
    np_ui_event(&bench->ui, np_json_end(json));
    if (!bench->json)
        np_ui_say(&bench->ui,
            "%zu steps of %d images in %.2f s on %s, %s, %d threads: %.0f img/s, a step takes "
            "%.1f ms (p50), %.1f ms (p99)",
            step->nr_steps, batch, step->seconds, step->device->name, precision, step->threads,
            rate, p50, p99);
}

static void close_step(struct step_bench *step)
{
    np_compute_free(step->device, step->batch, step->device_batch);
    if (step->plan)
        step->device->plan_ops->free(step->plan);
    np_device_close(step->device);
    np_comm_close(step->comm);
    np_free(step->ms);
}

int np_bench_step(struct np_bench *bench, struct np_err *err)
{
    struct step_bench step = {0};
    int code = open_step(bench, &step, err);

    if (code == 0)
        code = run(bench, &step, err);
    if (code == 0)
        report(bench, &step);
    close_step(&step);
    return code;
}
