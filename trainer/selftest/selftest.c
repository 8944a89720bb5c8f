/* The self-test of one network. Functions return false with err filled. See selftest.h. */
#include "trainer/selftest/selftest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/rng.h"
#include "loader/base/yaml.h"
#include "trainer/optim.h"
#include "trainer/plan.h"

#define MAX_DRAWS      8
#define THREADS        2 /* and lanes: the reference must round alike on every machine */
#define NR_BATCHES     2
#define STEPS          60 /* of the short training */
#define LAST           10 /* their mean loss is compared with the first loss */
#define SETTLE_UPDATES 24 /* halvings from any power of two that float16 may start with */

const char *const np_selftest_numbers[NP_SELF_NR] = {
    [NP_SELF_LOGITS] = "logits",
    [NP_SELF_LOSS] = "loss",
    [NP_SELF_COUNTS] = "counts",
    [NP_SELF_GRADS] = "gradients",
    [NP_SELF_SUM] = "accumulated",
    [NP_SELF_RUNNING] = "running",
    [NP_SELF_EVAL] = "evaluation",
    [NP_SELF_NORM] = "norm",
    [NP_SELF_SGD] = "sgd",
    [NP_SELF_ADAMW] = "adamw",
    [NP_SELF_AGAIN] = "again",
    [NP_SELF_CURVE] = "curve",
    [NP_SELF_LEARNT] = "learnt",
};

/* f32 sums differ only in their order. Half precisions round each activation and its gradient, by
 * 2^-8 and 2^-11. Statistics, updates and counts are f32 in every precision. */
static const struct tolerance {
    double f32, bf16, f16;
} tolerances[NP_SELF_NR] = {
    [NP_SELF_LOGITS] = {1e-4, 2e-2, 4e-3},
    [NP_SELF_LOSS] = {1e-4, 2e-2, 4e-3},
    [NP_SELF_COUNTS] = {0, 0, 0},
    [NP_SELF_GRADS] = {1e-4, 2e-2, 4e-3},
    [NP_SELF_SUM] = {1e-4, 2e-2, 4e-3},
    [NP_SELF_RUNNING] = {1e-4, 1e-2, 2e-3},
    [NP_SELF_EVAL] = {1e-4, 2e-2, 4e-3},
    [NP_SELF_NORM] = {1e-5, 1e-5, 1e-5},
    [NP_SELF_SGD] = {1e-4, 1e-4, 1e-4},
    [NP_SELF_ADAMW] = {1e-4, 1e-4, 1e-4},
    [NP_SELF_AGAIN] = {0, 0, 0},
    [NP_SELF_CURVE] = {1e-3, 2e-2, 1e-2},
    [NP_SELF_LEARNT] = {0.5, 0.5, 0.5},
};

/* Rounding moves the elements that are within it of a kink to the kink's other side, where a
 * gradient passes or not: the error grows with the root of the rounding, and sqrt(2^-8) is 6 %.
 * Layers with kinks (relu, max pooling) err independently, so their squares add up: the
 * tolerance grows with the root of their number. In f32 so few elements are that near that a
 * draw with one is void. */
static const struct tolerance kinked /* of one such layer */ = {1e-4, 1e-1, 4e-2};

static double tolerance_of(enum np_dtype precision, int nr_kinks, int number)
{
    const bool bent = nr_kinks > 0 && (number == NP_SELF_GRADS || number == NP_SELF_SUM);
    const struct tolerance *t = bent ? &kinked : &tolerances[number];
    const double layers = bent ? sqrt(nr_kinks) : 1;

    return precision == NP_F32 ? t->f32 : layers * (precision == NP_BF16 ? t->bf16 : t->f16);
}

/* The share by which the reference's weights are moved to see what rounding may do: at least 16
 * times the precision's rounding (2^-24, 2^-9, 2^-12). Whatever rounding can put on a kink's
 * other side, one of the two directions then puts there too, with 16 times as many elements. A
 * move as small as the rounding would miss a flip as often as not. */
static double movement(enum np_dtype precision)
{
    return precision == NP_F32 ? 0x1p-16 : precision == NP_BF16 ? 0x1p-5 : 0x1p-8;
}

/* A tensor's gradient smaller than this share of all is compared with that share: a gradient
 * that is zero but for rounding (a bias before batchnorm) has no digits to compare. */
static double min_share(enum np_dtype precision)
{
    return precision == NP_F32 ? 1e-2 : 5e-2;
}

/* --- a device with a network ---------------------------------------------------------------- */

struct batch {
    uint8_t *images; /* on the host */
    int32_t *labels;
    void *device_images, *device_labels; /* where the device reads them */
    int nr_valid;
};

