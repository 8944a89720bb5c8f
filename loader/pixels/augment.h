/* The table of augmentations. All operations of a chain are drawn before decoding: random draws
 * and a size become geometry, and steps behind it (fold.h). painter.h makes the row of them. */
#ifndef NP_AUGMENT_H
#define NP_AUGMENT_H

#include "loader/base/option.h"
#include "loader/base/rng.h"
#include "loader/base/torch_rng.h"
#include "loader/pixels/fold.h"

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

/* The source of draws of an operation on pixels: the ticket's, or torch's generator, in the
 * order in which torchvision's operation draws. */
struct np_dice {
    struct np_draws *draws; /* NULL: torch */
    const struct np_torch_draws *torch;
};
bool np_dice_chance(const struct np_dice *dice, double p);  /* true for the share p */
bool np_dice_at_most(const struct np_dice *dice, double p); /* of torch, p included */
/* torchvision's RandomApply: as np_dice_chance(), but p 1 draws nothing. */
bool np_dice_applies(const struct np_dice *dice, double p);
/* A float of lo to hi; of torch a float32. */
double np_dice_between(const struct np_dice *dice, double lo, double hi);
int np_dice_below(const struct np_dice *dice, int n);
void np_dice_order(const struct np_dice *dice, int n, int *ret_order); /* of 0..n-1 */
int np_dice_version(const struct np_dice *dice); /* of the transforms whose arithmetic is wanted */

/* An operation is geometry and has `draw`, or works on pixels and has `touch`. */
struct np_augment {
    const char *name;
    const struct np_option *options;
    size_t object_bytes; /* of the struct that options describe */
    /* Optional: NULL means any value in range is valid. Config time. */
    void (*check)(const void *object, const struct np_node *node, struct np_report *report);
    /* Required of geometry. Pure, any thread. */
    void (*draw)(const void *object, struct np_draws *draws, struct np_fold *fold);
    /* Required of random geometry; NULL means that it needs the epoch. The same with the draws that torchvision's operation of this
     * name makes, in its order. False: that operation refuses the picture's size. */
    bool (*draw_torch)(
        const void *object, const struct np_torch_draws *draws, struct np_fold *fold);
    /* Required of the others. Adds at most nr_steps() steps. Pure, any thread. */
    void (*touch)(const void *object, const struct np_dice *dice, struct np_fold *fold);
    /* Optional: NULL means one step at most. Config time. */
    int (*nr_steps)(const void *object);
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
/* Does it work on pixels? Else its rows are geometry alone. */
bool np_chain_touches(const struct np_chain *chain);
int np_chain_max_steps(const struct np_chain *chain); /* of a sample; 0 for geometry alone */
/* The first operation that np_augment_draw_torch() must not meet, because it needs the epoch; NULL:
 * none. */
const char *np_chain_needs_epoch(const struct np_chain *chain);

/* What a chain does with one sample. */
struct np_drawn {
    struct np_geometry geometry; /* of the decoded picture */
    int width, height;           /* of the row */
    struct np_step *steps;       /* (np_chain_max_steps()), borrowed; NULL: they are not wanted */
    int nr_steps;
};
/* Draws the chain for one sample; the caller has set drawn->steps. position: in the epoch; sample:
 * its number in the set. Pure; any thread. */
void np_augment_draw_row(const struct np_chain *chain, uint64_t seed, uint32_t epoch,
    uint32_t position, uint64_t sample, int source_w, int source_h, struct np_drawn *drawn);
/* The same, with the draws of torchvision's transforms. False: one of them refuses this size. */
bool np_augment_draw_torch(const struct np_chain *chain, const struct np_torch_draws *draws,
    int source_w, int source_h, struct np_drawn *drawn);
/* The geometry alone; the sample's number is its position. */
void np_augment_draw(const struct np_chain *chain, uint64_t seed, uint32_t epoch, uint32_t position,
    int source_w, int source_h, struct np_geometry *ret_geometry);

#endif
