/* flip: mirrors left to right. Drawn on reader threads. */
#include <stddef.h>

#include "loader/pixels/augment.h"

struct flip {
    double p;
};

static const struct np_option flip_options[] = {
    {"p", NP_OPT_SHARE, offsetof(struct flip, p), "0.5", 0, 1, NULL, "share of pictures flipped"},
    {0},
};

static void flip_draw(const void *object, struct np_draws *draws, struct np_fold *fold)
{
    if (np_draw_uniform(draws) < ((const struct flip *)object)->p)
        np_fold_flip(fold);
}

static bool flip_draw_torch(
    const void *object, const struct np_torch_draws *draws, struct np_fold *fold)
{
    if (np_torch_uniform(draws->rng, 0, 1, draws->fused) < (float)((const struct flip *)object)->p)
        np_fold_flip(fold);
    return true;
}

const struct np_augment np_augment_flip = {
    .name = "flip",
    .options = flip_options,
    .object_bytes = sizeof(struct flip),
    .draw = flip_draw,
    .draw_torch = flip_draw_torch,
    .random = true,
    .help = "mirrors the picture, left to right",
};
