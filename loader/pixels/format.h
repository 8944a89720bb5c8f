/* The last step of a row: u8 pixels (height, width, channels) to the format that a program wants.
 * Any thread. */
#ifndef NP_FORMAT_H
#define NP_FORMAT_H

#include "loader/base/err.h"
#include "loader/batch.h"

/* The value of each u8 pixel, by channel. */
struct np_format_table {
    float values[4][256];
};
/* (pixel / 255 - mean) / std, each operation rounded to float32, as torchvision's ToTensor and
 * Normalize do. mean, std: (channels), NULL: 0 and 1. */
void np_format_normalized(
    const float *mean, const float *std, int channels, struct np_format_table *ret_table);

struct np_formatter;
/* Borrows nothing. NULL: out of memory. table: for the float types; NULL for NP_ROW_U8. */
struct np_formatter *np_formatter_new(
    const struct np_batch_shape *shape, const struct np_format_table *table, struct np_err *err);
void np_formatter_free(struct np_formatter *formatter);
/* True: the CPU's vectors make the table's values; else they are looked up one by one. */
bool np_formatter_has_vectors(const struct np_formatter *formatter);
/* pixels: u8 (height, width, channels), dense. row: np_batch_row_bytes(), in the shape's format;
 * bf16 and f16 are rounded to nearest even from the float32 value. */
void np_format_row(const struct np_formatter *formatter, const uint8_t *pixels, void *row);

#endif
