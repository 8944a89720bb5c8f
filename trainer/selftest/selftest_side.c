/* See selftest_side.h. */
#include "trainer/selftest/selftest_side.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "trainer/plan.h"

#define THREADS 2 /* and lanes: the reference's rounding should not depend on the box */

static int build(struct np_self_side *side, const struct np_selftest_case *the_case,
    enum np_dtype precision, struct np_err *err)
{
    static const float mean[4] = {0.5f, 0.4f, 0.3f, 0.45f}, std[4] = {0.25f, 0.2f, 0.3f, 0.22f};
    const struct np_graph_input input = {.batch = the_case->batch,
        .height = the_case->height,
        .width = the_case->width,
        .channels = the_case->channels,
        .classes = the_case->classes,
        .mean = mean,
        .std = std,
        .precision = precision,
        .seed = 7};
    struct np_report report;

    np_report_init(&report, "selftest");
    side->train =
        np_graph_build(the_case->model, the_case->blocks, the_case->loss, &input, &report);
    if (!side->train)
        np_err_set(err, -EINVAL, "the network cannot be built: %s", report.errs[0].text);
    np_report_fini(&report);
    if (!side->train)
        return -EINVAL;
    side->eval = np_graph_eval(side->train);
    return np_autodiff(side->train, err);
}

static int make_room(struct np_self_side *side, struct np_self_batch *batch, struct np_err *err)
{
    struct np_device *device = side->device;
    size_t rows = (size_t)side->train->batch;
    size_t bytes = np_tensor_elements(&side->train->tensors[side->train->images]);

    /* The device's own pinned memory, as the ring has it: uploads may need it. */
    batch->images = device->pinned.alloc(device->pinned.context, bytes);
    batch->labels = device->pinned.alloc(device->pinned.context, rows * sizeof(int32_t));
    if (!batch->images || !batch->labels)
        return np_err_set(err, -ENOMEM, "%s: no pinned memory for a batch", device->name);
    batch->device_images = batch->images;
    batch->device_labels = batch->labels;
    if (!device->ops->alloc)
        return 0;
    batch->device_images = device->ops->alloc(device, bytes);
    batch->device_labels = device->ops->alloc(device, rows * sizeof(int32_t));
    return batch->device_images && batch->device_labels
               ? 0
               : np_err_set(err, -ENOMEM, "%s: no memory for a batch", device->name);
}

int np_self_open(struct np_self_side *side, struct np_device *device,
    const struct np_selftest_case *the_case, enum np_dtype precision, bool reference,
    struct np_err *err)
{
    const struct np_plan_options options = {
        .lanes = THREADS, .threads = THREADS, .reference = reference, .deterministic = true};
    int code;

    *side = (struct np_self_side){.device = device};
    code = build(side, the_case, precision, err);
    for (int i = 0; i < NP_SELF_BATCHES && code == 0; i++)
        code = make_room(side, &side->batches[i], err);
    if (code == 0)
        code =
            device->plan_ops->prepare(device, side->train, side->eval, &options, &side->plan, err);
    return code;
}

void np_self_close(struct np_self_side *side)
{
    struct np_device *device = side->device;

    if (side->plan)
        device->plan_ops->free(side->plan);
    for (int i = 0; i < NP_SELF_BATCHES && side->train; i++) {
        struct np_self_batch *batch = &side->batches[i];
        size_t rows = (size_t)side->train->batch;
        size_t bytes = np_tensor_elements(&side->train->tensors[side->train->images]);

        if (device->ops->alloc && batch->device_images)
            device->ops->free(device, batch->device_images);
        if (device->ops->alloc && batch->device_labels)
            device->ops->free(device, batch->device_labels);
        if (batch->images)
            device->pinned.free(device->pinned.context, batch->images, bytes);
        if (batch->labels)
            device->pinned.free(device->pinned.context, batch->labels, rows * sizeof(int32_t));
    }
    np_graph_free(side->train);
    np_graph_free(side->eval);
    memset(side, 0, sizeof(*side));
}

int np_self_load(struct np_self_side *side, int at, const uint8_t *images, const int32_t *labels,
    struct np_err *err)
{
    const struct np_device_ops *ops = side->device->ops;
    struct np_self_batch *batch = &side->batches[at];
    size_t rows = (size_t)side->train->batch;
    size_t bytes = np_tensor_elements(&side->train->tensors[side->train->images]);
    struct np_event copied = {0};

    memcpy(batch->images, images, bytes);
    memcpy(batch->labels, labels, rows * sizeof(*labels));
    batch->nr_valid = 0;
    for (size_t r = 0; r < rows; r++)
        batch->nr_valid += labels[r] >= 0;
    if (!ops->alloc)
        return 0;
    if (ops->upload(side->device, batch->device_images, batch->images, bytes) < 0 ||
        ops->upload(side->device, batch->device_labels, batch->labels, rows * sizeof(*labels)) < 0)
        return np_err_set(err, -EIO, "%s: a copy to the device failed", side->device->name);
    ops->record(side->device, NP_STREAM_COPY, &copied);
    ops->follow(side->device, NP_STREAM_COMPUTE, &copied);
    return ops->done(side->device, &copied, true) < 0
               ? np_err_set(err, -EIO, "%s: a copy to the device failed", side->device->name)
               : 0;
}

