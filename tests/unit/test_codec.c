/* Codecs: crops equal to the whole decode for every kind of JPEG and PNM, and refused files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/pixels/codec.h"
#include "tests/test.h"
#include "tests/unit/made_crops.h"
#include "tests/unit/made_images.h"
#include "tests/unit/made_memory.h"

static bool crops_are_exact(
    const uint8_t *bytes, size_t nr_bytes, int width, int height, int channels)
{
    return made_crops_end(bytes, nr_bytes, width, height, channels, 0);
}

static bool exact_jpeg(const struct made_jpeg *made, int channels)
{
    size_t n;
    uint8_t *bytes = made_jpeg(made, &n);
    bool good = crops_are_exact(bytes, n, made->width, made->height, channels);

    if (!good)
        fprintf(stderr, "%dx%d, %d components, sampling %dx%d\n", made->width, made->height,
            made->components, made->h, made->v);
    free(bytes);
    return good;
}

Test(codec_jpeg, crops_equal_the_whole_for_every_sampling)
{
    static const int sizes[][2] = {{131, 97}, {66, 130}, {200, 17}, {15, 201}, {33, 31}};

    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
        for (int h = 1; h <= 4; h++)
            for (int v = 1; v <= 4; v++) {
                struct made_jpeg made = {
                    .width = sizes[s][0], .height = sizes[s][1], .components = 3, .h = h, .v = v};

                if (h * v + 2 <= 10)
                    cr_assert(exact_jpeg(&made, 3));
            }
}

Test(codec_jpeg, crops_equal_the_whole_for_every_kind)
{
    const struct made_jpeg kinds[] = {
        {131, 97, 1, .h = 1, .v = 1},
        {131, 97, 1, .h = 2, .v = 2},
        {131, 97, 3, .h = 2, .v = 2, .progressive = true},
        {131, 97, 3, .h = 2, .v = 1, .progressive = true, .restart = 3},
        {131, 97, 3, .h = 2, .v = 2, .restart = 1},
        {131, 97, 3, .h = 1, .v = 2, .restart = 7},
        {131, 97, 3, .h = 2, .v = 2, .arithmetic = true},
        {131, 97, 3, .h = 1, .v = 1, .rgb = true},
        {131, 97, 4, .h = 1, .v = 1},
        {131, 97, 4, .h = 2, .v = 2, .ycck = true},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        cr_assert(exact_jpeg(&kinds[i], 3));
        cr_assert(exact_jpeg(&kinds[i], 1));
    }
}

Test(codec_jpeg, a_file_cut_short_is_bad_whatever_the_crop)
{
    const struct made_jpeg kinds[] = {{131, 97, 3, .h = 2, .v = 2},
        {131, 97, 3, .h = 2, .v = 2, .progressive = true}, {20, 20, 1, .h = 1, .v = 1}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct np_geometry g = made_box(3, 3, 9, 5); /* only the first rows */
        size_t n;
        uint8_t *bytes = made_jpeg(&kinds[i], &n);
        bool good = true;

        for (size_t cut = 3; cut < n; cut += 1 + cut / 40)
            good = good && made_refuses(bytes, cut, &g, "bad JPEG");
        good = good && made_refuses(bytes, n - 1, &g, "ends too early");
        good = good && made_refuses(bytes, n - 2, &g, "ends too early");
        good = good && made_crops_end(bytes, n - 2, kinds[i].width, kinds[i].height, 3, -EBADMSG);
        free(bytes);
        cr_assert(good);
    }
}

Test(codec_jpeg, bytes_after_the_end_do_not_matter)
{
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 2};
    size_t n;
    uint8_t *bytes = made_jpeg(&made, &n), *longer = calloc(1, n + 1000);
    bool good;

    memcpy(longer, bytes, n);
    good = crops_are_exact(longer, n + 1000, 131, 97, 3);
    free(bytes);
    free(longer);
    cr_assert(good);
}

