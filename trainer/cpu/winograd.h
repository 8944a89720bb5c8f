/* Winograd's minimal filtering F(4x4, 3x3) in AVX2: the steps that kernels_cpu_winograd.c calls.
 * Lavin and Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308, section 4;
 * points 0, 1, -1, 2, -2, infinity. Call only where np_winograd_usable().
 *
 *   y  = A' [ (G g G') (B' d B) ] A      over 6x6 tiles d of the input, 4x4 tiles y of the output
 *   dg = G' [ sum over tiles of (B' d B) (A dy A') ] G */
#ifndef NP_WINOGRAD_H
#define NP_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#define NP_WG_POINTS 36 /* elements of a transformed tile */
#define NP_WG_OUT    4  /* output pixels of a tile, each way */
#define NP_WG_PANEL  16 /* channels of a panel; the last one of a matrix may have 8 */

/* Pictures of one tensor: element (row, y, x, c). */
struct np_wg_image {
    const void *data;
    bool half; /* bf16, not f32 */
    int h, w, c;
};

/* A tile: its picture, and the pixel of its first element, which may be outside. */
struct np_wg_tile {
    int row, y, x;
};

/* Transformed tiles: NP_WG_POINTS matrices. Rows are tiles and columns channels (row_stride), or,
 * with panels, (channels / 16, tiles, 16). point_stride floats lie between two matrices. */
struct np_wg_matrices {
    float *data;
    size_t point_stride, row_stride;
    int nr_tiles;
};

bool np_winograd_usable(void);

/* B' d B of 6x6 tiles; elements outside the picture are 0. zeros: 6 * c floats of 0. */
void np_wg_input(const struct np_wg_image *image, const struct np_wg_tile *tiles,
    const struct np_wg_matrices *out, const float *zeros);
/* A dy A' of 4x4 tiles into panels; elements outside are 0. */
void np_wg_gradient(const struct np_wg_image *image, const struct np_wg_tile *tiles,
    const struct np_wg_matrices *out, const float *zeros);
/* A' m A into the picture, plus bias (NULL: none), then an optional relu. Elements outside are
 * dropped. */
void np_wg_output(const struct np_wg_matrices *in, const struct np_wg_tile *tiles,
    const struct np_wg_image *image, void *data, const float *bias, bool relu);

/* G g G' for weights (out, in, 3, 3) into panels (36, out / 16, in, 16); back: (36, in / 16, out,
 * 16) of the flipped weights, for the gradient of the input. */
void np_wg_weights(const float *weights, int out, int in, bool back, float *panels);
/* G' u G of panels (36, out / 16, in, 16), inputs first..end, into weights (out, in, 3, 3). */
void np_wg_weight_gradient(
    const float *panels, int out, int in, int first, int end, float *weights);

/* c (m, n) = or += a b for one matrix: a(i, k) = a[i * a_row + k * a_step], b in panels (n / 16, k,
 * 16), c rows of n at c_row apart (c_panels false), or panels (n / 16, m, 16). */
struct np_wg_product {
    const float *a;
    size_t a_row, a_step;
    const float *b;
    float *c;
    size_t c_row;
    bool c_panels, add;
    int m, n, k;
};
void np_wg_multiply(const struct np_wg_product *product);

void np_wg_add(float *to, const float *from, size_t n);
/* sum (c) = or += the pixels of these rows. */
void np_wg_sum(const struct np_wg_image *image, int first_row, int nr_rows, bool add, float *sum);

#endif
