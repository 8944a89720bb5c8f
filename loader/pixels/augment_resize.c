/* resize and random_resized_crop. Drawn on reader threads. */
#include <math.h>
#include <stddef.h>

#include "loader/pixels/random_box.h"

#define MAX_SIDE 65500.0
#define ATTEMPTS 10 /* boxes drawn before the middle is taken */
#define FILTERS  "bilinear|bicubic|nearest"

struct resize {
    struct np_floats size; /* one number: of the shorter side; or [height, width] */
    struct np_floats scale, ratio;
    int filter; /* enum np_filter */
};

/* --- resize -------------------------------------------------------------------------------- */

static const struct np_option resize_options[] = {
    {"size", NP_OPT_FLOATS, offsetof(struct resize, size), NULL, 1, MAX_SIDE, NULL,
        "pixels: one number for the shorter side, or [height, width]"},
    {"filter", NP_OPT_WORD, offsetof(struct resize, filter), "bilinear", 0, 0, FILTERS,
        "bilinear and bicubic are antialiased, as in Pillow"},
    {0},
};

static void resize_check(const void *object, const struct np_node *node, struct np_report *report)
{
    if (!np_sides_are_whole(&((const struct resize *)object)->size))
        np_report_add(report, node->line, node->column,
            "resize: size must be one whole number (the shorter side), or [height, width]");
}

static int clamp_side(double side)
{
    return (int)(side < 1 ? 1 : side > MAX_SIDE ? MAX_SIDE : side);
}

/* The longer side is rounded down: torchvision's _compute_resized_output_size. */
static void resize_size(const void *object, int *w, int *h)
{
    const struct np_floats *size = &((const struct resize *)object)->size;
    double shorter = size->values[0];

    if (size->nr_values == 2) {
        *h = np_side(size, 0);
        *w = np_side(size, 1);
    } else if (*w > 0 && *h > 0 && *w <= *h) {
        *h = clamp_side(shorter * *h / *w);
        *w = (int)shorter;
    } else if (*w > 0 && *h > 0) {
        *w = clamp_side(shorter * *w / *h);
        *h = (int)shorter;
    }
}

static void resize_draw(const void *object, struct np_draws *draws, struct np_fold *fold)
{
    const struct resize *resize = object;
    int w = fold->width, h = fold->height;

    resize_size(object, &w, &h);
    np_fold_resize(fold, w, h, (enum np_filter)resize->filter);
}

const struct np_augment np_augment_resize = {
    .name = "resize",
    .options = resize_options,
    .object_bytes = sizeof(struct resize),
    .check = resize_check,
    .draw = resize_draw,
    .size = resize_size,
    .resizes = true,
    .help = "scales the picture; one number is the length of its shorter side",
};

/* --- random_resized_crop ------------------------------------------------------------------- */

static const struct np_option random_resized_crop_options[] = {
    {"size", NP_OPT_FLOATS, offsetof(struct resize, size), NULL, 1, MAX_SIDE, NULL,
        "pixels: one number, or [height, width]"},
    {"scale", NP_OPT_FLOATS, offsetof(struct resize, scale), "[0.08, 1]", 1e-6, 1, NULL,
        "minimum and maximum share of the picture's area that the box covers"},
    {"ratio", NP_OPT_FLOATS, offsetof(struct resize, ratio), "[0.75, 1.3333333333333333]", 1e-3,
        1e3, NULL, "minimum and maximum width/height of the box"},
    {"filter", NP_OPT_WORD, offsetof(struct resize, filter), "bilinear", 0, 0, FILTERS,
        "bilinear and bicubic are antialiased, as in Pillow"},
    {0},
};

static bool is_range(const struct np_floats *range)
{
    return range->nr_values == 2 && range->values[0] <= range->values[1];
}

static void random_resized_crop_check(
    const void *object, const struct np_node *node, struct np_report *report)
{
    const struct resize *resize = object;

    if (!np_sides_are_whole(&resize->size))
        np_report_add(report, node->line, node->column,
            "random_resized_crop: size must be one whole number, or [height, width]");
    if (!is_range(&resize->scale))
        np_report_add(report, node->line, node->column,
            "random_resized_crop: scale must be [minimum, maximum], as in [0.08, 1]");
    if (!is_range(&resize->ratio))
        np_report_add(report, node->line, node->column,
            "random_resized_crop: ratio must be [minimum, maximum], as in [0.75, 1.333]");
}