/* Where the entropy-coded data of the first scan begin. */
static size_t scan_at(const uint8_t *bytes)
{
    size_t at = 2;

    while (bytes[at + 1] != 0xda)
        at += 2 + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]);
    return at + 2 + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]);
}

/* The file with n bytes put in at a place; bytes is freed. */
static uint8_t *with(uint8_t *bytes, size_t *nr_bytes, size_t at, const void *more, size_t n)
{
    uint8_t *longer = malloc(*nr_bytes + n);

    memcpy(longer, bytes, at);
    if (more)
        memcpy(longer + at, more, n);
    else
        memset(longer + at, 0, n);
    memcpy(longer + at + n, bytes + at, *nr_bytes - at);
    *nr_bytes += n;
    free(bytes);
    return longer;
}

/* As many bytes of comments behind the first marker as it takes that `from` lies at `to`. */
static uint8_t *moved(uint8_t *bytes, size_t *nr_bytes, size_t from, size_t to)
{
    while (from < to) {
        const size_t n = to - from > 60000 ? 30000 : to - from;
        const uint8_t head[4] = {0xff, 0xfe, (uint8_t)((n - 2) >> 8), (uint8_t)(n - 2)};

        bytes = with(bytes, nr_bytes, 2, NULL, n);
        memcpy(bytes + 2, head, 4);
        from += n;
    }
    return bytes;
}

/* Does damage to the codes, `nr` bytes from `from` of 1000 parts of them, leave all crops alike? */
static bool codes_are_concealed(const struct made_jpeg *made, size_t from, size_t nr)
{
    size_t n, first;
    uint8_t *bytes = made_jpeg(made, &n);
    bool good;

    first = scan_at(bytes);
    first += (n - 2 - first) * from / 1000;
    for (size_t i = first; i < first + nr && i < n - 2; i++)
        if (bytes[i] != 0xff && bytes[i - 1] != 0xff && (bytes[i] ^ 0x5a) != 0xff)
            bytes[i] ^= 0x5a;
    good = crops_are_exact(bytes, n, made->width, made->height, 3);
    free(bytes);
    return good;
}

Test(codec_jpeg, bad_codes_are_concealed_alike_in_every_crop)
{
    const struct made_jpeg kinds[] = {{131, 97, 3, .h = 2, .v = 2}, {131, 97, 3, .h = 1, .v = 1},
        {131, 97, 3, .h = 2, .v = 1, .restart = 2}, {131, 97, 1, .h = 1, .v = 1},
        {131, 97, 3, .h = 2, .v = 2, .progressive = true},
        {131, 97, 3, .h = 2, .v = 2, .arithmetic = true}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (size_t from = 5; from < (kinds[i].progressive ? 6u : 1000u); from += 199)
            cr_assert(codes_are_concealed(&kinds[i], from, 40), "kind %zu from %zu", i, from);
}

Test(codec_jpeg, wrong_and_lost_restarts_are_concealed_alike_in_every_crop)
{
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 1, .restart = 4};

    for (int wrong = 0; wrong < 3; wrong++) {
        size_t n, at;
        uint8_t *bytes = made_jpeg(&made, &n);
        bool good;

        for (at = scan_at(bytes) + n / 3; bytes[at] != 0xff || bytes[at + 1] < 0xd0; at++)
            ;
        if (wrong < 2)
            bytes[at + 1] = (uint8_t)(0xd0 + ((bytes[at + 1] + (wrong ? 5 : 1)) & 7));
        else
            memset(bytes + at, 0, 2);
        good = crops_are_exact(bytes, n, 131, 97, 3);
        free(bytes);
        cr_assert(good, "damage %d", wrong);
    }
}

