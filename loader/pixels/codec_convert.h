/* Converts grey, colour and CMYK as Pillow's convert() does. Private to the codecs. */
#ifndef NP_CODEC_CONVERT_H
#define NP_CODEC_CONVERT_H

#include "loader/pixels/codec.h"

/* Converts *pixels (1, 3, or 4 channels: CMYK stored as 255 - ink) to `channels` (1 or 3), in
 * *buffer, which grows as needed (np_hold). -ENOMEM. */
int np_convert(struct np_pixels *pixels, int channels, uint8_t **buffer, size_t *buffer_bytes,
    struct np_err *err);

#endif