static void random_resized_crop_size(const void *object, int *w, int *h)
{
    *h = np_side(&((const struct resize *)object)->size, 0);
    *w = np_side(&((const struct resize *)object)->size, 1);
}

static double between(struct np_draws *draws, double lo, double hi)
{
    return lo + np_draw_uniform(draws) * (hi - lo);
}

/* The largest box in the middle whose ratio is in range. */
static void middle_box(const struct resize *resize, int width, int height, int *w, int *h)
{
    double min = resize->ratio.values[0], max = resize->ratio.values[1];
    double ratio = (double)width / height;

    *w = width;
    *h = height;
    if (ratio < min)
        *h = (int)nearbyint(width / min);
    else if (ratio > max)
        *w = (int)nearbyint(height * max);
    *w = *w < 1 ? 1 : *w > width ? width : *w;
    *h = *h < 1 ? 1 : *h > height ? height : *h;
}

static bool fits(const struct np_fold *fold, int w, int h)
{
    return w > 0 && w <= fold->width && h > 0 && h <= fold->height;
}

/* Crops to the box at x, y, and resizes. */
static void crop_box(const struct resize *resize, struct np_fold *fold, int x, int y, int w, int h)
{
    int out_w, out_h;

    np_fold_crop(fold, x, y, w, h, NP_BORDER_ZERO);
    random_resized_crop_size(resize, &out_w, &out_h);
    np_fold_resize(fold, out_w, out_h, (enum np_filter)resize->filter);
}

/* torchvision's RandomResizedCrop.get_params, with draws of our own: Szegedy et al., "Going deeper
 * with convolutions", arXiv 1409.4842, section 6. */
static void random_resized_crop_draw(
    const void *object, struct np_draws *draws, struct np_fold *fold)
{
    const struct resize *resize = object;
    double log_min = log(resize->ratio.values[0]), log_max = log(resize->ratio.values[1]);
    double area = (double)fold->width * fold->height;
    int x, y, w = 0, h = 0;
    bool found = false;

    for (int i = 0; i < ATTEMPTS && !found; i++) {
        double target = area * between(draws, resize->scale.values[0], resize->scale.values[1]);
        double ratio = exp(between(draws, log_min, log_max));

        np_box_of(target, ratio, &w, &h);
        found = fits(fold, w, h);
    }
    if (found) {
        y = (int)np_draw_below(draws, (uint32_t)(fold->height - h) + 1);
        x = (int)np_draw_below(draws, (uint32_t)(fold->width - w) + 1);
    } else {
        middle_box(resize, fold->width, fold->height, &w, &h);
        y = (fold->height - h) / 2;
        x = (fold->width - w) / 2;
    }
    crop_box(resize, fold, x, y, w, h);
}

static bool random_resized_crop_draw_torch(
    const void *object, const struct np_torch_draws *draws, struct np_fold *fold)
{
    const struct resize *resize = object;
    const float log_min = draws->log(draws->context, (float)resize->ratio.values[0]);
    const float log_max = draws->log(draws->context, (float)resize->ratio.values[1]);
    const float scale_min = (float)resize->scale.values[0];
    const float scale_max = (float)resize->scale.values[1];
    const double area = (double)fold->width * fold->height;
    struct np_torch_rng *rng = draws->rng;
    int x, y, w = 0, h = 0;

    for (int i = 0; i < ATTEMPTS; i++) {
        const double target = area * np_torch_uniform(rng, scale_min, scale_max, draws->fused);

        np_box_of_log(draws, target, np_torch_uniform(rng, log_min, log_max, draws->fused), &w, &h);
        if (!fits(fold, w, h))
            continue;
        y = (int)np_torch_below(rng, fold->height - h + 1);
        x = (int)np_torch_below(rng, fold->width - w + 1);
        crop_box(resize, fold, x, y, w, h);
        return true;
    }
    middle_box(resize, fold->width, fold->height, &w, &h);
    crop_box(resize, fold, (fold->width - w) / 2, (fold->height - h) / 2, w, h);
    return true;
}

const struct np_augment np_augment_random_resized_crop = {
    .name = "random_resized_crop",
    .options = random_resized_crop_options,
    .object_bytes = sizeof(struct resize),
    .check = random_resized_crop_check,
    .draw = random_resized_crop_draw,
    .draw_torch = random_resized_crop_draw_torch,
    .size = random_resized_crop_size,
    .resizes = true,
    .random = true,
    .help = "crops to a box of random area and shape, and scales it to one size",
};
