/* The last pass of a row: values of torch, vectors against plain C, every format and odd sizes. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "loader/base/rng.h"
#include "loader/base/vectors.h"
#include "loader/pixels/format.h"
#include "tests/test.h"

static const enum np_vectors levels[] = {NP_SSE2, NP_AVX2, NP_AVX512_BF16};
#define NR_LEVELS (sizeof(levels) / sizeof(*levels))

static const float imagenet_mean[] = {0.485f, 0.456f, 0.406f};
static const float imagenet_std[] = {0.229f, 0.224f, 0.225f};
static const float cifar_mean[] = {0.4914f, 0.4822f, 0.4465f};
static const float cifar_std[] = {0.2470f, 0.2435f, 0.2616f};

/* torch 2.15, torchvision 0.29.2: the bits of normalize(to_tensor(picture), imagenet_mean,
 * imagenet_std) where the picture has the pixels 0, 3, 6 ... 255. */
static const uint32_t of_torch[3][86] = {
    {
        0xc0078bbd,
        0xc0044206,
        0xc000f84f,
        0xbffb5d2f,
        0xbff4c9c0,
        0xbfee3652,
        0xbfe7a2e3,
        0xbfe10f75,
        0xbfda7c06,
        0xbfd3e898,
        0xbfcd5529,
        0xbfc6c1bb,
        0xbfc02e4c,
        0xbfb99ade,
        0xbfb3076f,
        0xbfac7401,
        0xbfa5e092,
        0xbf9f4d24,
        0xbf98b9b5,
        0xbf922646,
        0xbf8b92d7,
        0xbf84ff69,
        0xbf7cd7f4,
        0xbf6fb117,
        0xbf628a3a,
        0xbf55635d,
        0xbf483c80,
        0xbf3b15a3,
        0xbf2deec6,
        0xbf20c7e9,
        0xbf13a10c,
        0xbf067a2f,
        0xbef2a6a3,
        0xbed858e9,
        0xbebe0b2f,
        0xbea3bd75,
        0xbe896fbb,
        0xbe5e4402,
        0xbe29a88e,
        0xbdea1a33,
        0xbd80e34b,
        0xbc3d6314,
        0x3d23150b,
        0x3dbac17f,
        0x3e11fc34,
        0x3e4697a8,
        0x3e7b331c,
        0x3e97e748,
        0x3eb23502,
        0x3ecc82bc,
        0x3ee6d076,
        0x3f008f18,
        0x3f0db5f5,
        0x3f1adcd2,
        0x3f2803af,
        0x3f352a8c,
        0x3f425169,
        0x3f4f7846,
        0x3f5c9f23,
        0x3f69c600,
        0x3f76ecdd,
        0x3f8209dd,
        0x3f889d4c,
        0x3f8f30ba,
        0x3f95c429,
        0x3f9c5797,
        0x3fa2eb06,
        0x3fa97e74,
        0x3fb011e3,
        0x3fb6a551,
        0x3fbd38c0,
        0x3fc3cc2e,
        0x3fca5f9d,
        0x3fd0f30b,
        0x3fd7867a,
        0x3fde19e8,
        0x3fe4ad57,
        0x3feb40c5,
        0x3ff1d434,
        0x3ff867a2,
        0x3ffefb11,
        0x4002c740,
        0x400610f7,
        0x40095aae,
        0x400ca465,
        0x400fee1d,
    },
    {
        0xc0024924,
        0xbffdd947,
        0xbff72044,
        0xbff06742,
        0xbfe9ae40,
        0xbfe2f53e,
        0xbfdc3c3c,
        0xbfd5833a,
        0xbfceca38,
        0xbfc81136,
        0xbfc15834,
        0xbfba9f30,
        0xbfb3e62e,
        0xbfad2d2c,
        0xbfa6742a,
        0xbf9fbb28,
        0xbf990226,
        0xbf924924,
        0xbf8b9022,
        0xbf84d720,
        0xbf7c3c3c,
        0xbf6eca37,
        0xbf615832,
        0xbf53e62e,
        0xbf46742a,
        0xbf390225,
        0xbf2b9021,
        0xbf1e1e1d,
        0xbf10ac19,
        0xbf033a15,
        0xbeeb9021,
        0xbed0ac18,
        0xbeb5c810,
        0xbe9ae407,
        0xbe7ffffe,
        0xbe4a37ed,
        0xbe146fdc,
        0xbdbd4f96,
        0xbd237ee9,
        0x3c4e856b,
        0x3d8560cf,
        0x3df0f0f1,
        0x3e2e4089,
        0x3e6408a3,
        0x3e8ce85a,
        0x3ea7cc62,
        0x3ec2b06b,
        0x3edd9473,
        0x3ef8787c,
        0x3f09ae42,
        0x3f172046,
        0x3f24924b,
        0x3f32044f,
        0x3f3f7653,
        0x3f4ce857,
        0x3f5a5a5b,
        0x3f67cc60,
        0x3f753e64,
        0x3f815834,
        0x3f881136,
        0x3f8eca38,
        0x3f95833a,
        0x3f9c3c3d,
        0x3fa2f53f,
        0x3fa9ae41,
        0x3fb06743,
        0x3fb72045,
        0x3fbdd947,
        0x3fc49249,
        0x3fcb4b4b,
        0x3fd2044d,
        0x3fd8bd50,
        0x3fdf7652,
        0x3fe62f54,
        0x3fece856,
        0x3ff3a158,
        0x3ffa5a5a,
        0x400089ae,
        0x4003e62f,
        0x400742b0,
        0x400a9f31,
        0x400dfbb2,
        0x40115833,
        0x4014b4b5,
        0x40181135,
        0x401b6db7,
    },
    {
        0xbfe6f809,
        0xbfe046ad,
        0xbfd99551,
        0xbfd2e3f5,
        0xbfcc3299,
        0xbfc5813d,
        0xbfbecfe1,
        0xbfb81e85,
        0xbfb16d29,
        0xbfaabbcd,
        0xbfa40a71,
        0xbf9d5914,
        0xbf96a7b8,
        0xbf8ff65c,
        0xbf894500,
        0xbf8293a4,
        0xbf77c491,
        0xbf6a61d9,
        0xbf5cff21,
        0xbf4f9c69,
        0xbf4239b1,
        0xbf34d6f9,
        0xbf27743f,
        0xbf1a1187,
        0xbf0caecf,
        0xbefe982f,
        0xbee3d2bf,
        0xbec90d4f,
        0xbeae47df,
        0xbe93826e,
        0xbe7179fd,
        0xbe3bef1d,
        0xbe06643d,
        0xbda1b2b9,
        0xbcda73e4,
        0x3cd1e31d,
        0x3d9f8e87,
        0x3e055224,
        0x3e3add04,
        0x3e7067e4,
        0x3e92f962,
        0x3eadbed2,
        0x3ec88442,
        0x3ee349b7,
        0x3efe0f27,
        0x3f0c6a4b,
        0x3f19cd03,
        0x3f272fbb,
        0x3f349273,
        0x3f41f52b,
        0x3f4f57e3,
        0x3f5cba9b,
        0x3f6a1d54,
        0x3f77800c,
        0x3f827162,
        0x3f8922be,
        0x3f8fd41a,
        0x3f968576,
        0x3f9d36d2,
        0x3fa3e82e,
        0x3faa998a,
        0x3fb14ae6,
        0x3fb7fc42,
        0x3fbead9e,
        0x3fc55efa,
        0x3fcc1056,
        0x3fd2c1b2,
        0x3fd9730e,
        0x3fe0246a,
        0x3fe6d5c6,
        0x3fed8722,
        0x3ff4387e,
        0x3ffae9da,
        0x4000cd9b,
        0x40042649,
        0x40077ef7,
        0x400ad7a5,
        0x400e3053,
        0x40118902,
        0x4014e1ae,
        0x40183a5e,
        0x401b930a,
        0x401eebba,
        0x40224467,
        0x40259d16,
        0x4028f5c3,
    },
};

