/* random_crop and center_crop: a window of the picture, not scaled. Drawn on reader threads. */
#include <math.h>
#include <stddef.h>

#include "loader/pixels/augment.h"

struct crop {
    int64_t size, height, width, pad; /* -1: not given */
    int border;
    struct np_floats sides; /* center_crop's size: one number or [height, width] */
};

static int crop_height(const struct crop *crop)
{
    return (int)(crop->height > 0 ? crop->height : crop->size);
}

static int crop_width(const struct crop *crop)
{
    return (int)(crop->width > 0 ? crop->width : crop->size);
}

static void size(const void *object, int *w, int *h)
{
    *w = crop_width(object);
    *h = crop_height(object);
}

/* Rounds halves to even, as Python's round() in torchvision's center_crop. */
static int centre(int picture, int crop)
{
    return picture >= crop ? (int)nearbyint((picture - crop) / 2.0) : -((crop - picture) / 2);
}

static const struct np_option random_crop_options[] = {
    {"size", NP_OPT_INT, offsetof(struct crop, size), "auto", 1, 65500, "auto",
        "height and width of the crop, pixels"},
    {"height", NP_OPT_INT, offsetof(struct crop, height), "auto", 1, 65500, "auto",
        "height, if it is not `size`"},
    {"width", NP_OPT_INT, offsetof(struct crop, width), "auto", 1, 65500, "auto",
        "width, if it is not `size`"},
    {"pad", NP_OPT_INT, offsetof(struct crop, pad), "0", 0, 65500, NULL,
        "pixels of border on every side that the crop may include"},
    {"border", NP_OPT_WORD, offsetof(struct crop, border), "zero", 0, 0, "zero|reflect",
        "the border's pixels: black, or the picture mirrored at its edge pixels"},
    {0},
};

static void random_crop_check(
    const void *object, const struct np_node *node, struct np_report *report)
{
    const struct crop *crop = object;

    if (crop->size < 0 && (crop->height < 0 || crop->width < 0))
        np_report_add(report, node->line, node->column,
            "random_crop: the size is missing: give size, or height and width");
    else if (crop->pad >= crop_height(crop) || crop->pad >= crop_width(crop))
        np_report_add(report, node->line, node->column,
            "random_crop: pad (%d) must be smaller than the crop (%d x %d)", (int)crop->pad,
            crop_width(crop), crop_height(crop));
}

static int random_crop_pad(const void *object, enum np_border *ret_border)
{
    const struct crop *crop = object;

    *ret_border = crop->border ? NP_BORDER_REFLECT : NP_BORDER_ZERO;
    return (int)crop->pad;
}

/* A random position along one side; centres a picture that is too small even with its border. */
static int place(struct np_draws *draws, int picture, int crop, int pad)
{
    int room = picture + 2 * pad - crop;

    return room < 0 ? centre(picture, crop) : (int)np_draw_below(draws, (uint32_t)room + 1) - pad;
}

static void random_crop_draw(const void *object, struct np_draws *draws, struct np_fold *fold)
{
    const struct crop *crop = object;
    int h = crop_height(crop), w = crop_width(crop);
    int y = place(draws, fold->height, h, (int)crop->pad);
    int x = place(draws, fold->width, w, (int)crop->pad);

    np_fold_crop(fold, x, y, w, h, crop->border ? NP_BORDER_REFLECT : NP_BORDER_ZERO);
}

/* RandomCrop draws no place if the crop is the whole picture; version 2 draws none along an axis on
 * which it is. */
static bool random_crop_draw_torch(
    const void *object, const struct np_torch_draws *draws, struct np_fold *fold)
{
    const struct crop *crop = object;
    const int h = crop_height(crop), w = crop_width(crop), pad = (int)crop->pad;
    const int room_y = fold->height + 2 * pad - h, room_x = fold->width + 2 * pad - w;
    const bool both = draws->version == 1 && (room_y > 0 || room_x > 0);
    int x = 0, y = 0;

    if (room_x < 0 || room_y < 0)
        return false;
    if (both || room_y > 0)
        y = (int)np_torch_below(draws->rng, room_y + 1);
    if (both || room_x > 0)
        x = (int)np_torch_below(draws->rng, room_x + 1);
    np_fold_crop(fold, x - pad, y - pad, w, h, crop->border ? NP_BORDER_REFLECT : NP_BORDER_ZERO);
    return true;
}

const struct np_augment np_augment_random_crop = {
    .name = "random_crop",
    .options = random_crop_options,
    .object_bytes = sizeof(struct crop),
    .check = random_crop_check,
    .draw = random_crop_draw,
    .draw_torch = random_crop_draw_torch,
    .size = size,
    .pad = random_crop_pad,
    .random = true,
    .help = "crops to a window at a random place",
};

static const struct np_option center_crop_options[] = {
    {"size", NP_OPT_FLOATS, offsetof(struct crop, sides), NULL, 1, 65500, NULL,
        "pixels: one number, or [height, width]"},
    {0},
};

static void center_crop_check(
    const void *object, const struct np_node *node, struct np_report *report)
{
    const struct crop *crop = object;

    if (!np_sides_are_whole(&crop->sides))
        np_report_add(report, node->line, node->column,
            "center_crop: size must be one whole number, or [height, width]");
}

static void center_crop_size(const void *object, int *w, int *h)
{
    const struct crop *crop = object;

    *h = np_side(&crop->sides, 0);
    *w = np_side(&crop->sides, 1);
}

static void center_crop_draw(const void *object, struct np_draws *draws, struct np_fold *fold)
{
    int w, h;

    center_crop_size(object, &w, &h);
    np_fold_crop(fold, centre(fold->width, w), centre(fold->height, h), w, h, NP_BORDER_ZERO);
}

const struct np_augment np_augment_center_crop = {
    .name = "center_crop",
    .options = center_crop_options,
    .object_bytes = sizeof(struct crop),
    .check = center_crop_check,
    .draw = center_crop_draw,
    .size = center_crop_size,
    .help = "crops to the middle; a picture that is too small gets a black border",
};
