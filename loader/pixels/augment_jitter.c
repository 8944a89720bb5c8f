/* color_jitter: brightness, contrast, saturation and hue, each by a random factor, in random order.
 * Drawn on reader threads. */
#include <stddef.h>

#include "loader/pixels/augment.h"

#define NR_PARTS 4

struct jitter {
    struct np_floats ranges[NR_PARTS]; /* one number: to both sides of `centre`; or [min, max] */
    double p;
};

static const struct part {
    const char *name;
    const struct np_pixel_op *op;
    double centre; /* the value that changes nothing */
} parts[NR_PARTS] = {{"brightness", &np_pixel_brightness, 1}, {"contrast", &np_pixel_contrast, 1},
    {"saturation", &np_pixel_saturation, 1}, {"hue", &np_pixel_hue, 0}};

static const struct np_option options[] = {
    {"brightness", NP_OPT_FLOATS, offsetof(struct jitter, ranges[0]), "[0]", 0, 1000, NULL,
        "0.4: a factor of 0.6 to 1.4; or [min, max] of the factor"},
    {"contrast", NP_OPT_FLOATS, offsetof(struct jitter, ranges[1]), "[0]", 0, 1000, NULL,
        "as brightness"},
    {"saturation", NP_OPT_FLOATS, offsetof(struct jitter, ranges[2]), "[0]", 0, 1000, NULL,
        "as brightness"},
    {"hue", NP_OPT_FLOATS, offsetof(struct jitter, ranges[3]), "[0]", -0.5, 0.5, NULL,
        "turns around the circle of colours; 0.1: -0.1 to 0.1, or [min, max]"},
    {"p", NP_OPT_SHARE, offsetof(struct jitter, p), "1", 0, 1, NULL, "share of pictures changed"},
    {0},
};

/* torchvision's ColorJitter._check_input(). */
static void range_of(const struct jitter *jitter, int part, double *ret_lo, double *ret_hi)
{
    const struct np_floats *range = &jitter->ranges[part];
    const double centre = parts[part].centre, first = range->values[0];

    *ret_lo = range->nr_values == 2 ? first : centre - first;
    *ret_hi = range->nr_values == 2 ? range->values[1] : centre + first;
    if (centre > 0 && *ret_lo < 0)
        *ret_lo = 0;
}

static void check(const void *object, const struct np_node *node, struct np_report *report)
{
    const struct jitter *jitter = object;

    for (int i = 0; i < NR_PARTS; i++) {
        const struct np_floats *range = &jitter->ranges[i];
        const double *v = range->values;
        const bool right =
            range->nr_values == 1 ? v[0] >= 0 : range->nr_values == 2 && v[0] <= v[1];

        if (!right)
            np_report_add(report, node->line, node->column,
                "color_jitter: %s must be one number from 0, or [minimum, maximum]", parts[i].name);
    }
}

/* torchvision draws the order first, then the values in their own order. */
static void touch(const void *object, const struct np_dice *dice, struct np_fold *fold)
{
    const struct jitter *jitter = object;
    double values[NR_PARTS], lo, hi;
    bool changes[NR_PARTS];
    int order[NR_PARTS];

    if (!np_dice_applies(dice, jitter->p))
        return;
    np_dice_order(dice, NR_PARTS, order);
    for (int i = 0; i < NR_PARTS; i++) {
        range_of(jitter, i, &lo, &hi);
        changes[i] = lo < hi || lo < parts[i].centre || lo > parts[i].centre;
        if (changes[i])
            values[i] = np_dice_between(dice, lo, hi);
    }
    for (int i = 0; i < NR_PARTS; i++)
        if (changes[order[i]])
            np_fold_pixels(fold, parts[order[i]].op, &values[order[i]], 1);
}

static int nr_steps(const void *object)
{
    (void)object;
    return NR_PARTS;
}

const struct np_augment np_augment_color_jitter = {
    .name = "color_jitter",
    .options = options,
    .object_bytes = sizeof(struct jitter),
    .check = check,
    .touch = touch,
    .nr_steps = nr_steps,
    .random = true,
    .help = "changes brightness, contrast, saturation and hue by random factors, in random order",
};