struct side {
    struct np_device *device;
    const struct np_plan_ops *ops;
    struct np_graph *train, *eval;
    struct np_plan *plan;
    struct batch batches[NR_BATCHES];
    size_t rows, row_bytes;
    float *zeros; /* (nr_params) */
    struct np_err *err;
};

static bool build(
    struct side *side, const struct np_selftest_case *the_case, enum np_dtype precision)
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
    struct np_node *root = NULL;

    np_report_init(&report, "selftest");
    if (np_yaml_parse(the_case->yaml, strlen(the_case->yaml), &root, &report) == 0)
        side->train = np_graph_build(np_node_get(root, "model"), np_node_get(root, "blocks"),
            np_node_get(root, "loss"), &input, &report);
    if (!side->train)
        np_err_set(side->err, -EINVAL, "the network cannot be built: %s", report.errs[0].text);
    np_report_fini(&report);
    np_node_free(root);
    if (!side->train)
        return false;
    side->eval = np_graph_eval(side->train);
    return np_autodiff(side->train, side->err) == 0;
}

/* Allocates a batch from the device's own pinned memory, as the ring does: uploads may need it. */
static bool alloc_batch(struct side *side, struct batch *batch)
{
    struct np_device *device = side->device;
    const size_t bytes = side->rows * side->row_bytes, label_bytes = side->rows * sizeof(int32_t);

    batch->images = device->pinned.alloc(device->pinned.context, bytes);
    batch->labels = device->pinned.alloc(device->pinned.context, label_bytes);
    batch->device_images = device->ops->alloc ? device->ops->alloc(device, bytes) : batch->images;
    batch->device_labels =
        device->ops->alloc ? device->ops->alloc(device, label_bytes) : batch->labels;
    if (!batch->images || !batch->labels || !batch->device_images || !batch->device_labels)
        np_err_set(side->err, -ENOMEM, "%s: no memory for a batch", device->name);
    return side->err->code == 0;
}

/* Closed in any case by close_side(). */
static bool open_side(struct side *side, struct np_device *device,
    const struct np_selftest_case *the_case, enum np_dtype precision, bool reference,
    struct np_err *err)
{
    const struct np_plan_options options = {
        .lanes = THREADS, .threads = THREADS, .reference = reference, .deterministic = true};

    *side = (struct side){.device = device,
        .ops = device->plan_ops,
        .rows = (size_t)the_case->batch,
        .row_bytes =
            (size_t)the_case->height * (size_t)the_case->width * (size_t)the_case->channels,
        .err = err};
    if (!build(side, the_case, precision))
        return false;
    for (int i = 0; i < NR_BATCHES; i++)
        if (!alloc_batch(side, &side->batches[i]))
            return false;
    side->zeros = np_try_array(side->train->nr_params, sizeof(float), err);
    return side->zeros &&
           side->ops->prepare(device, side->train, side->eval, &options, &side->plan, err) == 0;
}

static void close_side(struct side *side)
{
    struct np_device *device = side->device;

    if (side->plan)
        side->ops->free(side->plan);
    for (int i = 0; i < NR_BATCHES && device; i++) {
        struct batch *batch = &side->batches[i];

        if (device->ops->alloc && batch->device_images)
            device->ops->free(device, batch->device_images);
        if (device->ops->alloc && batch->device_labels)
            device->ops->free(device, batch->device_labels);
        if (batch->images)
            device->pinned.free(
                device->pinned.context, batch->images, side->rows * side->row_bytes);
        if (batch->labels)
            device->pinned.free(
                device->pinned.context, batch->labels, side->rows * sizeof(int32_t));
    }
    np_graph_free(side->train);
    np_graph_free(side->eval);
    np_free(side->zeros);
}

/* Copies the batch's pixels and labels to where the device reads them. */
static bool upload(struct side *side, struct batch *batch)
{
    struct np_device *device = side->device;
    const struct np_device_ops *ops = device->ops;
    struct np_event copied = {0};

    batch->nr_valid = 0;
    for (size_t r = 0; r < side->rows; r++)
        batch->nr_valid += batch->labels[r] >= 0;
    if (!ops->alloc)
        return true;
    if (ops->upload(device, batch->device_images, batch->images, side->rows * side->row_bytes) ==
            0 &&
        ops->upload(device, batch->device_labels, batch->labels, side->rows * sizeof(int32_t)) ==
            0) {
        ops->record(device, NP_STREAM_COPY, &copied);
        ops->follow(device, NP_STREAM_COMPUTE, &copied);
        if (ops->done(device, &copied, true) >= 0)
            return true;
    }
    np_err_set(side->err, -EIO, "%s: a copy to the device failed", device->name);
    return false;
}

