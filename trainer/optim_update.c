/* The optimizers' loops, and the sums of clipping.
 *
 * Every update is in f32 and, but for lamb's norms, elementwise, so that a result does not depend
 * on how the buffers are split over threads; the compiler turns the loops into vectors, which give
 * the same bits as one element at a time (no fused multiply-add, no reassociation). Norms are sums
 * in double, by fixed blocks, added in order. */
#include "trainer/optim.h"

#include <assert.h>
#include <math.h>

#include "trainer/muon.h"

/* gcc 12 at -O2 does not vectorise loops of unknown length. */
#define NP_VECTOR __attribute__((optimize("O3")))

/* torch.optim.SGD, dampening 0. Its first update sets the buffer to the gradient; a buffer
 * of zeros gives the same. */
NP_VECTOR static void sgd_momentum(float *restrict params, float *restrict state,
    const float *restrict grads, uint64_t n, const struct np_scalars s, float scale)
{
    const bool nesterov = s.nesterov;

    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale + s.l2 * params[i];
        float buffer = s.momentum * state[i] + grad;
        state[i] = buffer;
        params[i] -= s.lr * (nesterov ? grad + s.momentum * buffer : buffer);
    }
}

NP_VECTOR static void sgd_plain(float *restrict params, const float *restrict grads, uint64_t n,
    const struct np_scalars s, float scale)
{
    for (uint64_t i = 0; i < n; i++)
        params[i] -= s.lr * (grads[i] * scale + s.l2 * params[i]);
}

static void sgd(const struct np_update *u, const struct np_scalars *s)
{
    if (s->moves)
        sgd_momentum(u->params, u->state[0], u->grads, u->n, *s, u->grad_scale);
    else
        sgd_plain(u->params, u->grads, u->n, *s, u->grad_scale);
}

/* adam and adamw: l2 or keep is neutral. */
NP_VECTOR static void adam_loop(float *restrict params, float *restrict m, float *restrict v,
    const float *restrict grads, uint64_t n, const struct np_scalars s, float scale)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale + s.l2 * params[i];
        float mean = m[i] + s.one_minus_beta1 * (grad - m[i]);
        float square = s.beta2 * v[i] + s.one_minus_beta2 * (grad * grad);
        m[i] = mean;
        v[i] = square;
        params[i] = params[i] * s.keep - s.step * (mean / (sqrtf(square) / s.root_bias + s.eps));
    }
}

static void adam(const struct np_update *u, const struct np_scalars *s)
{
    adam_loop(u->params, u->state[0], u->state[1], u->grads, u->n, *s, u->grad_scale);
}

NP_VECTOR static void nadam_loop(float *restrict params, float *restrict m, float *restrict v,
    const float *restrict grads, uint64_t n, const struct np_scalars s, float scale)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale + s.l2 * params[i];
        float mean = m[i] + s.one_minus_beta1 * (grad - m[i]);
        float square = s.beta2 * v[i] + s.one_minus_beta2 * (grad * grad);
        m[i] = mean;
        v[i] = square;
        params[i] -= (s.grad_step * grad + s.step * mean) / (sqrtf(square) / s.root_bias + s.eps);
    }
}

static void nadam(const struct np_update *u, const struct np_scalars *s)
{
    nadam_loop(u->params, u->state[0], u->state[1], u->grads, u->n, *s, u->grad_scale);
}

NP_VECTOR static void rmsprop_plain(float *restrict params, float *restrict v,
    const float *restrict grads, uint64_t n, const struct np_scalars s, float scale)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale + s.l2 * params[i];
        float square = s.beta2 * v[i] + s.one_minus_beta2 * (grad * grad);
        v[i] = square;
        params[i] -= s.lr * (grad / (sqrtf(square) + s.eps));
    }
}

NP_VECTOR static void rmsprop_momentum(float *restrict params, float *restrict v,
    float *restrict state, const float *restrict grads, uint64_t n, const struct np_scalars s,
    float scale)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale + s.l2 * params[i];
        float square = s.beta2 * v[i] + s.one_minus_beta2 * (grad * grad);
        float buffer = s.momentum * state[i] + grad / (sqrtf(square) + s.eps);
        v[i] = square;
        state[i] = buffer;
        params[i] -= s.lr * buffer;
    }
}

static void rmsprop(const struct np_update *u, const struct np_scalars *s)
{
    if (s->moves)
        rmsprop_momentum(u->params, u->state[0], u->state[1], u->grads, u->n, *s, u->grad_scale);
    else
        rmsprop_plain(u->params, u->state[0], u->grads, u->n, *s, u->grad_scale);
}

/* The sign of 0 is 0, that of a NaN a NaN: no update may lose one. */
NP_VECTOR static void lion_loop(float *restrict params, float *restrict m,
    const float *restrict grads, uint64_t n, const struct np_scalars s, float scale)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale;
        float way = s.beta1 * m[i] + s.one_minus_beta1 * grad;
        float sign = way > 0 ? 1 : way < 0 ? -1 : way;
        m[i] = s.beta2 * m[i] + s.one_minus_beta2 * grad;
        params[i] = params[i] * s.keep - s.lr * sign;
    }
}

