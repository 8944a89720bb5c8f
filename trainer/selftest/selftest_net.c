#include "trainer/selftest/selftest_net.h"

#include <errno.h>
#include <string.h>

#include "loader/base/rng.h"
#include "loader/base/yaml.h"

#define THREADS        2  /* and lanes: the reference must round alike on every machine */
#define SETTLE_UPDATES 24 /* halvings from any power of two that float16 may start with */

static bool build(struct np_net *net, enum np_dtype precision)
{
    const struct np_selftest_case *the_case = net->the_case;
    static const float mean[4] = {0.5f, 0.4f, 0.3f, 0.45f}, std[4] = {0.25f, 0.2f, 0.3f, 0.22f};
    const struct np_graph_input input = {.batch = the_case->batch,
        .height = the_case->height,
        .width = the_case->width,
        .channels = the_case->channels,
        .classes = the_case->classes,
        .mean = mean,
        .std = std,
        .precision = precision,
        .label_type = the_case->label_type,
        .mix = {.mixup = the_case->mixes, .cutmix = the_case->mixes, .share = 1},
        .seed = 7};
    struct np_report report;
    struct np_node *root = NULL;

    np_report_init(&report, "selftest");
    if (np_yaml_parse(the_case->yaml, strlen(the_case->yaml), &root, &report) == 0)
        net->train = np_graph_build(np_node_get(root, "model"), np_node_get(root, "blocks"),
            np_node_get(root, "loss"), &input, &report);
    if (!net->train)
        np_err_set(net->err, -EINVAL, "the network cannot be built: %s", report.errs[0].text);
    np_report_fini(&report);
    np_node_free(root);
    if (!net->train)
        return false;
    net->eval = np_graph_eval(net->train);
    return np_autodiff(net->train, net->err) == 0;
}

static size_t label_bytes_of(const struct np_net *net)
{
    return np_tensor_elements(&net->train->tensors[net->train->labels]) * sizeof(int32_t);
}

/* Allocates a batch from the device's own pinned memory, as the ring does: uploads may need it. */
static bool alloc_batch(struct np_net *net, struct np_net_batch *batch)
{
    struct np_device *device = net->device;
    const size_t bytes = net->rows * net->row_bytes, label_bytes = label_bytes_of(net);

    batch->images = device->pinned.alloc(device->pinned.context, bytes);
    batch->labels = device->pinned.alloc(device->pinned.context, label_bytes);
    batch->device_images = device->ops->alloc ? device->ops->alloc(device, bytes) : batch->images;
    batch->device_labels =
        device->ops->alloc ? device->ops->alloc(device, label_bytes) : batch->labels;
    if (!batch->images || !batch->labels || !batch->device_images || !batch->device_labels)
        np_err_set(net->err, -ENOMEM, "%s: no memory for a batch", device->name);
    return net->err->code == 0;
}

bool np_net_open(struct np_net *net, struct np_device *device,
    const struct np_selftest_case *the_case, enum np_dtype precision, bool reference,
    struct np_err *err)
{
    const struct np_plan_options options = {.lanes = THREADS,
        .threads = THREADS,
        .reference = reference,
        .deterministic = true,
        .muon = true};

    *net = (struct np_net){.device = device,
        .ops = device->plan_ops,
        .the_case = the_case,
        .rows = (size_t)the_case->batch,
        .row_bytes =
            (size_t)the_case->height * (size_t)the_case->width * (size_t)the_case->channels,
        .err = err};
    if (!build(net, precision))
        return false;
    for (int i = 0; i < NP_NET_BATCHES; i++)
        if (!alloc_batch(net, &net->batches[i]))
            return false;
    net->zeros = np_try_array(net->train->nr_params, sizeof(float), err);
    return net->zeros &&
           net->ops->prepare(device, net->train, net->eval, &options, &net->plan, err) == 0;
}

void np_net_close(struct np_net *net)
{
    struct np_device *device = net->device;

    if (net->plan)
        net->ops->free(net->plan);
    for (int i = 0; i < NP_NET_BATCHES && device; i++) {
        struct np_net_batch *batch = &net->batches[i];

        if (device->ops->alloc) {
            device->ops->free(device, batch->device_images);
            device->ops->free(device, batch->device_labels);
        }
        device->pinned.free(device->pinned.context, batch->images, net->rows * net->row_bytes);
        device->pinned.free(
            device->pinned.context, batch->labels, net->train ? label_bytes_of(net) : 0);
    }
    np_graph_free(net->train);
    np_graph_free(net->eval);
    np_free(net->zeros);
}

bool np_net_upload(struct np_net *net, struct np_net_batch *batch)
{
    struct np_device *device = net->device;
    const struct np_device_ops *ops = device->ops;
    struct np_event copied = {0};

    batch->nr_valid = 0;
    for (size_t r = 0; r < net->rows; r++)
        batch->nr_valid += batch->labels[r] >= 0;
    if (!ops->alloc)
        return true;
    if (ops->upload(device, batch->device_images, batch->images, net->rows * net->row_bytes) == 0 &&
        ops->upload(device, batch->device_labels, batch->labels, label_bytes_of(net)) == 0) {
        ops->record(device, NP_STREAM_COPY, &copied);
        ops->follow(device, NP_STREAM_COMPUTE, &copied);
        if (ops->done(device, &copied, true) >= 0)
            return true;
    }
    np_err_set(net->err, -EIO, "%s: a copy to the device failed", device->name);
    return false;
}