/* Forward and backward of batch `at`, gradients of its mean loss. */
static bool step(struct side *side, int at, uint64_t number, bool accumulate)
{
    const struct batch *batch = &side->batches[at];

    return side->ops->step(side->plan, batch->device_images, batch->device_labels, number,
               1.0f / (float)batch->nr_valid, accumulate, side->err) == 0;
}

/* The same and an update, queued together where the device can. */
static bool step_update(struct side *side, int at, uint64_t number, const struct np_hyper *hyper)
{
    const struct batch *batch = &side->batches[at];

    if (side->ops->step_update)
        return side->ops->step_update(side->plan, batch->device_images, batch->device_labels,
                   number, 1.0f / (float)batch->nr_valid, hyper, side->err) == 0;
    return step(side, at, number, false) && side->ops->update(side->plan, hyper, side->err) == 0;
}

static bool read_array(struct side *side, int array, float *to)
{
    return side->ops->read(side->plan, array, to, side->err) == 0;
}

static bool write_array(struct side *side, int array, const float *from)
{
    return side->ops->write(side->plan, array, from, side->err) == 0;
}

static bool read_metrics(struct side *side, bool but_last, struct np_metrics *ret_metrics)
{
    return side->ops->metrics(side->plan, but_last, ret_metrics, side->err) == 0;
}

/* Weights and buffers to start with; a zeroed optimizer state. */
static bool write_start(
    struct side *side, const float *params, const float *buffers, bool second_state)
{
    return write_array(side, NP_ARRAY_PARAMS, params) &&
           (side->train->nr_buffers == 0 || write_array(side, NP_ARRAY_BUFFERS, buffers)) &&
           write_array(side, NP_ARRAY_STATE0, side->zeros) &&
           (!second_state || write_array(side, NP_ARRAY_STATE1, side->zeros));
}

/* A float16 plan lowers its loss scale until nothing overflows: updates that move nothing. */
static bool settle(struct side *side, const float *params, const float *buffers)
{
    const struct np_hyper still = {.lr = 0};

    if (!write_start(side, params, buffers, false))
        return false;
    for (int i = 0; i < SETTLE_UPDATES; i++)
        if (!step(side, i % NR_BATCHES, (uint64_t)i, false) ||
            side->ops->update(side->plan, &still, side->err) < 0)
            return false;
    return true;
}

/* --- one network: weights and pixels -------------------------------------------------------- */

/* The results of one forward and backward; sum, running: after both batches. */
struct numbers {
    float *logits, *eval_logits, *grads, *sum, *running;
    float *block; /* holds them all; np_free */
    struct np_metrics step, eval;
};

struct trial {
    const struct np_selftest_case *the_case;
    enum np_dtype precision;
    struct side device, reference;
    float *params, *moved, *buffers; /* of this draw; moved: params within their rounding */
    float *truth[5];                 /* (nr_params): params, state 0 and 1, gradients, device's */
    float *block;                    /* holds them all */
    struct numbers found, want, again;
    uint64_t step;
    struct np_selftest_result *result;
    struct np_err *err;
};

enum { TRUE_PARAMS, TRUE_STATE0, TRUE_STATE1, TRUE_GRADS, FROM_DEVICE };

static bool alloc_numbers(struct numbers *numbers, const struct np_graph *graph, struct np_err *err)
{
    const uint64_t logits = (uint64_t)graph->batch * (uint64_t)graph->classes;

    numbers->block =
        np_try_array(2 * logits + 2 * graph->nr_params + graph->nr_buffers, sizeof(float), err);
    if (!numbers->block)
        return false;
    numbers->logits = numbers->block;
    numbers->eval_logits = numbers->logits + logits;
    numbers->grads = numbers->eval_logits + logits;
    numbers->sum = numbers->grads + graph->nr_params;
    numbers->running = numbers->sum + graph->nr_params;
    return true;
}

/* Weights that keep the signal's size whatever the config's initial values are; scales, offsets and
 * statistics that are not 0 or 1, so that leaving one out shows. */
static float draw_value(struct np_draws *draws, const struct np_tensor *tensor)
{
    if (tensor->init == NP_INIT_ONE)
        return (float)(0.5 + np_draw_uniform(draws));
    if (tensor->nr_dims == 1)
        return (float)(0.3 * np_draw_normal(draws));
    return (float)(sqrt(2.0 / (tensor->fan_in > 0 ? tensor->fan_in : 1)) * np_draw_normal(draws));
}