Test(codec_jpeg, a_scan_that_ends_early_is_accepted_alike_in_every_crop)
{
    const struct made_jpeg kinds[] = {{131, 97, 3, .h = 2, .v = 2},
        {131, 97, 3, .h = 2, .v = 2, .restart = 3},
        {131, 97, 3, .h = 2, .v = 2, .progressive = true}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (size_t part = 0; part < 10; part++) {
            size_t n, at;
            uint8_t *bytes = made_jpeg(&kinds[i], &n);
            bool good;

            at = scan_at(bytes);
            at += (n - 2 - at) * part / 10;
            bytes = with(bytes, &n, at, "\xff\xff\xff\xd9", 4);
            good =
                crops_are_exact(bytes, n, 131, 97, 3) && crops_are_exact(bytes, at + 4, 131, 97, 3);
            free(bytes);
            cr_assert(good, "kind %zu, part %zu", i, part);
        }
}

Test(codec_jpeg, a_stray_marker_is_judged_alike_whatever_the_crop)
{
    static const struct {
        const char *bytes;
        size_t n;
        int code;
    } markers[] = {{"\xff\x02", 2, -EBADMSG}, /* of no kind libjpeg knows */
        {"\xff\xfe\x00\x04zz", 6, 0},         /* a comment */
        {"\xff\x01", 2, 0},                   /* without parameters */
        {"\xff\xd8", 2, -EBADMSG}, {"\xff\xd5", 2, 0}, {"\xff\xff\x00", 3, 0}};
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 2};

    for (size_t i = 0; i < sizeof(markers) / sizeof(*markers); i++) {
        size_t n;
        uint8_t *bytes = made_jpeg(&made, &n);
        bool good;

        bytes = with(bytes, &n, n - 200, markers[i].bytes, markers[i].n);
        good = made_crops_end(bytes, n, 131, 97, 3, markers[i].code);
        free(bytes);
        cr_assert(good, "marker %zu", i);
    }
}

Test(codec_jpeg, bytes_after_the_last_rows_block_are_not_read)
{
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 2};

    for (size_t shift = 0; shift < 2; shift++) {
        size_t n, end;
        uint8_t *bytes = made_jpeg(&made, &n);
        bool good;

        end = n - 2;
        bytes = with(bytes, &n, end, NULL, 1000); /* the source stops amid these, or does not */
        bytes = with(bytes, &n, end + 1000, "\xff\x02", 2);
        bytes = moved(bytes, &n, end, 65536 - 500 + 5000 * shift);
        good = made_crops_end(bytes, n, 131, 97, 3, shift ? -EBADMSG : 0);
        free(bytes);
        cr_assert(good, "shift %zu", shift);
    }
}

Test(codec_jpeg, arithmetic_codes_beyond_a_block_are_bad_as_they_cannot_be_suspended)
{
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 2, .arithmetic = true};

    for (size_t shift = 0; shift < 2; shift++) {
        size_t n;
        uint8_t *bytes = made_jpeg(&made, &n);
        bool good;

        bytes = moved(bytes, &n, n, 65536 - 100 + 1000 * shift);
        good = made_crops_end(bytes, n, 131, 97, 3, shift ? -EBADMSG : 0);
        free(bytes);
        cr_assert(good, "shift %zu", shift);
    }
}

/* Turns the n-th segment of this kind into a comment. */
static void drop_segment(uint8_t *bytes, uint8_t marker, int n)
{
    for (size_t at = 2;; at += 2 + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]))
        if (bytes[at + 1] == marker && n-- == 0) {
            bytes[at + 1] = 0xfe;
            return;
        }
}

/* A decoder that has seen a whole file judges one that lacks a table, and makes its pixels, as a new
 * decoder does: without codes libjpeg takes the usual ones, without quantization it fails. */
