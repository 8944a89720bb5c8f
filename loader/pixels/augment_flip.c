/* flip and alternating_flip: mirror left to right. Drawn on reader threads. */
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

/* --- alternating_flip ---------------------------------------------------------------------- */

struct nothing {
    int none;
};

static const struct np_option no_options[] = {
    {0},
};

#define NO_EPOCH UINT32_MAX /* a counter that no draw of an epoch has */

/* The side of a picture in epoch 0 depends on seed, sample and place in the chain. */
static void alternating_draw(const void *object, struct np_draws *draws, struct np_fold *fold)
{
    const uint32_t counter[4] = {
        NO_EPOCH, (uint32_t)draws->sample, draws->counter[2], (uint32_t)(draws->sample >> 32)};
    uint32_t words[4];

    np_philox(draws->key, counter, words);
    if ((words[0] ^ draws->counter[0]) & 1)
        np_fold_flip(fold);
}

const struct np_augment np_augment_alternating_flip = {
    .name = "alternating_flip",
    .options = no_options,
    .object_bytes = sizeof(struct nothing),
    .draw = alternating_draw,
    .random = true,
    .help = "mirrors half of the pictures in even epochs, and the others in odd ones (Jordan, "
            "arXiv:2404.00498)",
};