bool np_net_step(struct np_net *net, int at, uint64_t number, bool accumulate)
{
    const struct np_net_batch *batch = &net->batches[at];

    return net->ops->step(net->plan, batch->device_images, batch->device_labels, number,
               1.0f / (float)batch->nr_valid, accumulate, net->err) == 0;
}

bool np_net_step_update(struct np_net *net, int at, uint64_t number, const struct np_hyper *hyper)
{
    const struct np_net_batch *batch = &net->batches[at];

    if (net->ops->step_update)
        return net->ops->step_update(net->plan, batch->device_images, batch->device_labels, number,
                   1.0f / (float)batch->nr_valid, hyper, net->err) == 0;
    return np_net_step(net, at, number, false) && net->ops->update(net->plan, hyper, net->err) == 0;
}

bool np_net_read(struct np_net *net, int array, float *to)
{
    return net->ops->read(net->plan, array, to, net->err) == 0;
}

static bool write_array(struct np_net *net, int array, const float *from)
{
    return net->ops->write(net->plan, array, from, net->err) == 0;
}

bool np_net_metrics(struct np_net *net, bool but_last, struct np_metrics *ret_metrics)
{
    return net->ops->metrics(net->plan, but_last, ret_metrics, net->err) == 0;
}

bool np_net_start(struct np_net *net, const float *params, const float *buffers, bool second_state)
{
    return write_array(net, NP_ARRAY_PARAMS, params) &&
           (net->train->nr_buffers == 0 || write_array(net, NP_ARRAY_BUFFERS, buffers)) &&
           write_array(net, NP_ARRAY_STATE0, net->zeros) &&
           (!second_state || write_array(net, NP_ARRAY_STATE1, net->zeros));
}

bool np_net_settle(struct np_net *net, const float *params, const float *buffers)
{
    const struct np_hyper still = {.lr = 0};

    if (!np_net_start(net, params, buffers, false))
        return false;
    for (int i = 0; i < SETTLE_UPDATES; i++)
        if (!np_net_step(net, i % NP_NET_BATCHES, (uint64_t)i, false) ||
            net->ops->update(net->plan, &still, net->err) < 0)
            return false;
    return true;
}

/* --- the short training --------------------------------------------------------------------- */

/* Each class has a picture of colours in blocks of 4 x 4 pixels, and each sample is its class's
 * picture under noise, so that a few steps are enough to learn them. */
static void draw_picture(const struct np_selftest_case *the_case, uint64_t seed, int32_t label,
    struct np_draws *noise, uint8_t *at)
{
    const int c = the_case->channels, w = the_case->width;

    for (int i = 0; i < the_case->height * w * c; i++) {
        struct np_draws block;
        uint32_t colour;

        np_draws_init(&block, seed, NP_STREAM_TEST, 12, (uint32_t)label,
            (uint32_t)((i / (w * c) / 4 * w + i / c % w / 4) * c + i % c));
        colour = np_draw_below(&block, 256);
        at[i] = (uint8_t)((colour + np_draw_below(noise, 256)) / 2);
    }
}

/* Batch number `number`: the same for every device. */
static bool load_pictures(struct np_net *net, uint64_t number, uint64_t seed)
{
    const struct np_selftest_case *the_case = net->the_case;
    struct np_net_batch *batch = &net->batches[number % NP_NET_BATCHES];
    struct np_draws labels, noise;

    np_draws_init(&labels, seed, NP_STREAM_TEST, 10, (uint32_t)number, 0);
    np_draws_init(&noise, seed, NP_STREAM_TEST, 11, (uint32_t)number, 0);
    for (size_t row = 0; row < net->rows; row++) {
        batch->labels[row] = (int32_t)np_draw_below(&labels, (uint32_t)the_case->classes);
        draw_picture(
            the_case, seed, batch->labels[row], &noise, batch->images + row * net->row_bytes);
    }
    return np_net_upload(net, batch);
}

static bool train_steps(struct np_net *net, uint64_t seed, float losses[NP_NET_STEPS])
{
    struct np_hyper hyper = {
        .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true, .clip_norm = 5};
    struct np_metrics metrics;

    if (!np_net_metrics(net, false, &metrics))
        return false;
    for (int i = 0; i < NP_NET_STEPS; i++) {
        hyper.lr = 0.05f * (float)(i < 10 ? i + 1 : 10) / 10;
        hyper.update = (uint64_t)i;
        if (!load_pictures(net, (uint64_t)i, seed) ||
            !np_net_step_update(net, i % NP_NET_BATCHES, (uint64_t)i, &hyper) ||
            !np_net_metrics(net, false, &metrics))
            return false;
        losses[i] = (float)(metrics.loss_sum / (double)metrics.rows);
    }
    return true;
}

bool np_net_train(struct np_net *net, uint64_t seed, float losses[NP_NET_STEPS], float **ret_params)
{
    const struct np_graph *graph = net->train;
    float *start = np_try_array(graph->nr_params + graph->nr_buffers, sizeof(float), net->err);
    float *params = *ret_params = np_try_array(graph->nr_params, sizeof(float), net->err);
    bool ok = start && params;

    if (ok)
        np_graph_init(graph, seed, start, start + graph->nr_params);
    for (uint64_t at = 0; at < NP_NET_BATCHES && ok; at++)
        ok = load_pictures(net, at, seed);
    if (ok && graph->tensors[graph->input].dtype == NP_F16)
        ok = np_net_settle(net, start, start + graph->nr_params);
    ok = ok && np_net_start(net, start, start + graph->nr_params, false) &&
         train_steps(net, seed, losses) && np_net_read(net, NP_ARRAY_PARAMS, params);
    np_free(start);
    return ok;
}
