/* The table of augmentations. Each operation is drawn before decoding: `draw` turns random draws
 * and a size into geometry, and a chain folds into one np_geometry. `apply` changes the colours of
 * the finished row. */
#ifndef NP_AUGMENT_H
#define NP_AUGMENT_H

#include "loader/base/option.h"
#include "loader/base/rng.h"
#include "loader/base/torch_rng.h"
#include "loader/batch.h"

/* A chain being folded: the result of its first operations. */
struct np_fold {
    int source_w, source_h;
    int width, height; /* of the result */
    struct np_geometry geometry;
    bool resized;
};
/* For `draw`: each folds one operation in. */
void np_fold_init(struct np_fold *fold, int source_w, int source_h);
/* Crops to x..x+w, y..y+h, which may exceed the result so far: `border` fills the rest. Any number
 * of crops may have a zero border. A reflected one must be the chain's only border: the last
 * crop's kind applies to all. */
void np_fold_crop(struct np_fold *fold, int x, int y, int w, int h, enum np_border border);
/* At most once a chain. filter: one of the config's. Borders of earlier crops are removed first. */
void np_fold_resize(struct np_fold *fold, int w, int h, enum np_filter filter);
void np_fold_flip(struct np_fold *fold);

/* For options that are one length, or [height, width]. np_side() returns the height (which: 0) or
 * the width (1). */
bool np_sides_are_whole(const struct np_floats *sides);
int np_side(const struct np_floats *sides, int which);

/* For `draw_torch`. */
struct np_torch_draws {
    struct np_torch_rng *rng;
    int version; /* of the transforms: 1, or 2 (torchvision.transforms.v2) */
    bool fused;  /* as np_torch_uniform() */
    float (*exp)(void *context, float x), (*log)(void *context, float x); /* of torch, float32 */
    void *context;
};

struct np_augment {
    const char *name;
    const struct np_option *options;
    size_t object_bytes; /* of the struct that options describe */
    /* Optional: NULL means any value in range is valid. Config time. */
    void (*check)(const void *object, const struct np_node *node, struct np_report *report);
    /* Required. Pure, any thread. */
    void (*draw)(const void *object, struct np_draws *draws, struct np_fold *fold);
    /* Required of a random operation. The same with the draws that torchvision's operation of this
     * name makes, in its order. False: that operation refuses the picture's size. */
    bool (*draw_torch)(
        const void *object, const struct np_torch_draws *draws, struct np_fold *fold);
    /* Optional: NULL means the operation is geometry alone. Changes the row; cannot fail. */
    void (*apply)(const void *object, struct np_draws *draws, uint8_t *row, int height, int width,
        int channels);
    /* Optional: NULL means the size stays. Replaces the input's size by the output's; 0: not known.
     * Config time. */
    void (*size)(const void *object, int *w, int *h);
    /* Optional: NULL means none. The pixels of border that it may add on every side, and their
     * kind. Config time. */
    int (*pad)(const void *object, enum np_border *ret_border);
    bool resizes, random;
    const char *help;
};
extern const struct np_augment *const np_augments[]; /* NULL-ended */

struct np_chain;
/* Parses a list of operations; NULL: the empty chain. what: the key, for messages. Mistakes go to
 * report. */
int np_chain_parse(const struct np_node *list, const char *what, struct np_chain **ret_chain,
    struct np_report *report);
void np_chain_free(struct np_chain *chain);
struct np_node *np_chain_node(const struct np_chain *chain); /* as a config node, with defaults */
/* Output size if it is the same for all sources; else 0 x 0. */
void np_chain_size(const struct np_chain *chain, int *ret_w, int *ret_h);
/* Folds the chain for one sample. Pure; any thread. */
void np_augment_draw(const struct np_chain *chain, uint64_t seed, uint32_t epoch, uint32_t position,
    int source_w, int source_h, struct np_geometry *ret_geometry);
/* The same, with the draws of torchvision's transforms. False: one of them refuses this size. */
bool np_augment_draw_torch(const struct np_chain *chain, const struct np_torch_draws *draws,
    int source_w, int source_h, struct np_geometry *ret_geometry);
/* Calls each operation's `apply` on the finished row. */
void np_augment_apply(const struct np_chain *chain, uint64_t seed, uint32_t epoch,
    uint32_t position, uint8_t *row, int height, int width, int channels);
bool np_augment_has_apply(const struct np_chain *chain);

#endif
