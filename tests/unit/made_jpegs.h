/* Random JPEG files and random damage: a function of the draws alone, so that file i of a campaign
 * is the same everywhere. */
#ifndef NP_MADE_JPEGS_H
#define NP_MADE_JPEGS_H

#include "loader/base/rng.h"
#include "tests/unit/made_images.h"

/* A file in memory of its own size, so that a sanitizer sees each byte read behind it; free(). */
struct made_file {
    uint8_t *bytes;
    size_t nr_bytes;
};

/* Baseline files of all samplings, sizes, qualities and looks, 1 of 8 with restart markers; 1 of 50
 * is of a kind that nnpipe's decoder leaves to libjpeg-turbo. */
void made_any_jpeg(struct np_draws *draws, struct made_jpeg *ret_made);
/* Encodes it; to one of six files it adds bytes that change no pixel: segments, fill bytes, bytes
 * behind the end marker. */
struct made_file made_any_file(struct np_draws *draws, const struct made_jpeg *made);
/* A damaged copy: bits flipped, cut, tables exchanged, other markers, bytes lost or added. */
struct made_file made_damaged_file(struct np_draws *draws, const struct made_file *file);

/* Blocks of one component, each 64 coefficients in natural order, malloc'd: of all shapes (empty,
 * sparse, dense, runs of zeros, no EOB) and code lengths; of up to max_bits bits, 1 to 10. */
int16_t *made_blocks(struct np_draws *draws, int nr, int max_bits);
/* A grey file, all quantisers `quant`, with these blocks, `across` of them in a row. */
struct made_file made_blocks_file(
    const int16_t *blocks, int across, int down, int quant, bool own_codes);

#endif
