/* gaussian_blur, and three_augment, which may blur. Drawn on reader threads. */
#include <stddef.h>

#include "loader/pixels/augment.h"

struct blur {
    struct np_floats kernel, sigma;
    double p;
};

static void add(struct np_fold *fold, double width, double height, double sigma)
{
    const double values[] = {width, height, sigma};

    np_fold_pixels(fold, &np_pixel_blur, values, 3);
}

static const struct np_option blur_options[] = {
    {"kernel", NP_OPT_FLOATS, offsetof(struct blur, kernel), NULL, 1, 2 * NP_MAX_RADIUS - 1, NULL,
        "size of the sum in pixels, odd: one number, or [height, width]"},
    {"sigma", NP_OPT_FLOATS, offsetof(struct blur, sigma), "[0.1, 2]", 1e-3, 1000, NULL,
        "minimum and maximum width of the curve, pixels; or one number"},
    {"p", NP_OPT_SHARE, offsetof(struct blur, p), "1", 0, 1, NULL, "share of pictures blurred"},
    {0},
};

static void check(const void *object, const struct np_node *node, struct np_report *report)
{
    const struct blur *blur = object;
    const struct np_floats *sigma = &blur->sigma;

    if (!np_sides_are_whole(&blur->kernel) || np_side(&blur->kernel, 0) % 2 == 0 ||
        np_side(&blur->kernel, 1) % 2 == 0)
        np_report_add(report, node->line, node->column,
            "gaussian_blur: kernel must be one odd whole number, or [height, width]");
    if (sigma->nr_values != 1 && (sigma->nr_values != 2 || sigma->values[0] > sigma->values[1]))
        np_report_add(report, node->line, node->column,
            "gaussian_blur: sigma must be one number, or [minimum, maximum]");
}

static void touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct blur *blur = object;
    const double *sigma = blur->sigma.values;

    if (np_dice_applies(dice, blur->p))
        add(fold, np_side(&blur->kernel, 1), np_side(&blur->kernel, 0),
            np_dice_between(dice, sigma[0], sigma[blur->sigma.nr_values - 1]));
}

const struct np_augment np_augment_gaussian_blur = {
    .name = "gaussian_blur",
    .options = blur_options,
    .object_bytes = sizeof(struct blur),
    .check = check,
    .touch = touch,
    .random = true,
    .help = "blurs the picture by a random width",
};

/* --- three_augment ------------------------------------------------------------------------- */

/* Touvron et al., "DeiT III: Revenge of the ViT", arXiv 2204.07118: grey, solarized or blurred. */
static void three(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct blur *blur = object;
    const double threshold = 128;
    const int which = np_dice_below(dice, 3);

    if (which == 0)
        np_fold_pixels(fold, &np_pixel_grayscale, NULL, 0);
    else if (which == 1)
        np_fold_pixels(fold, &np_pixel_solarize, &threshold, 1);
    else
        add(fold, np_side(&blur->kernel, 1), np_side(&blur->kernel, 0),
            np_dice_between(dice, blur->sigma.values[0], blur->sigma.values[1]));
}

static const struct np_option three_options[] = {
    {"kernel", NP_OPT_FLOATS, offsetof(struct blur, kernel), "[13]", 1, 2 * NP_MAX_RADIUS - 1, NULL,
        "size of the blur's sum in pixels, odd: one number, or [height, width]"},
    {"sigma", NP_OPT_FLOATS, offsetof(struct blur, sigma), "[0.1, 2]", 1e-3, 1000, NULL,
        "minimum and maximum width of the blur's curve, pixels"},
    {0},
};

static void three_check(const void *object, const struct np_node *node, struct np_report *report)
{
    const struct blur *blur = object;

    check(object, node, report);
    if (blur->sigma.nr_values != 2)
        np_report_add(
            report, node->line, node->column, "three_augment: sigma must be [minimum, maximum]");
}

const struct np_augment np_augment_three_augment = {
    .name = "three_augment",
    .options = three_options,
    .object_bytes = sizeof(struct blur),
    .check = three_check,
    .touch = three,
    .random = true,
    .help = "3-Augment: makes each picture grey, solarized or blurred",
};