Test(format, normalized_values_are_those_of_torch)
{
    struct np_format_table table;

    np_format_normalized(imagenet_mean, imagenet_std, 3, &table);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 86; i++)
            cr_assert_eq(
                memcmp(&table.values[c][3 * i], &of_torch[c][i], 4), 0, "channel %d, %d", c, 3 * i);
}

/* The same of all 256 pixels with cifar_mean and cifar_std: CRC-32 of a channel's f32, of its
 * to(torch.bfloat16) and of its to(torch.float16). */
static const uint32_t crc_of_torch[3][3] = {
    {2550980222u, 1515775955u, 1196198533u},
    {4275937242u, 1203423482u, 274610410u},
    {2699047327u, 2292331223u, 2276841399u},
};

Test(format, rows_have_the_bytes_of_torch_in_each_float_type)
{
    uint8_t pixels[256 * 3];
    struct np_format_table table;

    np_format_normalized(cifar_mean, cifar_std, 3, &table);
    for (int i = 0; i < 256 * 3; i++)
        pixels[i] = (uint8_t)(i / 3);
    for (size_t l = 0; l < NR_LEVELS; l++)
        for (int type = NP_ROW_F32; type <= NP_ROW_F16; type++) {
            const struct np_batch_shape shape = {
                1, 1, 256, 3, {(enum np_row_type)type, true}, 0, 0, 0, NULL, 0};
            const size_t plane = np_batch_row_bytes(&shape) / 3;
            struct np_formatter *formatter;
            uint8_t row[256 * 3 * 4];

            np_vectors_limit(levels[l]);
            formatter = np_formatter_new(&shape, &table, NULL);
            np_format_row(formatter, pixels, row);
            for (size_t c = 0; c < 3; c++)
                cr_assert_eq(crc32(0, row + c * plane, (unsigned)plane),
                    crc_of_torch[c][type - NP_ROW_F32], "%s type %d channel %zu", np_vectors_name(),
                    type, c);
            np_formatter_free(formatter);
        }
    np_vectors_limit(NP_AVX512_BF16);
}

