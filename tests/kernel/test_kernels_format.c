/* The plugin's kernel that formats rows against the readers' formatter, bit for bit. */
#ifdef NP_EMULATED_CUDA
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/format.h"
#include "tests/test.h"
#include "trainer/cuda/rows/format_cuda.h"

enum { ROWS = 3, GUARD = 16 };

void np_emu_seed(uint64_t seed); /* tests/emu/grid.h, which is C++ */

static uint32_t rng = 1;
static uint32_t draw(void)
{
    rng = rng * 1664525u + 1013904223u;
    return rng >> 8;
}

/* What a pixel becomes, taken from a row of all pixels. */
static void make_words(
    const struct np_batch_shape *shape, const struct np_format_table *table, uint32_t *words)
{
    struct np_batch_shape one = {
        1, 1, 256, shape->channels, {shape->format.type, true}, 0, 0, 0, NULL, 0};
    struct np_formatter *formatter =
        np_formatter_new(&one, one.format.type == NP_ROW_U8 ? NULL : table, NULL);
    const size_t type_bytes = np_batch_row_bytes(&one) / 256 / (size_t)shape->channels;
    uint8_t pixels[3 * 256], row[3 * 256 * 4];

    for (int i = 0; i < 256 * shape->channels; i++)
        pixels[i] = (uint8_t)(i / shape->channels);
    np_format_row(formatter, pixels, row);
    memset(words, 0, 3 * 256 * sizeof(*words));
    for (int i = 0; i < 256 * shape->channels; i++)
        memcpy(&words[i], row + (size_t)i * type_bytes, type_bytes);
    np_formatter_free(formatter);
}

/* Bytes that differ, or that the kernel wrote beyond the rows. */
static int differing(const struct np_batch_shape *shape)
{
    const int pixels_per_row = shape->height * shape->width;
    const size_t row_bytes = np_batch_row_bytes(shape), all = ROWS * row_bytes;
    const size_t row_pixels = (size_t)pixels_per_row * (size_t)shape->channels;
    uint8_t *pixels = aligned_alloc(64, (ROWS * row_pixels + 63) / 64 * 64);
    uint8_t *out = aligned_alloc(64, (all + GUARD + 63) / 64 * 64), *wanted = malloc(all);
    uint32_t words[3 * 256];
    struct np_format_table table;
    struct np_formatter *formatter;
    int wrong = 0;

    for (int i = 0; i < 3 * 256; i++)
        table.values[i / 256][i % 256] = (float)draw() / 65536.0f - 100.0f;
    for (size_t i = 0; i < ROWS * row_pixels; i++)
        pixels[i] = (uint8_t)draw();
    make_words(shape, &table, words);
    memset(out, 0x5a, all + GUARD);
    np_cuda_format_rows(
        NULL, &(struct np_cuda_format){pixels, out, words, ROWS, pixels_per_row, shape->channels,
                  (int)(row_bytes / row_pixels), shape->format.planar});
    formatter = np_formatter_new(shape, shape->format.type == NP_ROW_U8 ? NULL : &table, NULL);
    for (size_t r = 0; r < ROWS; r++)
        np_format_row(formatter, pixels + r * row_pixels, wanted + r * row_bytes);
    for (size_t i = 0; i < all; i++)
        wrong += out[i] != wanted[i];
    for (size_t i = all; i < all + GUARD; i++)
        wrong += out[i] != 0x5a;
    np_formatter_free(formatter);
    free(wanted);
    free(out);
    free(pixels);
    return wrong;
}

/* Rows that begin at multiples of 16 bytes and that do not; less than a tile, some tiles, a rest. */
Test(kernels_format, equals_the_formatter_of_the_readers)
{
    static const int sizes[][2] = {
        {1, 1}, {5, 7}, {16, 16}, {32, 32}, {33, 31}, {40, 52}, {45, 47}};

    for (int type = NP_ROW_U8; type <= NP_ROW_F16; type++)
        for (int planar = 0; planar < 2; planar++)
            for (int channels = 1; channels <= 3; channels += 2)
                for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
                    const struct np_batch_shape shape = {ROWS, sizes[i][0], sizes[i][1], channels,
                        {(enum np_row_type)type, planar}, 0, 0, 0, NULL, 0};

                    np_emu_seed(i + 1);
                    cr_assert_eq(differing(&shape), 0, "type %d, planar %d, %d channels, %d x %d",
                        type, planar, channels, sizes[i][0], sizes[i][1]);
                }
}
#endif
