/* Tests one network. Functions return false with err filled. */
#include "trainer/selftest/selftest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/rng.h"
#include "trainer/muon.h"
#include "trainer/optim.h"
#include "trainer/selftest/selftest_net.h"

#define MAX_DRAWS 8
#define LAST      10 /* steps of the short training: their mean loss is compared with the first */

/* f32 sums differ only in their order. Half precisions round each activation and its gradient, by
 * 2^-8 and 2^-11. Statistics, updates and counts are f32 in every precision. */
const struct np_selftest_tolerance np_selftest_numbers[NP_SELF_NR] = {
    [NP_SELF_LOGITS] = {"logits", 1e-4, 2e-2, 4e-3},
    [NP_SELF_LOSS] = {"loss", 1e-4, 2e-2, 4e-3},
    [NP_SELF_COUNTS] = {"counts", 0, 0, 0},
    [NP_SELF_GRADS] = {"gradients", 1e-4, 2e-2, 4e-3},
    [NP_SELF_SUM] = {"accumulated", 1e-4, 2e-2, 4e-3},
    [NP_SELF_RUNNING] = {"running", 1e-4, 1e-2, 2e-3},
    [NP_SELF_EVAL] = {"evaluation", 1e-4, 2e-2, 4e-3},
    [NP_SELF_NORM] = {"norm", 1e-5, 1e-5, 1e-5},
    [NP_SELF_SGD] = {"sgd", 1e-4, 1e-4, 1e-4},
    [NP_SELF_ADAMW] = {"adamw", 1e-4, 1e-4, 1e-4},
    [NP_SELF_ADAPTIVE] = {"adaptive", 1e-4, 1e-4, 1e-4},
    [NP_SELF_AGAIN] = {"again", 0, 0, 0},
    [NP_SELF_CURVE] = {"curve", 1e-3, 2e-2, 1e-2},
    [NP_SELF_LEARNT] = {"learnt", 0.5, 0.5, 0.5},
};

/* Rounding moves elements near a kink to its other side, where a gradient passes or not: the error
 * grows with the root of the rounding, and sqrt(2^-8) is 6 %. Layers with kinks (relu, max pooling)
 * err independently, so their squares add up: the tolerance grows with the root of their number. In
 * f32 so few elements are that near that a draw with one is void. */
static const struct np_selftest_tolerance kinked = {"one such layer", 1e-4, 1e-1, 4e-2};

static double tolerance_of(enum np_dtype precision, int nr_kinks, int number)
{
    const bool bent = nr_kinks > 0 && (number == NP_SELF_GRADS || number == NP_SELF_SUM);
    const struct np_selftest_tolerance *t = bent ? &kinked : &np_selftest_numbers[number];
    const double layers = bent ? sqrt(nr_kinks) : 1;

    return precision == NP_F32 ? t->f32 : layers * (precision == NP_BF16 ? t->bf16 : t->f16);
}

/* The share by which the reference's weights are moved to measure the effect of rounding: at least
 * 16 times the precision's rounding (2^-24, 2^-9, 2^-12). Any element that rounding can move over a
 * kink, one of the two directions moves too, with 16 times as many others. A move as small as the
 * rounding would miss half of them. */
static double movement(enum np_dtype precision)
{
    return precision == NP_F32 ? 0x1p-16 : precision == NP_BF16 ? 0x1p-5 : 0x1p-8;
}

/* A tensor's gradient below this share of the whole gradient is compared with that share: a
 * gradient that is zero but for rounding (a bias before batchnorm) has no digits to compare. */
static double min_share(enum np_dtype precision)
{
    return precision == NP_F32 ? 1e-2 : 5e-2;
}

/* --- one network: weights and pixels -------------------------------------------------------- */

/* The results of one forward and backward; sum, running: after both batches. */
struct numbers {
    float *logits, *eval_logits, *grads, *sum, *running;
    struct np_metrics step, eval;
};

struct trial {
    const struct np_selftest_case *the_case;
    enum np_dtype precision;
    struct np_net device, reference;
    float *params, *moved, *buffers; /* of this draw; moved: params within their rounding */
    float *truth[5];                 /* (nr_params): params, state 0 and 1, gradients, device's */
    struct numbers found, want, again;
    float *scratch; /* np_muon_graph_scratch() */
    float *block;   /* holds all of these arrays; np_free */
    uint64_t step;
    struct np_selftest_result *result;
    struct np_err *err;
};

enum { TRUE_PARAMS, TRUE_STATE0, TRUE_STATE1, TRUE_GRADS, FROM_DEVICE };