/* --- every format ----------------------------------------------------------------------------- */

static uint16_t half_of(float value, enum np_row_type type)
{
    uint32_t bits, kept;
    uint16_t half;

    if (type == NP_ROW_F16) {
        const _Float16 rounded = (_Float16)value;

        memcpy(&half, &rounded, sizeof(half));
        return half;
    }
    memcpy(&bits, &value, sizeof(bits));
    kept = bits >> 16;
    if ((bits & 0xffff) > 0x8000 || ((bits & 0xffff) == 0x8000 && (kept & 1)))
        kept++;
    return (uint16_t)kept;
}

/* Value by value, by the definition in format.h. */
static void expected(const struct np_batch_shape *shape, const struct np_format_table *table,
    const uint8_t *pixels, uint8_t *row)
{
    const size_t n = (size_t)shape->height * (size_t)shape->width;
    const size_t channels = (size_t)shape->channels;

    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < channels; c++) {
            const size_t at = shape->format.planar ? c * n + i : i * channels + c;
            const uint8_t pixel = pixels[i * channels + c];
            const float value = table->values[c][pixel];
            const uint16_t half = half_of(value, shape->format.type);

            if (shape->format.type == NP_ROW_U8)
                row[at] = pixel;
            else if (shape->format.type == NP_ROW_F32)
                memcpy(row + 4 * at, &value, 4);
            else
                memcpy(row + 2 * at, &half, 2);
        }
}

/* Rows and pixels end where their memory ends: the address sanitizer watches. `shift` bytes before
 * the row make it unaligned. */
