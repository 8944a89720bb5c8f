/* The CUDA plugin's own kernels, where cuDNN and cuBLASLt have none, or none that is deterministic.
 * Each function queues its kernels on a stream and returns; its twin in kernels_ref*.c defines the
 * result. All pointers are device pointers. Activations are (n, h, w, c), NHWC, of `dtype` (f32,
 * bf16, f16); statistics, parameters and their gradients are f32. Sums run in one fixed order: the
 * same bits every time.
 *
 * Included by C and .cu files: plain types only. Trainer thread. */
#ifndef NP_KERNELS_CUDA_H
#define NP_KERNELS_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/graph/mix.h"
#include "trainer/graph/regression.h"
#include "trainer/graph/views.h"
#include "trainer/optim_scalars.h"

#ifdef __cplusplus
extern "C" {
#endif

enum np_cuda_dtype { NP_CUDA_F32, NP_CUDA_BF16, NP_CUDA_F16 }; /* as enum np_dtype's first three */

/* Values that change from step to step, in device memory, where a captured graph reads them. */
struct np_cuda_step {
    const uint8_t *images; /* (batch, height, width, channels) */
    const int32_t *labels; /* (batch); -1: the row is ignored */
    const float *values;   /* (batch, classes), the targets of labels that are not classes */
    uint64_t step;
    uint64_t slot;    /* slot for the step's numbers */
    float loss_scale; /* 1 / (batch * accumulate); multiplied by f16's scale */
    struct np_mixed mixed;
    int view; /* of the batch: views.h */
    float clip_norm;
    struct np_scalars update; /* of parameters with rule 0 */
};
/* f16's loss scale and other state of an update, in device memory. */
struct np_cuda_scaler {
    float scale;      /* of the loss; 1 but for f16 */
    int32_t good;     /* updates since the scale last changed */
    float grad_scale; /* of this update: 1 / scale, times the clipping */
    int32_t skip;     /* skip this update: a gradient is not finite (f16 only) */
    float norm;       /* of the gradients, without the scale */
};
/* A step's sums, in host memory mapped for the device. */
struct np_cuda_numbers {
    double loss_sum;
    uint64_t rows, correct, top5;
    double grad_norm; /* of the update at its end; 0: none */
};
#define NP_CUDA_SLOTS 16 /* maximum of steps that are queued and not read yet */

/* *step = value, which travels by value with the launch. */
void np_cuda_set_step(void *stream, struct np_cuda_step *step, const struct np_cuda_step *value);

/* x: (n, h, w, padded) = (u8 / 255 - mean) / std, 0 in the channels past c. Images: step->images.
 * padded: 1, 3, or, with x at a multiple of 16 bytes, 4 or 8. */
struct np_cuda_input {
    int n, h, w, c, padded;
    float mean[4], std[4];
    bool mixes; /* as step->mixed says */
    bool views; /* as step->view says; not with mixes */
};
void np_cuda_input(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const struct np_cuda_input *input, void *x);

/* Rows of resident pictures (struct np_residents of trainer/device.h), images: u8 (n, h, w, c).
 * Twin: np_resize(). */
struct np_row;
void np_cuda_make_rows(void *stream, const struct np_row *rows, int n, int h, int w, int c,
    const uint8_t *arena, uint8_t *images);

/* --- pointwise; n elements ------------------------------------------------------------------- */

void np_cuda_cast(void *stream, enum np_cuda_dtype from, const void *x, enum np_cuda_dtype to,
    void *y, uint64_t n);
/* mean = the logits of the views so far, weighted; sum: f32, kept from view to view. */
void np_cuda_views(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step, int tta,
    const void *logits, void *mean, float *sum, uint64_t n);
void np_cuda_relu(void *stream, enum np_cuda_dtype dtype, const void *x, void *y, uint64_t n);
void np_cuda_relu_dgrad(
    void *stream, enum np_cuda_dtype dtype, const void *dy, const void *y, void *dx, uint64_t n);
/* y = f(x), and dx = dy f'(x): act is an enum np_act, slope leaky_relu's. y may be x, dx may be dy. */
void np_cuda_act(void *stream, enum np_cuda_dtype dtype, int act, float slope, const void *x,
    void *y, uint64_t n);
void np_cuda_act_dgrad(void *stream, enum np_cuda_dtype dtype, int act, float slope, const void *dy,
    const void *x, void *dx, uint64_t n);
/* y = a + b, then max(0, y) where relu. y may be a or b. */
void np_cuda_add(void *stream, enum np_cuda_dtype dtype, const void *a, const void *b, bool relu,
    void *y, uint64_t n);
struct np_cuda_drop {
    uint64_t seed;
    double rate;
    bool relu; /* of x, first */
};
/* Both passes: y = x / (1 - rate) where Philox(seed, step, element) keeps it, else 0. x may be
 * y. */
void np_cuda_dropout(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const struct np_cuda_drop *drop, const void *x, void *y, uint64_t n);
/* The backward pass of a relu and a dropout, which made y: dx = dy / (1 - rate) where y > 0, else 0. dx may be dy. */
void np_cuda_dropout_mask(void *stream, enum np_cuda_dtype dtype, double rate, const void *dy,
    const void *y, void *dx, uint64_t n);
/* y (rows, hw, c) = a * b; b: as a, or where it has no pixels (rows, c). y may be a. */
void np_cuda_mul(void *stream, enum np_cuda_dtype dtype, const void *a, const void *b, bool pixels,
    void *y, uint64_t rows, int hw, int c);
/* db (rows, c) = sum over the pixels of dy * a, both (rows, hw, c). */
void np_cuda_mul_sum(void *stream, enum np_cuda_dtype dtype, const void *dy, const void *a,
    void *db, uint64_t rows, int hw, int c);
/* Both passes: y = x / (1 - rate) in rows that Philox(seed, step, row) keeps, else 0. x may be y. */
void np_cuda_drop_rows(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    uint64_t seed, double rate, const void *x, void *y, uint64_t rows, uint64_t row_elements);
/* y (rows, c) = max(0, y + bias) or y + bias, in place; bias f32. */
void np_cuda_bias(void *stream, enum np_cuda_dtype dtype, const float *bias, bool relu, void *y,
    uint64_t rows, int c);
void np_cuda_zero(void *stream, float *x, int n);
/* x = numbers between -scale and scale that depend on their index: for timing. */
void np_cuda_fill(void *stream, enum np_cuda_dtype dtype, void *x, uint64_t n, float scale);
/* Sum of f32: sum = first ? x : sum + x. */
void np_cuda_accumulate(void *stream, const float *x, float *sum, bool first, uint64_t n);

/* --- channels: rows = n * h * w, c channels next to each other ------------------------------- */

/* Bytes of scratch for any of the three that sum over rows. */
size_t np_cuda_channel_scratch(uint64_t rows, int c);
void np_cuda_bias_grad(void *stream, enum np_cuda_dtype dtype, const void *dy, float *dbias,
    uint64_t rows, int c, void *scratch);
/* mean, inv_std of the batch; running ones move by momentum (variance: unbiased, as torch's). */
struct np_cuda_stats {
    const void *x; /* (rows, c) */
    uint64_t rows;
    int c;
    double eps, momentum;
    float *running_mean, *running_var, *mean, *inv_std; /* (c) each */
    const struct np_cuda_step *step;
    uint64_t thaw; /* in steps before it: mean, inv_std of the running ones, which stay */
};
void np_cuda_bn_stats(
    void *stream, enum np_cuda_dtype dtype, const struct np_cuda_stats *stats, void *scratch);
/* The same from the sums of the convolution that made x: sums (c) of x, squares (c) of x * x.
 * Reads x again only for channels whose variance they cannot give precisely. The sums are 0
 * afterwards, for the next convolution to add to. */
void np_cuda_bn_stats_of_sums(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_stats *stats, float *sums, float *squares);
/* y = (x - mean) * inv_std * gamma + beta [+ add], then max(0, y) where relu. */
struct np_cuda_bn {
    const void *x, *add;                       /* (rows, c); add may be NULL */
    void *y;                                   /* may be x or add */
    const float *mean, *second, *gamma, *beta; /* second: inv_std, or with eps the variance */
    double eps;                                /* negative: second is inv_std */
    uint64_t rows;
    int c;
    bool relu;
    uint8_t *mask; /* NULL, or (rows, c / 8) receives a bit for each element: y > 0 */
};
void np_cuda_bn_apply(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_bn *bn);
/* Operands of both halves of batchnorm's gradient. relu: dy is masked first, by the sign recomputed
 * from x, or, with an add in between, by y > 0 or np_cuda_bn's mask. */
struct np_cuda_bn_back {
    const void *dy, *x; /* (rows, c) */
    const float *mean, *inv_std, *gamma, *beta;
    uint64_t rows;
    int c;
    bool relu;
    /* np_cuda_bn_reduce: */
    const void *dy2, *y; /* (rows, c); dy2 is added to dy first. Each may be NULL */
    const uint8_t *mask; /* (rows, c / 8) in place of y; or NULL */
    void *g; /* receives dy + dy2, masked; may be dy or dy2. NULL without dy2, y and mask */
    /* np_cuda_bn_dgrad: */
    const struct np_cuda_step *step;
    uint64_t thaw; /* in steps before it, x has no part in mean and inv_std */
};
void np_cuda_bn_reduce(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_bn_back *back,
    float *dgamma, float *dbeta, void *scratch);
/* dx may be dy. */
void np_cuda_bn_dgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_bn_back *back,
    const float *dgamma, const float *dbeta, void *dx);

