/* rand_augment (Cubuk et al., arXiv 1909.13719), trivial_augment (Müller and Hutter, arXiv
 * 2103.10158, the wide space) and auto_augment (Cubuk et al., arXiv 1805.09501), as torchvision
 * has them. Drawn on reader threads. */
#include <stddef.h>

#include "loader/pixels/auto_op.h"

#define FILTERS "nearest|bilinear"

struct automatic {
    int64_t nr_ops, magnitude, nr_bins;
    int filter, policy; /* enum np_affine_filter */
    struct np_floats fill;
};

#define COMMON_OPTIONS                                                                             \
    {"filter", NP_OPT_WORD, offsetof(struct automatic, filter), "nearest", 0, 0, FILTERS,          \
        "how pixels between the picture's are made"},                                              \
    {                                                                                              \
        "fill", NP_OPT_FLOATS, offsetof(struct automatic, fill), "[0]", 0, 255, NULL,              \
            "pixel value, or [r, g, b], where the picture has no pixel"                            \
    }

static struct np_auto auto_of(
    const struct automatic *automatic, const struct np_auto_space *space, int nr_bins)
{
    struct np_auto autos = {.space = space,
        .nr_bins = nr_bins,
        .look = {.filter = (enum np_affine_filter)automatic->filter}};

    for (int c = 0; c < 3; c++)
        autos.look.fill[c] =
            (uint8_t)automatic->fill.values[automatic->fill.nr_values == 3 ? c : 0];
    return autos;
}

static void check_fill(
    const struct automatic *automatic, const struct np_node *node, struct np_report *report)
{
    if (automatic->fill.nr_values != 1 && automatic->fill.nr_values != 3)
        np_report_add(report, node->line, node->column, "fill must be one number, or [r, g, b]");
}

static void check(const void *object, const struct np_node *node, struct np_report *report)
{
    check_fill(object, node, report);
}

/* --- rand_augment -------------------------------------------------------------------------- */

static const struct np_option rand_options[] = {
    {"ops", NP_OPT_INT, offsetof(struct automatic, nr_ops), "2", 0, 16, NULL,
        "operations for each picture, drawn from 14, the identity among them"},
    {"magnitude", NP_OPT_INT, offsetof(struct automatic, magnitude), "9", 0, 1000, NULL,
        "strength of all operations, below `bins`"},
    {"bins", NP_OPT_INT, offsetof(struct automatic, nr_bins), "31", 2, 1001, NULL,
        "number of magnitudes, from nothing to the strongest"},
    COMMON_OPTIONS,
    {0},
};

static void rand_check(const void *object, const struct np_node *node, struct np_report *report)
{
    const struct automatic *automatic = object;

    check_fill(automatic, node, report);
    if (automatic->magnitude >= automatic->nr_bins)
        np_report_add(report, node->line, node->column,
            "rand_augment: magnitude (%d) must be smaller than bins (%d)",
            (int)automatic->magnitude, (int)automatic->nr_bins);
}

static void rand_touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct automatic *automatic = object;
    const struct np_auto autos = auto_of(automatic, &np_auto_space, (int)automatic->nr_bins);

    for (int i = 0; i < automatic->nr_ops; i++) {
        const enum np_auto_op op = (enum np_auto_op)np_dice_below(dice, NP_AUTO_RANDOM);
        const bool negative = np_auto_is_signed(op) && np_auto_draw_sign(dice);

        np_auto_step(fold, &autos, op, (int)automatic->magnitude, negative, dice);
    }
}

static int rand_steps(const void *object)
{
    return (int)((const struct automatic *)object)->nr_ops;
}

const struct np_augment np_augment_rand_augment = {
    .name = "rand_augment",
    .options = rand_options,
    .object_bytes = sizeof(struct automatic),
    .check = rand_check,
    .touch = rand_touch,
    .nr_steps = rand_steps,
    .random = true,
    .help = "RandAugment: random operations of one strength",
};

/* --- trivial_augment ----------------------------------------------------------------------- */

static const struct np_option trivial_options[] = {
    {"bins", NP_OPT_INT, offsetof(struct automatic, nr_bins), "31", 2, 1001, NULL,
        "number of magnitudes, from nothing to the strongest"},
    COMMON_OPTIONS,
    {0},
};

