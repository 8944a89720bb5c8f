/* The operations that RandAugment, TrivialAugment and AutoAugment choose from, with the
 * magnitudes of torchvision's transforms/autoaugment.py. Pure, any thread. */
#ifndef NP_AUTO_OP_H
#define NP_AUTO_OP_H

#include "loader/pixels/affine.h"
#include "loader/pixels/augment.h"

enum np_auto_op {
    NP_AUTO_IDENTITY,
    NP_AUTO_SHEAR_X,
    NP_AUTO_SHEAR_Y,
    NP_AUTO_TRANSLATE_X,
    NP_AUTO_TRANSLATE_Y,
    NP_AUTO_ROTATE,
    NP_AUTO_BRIGHTNESS,
    NP_AUTO_COLOR,
    NP_AUTO_CONTRAST,
    NP_AUTO_SHARPNESS,
    NP_AUTO_POSTERIZE,
    NP_AUTO_SOLARIZE,
    NP_AUTO_AUTOCONTRAST,
    NP_AUTO_EQUALIZE,
    NP_AUTO_INVERT
};
#define NP_AUTO_RANDOM 14 /* RandAugment and TrivialAugment choose from the first so many */

/* The largest magnitude of each operation. */
struct np_auto_space {
    double shear, translate; /* translate 0: a share of the picture's side, as in AutoAugment */
    double rotate, factor;   /* degrees; the distance of a factor from 1 */
    int posterize;           /* bits removed */
};
extern const struct np_auto_space np_auto_space;      /* of AutoAugment and RandAugment */
extern const struct np_auto_space np_auto_wide_space; /* of TrivialAugment Wide */

struct np_auto {
    const struct np_auto_space *space;
    int nr_bins; /* magnitudes from 0 to the largest; at least 2 */
    struct np_affine_look look;
};

bool np_auto_has_magnitude(enum np_auto_op op);
bool np_auto_is_signed(enum np_auto_op op);
/* Draws whether the magnitude of an operation is negative, as RandAugment does. */
bool np_auto_draw_sign(const struct np_dice *dice);
/* Adds the operation's steps: at most one. The versions of torchvision's transforms round
 * magnitudes in different ways. */
void np_auto_step(struct np_fold *fold, const struct np_auto *autos, enum np_auto_op op, int bin,
    bool negative, const struct np_dice *dice);

#endif
