/* The codec table: bytes of one sample -> pixels. State is per reader thread. Content is
 * sniffed, never the name. Hostile bytes give an error, nothing else. */
#ifndef NP_CODEC_H
#define NP_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/batch.h"
#include "loader/pixels/geometry.h"

#define NP_MAX_SIDE   65500          /* pixels; JPEG's own limit */
#define NP_MAX_PIXELS (178956970ull) /* loader.max_pixels, if not said; Pillow's, twice 89478485 */

struct np_image_info {
    int width, height, channels; /* of the file: 1, 3 or 4 */
    uint64_t coefficient_bytes;  /* that are kept until all scans are read; 0: no such codec */
};

struct np_codec {
    const char *name; /* "jpeg" */
    /* Required. Is it ours, by its first bytes? */
    bool (*sniff)(const uint8_t *bytes, size_t nr_bytes);
    /* Required. Per-thread state. */
    int (*init)(void **ret_state, struct np_err *err);
    /* Required. Size from the header. */
    int (*info)(void *state, const uint8_t *bytes, size_t nr_bytes, struct np_image_info *ret_info,
        struct np_err *err);
    /* Required. At least the box left..right, top..bottom (in geometry), as `channels` (1 or 3)
     * interleaved: grey to RGB and back as Pillow's convert(). */
    int (*decode)(void *state, const uint8_t *bytes, size_t nr_bytes,
        const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
        struct np_err *err);
    /* Optional: NULL means it cannot be written. Allocates *ret_bytes (np_free). quality 1..100. */
    int (*encode)(const uint8_t *pixels, int width, int height, int channels, int quality,
        uint8_t **ret_bytes, size_t *ret_nr_bytes, struct np_err *err);
    /* Required. */
    void (*fini)(void *state);
};

extern const struct np_codec np_codec_jpeg, np_codec_png, np_codec_raw; /* raw: PPM/PGM (P5, P6) */

/* All codecs' states of one thread, opened as they are needed. */
struct np_decoder;
int np_decoder_new(struct np_decoder **ret_decoder, struct np_err *err);
void np_decoder_free(struct np_decoder *decoder);
/* From now on a picture of more pixels is refused, and one whose coefficients take more bytes than
 * 3/2 of that: 256 MiB with NP_MAX_PIXELS, which is what 0 stands for. */
void np_decoder_limit(struct np_decoder *decoder, uint64_t max_pixels);
/* Sniffs and reads the header. raw (may be NULL or NP_RAW_NONE): samples are bare pixels. The
 * bytes must stay until decode. */
int np_decoder_open(struct np_decoder *decoder, const uint8_t *bytes, size_t nr_bytes,
    const struct np_raw *raw, struct np_image_info *ret_info, struct np_err *err);
int np_decoder_decode(struct np_decoder *decoder, const struct np_geometry *geometry, int channels,
    struct np_pixels *ret_pixels, struct np_err *err);

/* zstd, apart from images: one frame into memory (per-thread state). out must hold out_bytes. */
struct np_unzstd;
struct np_unzstd *np_unzstd_new(struct np_err *err); /* NULL: no memory */
void np_unzstd_free(struct np_unzstd *unzstd);
int np_unzstd_frame(struct np_unzstd *unzstd, const void *frame, size_t frame_bytes, void *out,
    size_t out_bytes, size_t *ret_bytes, struct np_err *err);

#endif
