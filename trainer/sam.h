/* Sharpness-aware minimization (SAM, arXiv:2010.01412, algorithm 1) and its adaptive kind (ASAM,
 * arXiv:2102.11600): a step whose gradient is that of the same batch at weights a little uphill.
 * Devices climb after a first pass, run a second one there, and update the weights as they were,
 * from a copy. Any optimizer. */
#ifndef NP_SAM_H
#define NP_SAM_H

#include "loader/base/option.h"

struct np_sam_options {
    double rho; /* 0: no SAM */
    bool adaptive;
};
extern const struct np_option np_sam_table[]; /* `train.sam` */

/* w, g: (n) weights and their gradients; frozen weights have gradients of 0. Any thread.
 *
 *   SAM   norm = |g|;        w += rho / (norm + 1e-12) * g
 *   ASAM  norm = | |w| g |;  w += rho / (norm + 1e-12) * w^2 * g
 *
 * np_sam_squares() gives the sum of the squares in norm; n: at most NP_NORM_BLOCK (optim.h). Sums
 * of blocks, added in order, give the same bits with any number of threads. */
double np_sam_squares(const float *w, const float *g, uint64_t n, bool adaptive);
/* rho / (norm + 1e-12); NaN if the norm is not finite, so that the second pass is not, either. */
float np_sam_scale(double norm, double rho);
void np_sam_climb(float *w, const float *g, uint64_t n, float scale, bool adaptive);

#endif
