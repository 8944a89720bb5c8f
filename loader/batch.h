/* The layout of a batch in memory, and the origin of each row. source/ and pixels/ share it with
 * the loader, which fills a batch, and the trainer, which takes it. */
#ifndef NP_BATCH_H
#define NP_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format of a row. The trainer takes u8 in channels-last order and normalizes on its device;
 * other programs may have rows ready to use. */
enum np_row_type { NP_ROW_U8, NP_ROW_F32, NP_ROW_BF16, NP_ROW_F16 };
struct np_row_format {
    enum np_row_type type;
    bool planar; /* (channels, height, width), else (height, width, channels) */
};

/* What a sample's label is: one class; any number of classes, as a 0 or 1 for each; or numbers. */
enum np_label_type { NP_LABEL_CLASS, NP_LABEL_MULTI, NP_LABEL_VALUE };

enum np_batch_kind { NP_BATCH_TRAIN, NP_BATCH_EVAL };

/* The same for all batches of a run. */
struct np_batch_shape {
    int rows, height, width, channels;
    struct np_row_format format;
    int values;                  /* floats of a row's label; 0: the label is a class */
    int eval_height, eval_width; /* of NP_BATCH_EVAL; 0: as the others */
    /* Optional: training rows are smaller at first, and height and width are those of the last stage.
     * Borrowed. */
    const struct np_growth *growth;
    int world; /* processes that have `rows` of each step; 0: one */
};
struct np_growth;

/* The shape of a batch of this kind and step. batch.c */
struct np_batch_shape np_batch_shape_of(
    const struct np_batch_shape *shape, enum np_batch_kind kind, uint64_t step);

/* The sizes of the rows of both kinds, while a network is built. Width 0: not known. */
struct np_row_sizes {
    int height, width, eval_height, eval_width;
};

/* Of a batch's labels: i32 (rows), then, with values, f32 (rows, values). */
static inline size_t np_batch_label_bytes(const struct np_batch_shape *shape)
{
    return (size_t)shape->rows * (1 + (size_t)shape->values) * sizeof(int32_t);
}

/* The values behind the labels of a batch of this number of rows, f32 (rows, values). */
static inline const float *np_batch_values(const void *labels, int rows)
{
    return (const float *)labels + rows;
}

/* Of the pixels of a row of height and width. */
static inline size_t np_batch_row_bytes(const struct np_batch_shape *shape)
{
    static const size_t type_bytes[] = {1, 4, 2, 2}; /* by enum np_row_type */

    return (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels *
           type_bytes[shape->format.type];
}

/* The number of a step's first row among those of the run, in all processes. */
static inline uint64_t np_batch_first_row(const struct np_batch_shape *shape, uint64_t step)
{
    return step * (uint64_t)shape->rows * (uint64_t)(shape->world > 0 ? shape->world : 1);
}

/* The same of a batch's kind and step. */
size_t np_batch_row_bytes_of(
    const struct np_batch_shape *shape, enum np_batch_kind kind, uint64_t step);
/* The most of any batch: a slot's rows have room for it. */
size_t np_batch_row_room(const struct np_batch_shape *shape);

/* The layout of pixels without a header (CIFAR, IDX). NP_RAW_NONE: the format is detected from the
 * bytes. NP_RAW_SYNTH: a sample has no bytes but its number, and is drawn from seed
 * (base/synth.h). */
enum np_raw_kind { NP_RAW_NONE, NP_RAW_HWC, NP_RAW_CHW, NP_RAW_SYNTH };
struct np_raw {
    enum np_raw_kind kind;
    int height, width, channels;
    uint64_t seed; /* NP_RAW_SYNTH */
};

enum np_border { NP_BORDER_ZERO, NP_BORDER_REFLECT };
/* NP_FILTER_NEAREST_FLIPPED: nearest in a picture that was flipped before; across, it rounds to the
 * other side. The other filters round alike on both sides. */
enum np_filter {
    NP_FILTER_BILINEAR,
    NP_FILTER_BICUBIC,
    NP_FILTER_NEAREST,
    NP_FILTER_NEAREST_FLIPPED
};
/* The version of Pillow whose rule decides which pass of a resize comes first
 * (np_geometry_order()). */
enum np_pixels_rule { NP_RULE_PILLOW_12, NP_RULE_PILLOW_13 };

/* The combined geometry of a chain of augmentations, drawn before decoding: crop `box` of the
 * source, resize it to scaled_*, crop `window` of that, flip. Pillow:
 * im.crop(box).resize((scaled_w, scaled_h), filter).crop(window). The window may exceed the scaled
 * picture: the border fills the rest. box never exceeds the source. When a second crop exceeds the
 * result of a first one, only `shown` of the scaled picture is visible and the rest is border. */
struct np_geometry {
    int32_t left, top, right, bottom; /* box, in source pixels */
    int32_t scaled_w, scaled_h;       /* equal to the box: no resize */
    int32_t window_x, window_y;       /* in scaled pixels, may be negative */
    int32_t window_w, window_h;       /* size of the row */
    int32_t shown_x, shown_y;         /* in scaled pixels */
    int32_t shown_w, shown_h;         /* 0: all of the scaled picture */
    uint8_t flip, border, filter;
    uint8_t down_first; /* the vertical pass of the resize comes before the horizontal one */
};

struct np_row {
    uint64_t sample;   /* index in its set; UINT64_MAX: masked */
    uint32_t position; /* in its epoch's order */
    uint32_t epoch;
    uint16_t attempts; /* samples replaced before this one was good */
    int32_t source_w, source_h;
    struct np_geometry geometry;
    /* Offset of the source's pixels, u8 (source_h, source_w, channels), in the arena of the cache.
     * The device has a copy of the arena, and makes the row. NP_NOT_RESIDENT: the row is in the
     * batch. */
    uint64_t resident;
};
#define NP_NOT_RESIDENT UINT64_MAX

/* The memory of a batch; borrowed. */
struct np_batch_memory {
    uint8_t *images;
    int32_t *labels;
    struct np_row *about;
};

/* A ring slot while it is full. Valid from np_ring_take() to np_ring_release(). */
struct np_batch {
    uint8_t *images;      /* (rows) in the format of np_batch_shape_of(), dense; pinned */
    int32_t *labels;      /* (rows); -1: masked, the row's pixels are 0. With shape.values: 0, and
                             the values follow (np_batch_values()); those of a masked row are 0 */
    struct np_row *about; /* (rows), pinned; the origin of each row */
    enum np_batch_kind kind;
    uint64_t seq;  /* number in the run, evaluations included */
    uint64_t step; /* training: steps before this batch; evaluation: training steps done */
    uint32_t part, nr_parts; /* evaluation: number of this batch, and of all */
    int slot;
};

#endif
