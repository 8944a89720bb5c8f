#include "daemon/data/sheet.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/pixels/codec.h"

#define GAP 2 /* pixels between pictures */

int np_picture_write(
    struct np_io *io, const struct np_picture *picture, const char *path, struct np_err *err)
{
    uint8_t *png = NULL;
    size_t bytes;
    int code = np_codec_png.encode(
        picture->pixels, picture->width, picture->height, picture->channels, 0, &png, &bytes, err);

    if (!code)
        code = np_io_replace(io, path, png, bytes, err);
    np_free(png);
    return code;
}

int np_sheet_init(struct np_sheet *sheet, const struct np_batch_shape *shape, struct np_err *err)
{
    *sheet = (struct np_sheet){.shape = *shape};
    sheet->columns = (int)ceil(sqrt(shape->rows * (double)shape->height / shape->width));
    if (sheet->columns > shape->rows)
        sheet->columns = shape->rows;
    sheet->width = sheet->columns * (shape->width + GAP) - GAP;
    sheet->height =
        (shape->rows + sheet->columns - 1) / sheet->columns * (shape->height + GAP) - GAP;
    sheet->pixels =
        np_try_array((size_t)sheet->height * (size_t)sheet->width, (size_t)shape->channels, err);
    return sheet->pixels ? 0 : -ENOMEM;
}

void np_sheet_put(struct np_sheet *sheet, int place, const uint8_t *pixels, int height, int width)
{
    const struct np_batch_shape *shape = &sheet->shape;
    const size_t line = (size_t)width * (size_t)shape->channels;
    const size_t top = (size_t)(place / sheet->columns) * (size_t)(shape->height + GAP);
    const size_t left = (size_t)(place % sheet->columns) * (size_t)(shape->width + GAP);

    for (size_t y = 0; y < (size_t)height; y++)
        memcpy(sheet->pixels + ((top + y) * (size_t)sheet->width + left) * (size_t)shape->channels,
            pixels + y * line, line);
}

int np_sheet_write(
    struct np_io *io, const struct np_sheet *sheet, const char *path, struct np_err *err)
{
    const struct np_picture whole = {
        sheet->pixels, sheet->height, sheet->width, sheet->shape.channels};

    return np_picture_write(io, &whole, path, err);
}

void np_geometry_text(const struct np_row *row, char *text, size_t bytes)
{
    const struct np_geometry *g = &row->geometry;
    const int width = g->right - g->left, height = g->bottom - g->top;
    int used = snprintf(text, bytes, "%dx%d", row->source_w, row->source_h);

    if (width != row->source_w || height != row->source_h)
        used += snprintf(text + used, bytes - (size_t)used, ", cut %dx%d at %d,%d", width, height,
            g->left, g->top);
    if (g->scaled_w != width || g->scaled_h != height)
        used += snprintf(
            text + used, bytes - (size_t)used, ", resized to %dx%d", g->scaled_w, g->scaled_h);
    if (g->window_w != g->scaled_w || g->window_h != g->scaled_h || g->window_x || g->window_y)
        used += snprintf(text + used, bytes - (size_t)used, ", window %dx%d at %d,%d", g->window_w,
            g->window_h, g->window_x, g->window_y);
    if (g->flip)
        snprintf(text + used, bytes - (size_t)used, ", flipped");
}

void np_geometry_json(struct np_json *json, const struct np_row *row)
{
    const struct np_geometry *geometry = &row->geometry;
    const int box[4] = {geometry->left, geometry->top, geometry->right, geometry->bottom};
    const int size[2] = {geometry->scaled_w, geometry->scaled_h};
    const int window[4] = {
        geometry->window_x, geometry->window_y, geometry->window_w, geometry->window_h};
    const int source[2] = {row->source_w, row->source_h};

    np_json_ints(json, "box", box, 4);
    np_json_ints(json, "size", size, 2);
    np_json_ints(json, "window", window, 4);
    np_json_bool(json, "flip", geometry->flip);
    np_json_ints(json, "source_size", source, 2);
}