static void draw_weights(struct trial *trial, uint64_t seed)
{
    const struct np_graph *graph = trial->reference.train;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        float *at = (tensor->role == NP_ROLE_PARAM ? trial->params : trial->buffers);
        struct np_draws draws;

        if (tensor->role != NP_ROLE_PARAM && tensor->role != NP_ROLE_BUFFER)
            continue;
        np_draws_init(&draws, seed, NP_STREAM_TEST, 1, (uint32_t)t, 0);
        for (uint64_t i = 0; i < np_tensor_elements(tensor); i++)
            at[tensor->offset + i] = draw_value(&draws, tensor);
    }
}

static bool draw_batch(
    struct side *side, const struct np_selftest_case *the_case, int at, uint64_t seed)
{
    struct batch *batch = &side->batches[at];
    const size_t valid = side->rows - (size_t)the_case->nr_masked;
    struct np_draws draws;

    np_draws_init(&draws, seed, NP_STREAM_TEST, 2, (uint32_t)at, 0);
    memset(batch->images, 0, side->rows * side->row_bytes);
    for (size_t i = 0; i < valid * side->row_bytes; i++)
        batch->images[i] = (uint8_t)np_draw_below(&draws, 256);
    for (size_t r = 0; r < side->rows; r++)
        batch->labels[r] =
            r < valid ? (int32_t)np_draw_below(&draws, (uint32_t)the_case->classes) : -1;
    return upload(side, batch);
}

static bool draw(struct trial *trial, uint64_t seed)
{
    draw_weights(trial, seed);
    trial->step = seed % 100000;
    for (int at = 0; at < NR_BATCHES; at++)
        if (!draw_batch(&trial->device, trial->the_case, at, seed) ||
            !draw_batch(&trial->reference, trial->the_case, at, seed))
            return false;
    return true;
}

static bool measure(
    struct trial *trial, struct side *side, const float *params, struct numbers *ret_numbers)
{
    const struct batch *batch = &side->batches[0];
    struct np_metrics old, second;

    if (!write_start(side, params, trial->buffers, false) || !read_metrics(side, false, &old) ||
        side->ops->eval(side->plan, batch->device_images, batch->device_labels, side->err) < 0 ||
        side->ops->logits(side->plan, ret_numbers->eval_logits, side->err) < 0 ||
        !read_metrics(side, false, &ret_numbers->eval) || !step(side, 0, trial->step, false) ||
        side->ops->logits(side->plan, ret_numbers->logits, side->err) < 0 ||
        !read_array(side, NP_ARRAY_GRADS, ret_numbers->grads) ||
        !step(side, 1, trial->step + 1, true) ||
        /* The first batch's numbers while the second is the newest, as the trainer reads them. */
        !read_metrics(side, true, &ret_numbers->step) || !read_metrics(side, false, &second) ||
        !read_array(side, NP_ARRAY_GRADS, ret_numbers->sum))
        return false;
    if (second.rows != (uint64_t)side->batches[1].nr_valid)
        ret_numbers->step.rows = UINT64_MAX; /* counted in the wrong batch */
    return side->train->nr_buffers == 0 || read_array(side, NP_ARRAY_BUFFERS, ret_numbers->running);
}

/* --- comparing ------------------------------------------------------------------------------ */

static double norm(const float *a, const float *start, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (start ? (double)start[i] : 0);

        sum += d * d;
    }
    return sqrt(sum);
}

/* off / max(size, min_size); infinite when it is not finite. */
static double ratio(double off, double size, double min_size)
{
    double error = off == 0 ? 0 : off / fmax(size, min_size);

    return isfinite(error) ? error : INFINITY;
}

/* ||a - b|| / max(||b||, min_size). */
static double error_of(const float *a, const float *b, uint64_t n, double min_size)
{
    return ratio(norm(a, b, n), norm(b, NULL, n), min_size);
}

/* The worst tensor's error; its name into ret_tensor unless that is NULL. */
static double grads_error(
    const struct trial *trial, const float *found, const float *want, char ret_tensor[64])
{
    const struct np_graph *graph = trial->reference.train;
    const double all = norm(want, NULL, graph->nr_params) * min_share(trial->precision);
    double worst = -1;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        uint64_t at = tensor->offset;
        double error;

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        error = error_of(found + at, want + at, np_tensor_elements(tensor), all);
        if (error > worst) {
            worst = error;
            if (ret_tensor)
                snprintf(ret_tensor, 64, "%s", tensor->name);
        }
    }
    return worst;
}

/* The number of rows by which counts differ from what these logits allow: a label that ties with
 * the next class may count or not. */