static void lion(const struct np_update *u, const struct np_scalars *s)
{
    lion_loop(u->params, u->state[0], u->grads, u->n, *s, u->grad_scale);
}

NP_VECTOR static void lamb_means(float *restrict m, float *restrict v, const float *restrict grads,
    uint64_t n, const struct np_scalars s, float scale)
{
    for (uint64_t i = 0; i < n; i++) {
        float grad = grads[i] * scale;
        m[i] += s.one_minus_beta1 * (grad - m[i]);
        v[i] = s.beta2 * v[i] + s.one_minus_beta2 * (grad * grad);
    }
}

NP_VECTOR static void lamb_ways(float *restrict ways, const float *restrict params,
    const float *restrict m, const float *restrict v, uint64_t n, const struct np_scalars s)
{
    for (uint64_t i = 0; i < n; i++)
        ways[i] = m[i] * s.step / (sqrtf(v[i]) / s.root_bias + s.eps) + s.l2 * params[i];
}

float np_lamb_ratio(double param_squares, double way_squares)
{
    return param_squares == 0 || way_squares == 0 ? 1 : (float)sqrt(param_squares / way_squares);
}

/* Two rounds over blocks, which the norm of all of them separates. */
static void lamb(const struct np_update *u, const struct np_scalars *s)
{
    float ways[NP_NORM_BLOCK], *m = u->state[0], *v = u->state[1], lr = s->lr;
    double squares = 0;

    for (int round = 0; round < 2; round++) {
        for (uint64_t at = 0; at < u->n; at += NP_NORM_BLOCK) {
            const uint64_t n = u->n - at < NP_NORM_BLOCK ? u->n - at : NP_NORM_BLOCK;

            if (round == 0)
                lamb_means(m + at, v + at, u->grads + at, n, *s, u->grad_scale);
            lamb_ways(ways, u->params + at, m + at, v + at, n, *s);
            if (round == 0)
                squares += np_square_sum(ways, n);
            for (uint64_t i = 0; round == 1 && i < n; i++)
                u->params[at + i] -= lr * ways[i];
        }
        if (round == 0 && s->decays)
            lr *= np_lamb_ratio(np_square_sum(u->params, u->n), squares);
    }
}

/* The state becomes the mean; the matrix is made in the scratch. */
static void muon(
    const struct np_hyper *hyper, const struct np_update *u, const struct np_scalars *s)
{
    const uint64_t n = u->n, rows = u->rows, cols = n / rows;
    const float lr = (float)(s->lr * np_muon_rate(rows, cols));
    const float one_minus = (float)(1 - (double)hyper->momentum);
    float *mean = u->state[0], *way = u->scratch;

    for (uint64_t i = 0; i < n; i++) {
        const float grad = u->grads[i] * u->grad_scale;

        mean[i] += one_minus * (grad - mean[i]);
        way[i] = hyper->nesterov ? grad + hyper->momentum * (mean[i] - grad) : mean[i];
    }
    np_muon_orthogonal(way, rows, cols, hyper->iterations, u->scratch + n, u->means);
    for (uint64_t i = 0; i < n; i++)
        u->params[i] = u->params[i] * s->keep - lr * way[i];
}

static void (*const updates[NP_NR_OPTIMIZERS])(
    const struct np_update *update, const struct np_scalars *scalars) = {
    [NP_SGD] = sgd,
    [NP_ADAMW] = adam,
    [NP_ADAM] = adam,
    [NP_NADAM] = nadam,
    [NP_RMSPROP] = rmsprop,
    [NP_LION] = lion,
    [NP_LAMB] = lamb,
};

void np_optim_update(const struct np_hyper *hyper, const struct np_update *update)
{
    const struct np_hyper own = np_hyper_of(hyper, update->rows > 0);
    struct np_scalars scalars;

    np_optim_scalars(&own, &update->rule, &scalars);
    if (scalars.frozen)
        return;
    assert(np_hyper_states(&own) < 1 || update->state[0]);
    assert(np_hyper_states(&own) < 2 || update->state[1]);
    if (own.kind == NP_MUON)
        muon(hyper, update, &scalars);
    else
        updates[own.kind](update, &scalars);
}

/* Eight partial sums: the same order for every vector width. */
NP_VECTOR static double square_sum_block(const float *x, uint64_t n)
{
    double sums[8] = {0};
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += (double)x[i + lane] * x[i + lane];
    for (; i < n; i++)
        sums[i % 8] += (double)x[i] * x[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

double np_square_sum(const float *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t first = 0; first < n; first += NP_NORM_BLOCK)
        sum += square_sum_block(x + first, n - first < NP_NORM_BLOCK ? n - first : NP_NORM_BLOCK);
    return sum;
}

float np_clip_scale(double norm, double clip_norm)
{
    if (clip_norm <= 0)
        return 1;
    double scale = clip_norm / (norm + 1e-6);
    return scale < 1 ? (float)scale : 1; /* a NaN norm gives 1; the loss shows it */
}
