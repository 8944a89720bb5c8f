/* See format.h. format_fit.c finds the arithmetic of a table; format_avx2.c and format_avx512.c
 * have the vectors; the loop here looks each value up. */
#include "loader/pixels/format.h"

#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/format_fit.h"
#include "loader/pixels/format_kernels.h"

/* Pixels of a channel that are converted at a time: a fraction of the L1 cache, and whole runs in
 * whole cache lines. */
#define BLOCK (NP_FORMAT_RUN * NP_ALIGN * 2)
/* A batch of so many bytes is not in a cache any more when the program takes it, so its rows are
 * written past the caches. */
#define STREAM (8u << 20)
#define TRIED  (256 * 3)
#define PLANES 4

struct np_formatter {
    struct np_batch_shape shape;
    int period; /* value i of a line is of channel (line + i) % period; planar: of channel `line` */
    size_t type_bytes;
    bool streams;
    const struct np_format_kernels *kernels; /* NULL: plain C */
    bool has_vectors;                        /* the kernels make the values; else look_up() */
    bool computes; /* as runs say, which agree with the table; else the kernels look up */
    struct np_format_run runs[PLANES]; /* by line */
    float values[PLANES][256];
    uint16_t halves[PLANES][256]; /* the values as bf16 or f16 */
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

/* --- a line of values ------------------------------------------------------------------------ */

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

/* n is a multiple of the period. */
static void look_up(
    const struct np_formatter *formatter, int line, const uint8_t *src, size_t n, void *dst)
{
    const size_t period = (size_t)formatter->period;

    for (size_t c = 0; c < period; c++) {
        const float *values = formatter->values[(size_t)line + c];
        const uint16_t *halves = formatter->halves[(size_t)line + c];

        if (formatter->shape.format.type == NP_ROW_F32)
            for (size_t i = c; i < n; i += period)
                ((float *)dst)[i] = values[src[i]];
        else
            for (size_t i = c; i < n; i += period)
                ((uint16_t *)dst)[i] = halves[src[i]];
    }
}

static void convert(
    const struct np_formatter *formatter, int line, const uint8_t *src, size_t n, uint8_t *dst)
{
    const bool stream = formatter->streams && (uintptr_t)dst % NP_ALIGN == 0;
    size_t done = 0;

    if (formatter->shape.format.type == NP_ROW_U8) {
        memcpy(dst, src, n);
        return;
    }
    if (formatter->has_vectors && !formatter->computes)
        done = formatter->kernels->halves(
            &formatter->halves[line], formatter->period, src, n, (uint16_t *)(void *)dst, stream);
    else if (formatter->computes)
        done = formatter->kernels->values(
            &formatter->runs[line], formatter->shape.format.type, src, n, dst, stream);
    look_up(formatter, line, src + done, n - done, dst + done * formatter->type_bytes);
}

/* --- a formatter ----------------------------------------------------------------------------- */

static const struct np_format_kernels *kernels_of_cpu(void)
{
#if defined(__x86_64__)
    if (np_vectors_used() >= NP_AVX512)
        return &np_format_avx512;
    if (np_vectors_used() >= NP_AVX2 && __builtin_cpu_supports("f16c"))
        return &np_format_avx2;
#endif
    return NULL;
}

/* Do the kernels give each channel's 256 values? */
static bool agrees(const struct np_formatter *formatter, int line)
{
    _Alignas(NP_ALIGN) uint8_t computed[TRIED * sizeof(float)], wanted[TRIED * sizeof(float)];
    uint8_t pixels[TRIED];
    size_t done;

    for (int i = 0; i < TRIED; i++)
        pixels[i] = (uint8_t)(i / 3);
    done = formatter->kernels->values(
        &formatter->runs[line], formatter->shape.format.type, pixels, TRIED, computed, false);
    look_up(formatter, line, pixels, TRIED, wanted);
    return done == TRIED && memcmp(computed, wanted, TRIED * formatter->type_bytes) == 0;
}

static bool find_arithmetic(struct np_formatter *formatter)
{
    const int channels = formatter->shape.channels, period = formatter->period;
    struct np_format_fit fit;

    if (!formatter->kernels || NP_FORMAT_RUN % period != 0 ||
        !np_format_fit(formatter->values, channels, &fit))
        return false;
    for (int line = 0; line < channels; line += period) {
        struct np_format_run *run = &formatter->runs[line];

        run->unit = fit.unit;
        run->unit_low = fit.unit_low;
        for (int i = 0; i < NP_FORMAT_RUN; i++) {
            const int c = line + i % period;

            run->mean[i] = fit.mean[c];
            run->inverse[i] = fit.inverse[c];
            run->inverse_low[i] = fit.inverse_low[c];
        }
        if (!agrees(formatter, line))
            return false;
    }
    return true;
}

struct np_formatter *np_formatter_new(
    const struct np_batch_shape *shape, const struct np_format_table *table, struct np_err *err)
{
    struct np_formatter *formatter = np_try_alloc(sizeof(*formatter), err);
    const enum np_row_type type = shape->format.type;
    bool looks_up;

    if (!formatter)
        return NULL;
    formatter->shape = *shape;
    formatter->kernels = kernels_of_cpu();
    formatter->period = shape->format.planar ? 1 : shape->channels;
    formatter->type_bytes = type == NP_ROW_U8 ? 1 : type == NP_ROW_F32 ? 4 : 2;
    if (!table)
        return formatter;
    memcpy(formatter->values, table->values, sizeof(formatter->values));
    for (int c = 0; c < shape->channels; c++)
        for (int v = 0; v < 256; v++) {
            const float value = table->values[c][v];

            formatter->halves[c][v] = type == NP_ROW_BF16 ? to_bf16(value) : to_f16(value);
        }
    looks_up = formatter->kernels && formatter->kernels->halves && type != NP_ROW_F32 &&
               (formatter->period == 1 || formatter->period == 3);
    formatter->computes = !looks_up && find_arithmetic(formatter);
    formatter->has_vectors = looks_up || formatter->computes;
    formatter->streams =
        formatter->has_vectors && np_batch_row_bytes(shape) * (size_t)shape->rows >= STREAM;
    return formatter;
}

void np_formatter_free(struct np_formatter *formatter)
{
    np_free(formatter);
}

bool np_formatter_has_vectors(const struct np_formatter *formatter)
{
    return formatter->has_vectors;
}

/* --- a row ----------------------------------------------------------------------------------- */

/* One channel of u8 (n, channels) to u8 (n). */
static void take_channel(
    const struct np_formatter *formatter, int channel, const uint8_t *src, size_t n, uint8_t *dst)
{
    const size_t channels = (size_t)formatter->shape.channels;
    size_t i = 0;

    if (formatter->kernels && channels == 3)
        i = formatter->kernels->channel(src, n, channel, dst);
    for (; i < n; i++)
        dst[i] = src[i * channels + (size_t)channel];
}

/* Channel after channel: a row that is written in its order takes two thirds of the time of one
 * whose planes are written in turns. */
static void format_planes(
    const struct np_formatter *formatter, const uint8_t *pixels, size_t n, uint8_t *row)
{
    const size_t channels = (size_t)formatter->shape.channels;
    uint8_t line[BLOCK];

    for (size_t c = 0; c < channels; c++)
        for (size_t at = 0; at < n; at += BLOCK) {
            const size_t count = n - at < BLOCK ? n - at : BLOCK;

            take_channel(formatter, (int)c, pixels + at * channels, count, line);
            convert(formatter, (int)c, line, count, row + (c * n + at) * formatter->type_bytes);
        }
}

void np_format_row(const struct np_formatter *formatter, const uint8_t *pixels, void *row)
{
    const struct np_batch_shape *shape = &formatter->shape;
    const size_t n = (size_t)shape->height * (size_t)shape->width;
    const size_t channels = (size_t)shape->channels;

    if (!shape->format.planar || channels == 1) {
        convert(formatter, 0, pixels, n * channels, row);
    } else if (shape->format.type == NP_ROW_U8) {
        for (size_t c = 0; c < channels; c++)
            take_channel(formatter, (int)c, pixels, n, (uint8_t *)row + c * n);
    } else {
        format_planes(formatter, pixels, n, row);
    }
    if (formatter->streams)
        formatter->kernels->fence();
}
