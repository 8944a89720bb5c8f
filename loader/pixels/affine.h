/* Affine maps of pictures, with the matrices of torchvision and Pillow: (a, b, c, d, e, f) takes
 * a pixel x, y of the result to a x + b y + c, d x + e y + f of the picture. Pure, any thread. */
#ifndef NP_AFFINE_H
#define NP_AFFINE_H

#include "loader/pixels/fold.h"

enum np_affine_filter { NP_AFFINE_NEAREST, NP_AFFINE_BILINEAR };

/* How the result is sampled, and its colour where the picture has no pixel. */
struct np_affine_look {
    enum np_affine_filter filter;
    uint8_t fill[3];
};

struct np_affine {
    double angle, tx, ty, scale, shear_x, shear_y; /* degrees and pixels */
    double centre_x, centre_y;
    int version; /* of torchvision's transforms, 1 or 2: their matrices differ in the last bits */
};

/* Adds the step of torchvision's affine() (_get_inverse_affine_matrix() of its version). */
void np_affine_step(
    struct np_fold *fold, const struct np_affine *affine, const struct np_affine_look *look);
/* Adds the step of Pillow's rotate() around the middle: counter-clockwise, degrees. */
void np_rotation_step(struct np_fold *fold, double angle, const struct np_affine_look *look);

#endif
