/* crop, scale, window, border, flip and store, byte for byte what Pillow gives (two passes in the
 * geometry's order, u8 between them, 22-bit coefficients; Pillow src/libImaging/Resample.c defines
 * the arithmetic). Plain C, AVX2; chosen at run time, equal bytes. */
#ifndef NP_RESIZE_H
#define NP_RESIZE_H

#include "loader/base/err.h"
#include "loader/pixels/geometry.h"

struct np_resizer; /* coefficient tables and scratch of one thread */
struct np_resizer *np_resizer_new(struct np_err *err); /* NULL: no memory */
void np_resizer_free(struct np_resizer *resizer);
/* pixels must cover the geometry's box. out: u8 (window_h, window_w, channels), dense. */
int np_resize(struct np_resizer *resizer, const struct np_pixels *pixels,
    const struct np_geometry *geometry, uint8_t *out, struct np_err *err);
/* Tests: 0 plain C, 1 AVX2; what is used from now on, or -1 for the best there is. Returns what was set. */
int np_resize_set_simd(int level);

#endif