/* Weights that keep the signal's size whatever the config's initial values are; scales, offsets and
 * statistics other than 0 and 1, so that the test detects if the device omits one. */
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

static bool draw_batch(struct np_net *net, int at, uint64_t seed)
{
    struct np_net_batch *batch = &net->batches[at];
    const size_t valid = net->rows - (size_t)net->the_case->nr_masked;
    struct np_draws draws;

    np_draws_init(&draws, seed, NP_STREAM_TEST, 2, (uint32_t)at, 0);
    memset(batch->images, 0, net->rows * net->row_bytes);
    for (size_t i = 0; i < valid * net->row_bytes; i++)
        batch->images[i] = (uint8_t)np_draw_below(&draws, 256);
    for (size_t r = 0; r < net->rows; r++)
        batch->labels[r] =
            r < valid ? (int32_t)np_draw_below(&draws, (uint32_t)net->the_case->classes) : -1;
    for (size_t i = 0; i < net->rows * (size_t)net->train->values; i++)
        ((float *)batch->labels)[net->rows + i] =
            np_graph_has_sigmoids(net->train) /* numbers are far from the outputs: |d| has a kink */
                ? (float)np_draw_below(&draws, 2)
                : 6 * (float)np_draw_below(&draws, 2) - 3;
    return np_net_upload(net, batch);
}

static bool draw(struct trial *trial, uint64_t seed)
{
    draw_weights(trial, seed);
    trial->step = seed % 100000;
    for (int at = 0; at < NP_NET_BATCHES; at++)
        if (!draw_batch(&trial->device, at, seed) || !draw_batch(&trial->reference, at, seed))
            return false;
    return true;
}

static bool measure(
    struct trial *trial, struct np_net *net, const float *params, struct numbers *ret_numbers)
{
    const struct np_net_batch *batch = &net->batches[0];
    struct np_metrics old, second;

    if (!np_net_start(net, params, trial->buffers, false) || !np_net_metrics(net, false, &old) ||
        net->ops->eval(net->plan, batch->device_images, batch->device_labels, net->err) < 0 ||
        net->ops->logits(net->plan, ret_numbers->eval_logits, net->err) < 0 ||
        !np_net_metrics(net, false, &ret_numbers->eval) ||
        !np_net_step(net, 0, trial->step, false) ||
        net->ops->logits(net->plan, ret_numbers->logits, net->err) < 0 ||
        !np_net_read(net, NP_ARRAY_GRADS, ret_numbers->grads) ||
        !np_net_step(net, 1, trial->step + 1, true) ||
        /* The first batch's numbers while the second is the newest, as the trainer reads them. */
        !np_net_metrics(net, true, &ret_numbers->step) || !np_net_metrics(net, false, &second) ||
        !np_net_read(net, NP_ARRAY_GRADS, ret_numbers->sum))
        return false;
    if (second.rows != (uint64_t)net->batches[1].nr_valid)
        ret_numbers->step.rows = UINT64_MAX; /* counted in the wrong batch */
    return net->train->nr_buffers == 0 || np_net_read(net, NP_ARRAY_BUFFERS, ret_numbers->running);
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

/* Returns the worst tensor's error; ret_tensor (may be NULL): its name. */
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

/* The label by which a row counts: in a mixed batch the one with the larger share. */
static int label_of(const struct np_net *net, const struct np_mixed *mixed, size_t row)
{
    const int32_t *labels = net->batches[0].labels;
    const int other = labels[np_mix_partner((int)row, (int)net->rows)];

    return labels[row] >= 0 && other >= 0 && 1 - mixed->keep > mixed->keep ? other : labels[row];
}

/* The number of rows by which counts differ from what these logits allow: a label that ties with
 * the next class may count or not. */
static double counts_error(const struct np_net *net, const float *logits,
    const struct np_metrics *metrics, const struct np_mixed *mixed)
{
    const int classes = net->train->classes;

    if (net->train->values) /* its kernels' test compares the counts */
        return 0;
    uint64_t low[2] = {0}, high[2] = {0}, rows = 0;
    const uint64_t counts[2] = {metrics->correct, metrics->top5};
    double off = 0;

    for (size_t r = 0; r < net->rows; r++) {
        const float *row = logits + r * (size_t)classes;
        int above = 0, equal = 0, label = label_of(net, mixed, r);

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

/* A NaN is a failure. */
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

/* Decides whether rounding near a kink explains all errors: moves the reference's weights either
 * way and measures how far the reference changes. */
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

/* --- updates ---------------------------------------------------------------------------------- */

/* A frozen parameter is not in the norm. */
static void clear_frozen(const struct np_graph *graph, const struct np_hyper *hyper, float *grads)
{
    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];

        if (tensor->role == NP_ROLE_PARAM && np_rule_freezes(&tensor->rule, hyper->update))
            memset(grads + tensor->offset, 0, np_tensor_elements(tensor) * sizeof(float));
    }
}

/* optim.c's update from the gradients that the device itself has just computed, so that the
 * tolerance is that of the formulas alone in every precision. */
static void update_truth(struct trial *trial, const struct np_hyper *hyper)
{
    const struct np_graph *graph = trial->device.train;
    float *const *truth = trial->truth;
    clear_frozen(graph, hyper, truth[TRUE_GRADS]);
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
        const struct np_update update = {
            .params = truth[TRUE_PARAMS] + at,
            .state = {truth[TRUE_STATE0] + at, truth[TRUE_STATE1] + at},
            .grads = truth[TRUE_GRADS] + at,
            .n = n,
            .grad_scale = scale,
            .rule = tensor->rule,
            .rows = np_muon_rows(graph, t),
            .scratch = trial->scratch,
            .means = &np_muon_plain,
        };
        np_optim_update(hyper, &update);
    }
}

