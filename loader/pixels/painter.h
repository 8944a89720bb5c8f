/* Makes a row of decoded pixels: its geometry, and then its steps in their order. One thread. */
#ifndef NP_PAINTER_H
#define NP_PAINTER_H

#include "loader/base/err.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/geometry.h"

struct np_painter; /* a resizer, and the pictures between steps */
struct np_painter *np_painter_new(enum np_pixels_rule rule, struct np_err *err); /* NULL: -ENOMEM */
void np_painter_free(struct np_painter *painter);
/* pixels must cover the box of drawn->geometry, whose passes are ordered already
 * (np_geometry_order()). out: u8 (drawn->height, drawn->width, channels), dense. -ENOMEM. */
int np_painter_row(struct np_painter *painter, const struct np_pixels *pixels,
    const struct np_drawn *drawn, uint8_t *out, struct np_err *err);

#endif