Test(codec_jpeg, tables_of_one_file_are_not_used_for_the_next)
{
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 2};
    struct np_geometry g = made_box(0, 0, 131, 97);

    for (int i = 0; i < 6; i++) {
        const uint8_t marker = i < 2 ? 0xdb : 0xc4; /* 2 DQT, 4 DHT */
        const struct made_jpeg before = {
            64, 80, 3, .h = 1, .v = 1, .own_codes = true, .quality = 30};
        struct np_decoder *old, *fresh;
        struct np_pixels first, pixels[2];
        size_t n;
        const struct np_geometry all = made_box(0, 0, 64, 80);
        uint8_t *bytes = made_jpeg(&before, &n);

        np_decoder_new(&old, NULL);
        np_decoder_new(&fresh, NULL);
        cr_assert_eq(made_decode(old, bytes, n, &all, 3, &first, NULL), 0);
        free(bytes);
        bytes = made_jpeg(&made, &n);
        drop_segment(bytes, marker, i < 2 ? i : i - 2);
        const int code = made_decode(old, bytes, n, &g, 3, &pixels[0], NULL);
        cr_assert_eq(code, marker == 0xdb ? -EBADMSG : 0);
        cr_assert_eq(made_decode(fresh, bytes, n, &g, 3, &pixels[1], NULL), code);
        for (int y = 0; code == 0 && y < 97; y++)
            cr_assert_arr_eq(pixels[0].data + y * pixels[0].stride,
                pixels[1].data + y * pixels[1].stride, 131 * 3);
        np_decoder_free(fresh);
        np_decoder_free(old);
        free(bytes);
    }
}

Test(codec_jpeg, a_decoder_can_be_used_after_a_bad_file)
{
    struct made_jpeg made = {131, 97, 3, .h = 2, .v = 2};
    struct np_geometry g = made_box(0, 0, 131, 97);
    struct np_decoder *decoder;
    struct np_pixels pixels;
    size_t n;
    uint8_t *bytes = made_jpeg(&made, &n);
    int right = 0;

    np_decoder_new(&decoder, NULL);
    for (int i = 0; i < 20; i++) {
        right += made_decode(decoder, bytes, n / 2, &g, 3, &pixels, NULL) == -EBADMSG;
        right += made_decode(decoder, bytes, n, &g, 3, &pixels, NULL) == 0;
        right += made_decode(decoder, bytes, 100, &g, 3, &pixels, NULL) == -EBADMSG;
    }
    np_decoder_free(decoder);
    free(bytes);
    cr_assert_eq(right, 60);
}

Test(codec_jpeg, absurd_sizes_are_refused_by_the_header)
{
    struct made_jpeg made = {16, 16, 3, .h = 1, .v = 1};
    struct np_geometry g = made_box(0, 0, 16, 16);
    size_t n, sof = 2;
    uint8_t *bytes = made_jpeg(&made, &n);
    bool good;

    while (bytes[sof + 1] != 0xc0)
        sof += 2 + ((size_t)bytes[sof + 2] << 8 | bytes[sof + 3]);
    memset(bytes + sof + 5, 0xff, 4); /* 65535 x 65535 */
    good = made_refuses(bytes, n, &g, "bad JPEG");
    bytes[sof + 5] = bytes[sof + 7] = 0x80; /* 33023 x 33023 */
    good = good && made_refuses(bytes, n, &g, "pixels");
    memset(bytes + sof + 5, 0, 4);
    good = good && made_refuses(bytes, n, &g, "bad JPEG");
    free(bytes);
    cr_assert(good);
}

Test(codec_jpeg, a_written_file_reads_back)
{
    uint8_t *pixels = made_pixels(40, 30, 1, 3), *bytes;
    struct np_decoder *decoder;
    struct np_geometry g = made_box(0, 0, 40, 30);
    struct np_pixels read;
    struct np_image_info info;
    size_t n;
    double error = 0;

    np_decoder_new(&decoder, NULL);
    cr_assert_eq(np_codec_jpeg.encode(pixels, 40, 30, 1, 98, &bytes, &n, NULL), 0);
    cr_assert_eq(np_decoder_open(decoder, bytes, n, NULL, &info, NULL), 0);
    cr_assert(info.width == 40 && info.height == 30 && info.channels == 1);
    cr_assert_eq(np_decoder_decode(decoder, &g, 1, &read, NULL), 0);
    for (int y = 0; y < 30; y++)
        for (int x = 0; x < 40; x++)
            error += abs(read.data[y * read.stride + x] - pixels[y * 40 + x]) / 1200.0;
    np_free(bytes);
    free(pixels);
    np_decoder_free(decoder);
    cr_assert_lt(error, 1.5);
}