static double counts_error(
    const struct side *side, const float *logits, const struct np_metrics *metrics)
{
    const int classes = side->train->classes;
    uint64_t low[2] = {0}, high[2] = {0}, rows = 0;
    const uint64_t counts[2] = {metrics->correct, metrics->top5};
    double off = 0;

    for (size_t r = 0; r < side->rows; r++) {
        const float *row = logits + r * (size_t)classes;
        int above = 0, equal = 0, label = side->batches[0].labels[r];

        if (label < 0)
            continue;
        rows++;
        for (int c = 0; c < classes; c++) {
            above += row[c] > row[label];
            equal += c != label && row[c] == row[label];
        }
        for (int k = 0; k < 2; k++) {
            high[k] += above < (k ? 5 : 1);
            low[k] += above + equal < (k ? 5 : 1);
        }
    }
    for (int k = 0; k < 2; k++)
        off += counts[k] < low[k]    ? (double)(low[k] - counts[k])
               : counts[k] > high[k] ? (double)(counts[k] - high[k])
                                     : 0;
    return off + fabs((double)metrics->rows - (double)rows);
}

static double loss_error(const struct np_metrics *found, const struct np_metrics *want)
{
    return ratio(fabs(found->loss_sum - want->loss_sum), fabs(want->loss_sum), 0);
}

static const int rounded[] = {NP_SELF_LOGITS, NP_SELF_EVAL, NP_SELF_RUNNING, NP_SELF_LOSS,
    NP_SELF_GRADS, NP_SELF_SUM}; /* what compare() fills */
#define NR_ROUNDED (sizeof(rounded) / sizeof(*rounded))

static void compare(const struct trial *trial, const struct numbers *found,
    const struct numbers *want, double error[NP_SELF_NR], char ret_tensor[64])
{
    const struct np_graph *graph = trial->reference.train;
    const uint64_t nr_logits = (uint64_t)graph->batch * (uint64_t)graph->classes;

    error[NP_SELF_LOGITS] = error_of(found->logits, want->logits, nr_logits, 0);
    error[NP_SELF_EVAL] = error_of(found->eval_logits, want->eval_logits, nr_logits, 0);
    error[NP_SELF_RUNNING] = error_of(found->running, want->running, graph->nr_buffers, 0);
    error[NP_SELF_LOSS] =
        fmax(loss_error(&found->step, &want->step), loss_error(&found->eval, &want->eval));
    error[NP_SELF_GRADS] = grads_error(trial, found->grads, want->grads, ret_tensor);
    error[NP_SELF_SUM] = grads_error(trial, found->sum, want->sum, NULL);
}

/* Fills ok and worst from the errors. NaN is off. */
static void judge(struct np_selftest_result *result)
{
    double max = -1;

    result->ok = true;
    for (int k = 0; k < NP_SELF_NR; k++) {
        double share;

        if (result->tolerance[k] < 0)
            continue;
        share = result->tolerance[k] > 0 ? result->error[k] / result->tolerance[k]
                : result->error[k] > 0   ? INFINITY
                                         : 0;
        if (!(result->error[k] <= result->tolerance[k]))
            result->ok = false;
        if (!(share <= max)) {
            max = share;
            result->worst = k;
        }
    }
}

/* Decides whether rounding near a kink explains all that is off: how far does the reference move
 * when its weights are moved either way? */
static bool find_void(struct trial *trial, bool *ret_void)
{
    const struct np_selftest_result *result = trial->result;
    double noise[NP_SELF_NR] = {0}; /* stays 0 for numbers that rounding does not excuse */

    *ret_void = !result->ok;
    for (int way = -1; way <= 1 && !result->ok; way += 2) {
        double error[NP_SELF_NR], by = way * movement(trial->precision);
        struct np_draws draws;

        np_draws_init(&draws, trial->step, NP_STREAM_TEST, 3, 0, 0);
        for (uint64_t i = 0; i < trial->reference.train->nr_params; i++)
            trial->moved[i] = trial->params[i] * (float)(1 + by * np_draw_normal(&draws));
        if (!measure(trial, &trial->reference, trial->moved, &trial->again))
            return false;
        compare(trial, &trial->again, &trial->want, error, NULL);
        for (size_t i = 0; i < NR_ROUNDED; i++)
            noise[rounded[i]] = fmax(noise[rounded[i]], error[rounded[i]]);
    }
    for (int k = 0; k < NP_SELF_NR; k++)
        if (result->tolerance[k] >= 0 && !(result->error[k] <= result->tolerance[k]) &&
            !(result->error[k] <= 4 * noise[k]))
            *ret_void = false;
    return true;
}

