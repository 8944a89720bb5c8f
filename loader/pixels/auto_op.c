/* See auto_op.h. */
#include "loader/pixels/auto_op.h"

#include <math.h>

#define PI 3.14159265358979323846

const struct np_auto_space np_auto_space = {0.3, 0, 30, 0.9, 4};
const struct np_auto_space np_auto_wide_space = {0.99, 32, 135, 0.99, 6};

bool np_auto_has_magnitude(enum np_auto_op op)
{
    return op >= NP_AUTO_SHEAR_X && op <= NP_AUTO_SOLARIZE;
}

bool np_auto_is_signed(enum np_auto_op op)
{
    return op >= NP_AUTO_SHEAR_X && op <= NP_AUTO_SHARPNESS;
}

bool np_auto_draw_sign(const struct np_dice *dice)
{
    return np_dice_version(dice) == 1 ? np_dice_below(dice, 2) == 1 : np_dice_at_most(dice, 0.5);
}

struct line {
    int n, i;
    bool fused; /* as np_torch_uniform() */
};

/* torch.linspace(from, to, n)[i], float32. */
static double linspace(double from, double to, struct line line)
{
    const float first = (float)from, last = (float)to, step = (last - first) / (float)(line.n - 1);
    const float up = (float)line.i, down = (float)(line.n - 1 - line.i);
    const bool is_first_half = line.i < line.n / 2;

    if (line.fused)
        return (double)(is_first_half ? fmaf(step, up, first) : fmaf(-step, down, last));
    return (double)(is_first_half ? first + step * up : last - step * down);
}

/* The largest shift along a side. */
static double shift_of(const struct np_auto_space *space, int side)
{
    return space->translate > 0 ? space->translate : 150.0 / 331.0 * side;
}

static double magnitude_of(const struct np_auto *autos, const struct np_fold *fold,
    enum np_auto_op op, int bin, const struct np_dice *dice)
{
    const struct np_auto_space *space = autos->space;
    const int version = np_dice_version(dice);
    const struct line line = {autos->nr_bins, bin, dice->draws || dice->torch->fused};
    float bits;

    switch (op) {
    case NP_AUTO_SHEAR_X:
    case NP_AUTO_SHEAR_Y: return linspace(0, space->shear, line);
    case NP_AUTO_TRANSLATE_X: return linspace(0, shift_of(space, fold->width), line);
    case NP_AUTO_TRANSLATE_Y: return linspace(0, shift_of(space, fold->height), line);
    case NP_AUTO_ROTATE: return linspace(0, space->rotate, line);
    case NP_AUTO_POSTERIZE:
        bits = (float)bin / (float)((autos->nr_bins - 1) / (double)space->posterize);
        return (double)(version == 1 ? 8 - nearbyintf(bits) : nearbyintf(8 - bits));
    case NP_AUTO_SOLARIZE:
        return version == 1 ? linspace(255, 0, line) : 255.0 * linspace(1, 0, line);
    default: return linspace(0, space->factor, line);
    }
}

static void map(struct np_fold *fold, enum np_auto_op op, double magnitude,
    const struct np_affine_look *look, int version)
{
    const double shear = atan(magnitude) * (180.0 / PI);
    struct np_affine affine = {.scale = 1, .version = version};

    if (op == NP_AUTO_ROTATE) {
        np_rotation_step(fold, magnitude, look);
        return;
    }
    if (op == NP_AUTO_SHEAR_X)
        affine.shear_x = shear;
    else if (op == NP_AUTO_SHEAR_Y)
        affine.shear_y = shear;
    else {
        affine.centre_x = fold->width * 0.5;
        affine.centre_y = fold->height * 0.5;
        *(op == NP_AUTO_TRANSLATE_X ? &affine.tx : &affine.ty) = trunc(magnitude);
    }
    np_affine_step(fold, &affine, look);
}

void np_auto_step(struct np_fold *fold, const struct np_auto *autos, enum np_auto_op op, int bin,
    bool negative, const struct np_dice *dice)
{
    static const struct np_pixel_op *const pixel_ops[] = {
        [NP_AUTO_BRIGHTNESS] = &np_pixel_brightness,
        [NP_AUTO_COLOR] = &np_pixel_saturation,
        [NP_AUTO_CONTRAST] = &np_pixel_contrast,
        [NP_AUTO_SHARPNESS] = &np_pixel_sharpness,
        [NP_AUTO_POSTERIZE] = &np_pixel_posterize,
        [NP_AUTO_SOLARIZE] = &np_pixel_solarize,
        [NP_AUTO_AUTOCONTRAST] = &np_pixel_autocontrast,
        [NP_AUTO_EQUALIZE] = &np_pixel_equalize,
        [NP_AUTO_INVERT] = &np_pixel_invert,
    };
    double magnitude = np_auto_has_magnitude(op) ? magnitude_of(autos, fold, op, bin, dice) : 0;

    if (negative)
        magnitude = -magnitude;
    if (op == NP_AUTO_IDENTITY)
        return;
    if (op <= NP_AUTO_ROTATE) {
        map(fold, op, magnitude, &autos->look, np_dice_version(dice));
        return;
    }
    if (op <= NP_AUTO_SHARPNESS)
        magnitude += 1;
    np_fold_pixels(fold, pixel_ops[op], &magnitude, 1);
}