Test(codec_raw, pnm_headers_are_read_and_samples_scaled)
{
    static const char pgm[] = "P5 # a comment\n3 1\n# more\n100\n\000\062\144";
    static const char wide[] = "P6\n1 1\n1023\n\000\000\001\377\003\377";
    const uint8_t want[3] = {0, 128, 255}, want_wide[3] = {0, 127, 255};
    struct np_geometry row = made_box(0, 0, 3, 1), one = made_box(0, 0, 1, 1);
    struct np_decoder *decoder;
    struct np_pixels pixels;
    bool good;

    np_decoder_new(&decoder, NULL);
    good =
        made_decode(decoder, (const uint8_t *)pgm, sizeof(pgm) - 1, &row, 1, &pixels, NULL) == 0 &&
        memcmp(pixels.data, want, 3) == 0;
    good = good &&
           made_decode(decoder, (const uint8_t *)wide, sizeof(wide) - 1, &one, 3, &pixels, NULL) ==
               0 &&
           memcmp(pixels.data, want_wide, 3) == 0;
    np_decoder_free(decoder);
    cr_assert(good);
}

Test(codec_raw, bad_headers_are_refused)
{
    static const char *const texts[] = {"P5\n", "P5 3", "P5 3 1", "P5 3 1 255", "P5 0 1 255\n",
        "P5 3 1 0\nabc", "P5 3 1 70000\nabcdef", "P5 3 1 255\nab", "P5 99999 1 255\nab",
        "P6 65000 65000 255\nab", "P5 999999999999 1 255\nab", "P5 -3 1 255\nabc", "P5 # "};
    struct np_geometry g = made_box(0, 0, 1, 1);

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        cr_assert(made_refuses((const uint8_t *)texts[i], strlen(texts[i]), &g, "bad PNM"));
}

Test(codec_raw, a_written_file_reads_back)
{
    uint8_t *pixels = made_pixels(9, 5, 3, 4), *bytes;
    size_t n;
    bool good;

    cr_assert_eq(np_codec_raw.encode(pixels, 9, 5, 3, 0, &bytes, &n, NULL), 0);
    good = crops_are_exact(bytes, n, 9, 5, 3) && memcmp(bytes + n - 135, pixels, 135) == 0;
    np_free(bytes);
    free(pixels);
    cr_assert(good);
}

#ifndef NP_SAN /* they have an allocator of their own */
/* How many allocations a decoder makes for the file; each failed once, with a new decoder, was
 * -ENOMEM or did no harm, and the next attempt was good. -1: not so. */
static int fail_each(const uint8_t *bytes, size_t nr_bytes, const struct np_geometry *g)
{
    for (int k = 1; k < 1000; k++) {
        struct np_decoder *decoder;
        struct np_pixels pixels;
        int code, again, failed;

        np_decoder_new(&decoder, NULL);
        made_memory_fail_libc(k);
        code = made_decode(decoder, bytes, nr_bytes, g, 1, &pixels, NULL);
        failed = made_memory_failed_libc();
        made_memory_fail_libc(0);
        again = made_decode(decoder, bytes, nr_bytes, g, 1, &pixels, NULL);
        np_decoder_free(decoder);
        if ((code && code != -ENOMEM) || again || (code && !failed)) {
            fprintf(stderr, "allocation %d: %d, then %d\n", k, code, again);
            return -1;
        }
        if (!failed)
            return k - 1;
    }
    return -1;
}