/* Elements whose bits differ when the same steps run a second time. */
static bool measure_again(struct trial *trial)
{
    double *nr = &trial->result->error[NP_SELF_AGAIN];
    const struct numbers *found = &trial->found, *again = &trial->again;

    if (!measure(trial, &trial->device, trial->params, &trial->again))
        return false;
    *nr = 0;
    for (uint64_t i = 0; i < trial->device.train->nr_params; i++)
        *nr += memcmp(&again->grads[i], &found->grads[i], sizeof(float)) != 0 ||
               memcmp(&again->sum[i], &found->sum[i], sizeof(float)) != 0;
    return true;
}

/* --- updates -------------------------------------------------------------------------------- */

/* optim.c's update from the gradients that the device itself has just computed, so that the
 * tolerance is that of the formulas alone in every precision. */
static void update_truth(struct trial *trial, const struct np_hyper *hyper)
{
    const struct np_graph *graph = trial->device.train;
    float *const *truth = trial->truth;
    const double size = sqrt(np_square_sum(truth[TRUE_GRADS], graph->nr_params));
    const float scale = np_clip_scale(size, hyper->clip_norm);

    /* f16's loss scale is still too large for these weights: the device must leave them alone */
    if (!isfinite(size) && graph->tensors[graph->input].dtype == NP_F16)
        return;
    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        uint64_t at = tensor->offset, n = np_tensor_elements(tensor);

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        if (hyper->decoupled)
            np_adamw_update(truth[TRUE_PARAMS] + at, truth[TRUE_STATE0] + at,
                truth[TRUE_STATE1] + at, truth[TRUE_GRADS] + at, n, hyper, scale, tensor->decay);
        else
            np_sgd_update(truth[TRUE_PARAMS] + at, truth[TRUE_STATE0] + at, truth[TRUE_GRADS] + at,
                n, hyper, scale, tensor->decay);
    }
}

/* Step and update as the trainer queues them; the gradients can still be read after the update. */
static bool step_update_both(
    struct trial *trial, int at, uint64_t number, const struct np_hyper *hyper)
{
    if (!step_update(&trial->device, at, number, hyper) ||
        !read_array(&trial->device, NP_ARRAY_GRADS, trial->truth[TRUE_GRADS]))
        return false;
    update_truth(trial, hyper);
    return true;
}

/* Compares how far the device's weights and states moved, not where they are. */
static bool compare_update(struct trial *trial, int nr_states, double *ret_error)
{
    const uint64_t n = trial->device.train->nr_params;
    float *const *truth = trial->truth;

    *ret_error = 0;
    for (int array = NP_ARRAY_PARAMS; array < NP_ARRAY_STATE0 + nr_states; array++) {
        const bool params = array == NP_ARRAY_PARAMS;
        const float *want = truth[params ? TRUE_PARAMS : TRUE_STATE0 + array - NP_ARRAY_STATE0];

        if (array == NP_ARRAY_BUFFERS)
            continue;
        if (!read_array(&trial->device, array, truth[FROM_DEVICE]))
            return false;
        *ret_error = fmax(*ret_error, ratio(norm(truth[FROM_DEVICE], want, n),
                                          norm(want, params ? trial->params : NULL, n), 0));
    }
    return true;
}

static bool start_update(struct trial *trial, bool second_state)
{
    const size_t bytes = trial->device.train->nr_params * sizeof(float);

    memcpy(trial->truth[TRUE_PARAMS], trial->params, bytes);
    memset(trial->truth[TRUE_STATE0], 0, bytes);
    memset(trial->truth[TRUE_STATE1], 0, bytes);
    return write_start(&trial->device, trial->params, trial->buffers, second_state);
}

static bool try_sgd(struct trial *trial)
{
    struct side *side = &trial->device;
    double *error = trial->result->error, size;
    struct np_hyper hyper = {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true};
    struct np_metrics metrics;

    if (!start_update(trial, false) || !step(side, 0, trial->step, false) ||
        !step(side, 1, trial->step + 1, true) ||
        !read_array(side, NP_ARRAY_GRADS, trial->truth[TRUE_GRADS]))
        return false;
    size = sqrt(np_square_sum(trial->truth[TRUE_GRADS], side->train->nr_params));
    hyper.clip_norm = (float)(0.5 * size);
    if (side->ops->update(side->plan, &hyper, side->err) < 0 ||
        !read_metrics(side, false, &metrics))
        return false;
    update_truth(trial, &hyper);
    error[NP_SELF_NORM] = fabs(metrics.grad_norm - size) / size;
    if (!isfinite(error[NP_SELF_NORM]))
        error[NP_SELF_NORM] = INFINITY;
    hyper.clip_norm = 0;
    hyper.update = 1;
    return step_update_both(trial, 0, trial->step + 2, &hyper) &&
           compare_update(trial, 1, &error[NP_SELF_SGD]);
}