/* --- rows alone ------------------------------------------------------------------------------ */

/* Layer normalisation of each pixel (groups 0), or of a group of channels over all pixels. */
struct np_cuda_row_norm {
    int n, hw, c, groups;
    double eps;
    const float *gamma, *beta; /* (c) */
};
void np_cuda_normalise(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_row_norm *norm,
    const void *x, void *y);
/* to: mean and inv_std of each pixel of a row, or of each group of a row. */
void np_cuda_norm_moments(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_row_norm *norm, const void *x, float *to);
/* dx may be dy. */
void np_cuda_norm_dgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_row_norm *norm,
    const void *dy, const void *x, void *dx);
size_t np_cuda_norm_wgrad_scratch(const struct np_cuda_row_norm *norm);
void np_cuda_norm_wgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_row_norm *norm,
    const void *x, const void *dy, float *dgamma, float *dbeta, void *scratch);
/* y = x * gamma (c). y may be x. */
void np_cuda_scale(void *stream, enum np_cuda_dtype dtype, const void *x, const float *gamma,
    void *y, uint64_t rows, int c);
/* dgamma = sum over rows of x * dy; scratch: np_cuda_channel_scratch(). */
void np_cuda_scale_wgrad(void *stream, enum np_cuda_dtype dtype, const void *x, const void *dy,
    float *dgamma, uint64_t rows, int c, void *scratch);