static bool is_expected(
    const struct np_batch_shape *shape, const struct np_format_table *table, size_t shift)
{
    const size_t bytes = np_batch_row_bytes(shape);
    const size_t n = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;
    uint8_t *pixels = malloc(n), *want = malloc(bytes), *memory, *row;
    struct np_draws draws;
    bool equal = true;

    cr_assert_eq(posix_memalign((void **)&memory, 64, bytes + shift), 0);
    row = memory + shift;
    np_draws_init(&draws, 3, NP_STREAM_ORDER, (uint32_t)n, 0, 0);
    for (size_t i = 0; i < n; i++)
        pixels[i] = (uint8_t)np_draw_below(&draws, 256);
    expected(shape, table, pixels, want);
    for (size_t l = 0; l < NR_LEVELS; l++) {
        struct np_formatter *formatter;

        np_vectors_limit(levels[l]);
        formatter = np_formatter_new(shape, shape->format.type == NP_ROW_U8 ? NULL : table, NULL);
        memset(row, 0xa5, bytes);
        np_format_row(formatter, pixels, row);
        equal = equal && memcmp(row, want, bytes) == 0;
        np_formatter_free(formatter);
    }
    np_vectors_limit(NP_AVX512_BF16);
    free(memory);
    free(want);
    free(pixels);
    return equal;
}

static void check_formats(
    const struct np_format_table *table, int rows, int width, int height, size_t shift)
{
    for (int type = NP_ROW_U8; type <= NP_ROW_F16; type++)
        for (int planar = 0; planar <= 1; planar++)
            for (int channels = 1; channels <= 3; channels += 2) {
                const struct np_batch_shape shape = {rows, height, width, channels,
                    {(enum np_row_type)type, planar}, 0, 0, 0, NULL, 0};

                cr_assert(is_expected(&shape, table, shift), "type %d %s %d x %d x %d + %zu", type,
                    planar ? "nchw" : "nhwc", height, width, channels, shift);
            }
}

Test(format, vectors_give_the_table_in_every_format_and_width)
{
    struct np_format_table table;

    np_format_normalized(imagenet_mean, imagenet_std, 3, &table);
    for (int width = 1; width < 200; width++)
        check_formats(&table, 1, width, 1, 0);
    check_formats(&table, 1, 223, 37, 0);
    check_formats(&table, 1, 97, 131, 4);
}

Test(format, rows_of_large_batches_are_the_same)
{
    struct np_format_table table;

    np_format_normalized(cifar_mean, cifar_std, 3, &table);
    check_formats(&table, 1 << 20, 224, 64, 0);
    check_formats(&table, 1 << 20, 61, 67, 0);
    check_formats(&table, 1 << 20, 224, 5, 4); /* unaligned: not past the cache */
}

/* --- other tables ----------------------------------------------------------------------------- */

static struct np_format_table random_table(uint32_t number)
{
    struct np_format_table table = {0};
    struct np_draws draws;

    np_draws_init(&draws, 5, NP_STREAM_ORDER, number, 0, 0);
    for (int i = 0; i < 4 * 256; i++)
        table.values[i / 256][i % 256] = (float)np_draw_below(&draws, 1u << 30) * 0x1p-29f - 1.0f;
    return table;
}

Test(format, tables_without_a_formula_are_looked_up)
{
    for (uint32_t number = 0; number < 5; number++) {
        struct np_format_table table = random_table(number);

        check_formats(&table, 1, 50 + (int)number, 3, 0);
    }
}

Test(format, one_value_that_is_off_by_a_bit_is_kept)
{
    for (int v = 0; v < 256; v += 5) {
        const struct np_batch_shape shape = {
            1, 7, 300, 3, {NP_ROW_F32, v % 2 == 0}, 0, 0, 0, NULL, 0};
        struct np_format_table table;
        uint32_t bits;

        np_format_normalized(imagenet_mean, imagenet_std, 3, &table);
        memcpy(&bits, &table.values[v % 3][v], sizeof(bits));
        bits++;
        memcpy(&table.values[v % 3][v], &bits, sizeof(bits));
        cr_assert(is_expected(&shape, &table, 0), "value %d", v);
    }
}

/* As other transforms make them: pixel * (1 / 255), and pixels that are not scaled; means of 0,
 * deviations of 1, and a constant channel. */