static bool try_adamw(struct trial *trial)
{
    struct np_hyper hyper = {.lr = 0.01f,
        .weight_decay = 0.1f,
        .eps = 1e-8f,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .decoupled = true};

    if (!start_update(trial, true) || !step_update_both(trial, 0, trial->step, &hyper))
        return false;
    hyper.update = 1;
    return step_update_both(trial, 1, trial->step + 1, &hyper) &&
           compare_update(trial, 2, &trial->result->error[NP_SELF_ADAMW]);
}

/* --- the test of one network ---------------------------------------------------------------- */

/* One draw. *ret_void: it was off and does not count. */
static bool try_draw(struct trial *trial, bool *ret_void)
{
    struct np_selftest_result *result = trial->result;
    const struct numbers *found = &trial->found;

    if ((trial->precision == NP_F16 && !settle(&trial->device, trial->params, trial->buffers)) ||
        !measure(trial, &trial->device, trial->params, &trial->found) ||
        !measure(trial, &trial->reference, trial->params, &trial->want))
        return false;
    compare(trial, found, &trial->want, result->error, result->tensor);
    result->error[NP_SELF_COUNTS] = counts_error(&trial->device, found->logits, &found->step) +
                                    counts_error(&trial->device, found->eval_logits, &found->eval);
    if (!measure_again(trial) || !try_sgd(trial) || !try_adamw(trial))
        return false;
    judge(result);
    return find_void(trial, ret_void);
}

static bool open_trial(struct trial *trial, struct np_device *device, struct np_device *cpu)
{
    const struct np_selftest_case *the_case = trial->the_case;

    if (!open_side(&trial->device, device, the_case, trial->precision, false, trial->err) ||
        !open_side(&trial->reference, cpu, the_case, NP_F32, !the_case->big, trial->err))
        return false;
    const struct np_graph *graph = trial->reference.train;
    const uint64_t n = graph->nr_params;

    trial->block = np_try_array(7 * n + graph->nr_buffers, sizeof(float), trial->err);
    if (!trial->block)
        return false;
    for (int i = 0; i < 5; i++)
        trial->truth[i] = trial->block + (uint64_t)i * n;
    trial->params = trial->block + 5 * n;
    trial->moved = trial->block + 6 * n;
    trial->buffers = trial->block + 7 * n;
    return alloc_numbers(&trial->found, graph, trial->err) &&
           alloc_numbers(&trial->want, graph, trial->err) &&
           alloc_numbers(&trial->again, graph, trial->err);
}

static void set_tolerances(struct trial *trial)
{
    const struct np_graph *graph = trial->reference.train;
    const struct np_selftest_case *the_case = trial->the_case;
    const double loose = trial->precision == NP_F32 ? the_case->loose_f32 : the_case->loose;
    double *tolerance = trial->result->tolerance;
    int nr_kinks = 0;

    for (int n = 0; n < graph->nr_forward; n++)
        nr_kinks += graph->nodes[n].op == NP_OP_RELU || graph->nodes[n].op == NP_OP_MAXPOOL;
    for (int k = 0; k < NP_SELF_NR; k++)
        tolerance[k] = k < NP_SELF_CURVE ? tolerance_of(trial->precision, nr_kinks, k) : -1;
    for (size_t i = 0; i < NR_ROUNDED; i++) {
        const int k = rounded[i];

        tolerance[k] = fmax(tolerance[k], loose * tolerance_of(trial->precision, nr_kinks > 0, k));
    }
}

static bool run_steps(
    struct trial *trial, struct np_device *device, struct np_device *cpu, uint64_t seed)
{
    bool ok = open_trial(trial, device, cpu), is_void = true;

    if (ok)
        set_tolerances(trial);
    for (int i = 0; i < MAX_DRAWS && ok && is_void; i++) {
        trial->result->draws = i + 1;
        ok = draw(trial, seed + (uint64_t)i * 1000003) && try_draw(trial, &is_void);
    }
    close_side(&trial->device);
    close_side(&trial->reference);
    np_free(trial->found.block);
    np_free(trial->want.block);
    np_free(trial->again.block);
    np_free(trial->block);
    return ok;
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
static bool load_pictures(
    struct side *side, const struct np_selftest_case *the_case, uint64_t number, uint64_t seed)
{
    struct batch *batch = &side->batches[number % NR_BATCHES];
    struct np_draws labels, noise;

