/* Decoding parts of a picture, for the tests of codecs. */
#ifndef MADE_CROPS_H
#define MADE_CROPS_H

#include "loader/pixels/codec.h"
#include "loader/pixels/geometry.h"

/* The geometry of the box, without scaling. */
struct np_geometry made_box(int left, int top, int right, int bottom);
/* Opens and decodes. */
int made_decode(struct np_decoder *decoder, const uint8_t *bytes, size_t nr_bytes,
    const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
    struct np_err *err);
/* Does part, cut to the box, hold the same pixels as all? */
bool made_same(
    const struct np_pixels *all, const struct np_pixels *part, const struct np_geometry *g);
/* Decodes all, and 60 boxes of every size with a second decoder: true if each returns the
 * code and, if that is 0, the pixels of the whole. */
bool made_crops_end(
    const uint8_t *bytes, size_t nr_bytes, int width, int height, int channels, int code);
/* True when decoding the box fails with -EBADMSG and the text holds `want`. */
bool made_refuses(
    const uint8_t *bytes, size_t nr_bytes, const struct np_geometry *g, const char *want);

#endif
