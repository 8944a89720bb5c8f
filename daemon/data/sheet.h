/* Writes rows as PNG files, one by one or many in a contact sheet, and describes the geometry of a
 * row. For `data view` and `replay`. Main thread. */
#ifndef NP_SHEET_H
#define NP_SHEET_H

#include "loader/base/io.h"
#include "loader/batch.h"

/* Writes u8 (height, width, channels), channels 1 or 3, as a PNG file. */
struct np_picture {
    const uint8_t *pixels;
    int height, width, channels;
};
int np_picture_write(
    struct np_io *io, const struct np_picture *picture, const char *path, struct np_err *err);

/* A nearly square grid of pictures of one size, or smaller ones, filled row by row, two pixels apart. */
struct np_sheet {
    struct np_batch_shape shape; /* rows: number of pictures */
    uint8_t *pixels;             /* u8 (height, width, channels) */
    int columns, height, width;
};
/* -ENOMEM. The caller frees sheet->pixels (np_free). */
int np_sheet_init(struct np_sheet *sheet, const struct np_batch_shape *shape, struct np_err *err);
/* Copies picture `place` (from 0) into the grid. It is not larger than the shape. */
void np_sheet_put(struct np_sheet *sheet, int place, const uint8_t *pixels, int height, int width);
int np_sheet_write(
    struct np_io *io, const struct np_sheet *sheet, const char *path, struct np_err *err);

/* "500x375, cut 300x280 at 20,31, resized to 224x224, flipped": in order, without operations that
 * change nothing. */
void np_geometry_text(const struct np_row *row, char *text, size_t bytes);
/* The same as JSON: box, size, window, flip and source_size. */
struct np_json;
void np_geometry_json(struct np_json *json, const struct np_row *row);

#endif
