/* The table of codecs: a sample's bytes -> pixels. Each reader thread has its own state. The format
 * is detected from the bytes, never from the name. Hostile bytes only give an error. */
#ifndef NP_CODEC_H
#define NP_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/batch.h"
#include "loader/pixels/geometry.h"

#define NP_MAX_SIDE   65500          /* pixels; JPEG's own limit */
#define NP_MAX_PIXELS (178956970ull) /* default of loader.max_pixels; as Pillow, twice 89478485 */

struct np_image_info {
    int width, height, channels; /* of the file: 1, 3 or 4 */
    uint64_t coefficient_bytes;  /* kept until all scans are read (JPEG); else 0 */
};

struct np_jpeg;

struct np_codec {
    const char *name; /* "jpeg" */
    /* Required. True if the first bytes are of this format. */
    bool (*sniff)(const uint8_t *bytes, size_t nr_bytes);
    /* Required. Per-thread state. */
    int (*init)(void **ret_state, struct np_err *err);
    /* Required. Size from the header. */
    int (*info)(void *state, const uint8_t *bytes, size_t nr_bytes, struct np_image_info *ret_info,
        struct np_err *err);
    /* Required. Decodes at least the pixels that geometry needs, interleaved: with `channels` (1 or
     * 3) if that is easy, else with the file's (1, 3, or 4: CMYK, stored as 255 - ink). */
    int (*decode)(void *state, const uint8_t *bytes, size_t nr_bytes,
        const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
        struct np_err *err);
    /* Optional. The decoder of jpeg.h if it opened these bytes, or decoded them last; else NULL. */
    struct np_jpeg *(*jpeg)(void *state);
    /* Optional: NULL means it cannot be written. Allocates *ret_bytes (np_free). quality 1..100. */
    int (*encode)(const uint8_t *pixels, int width, int height, int channels, int quality,
        uint8_t **ret_bytes, size_t *ret_nr_bytes, struct np_err *err);
    /* Required. */
    void (*fini)(void *state);
};

extern const struct np_codec np_codec_jpeg, np_codec_png, np_codec_raw; /* raw: PPM/PGM (P5, P6) */

/* The states of all codecs of one thread, each made at its first use. */
struct np_decoder;
int np_decoder_new(struct np_decoder **ret_decoder, struct np_err *err);
void np_decoder_free(struct np_decoder *decoder);
/* Sets the maximum of a picture's pixels (0: NP_MAX_PIXELS), and of its coefficients: 1.5 bytes for
 * each of these pixels, 256 MiB by default. */
void np_decoder_limit(struct np_decoder *decoder, uint64_t max_pixels);
/* Detects the format and reads the header. raw (may be NULL): the layout, if samples are bare
 * pixels. The bytes must stay valid until np_decoder_decode(). */
int np_decoder_open(struct np_decoder *decoder, const uint8_t *bytes, size_t nr_bytes,
    const struct np_raw *raw, struct np_image_info *ret_info, struct np_err *err);
/* Decodes at least the pixels that geometry needs, and converts them to `channels` (1 or 3) as
 * Pillow's convert() does. */
int np_decoder_decode(struct np_decoder *decoder, const struct np_geometry *geometry, int channels,
    struct np_pixels *ret_pixels, struct np_err *err);

/* After np_decoder_open(): the decoder of jpeg.h if it will decode the picture; after
 * np_decoder_decode(): if it has decoded it. Else NULL. */
struct np_jpeg *np_decoder_jpeg(struct np_decoder *decoder);

/* Decompresses one zstd frame into out (out_bytes). One thread. */
struct np_unzstd;
struct np_unzstd *np_unzstd_new(struct np_err *err); /* NULL: out of memory */
void np_unzstd_free(struct np_unzstd *unzstd);
int np_unzstd_frame(struct np_unzstd *unzstd, const void *frame, size_t frame_bytes, void *out,
    size_t out_bytes, size_t *ret_bytes, struct np_err *err);

#endif
