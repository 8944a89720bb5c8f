/* The self-test of one network: draws weights and pixels, runs the device and the reference, holds
 * their numbers against each other. See selftest.h for when a draw is void. */
#include "trainer/selftest/selftest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/rng.h"
#include "trainer/selftest/selftest_side.h"

#define MAX_DRAWS 8

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

/* f32 sums differ in their order alone. Half precisions round each activation and its gradient, by
 * 2^-8 and 2^-11. Statistics, updates and counts are in f32 whatever the activations are. */
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

/* Rounding puts the share of elements that is within it of a kink on the kink's other side, where a
 * gradient passes or not: its error goes with the root of the rounding, sqrt(2^-8) being 6 %. Layers
 * of kinks (relu, max pooling) err independently, so their squares add up: the tolerance grows with
 * the root of their number. In f32 so few elements are that near that a draw with one is void. */
static const struct tolerance kinked /* of one such layer */ = {1e-4, 1e-1, 4e-2};

double np_self_tolerance(enum np_dtype precision, int nr_kinks, int number)
{
    const bool bent = nr_kinks > 0 && (number == NP_SELF_GRADS || number == NP_SELF_SUM);
    const struct tolerance *t = bent ? &kinked : &tolerances[number];
    const double layers = bent ? sqrt(nr_kinks) : 1;

    return precision == NP_F32 ? t->f32 : layers * (precision == NP_BF16 ? t->bf16 : t->f16);
}

static int count_kinks(const struct np_graph *graph)
{
    int nr = 0;

    for (int n = 0; n < graph->nr_forward; n++)
        nr += graph->nodes[n].op == NP_OP_RELU || graph->nodes[n].op == NP_OP_MAXPOOL;
    return nr;
}

/* Of a weight: how far the reference's is moved, to see what rounding may do. At least 16 times the
 * precision's own rounding (2^-24, 2^-9, 2^-12): whatever rounding can put on a kink's other side,
 * one of the two ways then puts there too, and with it 16 times as many elements. A move of the size
 * of the rounding itself would miss a flip as often as not. */
static double movement(enum np_dtype precision)
{
    return precision == NP_F32 ? 0x1p-16 : precision == NP_BF16 ? 0x1p-5 : 0x1p-8;
}

/* A gradient smaller than this share of all is held against that share: one that is zero but for
 * rounding (a bias before batchnorm) has no digits to compare. */
static double min_share(enum np_dtype precision)
{
    return precision == NP_F32 ? 1e-2 : 5e-2;
}

struct trial {
    const struct np_selftest_case *the_case;
    enum np_dtype precision;
    struct np_self_side device, reference;
    float *params, *moved, *buffers; /* of this draw; moved: params within their rounding */
    float *block;                    /* holds the three */
    uint64_t step;
    struct np_selftest_result *result;
};

/* --- drawing ------------------------------------------------------------------------------- */

/* Weights that keep the signal's size, whatever the config would begin with; scales, offsets and
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

static int load_batch(struct trial *trial, int at, uint64_t seed, struct np_err *err)
{
    const struct np_selftest_case *the_case = trial->the_case;
    size_t row_bytes =
        (size_t)the_case->height * (size_t)the_case->width * (size_t)the_case->channels;
    size_t rows = (size_t)the_case->batch, valid = rows - (size_t)the_case->nr_masked;
    uint8_t *images = np_try_alloc(rows * row_bytes, err);
    int32_t *labels = np_alloc_array(rows, sizeof(*labels));
    struct np_draws draws;
    int code = images ? 0 : -ENOMEM;

    np_draws_init(&draws, seed, NP_STREAM_TEST, 2, (uint32_t)at, 0);
    for (size_t i = 0; images && i < valid * row_bytes; i++)
        images[i] = (uint8_t)np_draw_below(&draws, 256);
    for (size_t r = 0; r < rows; r++)
        labels[r] = r < valid ? (int32_t)np_draw_below(&draws, (uint32_t)the_case->classes) : -1;
    if (code == 0)
        code = np_self_load(&trial->device, at, images, labels, err);
    if (code == 0)
        code = np_self_load(&trial->reference, at, images, labels, err);
    np_free(images);
    np_free(labels);
    return code;
}

static int draw(struct trial *trial, uint64_t seed, struct np_err *err)
{
    int code = 0;

    draw_weights(trial, seed);
    trial->step = seed % 100000;
    for (int at = 0; at < NP_SELF_BATCHES && code == 0; at++)
        code = load_batch(trial, at, seed, err);
    return code;
}

/* --- comparing ------------------------------------------------------------------------------ */