/* Step and update as the trainer queues them; the gradients can still be read after the update. */
static bool step_update_both(
    struct trial *trial, int at, uint64_t number, const struct np_hyper *hyper)
{
    if (!np_net_step_update(&trial->device, at, number, hyper) ||
        !np_net_read(&trial->device, NP_ARRAY_GRADS, trial->truth[TRUE_GRADS]))
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
        if (!np_net_read(&trial->device, array, truth[FROM_DEVICE]))
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
    return np_net_start(&trial->device, trial->params, trial->buffers, second_state);
}

static bool try_sgd(struct trial *trial)
{
    struct np_net *net = &trial->device;
    double *error = trial->result->error, size;
    struct np_hyper hyper = {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true};
    struct np_metrics metrics;

    if (!start_update(trial, false) || !np_net_step(net, 0, trial->step, false) ||
        !np_net_step(net, 1, trial->step + 1, true) ||
        !np_net_read(net, NP_ARRAY_GRADS, trial->truth[TRUE_GRADS]))
        return false;
    size = sqrt(np_square_sum(trial->truth[TRUE_GRADS], net->train->nr_params));
    hyper.clip_norm = (float)(0.5 * size);
    if (net->ops->update(net->plan, &hyper, net->err) < 0 || !np_net_metrics(net, false, &metrics))
        return false;
    update_truth(trial, &hyper);
    error[NP_SELF_NORM] = ratio(fabs(metrics.grad_norm - size), size, 0);
    hyper.clip_norm = 0;
    hyper.update = 1;
    return step_update_both(trial, 0, trial->step + 2, &hyper) &&
           compare_update(trial, 1, &error[NP_SELF_SGD]);
}

/* Two updates of an optimizer with two states. */
static bool try_adaptive(struct trial *trial, int kind, double *ret_error)
{
    struct np_hyper hyper = {.kind = kind,
        .lr = 0.01f,
        .momentum = 0.9f,
        .weight_decay = 0.1f,
        .eps = 1e-8f,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .momentum_decay = 4e-3,
        .rest_lr = 0.01f,
        .iterations = 5};

    if (!start_update(trial, true) || !step_update_both(trial, 0, trial->step, &hyper))
        return false;
    hyper.update = 1;
    return step_update_both(trial, 1, trial->step + 1, &hyper) &&
           compare_update(trial, 2, ret_error);
}

/* Not lion: a sum that two devices round to either side of 0 is a step to either side. */
static bool try_optimizers(struct trial *trial)
{
    static const int others[] = {NP_ADAM, NP_NADAM, NP_RMSPROP, NP_LAMB, NP_MUON};
    double *error = trial->result->error;

    return try_sgd(trial) && try_adaptive(trial, NP_ADAMW, &error[NP_SELF_ADAMW]) &&
           try_adaptive(trial, others[trial->step % 5], &error[NP_SELF_ADAPTIVE]);
}

/* --- the test of one network ---------------------------------------------------------------- */