/* y (n, row) = x + position (row). y may be x. */
void np_cuda_position(void *stream, enum np_cuda_dtype dtype, const void *x, const float *position,
    void *y, uint64_t n, uint64_t row);
/* y (n, to) = elements `first`.. of x (n, from). Elements of y outside x: those of before (NULL:
 * 0). */
void np_cuda_shift(void *stream, enum np_cuda_dtype dtype, const void *x, const float *before,
    void *y, int n, uint64_t from, uint64_t to, int64_t first);
/* sum (n) = the first n elements of dy (rows, row), summed over the rows. */
void np_cuda_rows_sum(void *stream, enum np_cuda_dtype dtype, const void *dy, float *sum, int rows,
    uint64_t row, uint64_t n);

struct np_cuda_attention {
    int n, tokens, heads, width; /* width: channels of a head, at most 128 */
    float scale;                 /* 1 / sqrt(width) */
};
/* x: (n, tokens, 3, heads, width), query, key and value; y: (n, tokens, heads, width). */
void np_cuda_attend(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_attention *attention, const void *x, void *y);
size_t np_cuda_attention_scratch(const struct np_cuda_attention *attention);
void np_cuda_attend_back(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_attention *attention, const void *dy, const void *x, void *dx,
    void *scratch);

/* --- shapes ---------------------------------------------------------------------------------- */

struct np_cuda_pool {
    int n, h, w, c, out_h, out_w; /* of x; of y */
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};
/* Adaptive average pool, upsampling and blur; mode: an enum np_resample. */
struct np_cuda_resample {
    int n, h, w, c, out_h, out_w, mode; /* of x; of y */
};
void np_cuda_resample_run(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_resample *resample, const void *x, void *y);
void np_cuda_resample_dgrad(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_resample *resample, const void *dy, void *dx);
/* argmax: (n, out_h, out_w, c) u8, position in the window; NULL: not stored (evaluation). */
void np_cuda_maxpool(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_pool *pool,
    const void *x, void *y, uint8_t *argmax);
/* Each dx gathers from the windows over it, in their order: no atomics. y: NULL, or what the pool made:
 * dy is then masked by y > 0, for a relu before the pool. */
void np_cuda_maxpool_dgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_pool *pool,
    const void *dy, const uint8_t *argmax, const void *y, void *dx);
void np_cuda_avgpool(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_pool *pool,
    const void *x, void *y);