static void trivial_touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct automatic *automatic = object;
    const struct np_auto autos = auto_of(automatic, &np_auto_wide_space, (int)automatic->nr_bins);
    const enum np_auto_op op = (enum np_auto_op)np_dice_below(dice, NP_AUTO_RANDOM);
    const int bin = np_auto_has_magnitude(op) ? np_dice_below(dice, autos.nr_bins) : 0;
    const bool negative = np_auto_is_signed(op) && np_auto_draw_sign(dice);

    np_auto_step(fold, &autos, op, bin, negative, dice);
}

const struct np_augment np_augment_trivial_augment = {
    .name = "trivial_augment",
    .options = trivial_options,
    .object_bytes = sizeof(struct automatic),
    .check = check,
    .touch = trivial_touch,
    .random = true,
    .help = "TrivialAugment Wide: one random operation of random strength",
};

/* --- auto_augment -------------------------------------------------------------------------- */

#define NR_RULES 25
#define NR_BINS  10

struct part {
    enum np_auto_op op;
    float p;
    int bin;
};

/* torchvision's AutoAugment._get_policies(). */
static const struct part policies[3][NR_RULES][2] = {
    /* of ImageNet */
    {
        {{NP_AUTO_POSTERIZE, 0.4f, 8}, {NP_AUTO_ROTATE, 0.6f, 9}},
        {{NP_AUTO_SOLARIZE, 0.6f, 5}, {NP_AUTO_AUTOCONTRAST, 0.6f, 0}},
        {{NP_AUTO_EQUALIZE, 0.8f, 0}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_POSTERIZE, 0.6f, 7}, {NP_AUTO_POSTERIZE, 0.6f, 6}},
        {{NP_AUTO_EQUALIZE, 0.4f, 0}, {NP_AUTO_SOLARIZE, 0.2f, 4}},
        {{NP_AUTO_EQUALIZE, 0.4f, 0}, {NP_AUTO_ROTATE, 0.8f, 8}},
        {{NP_AUTO_SOLARIZE, 0.6f, 3}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_POSTERIZE, 0.8f, 5}, {NP_AUTO_EQUALIZE, 1.0f, 0}},
        {{NP_AUTO_ROTATE, 0.2f, 3}, {NP_AUTO_SOLARIZE, 0.6f, 8}},
        {{NP_AUTO_EQUALIZE, 0.6f, 0}, {NP_AUTO_POSTERIZE, 0.4f, 6}},
        {{NP_AUTO_ROTATE, 0.8f, 8}, {NP_AUTO_COLOR, 0.4f, 0}},
        {{NP_AUTO_ROTATE, 0.4f, 9}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_EQUALIZE, 0.0f, 0}, {NP_AUTO_EQUALIZE, 0.8f, 0}},
        {{NP_AUTO_INVERT, 0.6f, 0}, {NP_AUTO_EQUALIZE, 1.0f, 0}},
        {{NP_AUTO_COLOR, 0.6f, 4}, {NP_AUTO_CONTRAST, 1.0f, 8}},
        {{NP_AUTO_ROTATE, 0.8f, 8}, {NP_AUTO_COLOR, 1.0f, 2}},
        {{NP_AUTO_COLOR, 0.8f, 8}, {NP_AUTO_SOLARIZE, 0.8f, 7}},
        {{NP_AUTO_SHARPNESS, 0.4f, 7}, {NP_AUTO_INVERT, 0.6f, 0}},
        {{NP_AUTO_SHEAR_X, 0.6f, 5}, {NP_AUTO_EQUALIZE, 1.0f, 0}},
        {{NP_AUTO_COLOR, 0.4f, 0}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_EQUALIZE, 0.4f, 0}, {NP_AUTO_SOLARIZE, 0.2f, 4}},
        {{NP_AUTO_SOLARIZE, 0.6f, 5}, {NP_AUTO_AUTOCONTRAST, 0.6f, 0}},
        {{NP_AUTO_INVERT, 0.6f, 0}, {NP_AUTO_EQUALIZE, 1.0f, 0}},
        {{NP_AUTO_COLOR, 0.6f, 4}, {NP_AUTO_CONTRAST, 1.0f, 8}},
        {{NP_AUTO_EQUALIZE, 0.8f, 0}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
    },
    /* of CIFAR-10 */
    {
        {{NP_AUTO_INVERT, 0.1f, 0}, {NP_AUTO_CONTRAST, 0.2f, 6}},
        {{NP_AUTO_ROTATE, 0.7f, 2}, {NP_AUTO_TRANSLATE_X, 0.3f, 9}},
        {{NP_AUTO_SHARPNESS, 0.8f, 1}, {NP_AUTO_SHARPNESS, 0.9f, 3}},
        {{NP_AUTO_SHEAR_Y, 0.5f, 8}, {NP_AUTO_TRANSLATE_Y, 0.7f, 9}},
        {{NP_AUTO_AUTOCONTRAST, 0.5f, 0}, {NP_AUTO_EQUALIZE, 0.9f, 0}},
        {{NP_AUTO_SHEAR_Y, 0.2f, 7}, {NP_AUTO_POSTERIZE, 0.3f, 7}},
        {{NP_AUTO_COLOR, 0.4f, 3}, {NP_AUTO_BRIGHTNESS, 0.6f, 7}},
        {{NP_AUTO_SHARPNESS, 0.3f, 9}, {NP_AUTO_BRIGHTNESS, 0.7f, 9}},
        {{NP_AUTO_EQUALIZE, 0.6f, 0}, {NP_AUTO_EQUALIZE, 0.5f, 0}},
        {{NP_AUTO_CONTRAST, 0.6f, 7}, {NP_AUTO_SHARPNESS, 0.6f, 5}},
        {{NP_AUTO_COLOR, 0.7f, 7}, {NP_AUTO_TRANSLATE_X, 0.5f, 8}},
        {{NP_AUTO_EQUALIZE, 0.3f, 0}, {NP_AUTO_AUTOCONTRAST, 0.4f, 0}},
        {{NP_AUTO_TRANSLATE_Y, 0.4f, 3}, {NP_AUTO_SHARPNESS, 0.2f, 6}},
        {{NP_AUTO_BRIGHTNESS, 0.9f, 6}, {NP_AUTO_COLOR, 0.2f, 8}},
        {{NP_AUTO_SOLARIZE, 0.5f, 2}, {NP_AUTO_INVERT, 0.0f, 0}},
        {{NP_AUTO_EQUALIZE, 0.2f, 0}, {NP_AUTO_AUTOCONTRAST, 0.6f, 0}},
        {{NP_AUTO_EQUALIZE, 0.2f, 0}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_COLOR, 0.9f, 9}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_AUTOCONTRAST, 0.8f, 0}, {NP_AUTO_SOLARIZE, 0.2f, 8}},
        {{NP_AUTO_BRIGHTNESS, 0.1f, 3}, {NP_AUTO_COLOR, 0.7f, 0}},
        {{NP_AUTO_SOLARIZE, 0.4f, 5}, {NP_AUTO_AUTOCONTRAST, 0.9f, 0}},
        {{NP_AUTO_TRANSLATE_Y, 0.9f, 9}, {NP_AUTO_TRANSLATE_Y, 0.7f, 9}},
        {{NP_AUTO_AUTOCONTRAST, 0.9f, 0}, {NP_AUTO_SOLARIZE, 0.8f, 3}},
        {{NP_AUTO_EQUALIZE, 0.8f, 0}, {NP_AUTO_INVERT, 0.1f, 0}},
        {{NP_AUTO_TRANSLATE_Y, 0.7f, 9}, {NP_AUTO_AUTOCONTRAST, 0.9f, 0}},
    },
    /* of SVHN */
    {
        {{NP_AUTO_SHEAR_X, 0.9f, 4}, {NP_AUTO_INVERT, 0.2f, 0}},
        {{NP_AUTO_SHEAR_Y, 0.9f, 8}, {NP_AUTO_INVERT, 0.7f, 0}},
        {{NP_AUTO_EQUALIZE, 0.6f, 0}, {NP_AUTO_SOLARIZE, 0.6f, 6}},
        {{NP_AUTO_INVERT, 0.9f, 0}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_EQUALIZE, 0.6f, 0}, {NP_AUTO_ROTATE, 0.9f, 3}},
        {{NP_AUTO_SHEAR_X, 0.9f, 4}, {NP_AUTO_AUTOCONTRAST, 0.8f, 0}},
        {{NP_AUTO_SHEAR_Y, 0.9f, 8}, {NP_AUTO_INVERT, 0.4f, 0}},
        {{NP_AUTO_SHEAR_Y, 0.9f, 5}, {NP_AUTO_SOLARIZE, 0.2f, 6}},
        {{NP_AUTO_INVERT, 0.9f, 0}, {NP_AUTO_AUTOCONTRAST, 0.8f, 0}},
        {{NP_AUTO_EQUALIZE, 0.6f, 0}, {NP_AUTO_ROTATE, 0.9f, 3}},
        {{NP_AUTO_SHEAR_X, 0.9f, 4}, {NP_AUTO_SOLARIZE, 0.3f, 3}},
        {{NP_AUTO_SHEAR_Y, 0.8f, 8}, {NP_AUTO_INVERT, 0.7f, 0}},
        {{NP_AUTO_EQUALIZE, 0.9f, 0}, {NP_AUTO_TRANSLATE_Y, 0.6f, 6}},
        {{NP_AUTO_INVERT, 0.9f, 0}, {NP_AUTO_EQUALIZE, 0.6f, 0}},
        {{NP_AUTO_CONTRAST, 0.3f, 3}, {NP_AUTO_ROTATE, 0.8f, 4}},
        {{NP_AUTO_INVERT, 0.8f, 0}, {NP_AUTO_TRANSLATE_Y, 0.0f, 2}},
        {{NP_AUTO_SHEAR_Y, 0.7f, 6}, {NP_AUTO_SOLARIZE, 0.4f, 8}},
        {{NP_AUTO_INVERT, 0.6f, 0}, {NP_AUTO_ROTATE, 0.8f, 4}},
        {{NP_AUTO_SHEAR_Y, 0.3f, 7}, {NP_AUTO_TRANSLATE_X, 0.9f, 3}},
        {{NP_AUTO_SHEAR_X, 0.1f, 6}, {NP_AUTO_INVERT, 0.6f, 0}},
        {{NP_AUTO_SOLARIZE, 0.7f, 2}, {NP_AUTO_TRANSLATE_Y, 0.6f, 7}},
        {{NP_AUTO_SHEAR_Y, 0.8f, 4}, {NP_AUTO_INVERT, 0.8f, 0}},
        {{NP_AUTO_SHEAR_X, 0.7f, 9}, {NP_AUTO_TRANSLATE_Y, 0.8f, 3}},
        {{NP_AUTO_SHEAR_Y, 0.8f, 5}, {NP_AUTO_AUTOCONTRAST, 0.7f, 0}},
        {{NP_AUTO_SHEAR_X, 0.7f, 2}, {NP_AUTO_INVERT, 0.1f, 0}},
    },
};

