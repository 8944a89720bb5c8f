/* What becomes of the pixels of a row: a formatter for the readers, or a table for the plugin. */
#include <errno.h>
#include <string.h>

#include "loader/lib/lib.h"
#include "loader/pixels/format.h"

/* Formats a row of all 256 pixels, so that the GPU writes the bits that the readers would. table NULL:
 * u8. */
static int make_words(
    struct nnp_loader *loader, const struct np_format_table *table, struct np_err *err)
{
    const int channels = loader->shape.channels;
    struct np_batch_shape shape = {1, 1, 256, channels, loader->shape.format, 0, 0, 0, NULL, 0};
    struct np_formatter *formatter;
    uint8_t pixels[4 * 256];
    union {
        uint8_t u8[4 * 256];
        uint16_t u16[4 * 256];
        uint32_t u32[4 * 256];
    } row; /* (channels, 256) */

    shape.format.planar = true;
    for (int i = 0; i < 256 * channels; i++)
        pixels[i] = (uint8_t)(i / channels);
    formatter = np_formatter_new(&shape, table, err);
    if (!formatter)
        return -ENOMEM;
    np_format_row(formatter, pixels, &row);
    np_formatter_free(formatter);
    for (int i = 0; i < 256 * channels; i++)
        loader->words[i / 256][i % 256] = shape.format.type == NP_ROW_U8    ? row.u8[i]
                                          : shape.format.type == NP_ROW_F32 ? row.u32[i]
                                                                            : row.u16[i];
    return 0;
}

int np_lib_format(struct nnp_loader *loader, const float *values, struct np_err *err)
{
    const struct np_loader_options *options = &loader->loader_options;
    const struct np_row_format *format = &loader->shape.format;
    const struct np_format_table *used = NULL;
    struct np_format_table table;
    struct np_formatter *formatter;

    if (format->type == NP_ROW_U8 && !format->planar)
        return 0;
    if (values)
        memcpy(table.values, values, (size_t)options->channels * sizeof(*table.values));
    else
        np_format_normalized(options->mean, options->std, (int)options->channels, &table);
    if (format->type != NP_ROW_U8)
        used = &table;
    if (loader->plugin)
        return make_words(loader, used, err);
    formatter = np_formatter_new(&loader->shape, used, err);
    if (!formatter)
        return -ENOMEM;
    np_formatter_free(loader->formatter);
    loader->formatter = formatter;
    return 0;
}