/* The worst tensor's error; its name, where asked for. */
static double grads_error(
    const struct trial *trial, const float *found, const float *want, char *name, size_t name_bytes)
{
    const struct np_graph *graph = trial->reference.train;
    const double all = np_self_norm(want, graph->nr_params) * min_share(trial->precision);
    double worst = -1;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const struct np_tensor *tensor = &graph->tensors[t];
        uint64_t at = tensor->offset, n = np_tensor_elements(tensor);
        double error;

        if (tensor->role != NP_ROLE_PARAM)
            continue;
        error = np_self_error(found + at, want + at, n, all);
        if (error > worst) {
            worst = error;
            if (name)
                snprintf(name, name_bytes, "%s", tensor->name);
        }
    }
    return worst;
}

/* Rows by which counts are off from what these logits allow: a label that ties with the next class
 * may count or not. */
static double counts_error(
    const struct np_self_side *side, const float *logits, const struct np_metrics *metrics)
{
    const struct np_self_batch *batch = &side->batches[0];
    const int classes = side->train->classes;
    uint64_t low[2] = {0}, high[2] = {0}, rows = 0;
    const uint64_t counts[2] = {metrics->correct, metrics->top5};
    double off = 0;

    for (int r = 0; r < side->train->batch; r++) {
        const float *row = logits + (size_t)r * (size_t)classes;
        int above = 0, equal = 0, label = batch->labels[r];

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

static double relative(double found, double want)
{
    double error = found == want ? 0 : fabs(found - want) / fabs(want);

    return isfinite(error) ? error : INFINITY;
}

/* What both sides have measured, apart from counts. */
static void compare(const struct trial *trial, const struct np_self_numbers *found,
    const struct np_self_numbers *want, double error[NP_SELF_NR], char *name, size_t name_bytes)
{
    const struct np_graph *graph = trial->reference.train;
    const uint64_t nr_logits = (uint64_t)graph->batch * (uint64_t)graph->classes;

    error[NP_SELF_LOGITS] = np_self_error(found->logits, want->logits, nr_logits, 0);
    error[NP_SELF_EVAL] = np_self_error(found->eval_logits, want->eval_logits, nr_logits, 0);
    error[NP_SELF_RUNNING] = np_self_error(found->running, want->running, graph->nr_buffers, 0);
    error[NP_SELF_LOSS] = fmax(relative(found->step.loss_sum, want->step.loss_sum),
        relative(found->eval.loss_sum, want->eval.loss_sum));
    error[NP_SELF_GRADS] = grads_error(trial, found->grads, want->grads, name, name_bytes);
    error[NP_SELF_SUM] = grads_error(trial, found->sum, want->sum, NULL, 0);
}

static const int rounded[] = {NP_SELF_LOGITS, NP_SELF_EVAL, NP_SELF_RUNNING, NP_SELF_LOSS,
    NP_SELF_GRADS, NP_SELF_SUM}; /* what compare() fills */
#define NR_ROUNDED (sizeof(rounded) / sizeof(*rounded))

/* How far the reference itself moves, its weights moved by their rounding, either way. */
static int find_noise(struct trial *trial, const struct np_self_numbers *want,
    double noise[NP_SELF_NR], struct np_err *err)
{
    const uint64_t n = trial->reference.train->nr_params;
    int code = 0;

    for (int side = -1; side <= 1 && code == 0; side += 2) {
        struct np_self_numbers moved = {0};
        double error[NP_SELF_NR], way = side * movement(trial->precision);
        struct np_draws draws;

        np_draws_init(&draws, trial->step, NP_STREAM_TEST, 3, 0, 0);
        for (uint64_t i = 0; i < n; i++)
            trial->moved[i] = trial->params[i] * (float)(1 + way * np_draw_normal(&draws));
        code = np_self_measure(
            &trial->reference, trial->moved, trial->buffers, trial->step, &moved, err);
        if (code < 0)
            break;
        compare(trial, &moved, want, error, NULL, 0);
        for (size_t i = 0; i < NR_ROUNDED; i++)
            noise[rounded[i]] = fmax(noise[rounded[i]], error[rounded[i]]);
        np_free(moved.block);
    }
    return code;
}

/* Is what is off nothing but rounding near a kink? */
static int is_void(
    struct trial *trial, const struct np_self_numbers *want, bool *ret_void, struct np_err *err)
{
    const struct np_selftest_result *result = trial->result;
    double noise[NP_SELF_NR] = {0}; /* of the other numbers: they are never void */
    int code = result->ok ? 0 : find_noise(trial, want, noise, err);

    *ret_void = !result->ok;
    for (int k = 0; k < NP_SELF_NR; k++)
        if (result->tolerance[k] >= 0 && !(result->error[k] <= result->tolerance[k]) &&
            !(result->error[k] <= 4 * noise[k]))
            *ret_void = false;
    return code;
}

/* Elements with other bits, when the same step is made again. */
static int again(
    struct trial *trial, const struct np_self_numbers *found, double *ret_error, struct np_err *err)
{
    struct np_self_numbers second = {0};
    const uint64_t n = trial->device.train->nr_params;
    int code =
        np_self_measure(&trial->device, trial->params, trial->buffers, trial->step, &second, err);

    *ret_error = 0;
    for (uint64_t i = 0; i < n && code == 0; i++)
        *ret_error += memcmp(&second.grads[i], &found->grads[i], sizeof(float)) != 0 ||
                      memcmp(&second.sum[i], &found->sum[i], sizeof(float)) != 0;
    np_free(second.block);
    return code;
}

/* --- one network ---------------------------------------------------------------------------- */

/* Fills ok and worst from the errors. NaN is off. */
static void judge(struct np_selftest_result *result)
{
    double most = -1;

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
        if (!(share <= most)) {
            most = share;
            result->worst = k;
        }
    }
}

/* One draw. *ret_void: it was off, and said nothing. */
static int try_draw(struct trial *trial, bool *ret_void, struct np_err *err)
{
    struct np_selftest_result *result = trial->result;
    struct np_self_numbers found = {0}, want = {0};
    int code = 0;

    *ret_void = false;
    if (trial->precision == NP_F16)
        code = np_self_settle(&trial->device, trial->params, trial->buffers, err);
    if (code == 0)
        code = np_self_measure(
            &trial->device, trial->params, trial->buffers, trial->step, &found, err);
    if (code == 0)
        code = np_self_measure(
            &trial->reference, trial->params, trial->buffers, trial->step, &want, err);
    if (code < 0)
        goto out;
    compare(trial, &found, &want, result->error, result->tensor, sizeof(result->tensor));
    result->error[NP_SELF_COUNTS] = counts_error(&trial->device, found.logits, &found.step) +
                                    counts_error(&trial->device, found.eval_logits, &found.eval);
    code = again(trial, &found, &result->error[NP_SELF_AGAIN], err);
    if (code == 0)
        code = np_self_optimizers(
            &trial->device, trial->params, trial->buffers, trial->step, result->error, err);
    if (code < 0)
        goto out;
    judge(result);
    code = is_void(trial, &want, ret_void, err);
out:
    np_free(found.block);
    np_free(want.block);
    return code;
}

static int open_trial(
    struct trial *trial, struct np_device *device, struct np_device *cpu, struct np_err *err)
{
    int code = np_self_open(&trial->device, device, trial->the_case, trial->precision, false, err);

    if (code == 0)
        code = np_self_open(
            &trial->reference, cpu, trial->the_case, NP_F32, !trial->the_case->fast, err);
    if (code < 0)
        return code;
    const struct np_graph *graph = trial->reference.train;

    trial->block =
        np_self_arrays((const uint64_t[]){graph->nr_params, graph->nr_params, graph->nr_buffers}, 3,
            (float **const[]){&trial->params, &trial->moved, &trial->buffers}, err);
    return trial->block ? 0 : -ENOMEM;
}

static void set_tolerances(struct trial *trial)
{
    const int nr_kinks = count_kinks(trial->reference.train);
    const struct np_selftest_case *the_case = trial->the_case;
    const double loose = trial->precision == NP_F32 ? the_case->loose_f32 : the_case->loose;
    double *tolerance = trial->result->tolerance;

    for (int k = 0; k < NP_SELF_NR; k++)
        tolerance[k] = k < NP_SELF_CURVE ? np_self_tolerance(trial->precision, nr_kinks, k) : -1;
    for (size_t i = 0; i < NR_ROUNDED; i++) {
        const int k = rounded[i];
        const double deep = loose * np_self_tolerance(trial->precision, nr_kinks > 0, k);

        tolerance[k] = fmax(tolerance[k], deep);
    }
}

int np_selftest_run(struct np_device *device, struct np_device *cpu,
    const struct np_selftest_case *the_case, enum np_dtype precision, uint64_t seed,
    struct np_selftest_result *ret_result, struct np_err *err)
{
    struct trial trial = {.the_case = the_case, .precision = precision, .result = ret_result};
    bool is_void_draw = true;
    int code;

    *ret_result = (struct np_selftest_result){0};
    code = open_trial(&trial, device, cpu, err);
    if (code == 0)
        set_tolerances(&trial);
    for (int i = 0; i < MAX_DRAWS && code == 0 && is_void_draw; i++) {
        ret_result->draws = i + 1;
        code = draw(&trial, seed + (uint64_t)i * 1000003, err);
        if (code == 0)
            code = try_draw(&trial, &is_void_draw, err);
    }
    np_self_close(&trial.device);
    np_self_close(&trial.reference);
    np_free(trial.block);
    return code;
}
