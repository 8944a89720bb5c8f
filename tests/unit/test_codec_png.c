/* PNG: every kind and every crop, and which files are good: those that Pillow can load. */
#include <errno.h>
#include <spng.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "loader/base/mem.h"
#include "loader/pixels/png_filter.h"
#include "tests/test.h"
#include "tests/unit/made_crops.h"
#include "tests/unit/made_images.h"

enum { ROOM = 1 << 20 };

struct png {
    int width, height, colour, depth, interlaced;
    uint8_t *bytes; /* (ROOM) */
    size_t n;
};

static void put(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Another chunk at the end, with a CRC that is `off` too large. */
static void add(struct png *png, const char *type, const void *data, size_t n, uint32_t off)
{
    uint8_t *at = png->bytes + png->n;

    if (png->n + n + 12 > ROOM)
        abort();
    put(at, (uint32_t)n);
    memcpy(at + 4, type, 4);
    if (n)
        memcpy(at + 8, data, n);
    put(at + 8 + n, (uint32_t)crc32(0, at + 4, (uInt)n + 4) + off);
    png->n += n + 12;
}

/* Signature and header. */
static struct png begin(int width, int height, int colour, int depth, int interlaced)
{
    struct png png = {width, height, colour, depth, interlaced, malloc(ROOM), 8};
    uint8_t header[13] = {[8] = (uint8_t)depth, (uint8_t)colour, 0, 0, (uint8_t)interlaced};

    memcpy(png.bytes, "\x89PNG\r\n\x1a\n", 8);
    put(header, (uint32_t)width);
    put(header + 4, (uint32_t)height);
    add(&png, "IHDR", header, sizeof(header), 0);
    return png;
}

/* The picture's rows with filters of all kinds, n bytes; *ret_first: of the first row. */
static uint8_t *rows_of(const struct png *png, size_t *ret_n, size_t *ret_first)
{
    static const int x0[7] = {0, 4, 0, 2, 0, 1, 0}, dx[7] = {8, 8, 4, 4, 2, 2, 1};
    static const int y0[7] = {0, 0, 4, 0, 2, 0, 1}, dy[7] = {8, 8, 8, 4, 4, 2, 2};
    static const int samples[7] = {1, 0, 3, 1, 2, 0, 4};
    uint8_t *rows = malloc(ROOM);
    uint32_t noise = 1;

    *ret_n = *ret_first = 0;
    for (int pass = png->interlaced ? 0 : 6; pass < 7; pass++) {
        int w = png->interlaced ? (png->width + dx[pass] - 1 - x0[pass]) / dx[pass] : png->width;
        int h = png->interlaced ? (png->height + dy[pass] - 1 - y0[pass]) / dy[pass] : png->height;
        size_t n = 1 + ((size_t)(w * samples[png->colour] * png->depth) + 7) / 8;

        for (int y = 0; y < h && w > 0; y++) {
            for (size_t i = 0; i < n; i++) {
                noise = noise * 1664525u + 1013904223u;
                rows[*ret_n + i] = (uint8_t)(i ? noise >> 24 : (noise >> 24) % 5);
            }
            *ret_n += n;
            if (!*ret_first)
                *ret_first = n;
        }
    }
    return rows;
}

/* Compressed rows, the first nr of them where that is not 0. */
static uint8_t *data_of(const struct png *png, size_t nr, size_t *ret_n)
{
    size_t n, first;
    uint8_t *rows = rows_of(png, &n, &first), *data = malloc(2 * ROOM);
    uLongf bytes = 2 * ROOM;

    compress2(data, &bytes, rows, nr ? nr * first : n, 9);
    free(rows);
    *ret_n = bytes;
    return data;
}

static const uint8_t colours[6] = {10, 20, 30, 200, 100, 50};

/* A whole file; palettes of two colours, however many its samples could name. */
static struct png made_png(int width, int height, int colour, int depth, int interlaced)
{
    struct png png = begin(width, height, colour, depth, interlaced);
    size_t n;
    uint8_t *data = data_of(&png, 0, &n);

    if (colour == 3)
        add(&png, "PLTE", colours, sizeof(colours), 0);
    add(&png, "IDAT", data, n, 0);
    add(&png, "IEND", NULL, 0, 0);
    free(data);
    return png;
}

/* Do all crops end with the code? Frees the file. */
static bool ends(struct png *png, int code)
{
    bool good = made_crops_end(png->bytes, png->n, png->width, png->height, 3, code);

    free(png->bytes);
    return good;
}

Test(codec_png, a_written_file_reads_back_and_can_be_cropped)
{
    for (int channels = 1; channels <= 3; channels += 2) {
        uint8_t *pixels = made_pixels(41, 30, channels, 4), *bytes;
        struct np_geometry g = made_box(3, 7, 30, 29);
        struct np_decoder *decoder;
        struct np_pixels read, all = {pixels, 41, 30, channels, 41 * channels, 0, 0};
        size_t n;
        bool good;

        np_decoder_new(&decoder, NULL);
        good = np_codec_png.encode(pixels, 41, 30, channels, 0, &bytes, &n, NULL) == 0 &&
               made_decode(decoder, bytes, n, &g, channels, &read, NULL) == 0 &&
               made_same(&all, &read, &g) &&
               made_crops_end(bytes, n, 41, 30, 4 - channels, 0); /* the other way too */
        np_free(bytes);
        free(pixels);
        np_decoder_free(decoder);
        cr_assert(good);
    }
}

/* Are the pixels those that libspng makes of the file itself? */
static bool as_libspng_has_it(const struct png *png)
{
    const size_t n = 3 * (size_t)png->width * (size_t)png->height;
    struct np_geometry all = made_box(0, 0, png->width, png->height);
    uint8_t *want = malloc(n);
    spng_ctx *context = spng_ctx_new(0);
    struct np_decoder *decoder;
    struct np_pixels pixels;
    bool good;

    np_decoder_new(&decoder, NULL);
    spng_set_png_buffer(context, png->bytes, png->n);
    good = spng_decode_image(context, want, n, SPNG_FMT_RGB8, 0) == 0 &&
           made_decode(decoder, png->bytes, png->n, &all, 3, &pixels, NULL) == 0;
    for (int y = 0; y < png->height && good; y++)
        good = memcmp(want + 3 * (size_t)y * (size_t)png->width, pixels.data + y * pixels.stride,
                   3 * (size_t)png->width) == 0;
    np_decoder_free(decoder);
    spng_ctx_free(context);
    free(want);
    return good;
}

Test(codec_png, every_kind_is_decoded_and_cropped)
{
    static const int kinds[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
        {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    static const int sizes[][2] = {{1, 1}, {3, 2}, {37, 22}, {200, 130}};

    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
            for (int interlaced = 0; interlaced < 2; interlaced++) {
                struct png png =
                    made_png(sizes[s][0], sizes[s][1], kinds[k][0], kinds[k][1], interlaced);

                if (kinds[k][0] != 3) /* which has missing colours black */
                    cr_assert(as_libspng_has_it(&png));
                cr_assert(ends(&png, 0), "kind %zu, size %zu", k, s);
            }
}

Test(codec_png, colours_that_a_palette_lacks_are_grey)
{
    const uint8_t row[5] = {0, 0, 1, 2, 255};
    const uint8_t want[12] = {10, 20, 30, 200, 100, 50, 2, 2, 2, 255, 255, 255};
    struct np_geometry all = made_box(0, 0, 4, 1);
    struct np_decoder *decoder;
    struct np_pixels pixels;
    uint8_t data[64];
    uLongf n = sizeof(data);
    uint8_t many[771] = {0};

    np_decoder_new(&decoder, NULL);
    compress(data, &n, row, sizeof(row));
    for (int lacks = 0; lacks < 2; lacks++) {
        struct png png = begin(4, 1, 3, 8, 0);
        int code;

        if (!lacks)
            add(&png, "PLTE", colours, sizeof(colours), 0);
        add(&png, "IDAT", data, n, 0);
        code = made_decode(decoder, png.bytes, png.n, &all, 3, &pixels, NULL);
        free(png.bytes);
        cr_assert_eq(code, 0);
        cr_assert_arr_eq(pixels.data + 6, want + 6, 6);
        cr_assert_eq(memcmp(pixels.data, want, 6) == 0, !lacks);
    }
    np_decoder_free(decoder);
    struct png png = begin(4, 1, 3, 8, 0);

    add(&png, "PLTE", many, sizeof(many), 0);
    add(&png, "IDAT", data, n, 0);
    cr_assert(ends(&png, -EBADMSG));
}

/* Image data, all of it or cut, between other chunks. */
struct plan {
    const char *what;
    uint32_t text_off, data_off; /* added to the CRCs */
    size_t nr_rows, cut, part;   /* rows there are; bytes the data lack; of an IDAT (0: one) */
    size_t flip;                 /* the so manieth byte of the data from its end; 0: none */
    bool between, no_end;        /* a chunk amid the data; no IEND */
    const char *after;           /* bytes at the end */
    size_t nr_after;
    int code;
};
static const struct plan plans[] = {
    {"sound", .code = 0},
    {"wrong CRC before the data", .text_off = 1, .code = -EBADMSG},
    {"wrong CRC of the data", .data_off = 1, .code = 0},
    {"no end", .no_end = true, .code = 0},
    {"cut CRC", .no_end = true, .after = "\0", .nr_after = 1, .code = 0},
    {"bytes after the end", .after = "whatever it is", .nr_after = 14, .code = 0},
    {"half a chunk after the data", .no_end = true, .after = "\0\0\1\0tEXtab\0\0", .nr_after = 12,
        .code = -EBADMSG},
    {"no chunk after the data", .no_end = true, .after = "\0\0\1\0t-Xtab\0\0", .nr_after = 12,
        .code = 0},
    {"many parts", .part = 7, .code = 0},
    {"a chunk amid the data", .part = 2000, .between = true, .code = -EBADMSG},
    {"wrong Adler", .flip = 1, .code = -EBADMSG},
    {"wrong Adler in a part of its own", .flip = 1, .part = SIZE_MAX, .code = 0},
    {"cut Adler", .cut = 2, .code = 0},
    {"no Adler", .cut = 4, .code = 0},
    {"cut data", .cut = 30, .code = -EBADMSG},
    {"wrong data", .flip = 300, .code = -EBADMSG},
    {"the stream ends early", .nr_rows = 20, .code = 0},
};

static struct png planned(const struct plan *plan)
{
    struct png png = begin(61, 40, 2, 8, 0);
    size_t n, part;
    uint8_t *data = data_of(&png, plan->nr_rows, &n);

    n -= plan->cut;
    if (plan->flip)
        data[n - plan->flip] ^= 0x10;
    part = plan->part == SIZE_MAX ? n - 4 : plan->part ? plan->part : n;
    add(&png, "tEXt", "a\0b", 3, plan->text_off);
    for (size_t at = 0; at < n; at += part) {
        add(&png, "IDAT", NULL, 0, 0);
        add(&png, "IDAT", data + at, part < n - at ? part : n - at, plan->data_off);
        if (plan->between && at == 0)
            add(&png, "tEXt", "a\0b", 3, 0);
    }
    if (!plan->no_end)
        add(&png, "IEND", NULL, 0, 0);
    memcpy(png.bytes + png.n, plan->after ? plan->after : "", plan->nr_after);
    png.n += plan->nr_after;
    free(data);
    return png;
}

Test(codec_png, damage_is_judged_as_pillow_does_whatever_the_crop)
{
    for (size_t i = 0; i < sizeof(plans) / sizeof(*plans); i++) {
        struct png png = planned(&plans[i]);

        cr_assert(ends(&png, plans[i].code), "%s", plans[i].what);
    }
}

Test(codec_png, a_file_that_ends_anywhere_before_its_last_row_is_bad)
{
    struct png png = made_png(61, 40, 2, 8, 0);
    const size_t whole = png.n - 12 - 4 - 4; /* IEND, CRC, Adler */
    bool good = true;

    for (size_t cut = 8; cut < whole - 20; cut += 1 + cut / 30)
        good = good && made_crops_end(png.bytes, cut, 61, 40, 3, -EBADMSG);
    for (size_t cut = whole; cut <= png.n; cut++)
        good = good && made_crops_end(png.bytes, cut, 61, 40, 3, 0);
    free(png.bytes);
    cr_assert(good);
}

Test(codec_png, a_filter_that_does_not_exist_is_bad)
{
    struct png png = begin(61, 40, 2, 8, 0);
    size_t n, first;
    uint8_t *rows = rows_of(&png, &n, &first), *data = malloc(2 * ROOM);
    uLongf bytes = 2 * ROOM;

    rows[39 * first] = 5;
    compress(data, &bytes, rows, n);
    add(&png, "IDAT", data, bytes, 0);
    free(rows);
    free(data);
    cr_assert(ends(&png, -EBADMSG));
}

Test(codec_png, missing_rows_are_black)
{
    static const struct plan plan = {.nr_rows = 20};
    struct np_geometry low = made_box(0, 20, 61, 40);
    struct png png = planned(&plan);
    struct np_decoder *decoder;
    struct np_pixels pixels;
    int code, sum = 0;

    np_decoder_new(&decoder, NULL);
    code = made_decode(decoder, png.bytes, png.n, &low, 3, &pixels, NULL);
    for (int i = 0; i < 61 * 20 * 3 && code == 0; i++)
        sum += pixels.data[(20 - pixels.origin_y) * pixels.stride + i];
    np_decoder_free(decoder);
    free(png.bytes);
    cr_assert_eq(code, 0);
    cr_assert_eq(sum, 0);
}

/* zlib gives the last rows of such a file from a match that it has read; Pillow asks for more
 * data before each row. */
Test(codec_png, a_match_that_spans_rows_needs_the_data_after_it)
{
    struct png png = begin(16, 64, 0, 1, 0);
    uint8_t rows[3 * 64] = {0}, data[200];
    uLongf n = sizeof(data);

    compress2(data, &n, rows, sizeof(rows), 9);
    add(&png, "IDAT", data, n, 0);
    const size_t end = png.n - 4; /* without CRC */
    const bool whole = made_crops_end(png.bytes, end, 16, 64, 3, 0);

    png.n = end - 5; /* nor Adler, nor the end of the block */
    cr_assert(ends(&png, -EBADMSG));
    cr_assert(whole);
}

/* Section 9.2 and 9.4: of bytes to the left, above, and above to the left. */
static int predicted(int filter, int a, int b, int c)
{
    const int p = a + b - c, to_a = abs(p - a), to_b = abs(p - b), to_c = abs(p - c);

    if (filter < 4)
        return filter == 1 ? a : filter == 2 ? b : filter == 3 ? (a + b) / 2 : 0;
    return to_a <= to_b && to_a <= to_c ? a : to_b <= to_c ? b : c;
}

Test(codec_png, filters_are_undone_as_the_specification_says)
{
    enum { MOST = 40 };
    uint8_t row[4 * MOST + 1], want[4 * MOST + 1], above[4 * MOST];
    uint32_t noise = 1;

    for (int turn = 0; turn < 4000; turn++)
        for (int pixel = 1; pixel <= 4; pixel += 1 + (pixel == 1)) {
            const size_t n = (size_t)(turn % MOST) * (size_t)pixel;

            for (size_t i = 0; i < sizeof(above); i++) {
                noise = noise * 1664525u + 1013904223u;
                above[i] = (uint8_t)(noise >> 24);
                row[i] = want[i] = (uint8_t)(turn % 3 ? noise >> 16 : noise >> 30);
            }
            row[n] = 0xa5;
            for (size_t i = 0, before = (size_t)pixel; i < n; i++)
                want[i] = (uint8_t)(want[i] + predicted(turn % 5, i < before ? 0 : want[i - before],
                                                  above[i], i < before ? 0 : above[i - before]));
            np_png_unfilter(turn % 5, row, above, n, pixel);
            cr_assert(memcmp(row, want, n) == 0 && row[n] == 0xa5,
                "filter %d, %d bytes a pixel, %zu bytes", turn % 5, pixel, n);
        }
}
