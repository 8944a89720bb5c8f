/* Makes a row of decoded pixels: crop, scale, window, border, flip. The bytes are Pillow's: two
 * passes in the geometry's order, u8 between them, 22-bit coefficients (Pillow
 * src/libImaging/Resample.c). Uses plain C, AVX2 or AVX-512, as the CPU allows, with equal
 * bytes. */
#ifndef NP_RESIZE_H
#define NP_RESIZE_H

#include "loader/base/err.h"
#include "loader/pixels/geometry.h"

struct np_resizer; /* coefficient tables and scratch of one thread */
struct np_resizer *np_resizer_new(struct np_err *err); /* NULL: out of memory */
void np_resizer_free(struct np_resizer *resizer);
/* pixels must cover the geometry's box. out: u8 (window_h, window_w, channels), dense. */
int np_resize(struct np_resizer *resizer, const struct np_pixels *pixels,
    const struct np_geometry *geometry, uint8_t *out, struct np_err *err);

#endif
