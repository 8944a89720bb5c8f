/* Convolutions of the emulated cuDNN: plain loops over dense f32, laid out so that the compiler's
 * vectors run along channels. Sums over a batch go picture by picture, so that no f32 takes up
 * more than one picture's products. */
#include <stdlib.h>
#include <string.h>

#include "tests/emu/fake_cudnn.h"

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    if (!memory)
        np_emu_die("cuDNN", "no memory for %zu bytes", bytes);
    return memory;
}

static float rounded(float x, enum rounding rounding)
{
    uint32_t bits;
    const int dropped = rounding == TO_TF32 ? 13 : 16;

    if (rounding == EXACT)
        return x;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return x;
    bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
    bits &= ~((1u << dropped) - 1);
    memcpy(&x, &bits, 4);
    return x;
}

/* A copy of n floats as they are multiplied. */
static float *prepared(const float *x, int64_t n, enum rounding rounding)
{
    float *copy = need((size_t)n * sizeof(*copy));

    for (int64_t i = 0; i < n; i++)
        copy[i] = rounded(x[i], rounding);
    return copy;
}

/* y += a * x */
static void add_scaled(float *restrict y, const float *restrict x, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void add(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Where a tap of the kernel falls in the picture; false: outside. */
static bool tap(const struct fake_conv *c, int64_t oh, int64_t ow, int64_t kh, int64_t kw,
    int64_t *ret_h, int64_t *ret_w)
{
    *ret_h = oh * c->stride[0] - c->pad[0] + kh * c->dilation[0];
    *ret_w = ow * c->stride[1] - c->pad[1] + kw * c->dilation[1];
    return *ret_h >= 0 && *ret_h < c->h && *ret_w >= 0 && *ret_w < c->w;
}

/* The k-th tap in the engine's order. */
static int64_t tap_at(const struct fake_conv *c, int64_t k)
{
    return c->manner.backwards ? c->kernel_h * c->kernel_w - 1 - k : k;
}

/* weights (out, kh, kw, per) -> (group, kh, kw, per, out of a group) */
static float *turned(const struct fake_conv *c, const float *weights)
{
    int64_t per = c->c / c->groups, outs = c->out / c->groups, taps = c->kernel_h * c->kernel_w;
    float *turned = need((size_t)(c->out * taps * per) * sizeof(*turned));

    for (int64_t o = 0; o < c->out; o++)
        for (int64_t k = 0; k < taps; k++)
            for (int64_t i = 0; i < per; i++)
                turned[((o / outs * taps + k) * per + i) * outs + o % outs] =
                    rounded(weights[(o * taps + k) * per + i], c->manner.products);
    return turned;
}

void fake_forward(const struct fake_conv *c, const float *x, const float *weights, float *y)
{
    int64_t per = c->c / c->groups, outs = c->out / c->groups, taps = c->kernel_h * c->kernel_w;
    float *w = turned(c, weights), *in = prepared(x, c->n * c->h * c->w * c->c, c->manner.products);

    memset(y, 0, (size_t)(c->n * c->out_h * c->out_w * c->out) * sizeof(*y));
    for (int64_t at = 0; at < c->n * c->out_h * c->out_w; at++)
        for (int64_t k0 = 0; k0 < taps; k0++) {
            int64_t k = tap_at(c, k0), h, v, n = at / (c->out_h * c->out_w);

            if (!tap(c, at / c->out_w % c->out_h, at % c->out_w, k / c->kernel_w, k % c->kernel_w,
                    &h, &v))
                continue;
            for (int64_t g = 0; g < c->groups; g++)
                for (int64_t i = 0; i < per; i++)
                    add_scaled(y + at * c->out + g * outs, w + ((g * taps + k) * per + i) * outs,
                        in[((n * c->h + h) * c->w + v) * c->c + g * per + i], outs);
        }
    free(w);
    free(in);
}

void fake_dgrad(const struct fake_conv *c, const float *dy, const float *weights, float *dx)
{
    int64_t per = c->c / c->groups, outs = c->out / c->groups, taps = c->kernel_h * c->kernel_w;
    float *w = prepared(weights, c->out * taps * per, c->manner.products);
    float *from = prepared(dy, c->n * c->out_h * c->out_w * c->out, c->manner.products);

    memset(dx, 0, (size_t)(c->n * c->h * c->w * c->c) * sizeof(*dx));
    for (int64_t at = 0; at < c->n * c->out_h * c->out_w; at++)
        for (int64_t k0 = 0; k0 < taps; k0++) {
            int64_t k = tap_at(c, k0), h, v, n = at / (c->out_h * c->out_w);

            if (!tap(c, at / c->out_w % c->out_h, at % c->out_w, k / c->kernel_w, k % c->kernel_w,
                    &h, &v))
                continue;
            for (int64_t o = 0; o < c->out; o++)
                add_scaled(dx + ((n * c->h + h) * c->w + v) * c->c + o / outs * per,
                    w + (o * taps + k) * per, from[at * c->out + o], per);
        }
    free(w);
    free(from);
}

/* One picture's part, added to dw. */
static void wgrad_of(const struct fake_conv *c, const float *x, const float *dy, float *dw)
{
    int64_t per = c->c / c->groups, outs = c->out / c->groups, taps = c->kernel_h * c->kernel_w;

    for (int64_t at = 0; at < c->out_h * c->out_w; at++)
        for (int64_t k = 0; k < taps; k++) {
            int64_t h, v;

            if (!tap(c, at / c->out_w, at % c->out_w, k / c->kernel_w, k % c->kernel_w, &h, &v))
                continue;
            for (int64_t o = 0; o < c->out; o++)
                add_scaled(dw + (o * taps + k) * per, x + (h * c->w + v) * c->c + o / outs * per,
                    dy[at * c->out + o], per);
        }
}

void fake_wgrad(const struct fake_conv *c, const float *x, const float *dy, float *dw)
{
    int64_t size = c->out * c->kernel_h * c->kernel_w * (c->c / c->groups);
    float *in = prepared(x, c->n * c->h * c->w * c->c, c->manner.products);
    float *from = prepared(dy, c->n * c->out_h * c->out_w * c->out, c->manner.products);
    float *part = need((size_t)size * sizeof(*part));
    int64_t *order = need((size_t)c->n * sizeof(*order));

    memset(dw, 0, (size_t)size * sizeof(*dw));
    for (int64_t i = 0; i < c->n; i++)
        order[i] = c->manner.backwards ? c->n - 1 - i : i;
    for (int64_t i = c->n; c->manner.any_order && i > 1; i--) {
        int64_t j = (int64_t)(np_emu_draw() % (uint64_t)i), kept = order[i - 1];

        order[i - 1] = order[j];
        order[j] = kept;
    }
    for (int64_t i = 0; i < c->n; i++) {
        memset(part, 0, (size_t)size * sizeof(*part));
        wgrad_of(c, in + order[i] * c->h * c->w * c->c,
            from + order[i] * c->out_h * c->out_w * c->out, part);
        add(dw, part, size);
    }
    free(in);
    free(from);
    free(part);
    free(order);
}
