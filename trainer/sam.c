#include "trainer/sam.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "trainer/optim.h"

/* gcc 12 at -O2 does not vectorise loops of unknown length. */
#define NP_VECTOR __attribute__((optimize("O3")))

#define AT(field) offsetof(struct np_sam_options, field)

const struct np_option np_sam_table[] = {
    {"rho", NP_OPT_FLOAT, AT(rho), "0.05", 1e-6, 1e3, NULL,
        "How far the weights move uphill before the second pass: the length of that way. ASAM's "
        "paper takes 0.5 to 2."},
    {"adaptive", NP_OPT_BOOL, AT(adaptive), "false", 0, 0, NULL,
        "ASAM (arXiv:2102.11600): a weight's part of the way grows with its square."},
    NP_OPTIONS_END,
};

NP_VECTOR static void products(
    float *restrict to, const float *restrict w, const float *restrict g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = w[i] * g[i];
}

double np_sam_squares(const float *w, const float *g, uint64_t n, bool adaptive)
{
    float all[NP_NORM_BLOCK];

    assert(n <= NP_NORM_BLOCK);
    if (!adaptive)
        return np_square_sum(g, n);
    products(all, w, g, n);
    return np_square_sum(all, n);
}

float np_sam_scale(double norm, double rho)
{
    return isfinite(norm) ? (float)(rho / (norm + 1e-12)) : NAN;
}

NP_VECTOR void np_sam_climb(
    float *restrict w, const float *restrict g, uint64_t n, float scale, bool adaptive)
{
    for (uint64_t i = 0; i < n; i++)
        w[i] += (adaptive ? scale * (w[i] * w[i]) : scale) * g[i];
}
