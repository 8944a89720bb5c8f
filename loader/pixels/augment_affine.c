/* rotation and affine: random affine maps that keep the picture's size. Drawn on reader threads. */
#include <math.h>
#include <stddef.h>

#include "loader/pixels/affine.h"
#include "loader/pixels/augment.h"

#define FILTERS "nearest|bilinear"

struct affine {
    struct np_floats degrees, translate, scale, shear, fill;
    int filter; /* enum np_affine_filter */
    double p;
};

struct range {
    double lo, hi;
};

/* One number stands for both sides of 0. */
static struct range range_of(const struct np_floats *values)
{
    const double *v = values->values;

    return values->nr_values == 1 ? (struct range){-v[0], v[0]} : (struct range){v[0], v[1]};
}

static struct np_affine_look look_of(const struct affine *affine)
{
    struct np_affine_look look = {.filter = (enum np_affine_filter)affine->filter};

    for (int c = 0; c < 3; c++)
        look.fill[c] = (uint8_t)affine->fill.values[affine->fill.nr_values == 3 ? c : 0];
    return look;
}

static bool is_range(const struct np_floats *values)
{
    const double *v = values->values;

    return values->nr_values == 1 ? v[0] >= 0 : values->nr_values == 2 && v[0] <= v[1];
}

static void check_degrees(
    const struct affine *affine, const struct np_node *node, struct np_report *report)
{
    if (!is_range(&affine->degrees))
        np_report_add(report, node->line, node->column,
            "degrees must be one number from 0, for both directions, or [minimum, maximum]");
    if (affine->fill.nr_values != 1 && affine->fill.nr_values != 3)
        np_report_add(report, node->line, node->column, "fill must be one number, or [r, g, b]");
}

/* --- rotation ------------------------------------------------------------------------------ */

#define DEGREES_HELP "15: -15 to 15 degrees, counter-clockwise; or [minimum, maximum]"
#define FILTER_HELP  "how pixels between the picture's are made"
#define FILL_HELP    "pixel value, or [r, g, b], where the picture has no pixel"

static const struct np_option rotation_options[] = {
    {"degrees", NP_OPT_FLOATS, offsetof(struct affine, degrees), NULL, -36000, 36000, NULL,
        DEGREES_HELP},
    {"filter", NP_OPT_WORD, offsetof(struct affine, filter), "nearest", 0, 0, FILTERS, FILTER_HELP},
    {"fill", NP_OPT_FLOATS, offsetof(struct affine, fill), "[0]", 0, 255, NULL, FILL_HELP},
    {"p", NP_OPT_SHARE, offsetof(struct affine, p), "1", 0, 1, NULL, "share of pictures rotated"},
    {0},
};

static void rotation_check(const void *object, const struct np_node *node, struct np_report *report)
{
    check_degrees(object, node, report);
}

static void rotation(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct affine *affine = object;
    const struct np_affine_look look = look_of(affine);
    const struct range degrees = range_of(&affine->degrees);

    if (np_dice_applies(dice, affine->p))
        np_rotation_step(fold, np_dice_between(dice, degrees.lo, degrees.hi), &look);
}

const struct np_augment np_augment_rotation = {
    .name = "rotation",
    .options = rotation_options,
    .object_bytes = sizeof(struct affine),
    .check = rotation_check,
    .touch = rotation,
    .random = true,
    .help = "rotates the picture around its middle by a random angle; its size stays",
};

/* --- affine -------------------------------------------------------------------------------- */

static const struct np_option affine_options[] = {
    {"degrees", NP_OPT_FLOATS, offsetof(struct affine, degrees), "[0]", -36000, 36000, NULL,
        "15: -15 to 15 degrees, clockwise; or [minimum, maximum]"},
    {"translate", NP_OPT_FLOATS, offsetof(struct affine, translate), "[0, 0]", 0, 1, NULL,
        "maximum shift, [across, down], as shares of width and height"},
    {"scale", NP_OPT_FLOATS, offsetof(struct affine, scale), "[1, 1]", 1e-3, 1e3, NULL,
        "minimum and maximum factor"},
    {"shear", NP_OPT_FLOATS, offsetof(struct affine, shear), "[0]", -89, 89, NULL,
        "degrees along x: one number for both directions, or [minimum, maximum]; [4 numbers]: of x "
        "and of y"},
    {"filter", NP_OPT_WORD, offsetof(struct affine, filter), "nearest", 0, 0, FILTERS, FILTER_HELP},
    {"fill", NP_OPT_FLOATS, offsetof(struct affine, fill), "[0]", 0, 255, NULL, FILL_HELP},
    {"p", NP_OPT_SHARE, offsetof(struct affine, p), "1", 0, 1, NULL, "share of pictures changed"},
    {0},
};

static void affine_check(const void *object, const struct np_node *node, struct np_report *report)
{
    const struct affine *affine = object;
    const struct np_floats *shear = &affine->shear;
    const bool is_four = shear->nr_values == 4 && shear->values[0] <= shear->values[1] &&
                         shear->values[2] <= shear->values[3];

    check_degrees(affine, node, report);
    if (affine->translate.nr_values != 2)
        np_report_add(report, node->line, node->column, "affine: translate must be [across, down]");
    if (affine->scale.nr_values != 2 || !is_range(&affine->scale))
        np_report_add(report, node->line, node->column, "affine: scale must be [minimum, maximum]");
    if (!is_range(shear) && !is_four)
        np_report_add(report, node->line, node->column,
            "affine: shear must be one number from 0, [minimum, maximum], or [minimum of x, "
            "maximum "
            "of x, minimum of y, maximum of y]");
}

static double shift(const struct np_dice *dice, double share, int side)
{
    return nearbyint(np_dice_between(dice, -(share * side), share * side));
}

static bool shears(const struct np_floats *shear)
{
    for (int i = 0; i < shear->nr_values; i++)
        if (shear->values[i] < 0 || shear->values[i] > 0)
            return true;
    return false;
}

/* What cannot change anything is not drawn. */
static void affine_touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct affine *affine = object;
    const struct np_affine_look look = look_of(affine);
    const struct range degrees = range_of(&affine->degrees), shear = range_of(&affine->shear);
    const double *scale = affine->scale.values, *share = affine->translate.values;
    struct np_affine map = {.version = np_dice_version(dice),
        .scale = 1,
        .centre_x = fold->width * 0.5,
        .centre_y = fold->height * 0.5};

    if (!np_dice_applies(dice, affine->p))
        return;
    map.angle = np_dice_between(dice, degrees.lo, degrees.hi);
    if (share[0] > 0 || share[1] > 0) {
        map.tx = shift(dice, share[0], fold->width);
        map.ty = shift(dice, share[1], fold->height);
    }
    if (scale[0] < 1 || scale[1] > 1)
        map.scale = np_dice_between(dice, scale[0], scale[1]);
    if (shears(&affine->shear))
        map.shear_x = np_dice_between(dice, shear.lo, shear.hi);
    if (shears(&affine->shear) && affine->shear.nr_values == 4)
        map.shear_y = np_dice_between(dice, affine->shear.values[2], affine->shear.values[3]);
    np_affine_step(fold, &map, &look);
}

const struct np_augment np_augment_affine = {
    .name = "affine",
    .options = affine_options,
    .object_bytes = sizeof(struct affine),
    .check = affine_check,
    .touch = affine_touch,
    .random = true,
    .help = "rotates, shifts, scales and shears the picture at random; its size stays",
};