    np_draws_init(&labels, seed, NP_STREAM_TEST, 10, (uint32_t)number, 0);
    np_draws_init(&noise, seed, NP_STREAM_TEST, 11, (uint32_t)number, 0);
    for (size_t row = 0; row < side->rows; row++) {
        batch->labels[row] = (int32_t)np_draw_below(&labels, (uint32_t)the_case->classes);
        draw_picture(
            the_case, seed, batch->labels[row], &noise, batch->images + row * side->row_bytes);
    }
    return upload(side, batch);
}

static bool train_steps(
    struct side *side, const struct np_selftest_case *the_case, uint64_t seed, float losses[STEPS])
{
    struct np_hyper hyper = {
        .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true, .clip_norm = 5};
    struct np_metrics metrics;

    if (!read_metrics(side, false, &metrics))
        return false;
    for (int i = 0; i < STEPS; i++) {
        hyper.lr = 0.05f * (float)(i < 10 ? i + 1 : 10) / 10;
        hyper.update = (uint64_t)i;
        if (!load_pictures(side, the_case, (uint64_t)i, seed) ||
            !step_update(side, i % NR_BATCHES, (uint64_t)i, &hyper) ||
            !read_metrics(side, false, &metrics))
            return false;
        losses[i] = (float)(metrics.loss_sum / (double)metrics.rows);
    }
    return true;
}

/* Trains from fresh weights; *ret_params: np_free. */
static bool train_once(struct side *side, const struct np_selftest_case *the_case, uint64_t seed,
    float losses[STEPS], float **ret_params)
{
    const struct np_graph *graph = side->train;
    float *start = np_try_array(graph->nr_params + graph->nr_buffers, sizeof(float), side->err);
    float *params = *ret_params = np_try_array(graph->nr_params, sizeof(float), side->err);
    bool ok = start && params;

    if (ok)
        np_graph_init(graph, seed, start, start + graph->nr_params);
    for (uint64_t at = 0; at < NR_BATCHES && ok; at++)
        ok = load_pictures(side, the_case, at, seed);
    if (ok && graph->tensors[graph->input].dtype == NP_F16)
        ok = settle(side, start, start + graph->nr_params);
    ok = ok && write_start(side, start, start + graph->nr_params, false) &&
         train_steps(side, the_case, seed, losses) && read_array(side, NP_ARRAY_PARAMS, params);
    np_free(start);
    return ok;
}

static bool run_training(
    struct trial *trial, struct np_device *device, struct np_device *cpu, uint64_t seed)
{
    const struct np_selftest_case *the_case = trial->the_case;
    double *error = trial->result->error;
    float losses[3][STEPS], *params[3] = {0};
    uint64_t nr_params = 0;
    bool ok = true;

    trial->result->draws = 1;
    for (int k = 0; k < NP_SELF_NR; k++)
        trial->result->tolerance[k] =
            k >= NP_SELF_AGAIN ? tolerance_of(trial->precision, 1, k) : -1;
    for (int i = 0; i < 3 && ok; i++) { /* the device, again, the CPU */
        struct side side;

        ok = (i < 2 ? open_side(&side, device, the_case, trial->precision, false, trial->err)
                    : open_side(
                          &side, cpu, the_case, NP_F32, device->ops == cpu->ops, trial->err)) &&
             train_once(&side, the_case, seed, losses[i], &params[i]);
        nr_params = ok ? side.train->nr_params : 0;
        close_side(&side);
    }
    for (uint64_t i = 0; i < nr_params; i++)
        error[NP_SELF_AGAIN] += memcmp(&params[0][i], &params[1][i], sizeof(float)) != 0;
    if (ok) {
        error[NP_SELF_CURVE] = error_of(losses[0], losses[2], STEPS, 0);
        for (int i = STEPS - LAST; i < STEPS; i++)
            error[NP_SELF_LEARNT] += (double)losses[0][i] / LAST / (double)losses[0][0];
        judge(trial->result);
    }
    for (int i = 0; i < 3; i++)
        np_free(params[i]);
    return ok;
}

int np_selftest_run(struct np_device *device, struct np_device *cpu,
    const struct np_selftest_case *the_case, enum np_dtype precision, uint64_t seed,
    struct np_selftest_result *ret_result, struct np_err *err)
{
    struct trial trial = {
        .the_case = the_case, .precision = precision, .result = ret_result, .err = err};

    *ret_result = (struct np_selftest_result){0};
    if ((the_case->trains ? run_training : run_steps)(&trial, device, cpu, seed))
        return 0;
    np_err_set(err, -EIO, "a call failed without a reason");
    return err->code;
}
