/* What samples and a batch of them look like in memory, and how each row came about. Shared by
 * source/ and pixels/, and by the loader that fills a batch and the trainer that takes it. */
#ifndef NP_BATCH_H
#define NP_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of every batch of a run. */
struct np_batch_shape {
    int rows, height, width, channels;
};

static inline size_t np_batch_row_bytes(const struct np_batch_shape *shape)
{
    return (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;
}

/* How raw pixels without a header lie (CIFAR, IDX); kind NP_RAW_NONE: samples are sniffed.
 * NP_RAW_SYNTH: no bytes anywhere; a sample is its number, drawn from seed (base/synth.h). */
enum np_raw_kind { NP_RAW_NONE, NP_RAW_HWC, NP_RAW_CHW, NP_RAW_SYNTH };
struct np_raw {
    enum np_raw_kind kind;
    int height, width, channels;
    uint64_t seed; /* NP_RAW_SYNTH */
};

enum np_border { NP_BORDER_ZERO, NP_BORDER_REFLECT };
enum np_filter { NP_FILTER_BILINEAR, NP_FILTER_BICUBIC, NP_FILTER_NEAREST };
/* Whose rule says which pass of a resize comes first (np_geometry_order()). */
enum np_pixels_rule { NP_RULE_PILLOW_12, NP_RULE_PILLOW_13 };

/* The geometry a chain of augmentations folds into, all of it drawn before decoding:
 * crop `box` of the source, resize it to scaled_*, keep `window` of that, flip.
 * Pillow: im.crop(box).resize((scaled_w, scaled_h), filter).crop(window). A window may
 * stick out of the scaled picture: the border fills it. box never sticks out. Where a crop
 * after the resize has cut the picture and a later one sticks out of what was left, only
 * `shown` of the scaled picture is there and the rest is border. */
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

/* How a row came about. */
struct np_row {
    uint64_t sample;   /* index in its set; UINT64_MAX: masked */
    uint32_t position; /* in its epoch's order */
    uint32_t epoch;
    uint16_t attempts; /* samples replaced before this one was good */
    int32_t source_w, source_h;
    struct np_geometry geometry;
    /* Where the source's pixels, u8 (source_h, source_w, channels), lie in the arena of a cache
     * that the device has a copy of: it makes the row itself. NP_NOT_RESIDENT: the pixels are here. */
    uint64_t resident;
};
#define NP_NOT_RESIDENT UINT64_MAX

enum np_batch_kind { NP_BATCH_TRAIN, NP_BATCH_EVAL };

/* A ring slot while it is full. Valid from np_ring_take() to np_ring_release(). */
struct np_batch {
    uint8_t *images;      /* u8 (rows, height, width, channels), pinned */
    int32_t *labels;      /* (rows); -1: masked, the row's pixels are 0 */
    struct np_row *about; /* (rows), pinned too */
    enum np_batch_kind kind;
    uint64_t seq;            /* number of the batch in the run, evaluation included */
    uint64_t step;           /* training: steps before this one; evaluation: training steps done */
    uint32_t part, nr_parts; /* evaluation: this batch of so many */
    int slot;
};

#endif
