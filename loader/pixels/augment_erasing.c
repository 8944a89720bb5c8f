/* random_erasing: a box of one colour (Zhong et al., "Random erasing data augmentation", arXiv
 * 1708.04896), as torchvision's RandomErasing, and cutout: a square at any place (DeVries and
 * Taylor, arXiv 1708.04552). Drawn on reader threads. */
#include <math.h>
#include <stddef.h>

#include "loader/pixels/random_box.h"

#define ATTEMPTS 10 /* boxes drawn before the picture stays as it is */

struct erasing {
    struct np_floats scale, ratio, value;
    int64_t size;
    double p;
};

static void erase(const struct erasing *erasing, struct np_fold *fold, int x, int y, int w, int h)
{
    double values[7] = {x, y, w, h};

    for (int c = 0; c < 3; c++)
        values[4 + c] = erasing->value.values[erasing->value.nr_values == 3 ? c : 0];
    if (w > 0 && h > 0)
        np_fold_pixels(fold, &np_pixel_erase, values, 7);
}

static bool is_range(const struct np_floats *range)
{
    return range->nr_values == 2 && range->values[0] <= range->values[1];
}

static void check_value(
    const struct erasing *erasing, const struct np_node *node, struct np_report *report)
{
    bool right = erasing->value.nr_values == 1 || erasing->value.nr_values == 3;

    for (int i = 0; right && i < erasing->value.nr_values; i++)
        right = erasing->value.values[i] == floor(erasing->value.values[i]);
    if (!right)
        np_report_add(report, node->line, node->column,
            "value must be one whole number, or [r, g, b]: pixel values before normalize");
}

/* --- random_erasing ------------------------------------------------------------------------ */

static const struct np_option erasing_options[] = {
    {"p", NP_OPT_SHARE, offsetof(struct erasing, p), "0.5", 0, 1, NULL,
        "share of pictures with a box"},
    {"scale", NP_OPT_FLOATS, offsetof(struct erasing, scale), "[0.02, 0.33]", 1e-6, 1, NULL,
        "minimum and maximum share of the picture's area that the box covers"},
    {"ratio", NP_OPT_FLOATS, offsetof(struct erasing, ratio), "[0.3, 3.3]", 1e-3, 1e3, NULL,
        "minimum and maximum height/width of the box"},
    {"value", NP_OPT_FLOATS, offsetof(struct erasing, value), "[0]", 0, 255, NULL,
        "pixel value of the box before `normalize`, or [r, g, b]; [124, 116, 104] is ImageNet's "
        "mean"},
    {0},
};

static void erasing_check(const void *object, const struct np_node *node, struct np_report *report)
{
    const struct erasing *erasing = object;

    check_value(erasing, node, report);
    if (!is_range(&erasing->scale))
        np_report_add(report, node->line, node->column,
            "random_erasing: scale must be [minimum, maximum], as in [0.02, 0.33]");
    if (!is_range(&erasing->ratio))
        np_report_add(report, node->line, node->column,
            "random_erasing: ratio must be [minimum, maximum], as in [0.3, 3.3]");
}

static void draw_box(
    const struct erasing *erasing, const struct np_dice *dice, double area, int *w, int *h)
{
    const double *scale = erasing->scale.values, *ratio = erasing->ratio.values;
    const double target = area * np_dice_between(dice, scale[0], scale[1]);

    if (dice->draws) {
        np_box_of(target, exp(np_dice_between(dice, log(ratio[0]), log(ratio[1]))), h, w);
    } else {
        const struct np_torch_draws *torch = dice->torch;
        const double log_min = (double)torch->log(torch->context, (float)ratio[0]);
        const double log_max = (double)torch->log(torch->context, (float)ratio[1]);

        np_box_of_log(torch, target, (float)np_dice_between(dice, log_min, log_max), h, w);
    }
}

static void erasing_touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct erasing *erasing = object;
    const double area = (double)fold->width * fold->height;
    int w, h, x, y;

    if (!np_dice_chance(dice, erasing->p))
        return;
    for (int i = 0; i < ATTEMPTS; i++) {
        draw_box(erasing, dice, area, &w, &h);
        if (w >= fold->width || h >= fold->height)
            continue;
        y = np_dice_below(dice, fold->height - h + 1);
        x = np_dice_below(dice, fold->width - w + 1);
        erase(erasing, fold, x, y, w, h);
        return;
    }
}

const struct np_augment np_augment_random_erasing = {
    .name = "random_erasing",
    .options = erasing_options,
    .object_bytes = sizeof(struct erasing),
    .check = erasing_check,
    .touch = erasing_touch,
    .random = true,
    .help = "fills a box of random area and shape with one colour",
};

/* --- cutout -------------------------------------------------------------------------------- */

static const struct np_option cutout_options[] = {
    {"size", NP_OPT_INT, offsetof(struct erasing, size), NULL, 1, 65500, NULL,
        "side of the square, pixels"},
    {"p", NP_OPT_SHARE, offsetof(struct erasing, p), "1", 0, 1, NULL,
        "share of pictures with a square"},
    {"value", NP_OPT_FLOATS, offsetof(struct erasing, value), "[0]", 0, 255, NULL,
        "pixel value of the square before `normalize`, or [r, g, b]"},
    {0},
};

static void cutout_check(const void *object, const struct np_node *node, struct np_report *report)
{
    check_value(object, node, report);
}

static int clamp(int64_t at, int n)
{
    return (int)(at < 0 ? 0 : at > n ? n : at);
}

/* The square's middle is any pixel, so that a part of it may lie outside. */
static void cutout(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct erasing *erasing = object;
    const int64_t side = erasing->size;
    int64_t x, y;
    int left, top;

    if (!np_dice_applies(dice, erasing->p))
        return;
    y = np_dice_below(dice, fold->height) - side / 2;
    x = np_dice_below(dice, fold->width) - side / 2;
    left = clamp(x, fold->width);
    top = clamp(y, fold->height);
    erase(erasing, fold, left, top, clamp(x + side, fold->width) - left,
        clamp(y + side, fold->height) - top);
}

const struct np_augment np_augment_cutout = {
    .name = "cutout",
    .options = cutout_options,
    .object_bytes = sizeof(struct erasing),
    .check = cutout_check,
    .touch = cutout,
    .random = true,
    .help = "fills a square at a random place with one colour",
};