/* *ret_void: the draw failed and does not count. */
static bool try_draw(struct trial *trial, bool *ret_void)
{
    struct np_selftest_result *result = trial->result;
    const struct numbers *found = &trial->found;
    const struct np_mix *mix = &trial->device.train->nodes[0].attrs.mix; /* of NP_OP_INPUT */
    const struct np_mixed whole = {.keep = 1};
    struct np_mixed mixed = whole;

    if ((trial->precision == NP_F16 &&
            !np_net_settle(&trial->device, trial->params, trial->buffers)) ||
        !measure(trial, &trial->device, trial->params, &trial->found) ||
        !measure(trial, &trial->reference, trial->params, &trial->want))
        return false;
    compare(trial, found, &trial->want, result->error, result->tensor);
    if (np_mix_on(mix))
        np_mix_draw(mix, trial->step, &mixed);
    result->error[NP_SELF_COUNTS] =
        counts_error(&trial->device, found->logits, &found->step, &mixed) +
        counts_error(&trial->device, found->eval_logits, &found->eval, &whole);
    if (!measure_again(trial) || !try_optimizers(trial))
        return false;
    judge(result);
    return find_void(trial, ret_void);
}

static float *take(float **at, uint64_t n)
{
    *at += n;
    return *at - n;
}

static bool open_trial(struct trial *trial, struct np_device *device, struct np_device *cpu)
{
    const struct np_selftest_case *the_case = trial->the_case;

    if (!np_net_open(&trial->device, device, the_case, trial->precision, false, trial->err) ||
        !np_net_open(&trial->reference, cpu, the_case, NP_F32, !the_case->big, trial->err))
        return false;
    const struct np_graph *graph = trial->reference.train;
    const uint64_t logits = (uint64_t)graph->batch * (uint64_t)graph->classes;
    const uint64_t n = graph->nr_params, buffers = graph->nr_buffers;
    const uint64_t muon = np_muon_graph_scratch(graph);
    struct numbers *const numbers[] = {&trial->found, &trial->want, &trial->again};
    float *at = trial->block = np_try_array(
        7 * n + buffers + muon + 3 * (2 * logits + 2 * n + buffers), sizeof(*at), trial->err);

    if (!at)
        return false;
    for (int i = 0; i < 5; i++)
        trial->truth[i] = take(&at, n);
    trial->params = take(&at, n);
    trial->moved = take(&at, n);
    trial->buffers = take(&at, buffers);
    trial->scratch = take(&at, muon);
    for (int i = 0; i < 3; i++)
        *numbers[i] = (struct numbers){.logits = take(&at, logits),
            .eval_logits = take(&at, logits),
            .grads = take(&at, n),
            .sum = take(&at, n),
            .running = take(&at, buffers)};
    return true;
}

static void set_tolerances(struct trial *trial)
{
    const struct np_graph *graph = trial->reference.train;
    const struct np_selftest_case *the_case = trial->the_case;
    const double loose = trial->precision == NP_F32 ? the_case->loose_f32 : the_case->loose;
    double *tolerance = trial->result->tolerance;
    int nr_kinks = 0;

    for (int n = 0; n < graph->nr_forward; n++)
        nr_kinks +=
            graph->nodes[n].op == NP_OP_RELU || graph->nodes[n].op == NP_OP_MAXPOOL ||
            (graph->nodes[n].op == NP_OP_ACT && np_act_has_kinks(graph->nodes[n].attrs.act));
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
    np_net_close(&trial->device);
    np_net_close(&trial->reference);
    np_free(trial->block);
    return ok;
}

static bool run_training(
    struct trial *trial, struct np_device *device, struct np_device *cpu, uint64_t seed)
{
    const struct np_selftest_case *the_case = trial->the_case;
    double *error = trial->result->error;
    float losses[3][NP_NET_STEPS], *params[3] = {0};
    uint64_t nr_params = 0;
    bool ok = true;

    trial->result->draws = 1;
    for (int k = 0; k < NP_SELF_NR; k++)
        trial->result->tolerance[k] =
            k >= NP_SELF_AGAIN ? tolerance_of(trial->precision, 1, k) : -1;
    for (int i = 0; i < 3 && ok; i++) { /* the device, again, the CPU */
        struct np_net net;

        ok = (i < 2 ? np_net_open(&net, device, the_case, trial->precision, false, trial->err)
                    : np_net_open(
                          &net, cpu, the_case, NP_F32, device->ops == cpu->ops, trial->err)) &&
             np_net_train(&net, seed, losses[i], &params[i]);
        nr_params = ok ? net.train->nr_params : 0;
        np_net_close(&net);
    }
    for (uint64_t i = 0; i < nr_params; i++)
        error[NP_SELF_AGAIN] += memcmp(&params[0][i], &params[1][i], sizeof(float)) != 0;
    if (ok) {
        error[NP_SELF_CURVE] = error_of(losses[0], losses[2], NP_NET_STEPS, 0);
        for (int i = NP_NET_STEPS - LAST; i < NP_NET_STEPS; i++)
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