Test(format, tables_of_other_transforms_are_kept)
{
    for (int kind = 0; kind < 5; kind++) {
        struct np_format_table table;

        for (int c = 0; c < 3; c++)
            for (int v = 0; v < 256; v++) {
                const float unit = (float)v * (1.0f / 255.0f);
                const float values[] = {unit, (unit - imagenet_mean[c]) / imagenet_std[c],
                    ((float)v - 123.675f) / 58.395f, (float)v, c == 1 ? 0.25f : unit};

                table.values[c][v] = values[kind];
            }
        check_formats(&table, 1, 300, 3, 0);
    }
}

/* Of tables (pixel / 255 - mean) / std, how many are made by vectors? */
static int nr_fast(enum np_vectors level, enum np_row_type type, int nr_tables)
{
    const struct np_batch_shape shape = {1, 4, 4, 3, {type, false}, 0, 0, 0, NULL, 0};
    struct np_draws draws;
    int n = 0;

    np_vectors_limit(level);
    np_draws_init(&draws, 11, NP_STREAM_ORDER, 0, 0, 0);
    for (int i = 0; i < nr_tables; i++) {
        struct np_formatter *formatter;
        struct np_format_table table;
        float mean[3], std[3];

        for (int c = 0; c < 3; c++) {
            mean[c] = (float)np_draw_below(&draws, 1000) / 1000;
            std[c] = (float)(1 + np_draw_below(&draws, 1000)) / 1000;
        }
        np_format_normalized(i ? mean : imagenet_mean, i ? std : imagenet_std, 3, &table);
        formatter = np_formatter_new(&shape, &table, NULL);
        n += np_formatter_has_vectors(formatter);
        np_formatter_free(formatter);
    }
    np_vectors_limit(NP_AVX512_BF16);
    return n;
}

Test(format, usual_tables_are_made_by_vectors)
{
    for (size_t l = 1; l < NR_LEVELS; l++)
        for (int type = NP_ROW_F32; type <= NP_ROW_F16; type++) {
            const enum np_vectors has = np_vectors_limit(levels[l]);

            if (has >= NP_AVX2) { /* with F16C, which all such CPUs have */
                cr_expect_eq(nr_fast(levels[l], (enum np_row_type)type, 1), 1);
                cr_expect_geq(nr_fast(levels[l], (enum np_row_type)type, 100), 99);
            }
        }
    np_vectors_limit(NP_AVX512_BF16);
}

Test(format, any_table_of_halves_is_made_by_avx512)
{
    const struct np_format_table table = random_table(0);

    if (np_vectors_limit(NP_AVX512) < NP_AVX512)
        cr_skip("no AVX-512");
    for (int type = NP_ROW_F32; type <= NP_ROW_F16; type++) {
        const struct np_batch_shape shape = {
            1, 4, 4, 3, {(enum np_row_type)type, false}, 0, 0, 0, NULL, 0};
        struct np_formatter *formatter = np_formatter_new(&shape, &table, NULL);

        cr_expect_eq(np_formatter_has_vectors(formatter), type != NP_ROW_F32);
        np_formatter_free(formatter);
    }
    np_vectors_limit(NP_AVX512_BF16);
}

/* Many means and deviations; signs, infinities and NaN come from deviations of 0 and below. */
Test(format, any_mean_and_deviation_gives_the_table)
{
    struct np_draws draws;

    np_draws_init(&draws, 7, NP_STREAM_ORDER, 0, 0, 0);
    for (int i = 0; i < NP_TIMES(400, 20); i++) {
        const struct np_batch_shape shape = {1, 4, 192, 3, {NP_ROW_F32, i % 2}, 0, 0, 0, NULL, 0};
        struct np_format_table table;
        float mean[3], std[3];

        for (int c = 0; c < 3; c++) {
            mean[c] = (float)np_draw_below(&draws, 10000) / 10000;
            std[c] = (float)((int)np_draw_below(&draws, 10000) - 100) / 10000;
        }
        np_format_normalized(mean, std, 3, &table);
        cr_assert(is_expected(&shape, &table, 0), "mean %g %g %g, deviation %g %g %g", mean[0],
            mean[1], mean[2], std[0], std[1], std[2]);
    }
}