void np_cuda_avgpool_dgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_pool *pool,
    const void *dy, void *dx);
void np_cuda_global_avgpool(
    void *stream, enum np_cuda_dtype dtype, const void *x, void *y, int n, int hw, int c);
void np_cuda_global_avgpool_dgrad(
    void *stream, enum np_cuda_dtype dtype, const void *dy, void *dx, int n, int hw, int c);
/* (n, hw, c) -> (n, c, hw); back: the other way. */
void np_cuda_flatten(void *stream, enum np_cuda_dtype dtype, const void *x, void *y, int n, int hw,
    int c, bool back);
/* y's channels to.. = x's channels from..; `channels` of them, rows of x_c and y_c channels. */
void np_cuda_copy_channels(void *stream, enum np_cuda_dtype dtype, const void *x, int x_c, int from,
    void *y, int y_c, int to, int channels, uint64_t rows);

/* --- loss ------------------------------------------------------------------------------------ */

/* The plain softmax cross-entropy of step->labels, in one launch: the loss and what np_cuda_numbers()
 * makes of it, the gradient, or both. */
struct np_cuda_entropy {
    const void *logits; /* (n, classes) */
    int n, classes;
    float smoothing;
    float *loss, *correct, *top5; /* (n) each, 0 in rows whose label is -1; all NULL: none */
    struct np_cuda_numbers *numbers;
    float *losses; /* of np_cuda_numbers(); or NULL */
    void *dlogits; /* NULL, or d(loss) / d(logits) * step->loss_scale * scaler->scale */
};
void np_cuda_cross_entropy(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const struct np_cuda_entropy *entropy);
/* With a focal loss's gamma (0: none), weights of classes (NULL: all 1), and two labels for
 * each row of a mixed batch (step->mixed). */
struct np_cuda_loss {
    int n, classes;
    float smoothing, gamma;
    const float *weights; /* (classes) */
    bool mixes;
    float threshold, share; /* of bce: 0: none; the factor on the loss of each class */
    bool values;            /* step->values are the targets */
    enum np_regression regression;
    float delta;
};
void np_cuda_loss(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const void *logits, const struct np_cuda_loss *loss, float *losses, float *correct,
    float *top5);
void np_cuda_loss_dgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const void *logits, const struct np_cuda_loss *loss,
    void *dlogits);
/* NP_OP_BCE, with the same arguments. */
void np_cuda_bce(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const void *logits, const struct np_cuda_loss *loss, float *losses, float *correct,
    float *top5);
void np_cuda_bce_dgrad(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const void *logits, const struct np_cuda_loss *loss,
    void *dlogits);
/* NP_OP_REGRESSION, with the same arguments. */
void np_cuda_regression(void *stream, enum np_cuda_dtype dtype, const struct np_cuda_step *step,
    const void *outputs, const struct np_cuda_loss *loss, float *losses, float *correct,
    float *top5);
void np_cuda_regression_dgrad(void *stream, enum np_cuda_dtype dtype,
    const struct np_cuda_step *step, const struct np_cuda_scaler *scaler, const void *outputs,
    const struct np_cuda_loss *loss, void *doutputs);
/* numbers[step->slot % NP_CUDA_SLOTS] = the sums of these rows, in their order, in double;
 * grad_norm 0. losses (may be NULL): (NP_CUDA_SLOTS, n), receives a copy of loss in that slot. */
void np_cuda_numbers(void *stream, const struct np_cuda_step *step, const float *loss,
    const float *correct, const float *top5, int n, struct np_cuda_numbers *numbers, float *losses);

/* --- update; n elements, padded so that no tensor shares a chunk ------------------------------ */

#define NP_CUDA_CHUNK 256 /* elements; tensors begin at multiples of it */

size_t np_cuda_norm_scratch(uint64_t n);
/* (n / NP_CUDA_CHUNK) the rule of each chunk's parameter; scalars of rules from 1 on. */
struct np_cuda_rules {
    const uint8_t *of;
    const struct np_scalars *scalars;
    bool freezes; /* a rule freezes parameters in some updates: they are not in the norm */
};
#define NP_CUDA_MAX_RULES 256
/* scalars[first ...] = values, which travel with the launch; n <= NP_CUDA_SENT. */
#define NP_CUDA_SENT 32
void np_cuda_set_scalars(
    void *stream, struct np_scalars *scalars, int first, const struct np_scalars *values, int n);