Test(codec, want_of_memory_does_not_make_a_bad_sample)
{
    const struct made_jpeg kinds[] = {{131, 97, 3, .h = 2, .v = 2},
        {131, 97, 3, .h = 2, .v = 2, .progressive = true},
        {131, 97, 3, .h = 2, .v = 2, .arithmetic = true}};
    struct np_geometry g = made_box(10, 10, 100, 90);
    uint8_t *pixels = made_pixels(131, 97, 3, 1), *bytes;
    size_t n;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        bytes = made_jpeg(&kinds[i], &n);
        cr_assert_gt(fail_each(bytes, n, &g), 10, "JPEG %zu", i);
        free(bytes);
    }
    cr_assert_eq(np_codec_png.encode(pixels, 131, 97, 3, 0, &bytes, &n, NULL), 0);
    cr_assert_gt(fail_each(bytes, n, &g), 4);
    np_free(bytes);
    cr_assert_eq(np_codec_raw.encode(pixels, 131, 97, 3, 0, &bytes, &n, NULL), 0);
    cr_assert_gt(fail_each(bytes, n, &g), 0);
    np_free(bytes);
    free(pixels);
}
#endif

/* 0 or -EBADMSG with the limit, whatever came before. */
static int limited(struct np_decoder *decoder, uint64_t max_pixels, const uint8_t *bytes, size_t n)
{
    struct np_image_info info;

    np_decoder_limit(decoder, max_pixels);
    return np_decoder_open(decoder, bytes, n, NULL, &info, NULL);
}

Test(codec, pictures_beyond_the_limit_are_bad)
{
    const struct np_codec *const codecs[] = {&np_codec_jpeg, &np_codec_png, &np_codec_raw};
    uint8_t *pixels = made_pixels(131, 97, 3, 1);
    struct np_decoder *decoder;

    np_decoder_new(&decoder, NULL);
    for (size_t i = 0; i < sizeof(codecs) / sizeof(*codecs); i++) {
        uint8_t *bytes;
        size_t n;

        cr_assert_eq(codecs[i]->encode(pixels, 131, 97, 3, 90, &bytes, &n, NULL), 0);
        cr_assert_eq(limited(decoder, 131 * 97, bytes, n), 0, "%s", codecs[i]->name);
        cr_assert_eq(limited(decoder, 131 * 97 - 1, bytes, n), -EBADMSG, "%s", codecs[i]->name);
        cr_assert_eq(limited(decoder, 0, bytes, n), 0);
        np_free(bytes);
    }
    free(pixels);
    np_decoder_free(decoder);
}

Test(codec, coefficients_of_many_scans_have_a_limit_of_their_own)
{
    struct made_jpeg made = {131, 97, 3, .h = 1, .v = 1, .progressive = true};
    const uint64_t coefficients = 17 * 13 * 64 * 2 * 3;
    struct np_decoder *decoder;
    size_t n, sof = 2;
    uint8_t *bytes = made_jpeg(&made, &n);
    int below, at, hostile, plain;

    np_decoder_new(&decoder, NULL);
    at = limited(decoder, coefficients * 2 / 3, bytes, n);
    below = limited(decoder, coefficients * 2 / 3 - 1, bytes, n);
    while (bytes[sof + 1] != 0xc2)
        sof += 2 + ((size_t)bytes[sof + 2] << 8 | bytes[sof + 3]);
    bytes[sof + 5] = bytes[sof + 7] = 13000 >> 8; /* which would take 1 GB */
    bytes[sof + 6] = bytes[sof + 8] = 13000 & 255;
    hostile = limited(decoder, 0, bytes, n);
    made.progressive = false;
    free(bytes);
    bytes = made_jpeg(&made, &n);
    plain = limited(decoder, 131 * 97, bytes, n);
    free(bytes);
    np_decoder_free(decoder);
    cr_assert_eq(at, 0);
    cr_assert_eq(below, -EBADMSG);
    cr_assert_eq(hostile, -EBADMSG);
    cr_assert_eq(plain, 0);
}

