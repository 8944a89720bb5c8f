/* mixup (arXiv:1710.09412) and cutmix (arXiv:1905.04899) of a batch: row r is mixed with row r - 1,
 * the first with the last, as torchvision's MixUp and CutMix do it. The rows of a batch were drawn
 * at random, so the partners are, too. Pixels are mixed by NP_OP_INPUT, targets by the loss. Plain
 * types: .cu files include this. Any thread. */
#ifndef NP_MIX_H
#define NP_MIX_H

#include <stdbool.h>
#include <stdint.h>

struct np_mix {
    double mixup, cutmix; /* alpha of Beta(alpha, alpha); 0: never */
    double share;         /* of the batches that are mixed */
    uint64_t seed;
    int height, width; /* of the images */
};

/* What a batch's draw gave. */
struct np_mixed {
    float keep;  /* share of a row's own label; 1: the batch is not mixed */
    int32_t box; /* cutmix: the box comes from the partner; else all pixels mix */
    int32_t top, left, bottom, right; /* of the box; bottom and right are outside */
};

static inline bool np_mix_on(const struct np_mix *mix)
{
    return mix->mixup > 0 || mix->cutmix > 0;
}

static inline int np_mix_partner(int row, int batch)
{
    return row > 0 ? row - 1 : batch - 1;
}

/* In a batch in lanes (lane_rows above 0) the partner is of the same lane. */
static inline int np_mix_partner_in(int row, int batch, int lane_rows)
{
    const int first = lane_rows > 0 ? row - row % lane_rows : 0;

    return first + np_mix_partner(row - first, lane_rows > 0 ? lane_rows : batch);
}

/* The draw of a step: a function of mix and step only. */
void np_mix_draw(const struct np_mix *mix, uint64_t step, struct np_mixed *ret_mixed);
/* A box around (x, y) of about 1 - keep of the image, cut at its edges; keep becomes exact. */
void np_mix_box(double keep, int x, int y, int height, int width, struct np_mixed *ret_mixed);

#endif
