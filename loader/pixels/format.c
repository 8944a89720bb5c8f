/* See format.h. */
#include "loader/pixels/format.h"

#include <math.h>
#include <string.h>

#include "loader/base/mem.h"

struct np_formatter {
    struct np_batch_shape shape;
    struct np_format_table table;
    uint16_t halves[4][256]; /* the table's values as bf16 or f16 */
};

void np_format_normalized(
    const float *mean, const float *std, int channels, struct np_format_table *ret_table)
{
    for (int c = 0; c < channels; c++)
        for (int v = 0; v < 256; v++) {
            const float unit = (float)v / 255.0f, centred = unit - (mean ? mean[c] : 0.0f);

            ret_table->values[c][v] = centred / (std ? std[c] : 1.0f);
        }
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float value)
{
    const _Float16 half = (_Float16)value;
    uint16_t bits;

    memcpy(&bits, &half, sizeof(bits));
    return bits;
}

struct np_formatter *np_formatter_new(
    const struct np_batch_shape *shape, const struct np_format_table *table, struct np_err *err)
{
    struct np_formatter *formatter = np_try_alloc(sizeof(*formatter), err);

    if (!formatter)
        return NULL;
    formatter->shape = *shape;
    if (!table)
        return formatter;
    formatter->table = *table;
    for (int c = 0; c < shape->channels; c++)
        for (int v = 0; v < 256; v++) {
            const float value = table->values[c][v];

            formatter->halves[c][v] =
                shape->format.type == NP_ROW_BF16 ? to_bf16(value) : to_f16(value);
        }
    return formatter;
}

void np_formatter_free(struct np_formatter *formatter)
{
    np_free(formatter);
}

void np_format_row(const struct np_formatter *formatter, const uint8_t *pixels, void *row)
{
    const struct np_batch_shape *shape = &formatter->shape;
    const int channels = shape->channels;
    const size_t n = (size_t)shape->height * (size_t)shape->width;
    const size_t step = shape->format.planar ? 1 : (size_t)channels;

    for (int c = 0; c < channels; c++) {
        const size_t first = shape->format.planar ? (size_t)c * n : (size_t)c;

        for (size_t i = 0; i < n; i++) {
            const uint8_t pixel = pixels[i * (size_t)channels + (size_t)c];
            const size_t at = first + i * step;

            if (shape->format.type == NP_ROW_U8)
                ((uint8_t *)row)[at] = pixel;
            else if (shape->format.type == NP_ROW_F32)
                ((float *)row)[at] = formatter->table.values[c][pixel];
            else
                ((uint16_t *)row)[at] = formatter->halves[c][pixel];
        }
    }
}