static const struct np_option auto_options[] = {
    {"policy", NP_OPT_WORD, offsetof(struct automatic, policy), "imagenet", 0, 0,
        "imagenet|cifar10|svhn", "the set for which the policy was learned"},
    COMMON_OPTIONS,
    {0},
};

/* Version 1 draws the chances and signs of both parts first. */
static void auto_touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct automatic *automatic = object;
    const struct np_auto autos = auto_of(automatic, &np_auto_space, NR_BINS);
    const struct part *rule = policies[automatic->policy][np_dice_below(dice, NR_RULES)];
    const int version = np_dice_version(dice);
    bool happens[2], negative[2];

    if (version == 1)
        for (int i = 0; i < 2; i++)
            happens[i] = np_dice_at_most(dice, (double)rule[i].p);
    if (version == 1)
        for (int i = 0; i < 2; i++)
            negative[i] = np_dice_below(dice, 2) == 0;
    for (int i = 0; i < 2; i++) {
        if (version == 2)
            happens[i] = np_dice_at_most(dice, (double)rule[i].p);
        if (version == 2)
            negative[i] = happens[i] && np_auto_is_signed(rule[i].op) && np_auto_draw_sign(dice);
        if (happens[i])
            np_auto_step(fold, &autos, rule[i].op, rule[i].bin,
                negative[i] && np_auto_is_signed(rule[i].op), dice);
    }
}

static int auto_steps(const void *object)
{
    (void)object;
    return 2;
}

const struct np_augment np_augment_auto_augment = {
    .name = "auto_augment",
    .options = auto_options,
    .object_bytes = sizeof(struct automatic),
    .check = check,
    .touch = auto_touch,
    .nr_steps = auto_steps,
    .random = true,
    .help = "AutoAugment: two operations of a learned policy",
};
