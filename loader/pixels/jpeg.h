/* Our own decoder of baseline JPEG files: the pixels of any part of a picture, equal to those of
 * libjpeg-turbo (ISLOW, fancy upsampling) for the whole picture. Refuses files with anything
 * unusual, hostile ones among them: libjpeg-turbo decodes those, or decides that they are bad. One
 * thread a decoder.
 *
 * Numbers in parentheses, (B.2.4.2), are sections of ITU-T T.81. */
#ifndef NP_JPEG_H
#define NP_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/pixels/codec.h"

struct np_jpeg;
struct np_jpeg *np_jpeg_new(struct np_err *err); /* NULL: out of memory */
void np_jpeg_free(struct np_jpeg *jpeg);
/* Reads the header; false: refused. The bytes must stay valid until np_jpeg_decode() returns. */
bool np_jpeg_open(
    struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes, struct np_image_info *ret_info);
/* Decodes the part `need` of the open picture: RGB for colour; `channels` (1 or 3) for grey.
 * *ret_pixels is valid until the next call. -EBADMSG: refused (err is not set); -ENOMEM. */
int np_jpeg_decode(struct np_jpeg *jpeg, const struct np_rect *need, int channels,
    struct np_pixels *ret_pixels, struct np_err *err);
#define NP_JPEG_STEP 16 /* MCUs from entry to entry in a row of MCUs */

/* The decoder's state before an MCU, enough to begin there. */
struct np_jpeg_entry {
    uint64_t bit;  /* of the file: 8 * byte + bit, from the top */
    int16_t dc[3]; /* predictors */
};
/* Entries of the first nr_rows rows of MCUs, (nr_rows, per_row). */
struct np_jpeg_entries {
    int nr_rows, per_row;
    struct np_jpeg_entry *at;
};
/* Call between np_jpeg_open() and np_jpeg_decode(): passes entries noted for the same bytes.
 * np_jpeg_decode() refuses wrong entries, or returns wrong pixels, nothing worse. */
int np_jpeg_set_entries(
    struct np_jpeg *jpeg, const struct np_jpeg_entry *at, int nr_rows, struct np_err *err);
/* After np_jpeg_decode(): the entries that were set, and those of further rows that it passed.
 * Valid until the next call of np_jpeg_open(). Files with restart markers have none. */
const struct np_jpeg_entries *np_jpeg_entries(const struct np_jpeg *jpeg);

/* The rows of MCUs to decode for `need` of the open picture; *ret_bottom is outside. */
void np_jpeg_needed_rows(
    const struct np_jpeg *jpeg, const struct np_rect *need, int *ret_top, int *ret_bottom);
/* Copies the segments of the open picture's header that np_jpeg_open() needs, at most room bytes.
 * Returns their bytes; 0: they do not fit. */
size_t np_jpeg_header(const struct np_jpeg *jpeg, uint8_t *header, size_t room);
/* np_jpeg_decode() may read so many bytes past an entered row, and ignores them. */
#define NP_JPEG_BEHIND 16

/* For tests: decodes in plain C. Without this call and without AVX2, all files are refused:
 * libjpeg-turbo is faster there. */
void np_jpeg_use_plain(struct np_jpeg *jpeg);

#endif