int np_self_step(
    struct np_self_side *side, int at, uint64_t step, bool accumulate, struct np_err *err)
{
    const struct np_self_batch *batch = &side->batches[at];

    return side->device->plan_ops->step(side->plan, batch->device_images, batch->device_labels,
        step, 1.0f / (float)batch->nr_valid, accumulate, err);
}

int np_self_step_update(struct np_self_side *side, int at, uint64_t step,
    const struct np_hyper *hyper, struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    const struct np_self_batch *batch = &side->batches[at];
    int code;

    if (ops->step_update)
        return ops->step_update(side->plan, batch->device_images, batch->device_labels, step,
            1.0f / (float)batch->nr_valid, hyper, err);
    code = np_self_step(side, at, step, false, err);
    return code == 0 ? ops->update(side->plan, hyper, err) : code;
}

int np_self_write(struct np_self_side *side, const float *params, const float *buffers,
    bool second_state, struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    float *zeros = np_try_array(side->train->nr_params, sizeof(float), err);
    int code;

    if (!zeros)
        return -ENOMEM;
    code = ops->write(side->plan, NP_ARRAY_PARAMS, params, err);
    if (code == 0 && side->train->nr_buffers)
        code = ops->write(side->plan, NP_ARRAY_BUFFERS, buffers, err);
    if (code == 0)
        code = ops->write(side->plan, NP_ARRAY_STATE0, zeros, err);
    if (code == 0 && second_state)
        code = ops->write(side->plan, NP_ARRAY_STATE1, zeros, err);
    np_free(zeros);
    return code;
}

float *np_self_arrays(const uint64_t *sizes, int n, float **const *ret_arrays, struct np_err *err)
{
    uint64_t all = 0;

    for (int i = 0; i < n; i++)
        all += sizes[i];
    float *block = np_try_array(all, sizeof(float), err), *at = block;

    for (int i = 0; block && i < n; i++) {
        *ret_arrays[i] = at;
        at += sizes[i];
    }
    return block;
}

static int take_room(
    struct np_self_numbers *numbers, const struct np_graph *graph, struct np_err *err)
{
    const uint64_t logits = (uint64_t)graph->batch * (uint64_t)graph->classes;

    numbers->block = np_self_arrays(
        (const uint64_t[]){logits, logits, graph->nr_params, graph->nr_params, graph->nr_buffers},
        5,
        (float **const[]){&numbers->logits, &numbers->eval_logits, &numbers->grads, &numbers->sum,
            &numbers->running},
        err);
    return numbers->block ? 0 : -ENOMEM;
}

static int measure_step(
    struct np_self_side *side, uint64_t step, struct np_self_numbers *numbers, struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    struct np_metrics second;
    int code = np_self_step(side, 0, step, false, err);

    if (code == 0)
        code = ops->logits(side->plan, numbers->logits, err);
    if (code == 0)
        code = ops->read(side->plan, NP_ARRAY_GRADS, numbers->grads, err);
    if (code == 0)
        code = np_self_step(side, 1, step + 1, true, err);
    /* The first batch's numbers while the second is the newest, as the trainer reads them. */
    if (code == 0)
        code = ops->metrics(side->plan, true, &numbers->step, err);
    if (code == 0)
        code = ops->metrics(side->plan, false, &second, err);
    if (code == 0 && second.rows != (uint64_t)side->batches[1].nr_valid)
        numbers->step.rows = UINT64_MAX; /* counted in the wrong batch */
    if (code == 0)
        code = ops->read(side->plan, NP_ARRAY_GRADS, numbers->sum, err);
    if (code == 0 && side->train->nr_buffers)
        code = ops->read(side->plan, NP_ARRAY_BUFFERS, numbers->running, err);
    return code;
}

int np_self_measure(struct np_self_side *side, const float *params, const float *buffers,
    uint64_t step, struct np_self_numbers *ret_numbers, struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    const struct np_self_batch *batch = &side->batches[0];
    struct np_self_numbers numbers = {0};
    struct np_metrics old;
    int code = take_room(&numbers, side->train, err);

    if (code == 0)
        code = np_self_write(side, params, buffers, false, err);
    if (code == 0)
        code = ops->metrics(side->plan, false, &old, err);
    if (code == 0)
        code = ops->eval(side->plan, batch->device_images, batch->device_labels, err);
    if (code == 0)
        code = ops->logits(side->plan, numbers.eval_logits, err);
    if (code == 0)
        code = ops->metrics(side->plan, false, &numbers.eval, err);
    if (code == 0)
        code = measure_step(side, step, &numbers, err);
    if (code < 0)
        np_free(numbers.block);
    else
        *ret_numbers = numbers;
    return code;
}

double np_self_norm(const float *a, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

double np_self_error(const float *a, const float *b, uint64_t n, double least)
{
    double off = 0, size = np_self_norm(b, n), error;

    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];

        off += d * d;
    }
    size = size > least ? size : least;
    error = off == 0 ? 0 : sqrt(off) / size;
    return isfinite(error) ? error : INFINITY;
}