Test(codec, content_decides_and_unknown_formats_are_refused)
{
    struct np_geometry g = made_box(0, 0, 1, 1);

    cr_assert(made_refuses((const uint8_t *)"", 0, &g, "empty"));
    cr_assert(made_refuses((const uint8_t *)"NOGIF8", 6, &g, "neither JPEG, PNG nor PNM"));
    cr_assert(
        made_refuses((const uint8_t *)"GIF89a", 6, &g, "a GIF picture, which is not supported"));
    cr_assert(made_refuses((const uint8_t *)"RIFF....WEBPVP8 ", 16, &g, "a WebP picture"));
    cr_assert(made_refuses((const uint8_t *)"MM\0*....", 8, &g, "a TIFF picture"));
    cr_assert(made_refuses((const uint8_t *)"\0\0\0\030ftypheic", 12, &g, "a HEIC picture"));
    cr_assert(made_refuses((const uint8_t *)"\0\0\0\030ftyphei", 10, &g, "neither JPEG"));
    cr_assert(made_refuses((const uint8_t *)"P", 1, &g, "neither"));
    cr_assert(made_refuses((const uint8_t *)"\xff\xd8", 2, &g, "neither"));
}

Test(codec, raw_pixels_are_returned_unchanged)
{
    const uint8_t planes[12] = {1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24};
    const uint8_t want[12] = {1, 11, 21, 2, 12, 22, 3, 13, 23, 4, 14, 24};
    struct np_raw chw = {NP_RAW_CHW, 2, 2, 3, 0}, hwc = {NP_RAW_HWC, 2, 2, 3, 0};
    struct np_raw four = {NP_RAW_HWC, 1, 3, 4, 0};
    struct np_geometry all = made_box(0, 0, 2, 2), low = made_box(0, 1, 2, 2);
    struct np_decoder *decoder;
    struct np_image_info info;
    struct np_pixels p;

    np_decoder_new(&decoder, NULL);
    cr_assert_eq(np_decoder_open(decoder, planes, 12, &chw, &info, NULL), 0);
    cr_assert(info.width == 2 && info.height == 2 && info.channels == 3);
    cr_assert_eq(np_decoder_decode(decoder, &all, 3, &p, NULL), 0);
    cr_assert_arr_eq(p.data, want, 12);
    cr_assert_eq(np_decoder_decode(decoder, &low, 3, &p, NULL), 0);
    cr_assert_arr_eq(p.data + (1 - p.origin_y) * p.stride, want + 6, 6);
    cr_assert_eq(np_decoder_open(decoder, want, 12, &hwc, &info, NULL), 0);
    cr_assert_eq(np_decoder_decode(decoder, &all, 3, &p, NULL), 0);
    cr_assert_arr_eq(p.data, want, 12);
    cr_assert_eq(np_decoder_open(decoder, planes, 11, &chw, &info, NULL), -EBADMSG);
    cr_assert_eq(np_decoder_open(decoder, planes, 12, &four, &info, NULL), -EBADMSG);
    np_decoder_free(decoder);
}

Test(codec, grey_and_colour_convert_as_pillow_does)
{
    const uint8_t rgb[6] = {255, 0, 0, 10, 200, 30}, grey[2] = {76, 124}; /* Image.convert("L") */
    struct np_raw colour = {NP_RAW_HWC, 1, 2, 3, 0}, plain = {NP_RAW_HWC, 1, 2, 1, 0};
    const uint8_t want[6] = {76, 76, 76, 124, 124, 124};
    struct np_geometry all = made_box(0, 0, 2, 1);
    struct np_decoder *decoder;
    struct np_image_info info;
    struct np_pixels p;

    np_decoder_new(&decoder, NULL);
    cr_assert_eq(np_decoder_open(decoder, rgb, 6, &colour, &info, NULL), 0);
    cr_assert_eq(np_decoder_decode(decoder, &all, 1, &p, NULL), 0);
    cr_assert_arr_eq(p.data, grey, 2);
    cr_assert_eq(np_decoder_open(decoder, grey, 2, &plain, &info, NULL), 0);
    cr_assert_eq(np_decoder_decode(decoder, &all, 3, &p, NULL), 0);
    cr_assert_arr_eq(p.data, want, 6);
    np_decoder_free(decoder);
}
