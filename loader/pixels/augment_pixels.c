/* Operations that change the pixels of a share of pictures, in one way: vertical_flip, grayscale,
 * solarize, posterize, equalize, autocontrast, sharpness, invert. Drawn on reader threads. */
#include <stddef.h>

#include "loader/pixels/augment.h"

struct change {
    double p, value;
    int64_t bits;
};

#define SHARE(fallback, help)                                                                      \
    {                                                                                              \
        "p", NP_OPT_SHARE, offsetof(struct change, p), fallback, 0, 1, NULL, help                  \
    }

static void change(const struct np_pixel_op *op, const struct change *change, double value,
    const struct np_dice *dice, struct np_fold *fold)
{
    if (np_dice_chance(dice, change->p))
        np_fold_pixels(fold, op, &value, 1);
}

static const struct np_option vertical_flip_options[] = {
    SHARE("0.5", "share of pictures flipped"),
    {0},
};

static void vertical_flip(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_flip_down, object, 0, dice, fold);
}

const struct np_augment np_augment_vertical_flip = {
    .name = "vertical_flip",
    .options = vertical_flip_options,
    .object_bytes = sizeof(struct change),
    .touch = vertical_flip,
    .random = true,
    .help = "mirrors the picture, top to bottom",
};

static const struct np_option grayscale_options[] = {
    SHARE("0.1", "share of pictures made grey"),
    {0},
};

static void grayscale(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_grayscale, object, 0, dice, fold);
}

const struct np_augment np_augment_grayscale = {
    .name = "grayscale",
    .options = grayscale_options,
    .object_bytes = sizeof(struct change),
    .touch = grayscale,
    .random = true,
    .help = "makes the picture grey: all channels get its luma",
};

static const struct np_option solarize_options[] = {
    {"threshold", NP_OPT_FLOAT, offsetof(struct change, value), "128", 0, 256, NULL,
        "pixel values from here on are inverted"},
    SHARE("0.5", "share of pictures solarized"),
    {0},
};

static void solarize(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_solarize, object, ((const struct change *)object)->value, dice, fold);
}

const struct np_augment np_augment_solarize = {
    .name = "solarize",
    .options = solarize_options,
    .object_bytes = sizeof(struct change),
    .touch = solarize,
    .random = true,
    .help = "inverts the bright pixel values",
};

static const struct np_option posterize_options[] = {
    {"bits", NP_OPT_INT, offsetof(struct change, bits), NULL, 1, 8, NULL,
        "high bits of a pixel value that are kept"},
    SHARE("0.5", "share of pictures posterized"),
    {0},
};

static void posterize(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_posterize, object, (double)((const struct change *)object)->bits, dice, fold);
}

const struct np_augment np_augment_posterize = {
    .name = "posterize",
    .options = posterize_options,
    .object_bytes = sizeof(struct change),
    .touch = posterize,
    .random = true,
    .help = "sets the low bits of pixel values to 0",
};

static const struct np_option equalize_options[] = {
    SHARE("0.5", "share of pictures equalized"),
    {0},
};

static void equalize(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_equalize, object, 0, dice, fold);
}

const struct np_augment np_augment_equalize = {
    .name = "equalize",
    .options = equalize_options,
    .object_bytes = sizeof(struct change),
    .touch = equalize,
    .random = true,
    .help = "makes all values of a channel about equally frequent",
};

static const struct np_option autocontrast_options[] = {
    SHARE("0.5", "share of pictures whose contrast is stretched"),
    {0},
};

static void autocontrast(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_autocontrast, object, 0, dice, fold);
}

const struct np_augment np_augment_autocontrast = {
    .name = "autocontrast",
    .options = autocontrast_options,
    .object_bytes = sizeof(struct change),
    .touch = autocontrast,
    .random = true,
    .help = "stretches the values of each channel to 0 to 255",
};

static const struct np_option sharpness_options[] = {
    {"factor", NP_OPT_FLOAT, offsetof(struct change, value), NULL, 0, 1000, NULL,
        "0: smooth, 1: as it is, 2: sharp"},
    SHARE("0.5", "share of pictures changed"),
    {0},
};

static void sharpness(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_sharpness, object, ((const struct change *)object)->value, dice, fold);
}

const struct np_augment np_augment_sharpness = {
    .name = "sharpness",
    .options = sharpness_options,
    .object_bytes = sizeof(struct change),
    .touch = sharpness,
    .random = true,
    .help = "sharpens or smooths the picture by one factor",
};

static const struct np_option invert_options[] = {
    SHARE("0.5", "share of pictures inverted"),
    {0},
};

static void invert(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    change(&np_pixel_invert, object, 0, dice, fold);
}

const struct np_augment np_augment_invert = {
    .name = "invert",
    .options = invert_options,
    .object_bytes = sizeof(struct change),
    .touch = invert,
    .random = true,
    .help = "inverts all pixel values",
};