struct np_cuda_optimizer {
    float *params, *m, *v; /* (n) each; m, v: the optimizer's states, NULL where it has none */
    const float *grads;    /* (n) */
    /* The first nr_halves gradients in place of those of grads, of dtype: whole chunks; not with lamb or muon. */
    const void *half_grads;
    uint64_t nr_halves;
    struct np_cuda_rules rules;
    const uint32_t *starts; /* (nr_tensors + 1) first chunk of each tensor, and their end: lamb */
    int nr_tensors;
    double *squares; /* (2, n / NP_CUDA_CHUNK): lamb's scratch */
    float *ratios;   /* (n / NP_CUDA_CHUNK): the same */
    void *half;      /* NULL, or the copy of params that kernels of `dtype` read */
    enum np_cuda_dtype dtype;
    uint64_t n;
    /* NULL, or where the update's launch puts the norm, without a call of np_cuda_norm() before: not
     * where the norm decides anything (clip_norm, dynamic), and not with lamb or muon. partial:
     * np_cuda_norm_scratch(n) bytes. */
    struct np_cuda_numbers *numbers;
    double *partial;
};
/* The norm of the gradients into scaler->norm and the step's numbers; grad_scale from it: 1 /
 * scale, clipped by step->clip_norm. dynamic (f16): a norm that is not finite skips the update
 * and halves the scale; 2000 good ones double it (torch.amp.GradScaler's rule). The norm is
 * always computed, because it is reported. Of update: its gradients, rules and scratch. */
void np_cuda_norm(void *stream, const struct np_cuda_step *step, struct np_cuda_scaler *scaler,
    const struct np_cuda_optimizer *update, bool dynamic, struct np_cuda_numbers *numbers);
/* Twin: np_optim_update(). lamb: step->update.kind is NP_LAMB, which the host has to know. */
void np_cuda_update(void *stream, const struct np_cuda_step *step, struct np_cuda_scaler *scaler,
    const struct np_cuda_optimizer *update, bool lamb);

/* muon's matrices, which np_cuda_update() leaves alone; twin: np_optim_update(). Matrix: elements at to
 * at + n - 1 of update's arrays. np_cuda_muon_begin() moves the mean of gradients, and x (n) = the mean
 * or nesterov's, divided by its norm; np_cuda_muon_end() moves the parameters by x, lr times `rate`.
 * Neither changes a frozen parameter or its mean, nor anything in a skipped update. partial:
 * np_cuda_norm_scratch(n) bytes. */
struct np_cuda_muon_step {
    uint64_t at, n;
    float *x;
    double *partial;
    double rate;
};
void np_cuda_muon_begin(void *stream, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const struct np_cuda_optimizer *update,
    const struct np_cuda_muon_step *matrix);
void np_cuda_muon_end(void *stream, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const struct np_cuda_optimizer *update,
    const struct np_cuda_muon_step *matrix);
/* y = a x + b y; n elements. */
void np_cuda_combine(void *stream, float a, const float *x, float b, float *y, uint64_t n);

/* After np_cuda_norm()'s array `grads` is complete: kept = params, then moves params, but not frozen
 * ones, and their copy `half` (of dtype; may be NULL) uphill; sam.h has the formulas. A norm that is
 * not finite makes them NaN. scaler->norm becomes the norm. Twin: np_sam_climb(). */
struct np_cuda_climb {
    float *params, *kept;
    const float *grads;
    struct np_cuda_rules rules;
    void *half;
    enum np_cuda_dtype dtype;
    uint64_t n;
    float rho;
    bool adaptive;
};
void np_cuda_climb(void *stream, const struct np_cuda_step *step, struct np_cuda_scaler *scaler,
    const struct np_cuda_climb *climb, struct np_cuda_numbers *numbers, void *scratch);

/* average += weight * (x - average); back: x = average, and its copy `half` of dtype, if any. Twin:
 * np_average_blend(). */
void np_cuda_average(void *stream, float *average, float *x, float weight, bool back,
    enum np_cuda_dtype dtype, void *half, uint64_t n);
/* Exchanges a and b; half: NULL, or the copy of a. */
void np_cuda_swap(
    void *stream, float *a, float *b, enum np_cuda_dtype dtype, void *half, uint64_t n);

/* A hash of x: the sum, modulo 2^64, of parts, which are added to those of other arrays; first: the number of x's first
 * element among all. Parts that were 0 and are not used stay 0. */
#define NP_CUDA_HASH_PARTS 512
void np_cuda_hash(void *stream, const float *x, uint64_t n, uint64_t first, uint64_t *parts);

#ifdef __cplusplus
}
#endif

#endif
