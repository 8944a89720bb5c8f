/* Grey, colour and CMYK into one another as Pillow's convert() does. Private to the codecs. */
#ifndef NP_CODEC_CONVERT_H
#define NP_CODEC_CONVERT_H

#include "loader/pixels/codec.h"

/* Replaces *pixels (1 or 3 channels, or 4: CMYK stored as 255 - ink) by a copy with `channels`
 * (1 or 3) in *buffer, which grows as needed (np_hold). 0 or -ENOMEM. */
int np_convert(struct np_pixels *pixels, int channels, uint8_t **buffer, size_t *buffer_bytes,
    struct np_err *err);

#endif
