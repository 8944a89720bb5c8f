/* A set's samples, read and decoded whole, one after another. For `data verify` and `stats`. */
#ifndef NP_DATA_PIXELS_H
#define NP_DATA_PIXELS_H

#include "loader/pixels/codec.h"
#include "loader/pack/fetch.h"

struct np_data_pixels {
    const struct np_index *index; /* borrowed */
    struct np_fetch *fetch;
    struct np_decoder *decoder;
};

struct np_data_sample {
    const uint8_t *bytes; /* encoded */
    uint32_t nr_bytes;
    struct np_pixels pixels; /* the whole picture, 1 or 3 channels as in the file */
};

/* max_pixels: as np_decoder_limit(). */
int np_data_pixels_open(const struct np_index *index, uint64_t max_pixels,
    struct np_data_pixels *ret_pixels, struct np_err *err);
/* What it gives is valid until the next call. -EBADMSG: the sample is bad, the text says why; other
 * codes: it cannot be read. */
int np_data_pixels_get(struct np_data_pixels *pixels, uint64_t sample,
    struct np_data_sample *ret_sample, struct np_err *err);
void np_data_pixels_close(struct np_data_pixels *pixels);

#endif
