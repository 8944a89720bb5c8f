/* Our own JPEG decoder: for each instruction set its pixels are libjpeg-turbo's of the whole
 * picture, whatever the crop; a file that is not in order is refused or has those pixels, too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/jpeg.h"
#include "tests/test.h"
#include "tests/unit/made_images.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/judge_jpeg.h"

static uint64_t seed;

static int below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static struct np_rect some_box(int width, int height)
{
    const int left = below(width), top = below(height);

    return (struct np_rect){
        left, top, left + 1 + below(width - left), top + 1 + below(height - top)};
}

/* --- our own ------------------------------------------------------------------------------- */

/* 0, or the error of opening (-EINVAL) or decoding. */
static int decode(struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes,
    const struct np_rect *need, struct np_pixels *ret_pixels)
{
    struct np_image_info info;
    struct np_err err;

    if (!np_jpeg_open(jpeg, bytes, nr_bytes, &info))
        return -EINVAL;
    return np_jpeg_decode(jpeg, need, info.channels, ret_pixels, &err);
}

/* Decodes the whole and some crops, each with the judge's pixels. */
static bool is_exact(struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes, int nr_crops)
{
    struct picture whole;
    bool good = judge(bytes, nr_bytes, &whole);

    for (int i = 0; good && i <= nr_crops; i++) {
        const struct np_rect need = i == 0 ? (struct np_rect){0, 0, whole.width, whole.height}
                                           : some_box(whole.width, whole.height);
        struct np_pixels pixels;

        good = decode(jpeg, bytes, nr_bytes, &need, &pixels) == 0 && equal(&whole, &need, &pixels);
    }
    free(whole.pixels);
    return good;
}

static bool made_is_exact(struct np_jpeg *jpeg, const struct made_jpeg *made, int nr_crops)
{
    size_t n;
    uint8_t *bytes = made_jpeg(made, &n);
    const bool good = is_exact(jpeg, bytes, n, nr_crops);

    if (!good)
        fprintf(stderr, "%d x %d, %d components, sampling %d x %d and %d x %d, restart %d\n",
            made->width, made->height, made->components, made->h, made->v, made->chroma_h,
            made->chroma_v, made->restart);
    free(bytes);
    return good;
}

/* Calls test for plain C, and for each instruction set of this CPU that the decoder has code for. */
static bool for_each_simd(bool (*test)(struct np_jpeg *jpeg))
{
    bool good = true;

    for (int vectors = NP_SSE2; good && vectors <= NP_AVX512; vectors++) {
        struct np_jpeg *jpeg = np_jpeg_new(NULL);

        if ((int)np_vectors_limit((enum np_vectors)vectors) == vectors) {
            if (vectors == NP_SSE2)
                np_jpeg_use_plain(jpeg);
            seed = 1;
            good = test(jpeg);
        }
        if (!good)
            fprintf(stderr, "with %s\n", np_vectors_name());
        np_jpeg_free(jpeg);
    }
    np_vectors_limit(NP_AVX512_BF16);
    return good;
}

/* --- tests --------------------------------------------------------------------------------- */

static bool samplings(struct np_jpeg *jpeg)
{
    static const int sizes[][2] = {{131, 97}, {66, 130}, {201, 17}, {15, 201}, {33, 31}, {8, 8}};
    bool good = true;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
        for (int sampling = 0; good && sampling < 16; sampling++) {
            const struct made_jpeg made = {.width = sizes[s][0],
                .height = sizes[s][1],
                .components = 3,
                .h = 1 + sampling % 2,
                .v = 1 + sampling / 2 % 2,
                .chroma_h = 1 + sampling / 4 % 2,
                .chroma_v = 1 + sampling / 8,
                .restart = below(2) * (1 + below(20))};

            if (made.h * made.v + 2 * made.chroma_h * made.chroma_v <= 10)
                good = made_is_exact(jpeg, &made, 12);
        }
    return good;
}

Test(jpeg, crops_equal_libjpegs_whole_for_every_sampling)
{
    cr_assert(for_each_simd(samplings));
}

static bool qualities(struct np_jpeg *jpeg)
{
    bool good = true;

    for (int quality = 1; good && quality <= 100; quality++) {
        const struct made_jpeg made = {.width = 1 + below(120),
            .height = 1 + below(120),
            .components = quality % 3 == 0 ? 1 : 3,
            .own_codes = quality % 2 == 0,
            .noise = quality % 5 == 0,
            .quality = quality};

        good = made_is_exact(jpeg, &made, 3);
    }
    return good;
}

Test(jpeg, every_quality_and_its_own_codes)
{
    cr_assert(for_each_simd(qualities));
}

/* Grey, 8 x 800, all quantisers 1. DC: size 0 is "0". AC: the end of a block is "00", size 10 without a
 * run "01000000", with a run of one "0100000100000000". */
static const uint8_t long_header[] = {0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 3, 32, 0, 8, 1, 1, 0x11, 0,
    0xff, 0xc4, 0, 20, 0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xc4, 0, 22,
    0x10, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0x00, 0x0a, 0x1a, 0xff, 0xda, 0, 8, 1, 1,
    0x00, 0, 63, 0};

static void put_bits(uint8_t *bytes, size_t *n, uint64_t *held, int *nr_held, uint32_t bits, int nr)
{
    *held = *held << nr | bits;
    for (*nr_held += nr; *nr_held >= 8; *nr_held -= 8) {
        bytes[*n] = (uint8_t)(*held >> (*nr_held - 8));
        if (bytes[(*n)++] == 0xff)
            bytes[(*n)++] = 0;
    }
}

/* Blocks of symbols with 26, 18 and 18 bits in turn: more than a window holds. */
static size_t long_codes(uint8_t *bytes)
{
    size_t n = 2;
    uint64_t held = 0;
    int nr_held = 0;

    memcpy(bytes, long_header, 2);
    memcpy(bytes + n, (const uint8_t[]){0xff, 0xdb, 0, 67, 0}, 5);
    memset(bytes + n + 5, 1, 64);
    n += 69;
    memcpy(bytes + n, long_header + 2, sizeof(long_header) - 2);
    n += sizeof(long_header) - 2;
    for (int block = 0; block < 100; block++) {
        put_bits(bytes, &n, &held, &nr_held, 0, 1);
        for (int k = 0; k < block % 3; k++)
            put_bits(bytes, &n, &held, &nr_held, 0x40u << 10 | (uint32_t)below(1024), 18);
        for (int k = 0; k < 15; k++) {
            put_bits(bytes, &n, &held, &nr_held, 0x4100u << 10 | (uint32_t)below(1024), 26);
            put_bits(bytes, &n, &held, &nr_held, 0x40u << 10 | (uint32_t)below(1024), 18);
            put_bits(bytes, &n, &held, &nr_held, 0x40u << 10 | (uint32_t)below(1024), 18);
        }
        put_bits(bytes, &n, &held, &nr_held, 0, 2);
    }
    put_bits(bytes, &n, &held, &nr_held, 0x7f, 7);
    memcpy(bytes + n, (const uint8_t[]){0xff, 0xd9}, 2);
    return n + 2;
}

static bool long_symbols(struct np_jpeg *jpeg)
{
    static uint8_t bytes[100000];

    return is_exact(jpeg, bytes, long_codes(bytes), 5);
}

Test(jpeg, long_symbols_follow_each_other)
{
    cr_assert(for_each_simd(long_symbols));
}

static bool is_refused(const struct made_jpeg *made)
{
    struct np_jpeg *jpeg = np_jpeg_new(NULL);
    struct np_image_info info;
    size_t n;
    uint8_t *bytes = made_jpeg(made, &n);

    np_jpeg_use_plain(jpeg);
    const bool refused = !np_jpeg_open(jpeg, bytes, n, &info);

    free(bytes);
    np_jpeg_free(jpeg);
    return refused;
}

Test(jpeg, other_kinds_are_refused)
{
    const struct made_jpeg kinds[] = {
        {131, 97, 3, .h = 2, .v = 2, .progressive = true},
        {131, 97, 3, .h = 2, .v = 2, .arithmetic = true},
        {131, 97, 3, .h = 1, .v = 1, .rgb = true},
        {131, 97, 3, .h = 4, .v = 1},
        {131, 97, 4, .h = 1, .v = 1},
        {3, 97, 3, .h = 2, .v = 1},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        cr_assert(is_refused(&kinds[i]));
}

/* Some of its bits flipped, or its end cut off. */
static size_t damage(uint8_t *bytes, size_t nr_bytes)
{
    for (int nr = 1 + below(3); nr > 0; nr--)
        bytes[below((int)nr_bytes)] ^= (uint8_t)(1 << below(8));
    return below(10) == 0 ? (size_t)below((int)nr_bytes) : nr_bytes;
}

struct tally {
    int nr, decoded;
};

/* Decodes a damaged copy whole, or a crop of it: refused, or the judge's pixels? */
static bool damaged_is_exact(
    struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes, struct tally *tally)
{
    uint8_t *copy = malloc(nr_bytes);
    struct np_image_info info;
    struct np_pixels pixels;
    struct picture whole;
    struct np_err err;
    bool good = true;

    memcpy(copy, bytes, nr_bytes);
    nr_bytes = damage(copy, nr_bytes);
    tally->nr++;
    if (np_jpeg_open(jpeg, copy, nr_bytes, &info) && (int64_t)info.width * info.height < 100000) {
        const struct np_rect need = tally->nr % 2 ? (struct np_rect){0, 0, info.width, info.height}
                                                  : some_box(info.width, info.height);

        if (np_jpeg_decode(jpeg, &need, info.channels, &pixels, &err) == 0) {
            tally->decoded++;
            good = judge(copy, nr_bytes, &whole);
            good = good && equal(&whole, &need, &pixels);
            free(whole.pixels);
        }
    }
    free(copy);
    return good;
}

static bool damages(struct np_jpeg *jpeg)
{
    struct tally tally = {0};
    bool good = true;

    for (int i = 0; good && i < 40; i++) {
        const struct made_jpeg made = {.width = 1 + below(90),
            .height = 1 + below(90),
            .components = below(4) == 0 ? 1 : 3,
            .h = 1 + below(2),
            .v = 1 + below(2),
            .own_codes = below(2) == 0,
            .restart = below(3) == 0 ? 1 + below(9) : 0};
        size_t n;
        uint8_t *bytes = made_jpeg(&made, &n);

        for (int k = 0; good && k < 50; k++)
            good = damaged_is_exact(jpeg, bytes, n, &tally);
        free(bytes);
    }
    return good && tally.decoded * 10 > tally.nr * 3;
}

Test(jpeg, a_damaged_file_is_refused_or_has_libjpegs_pixels)
{
    cr_assert(for_each_simd(damages));
}

/* --- tables -------------------------------------------------------------------------------- */

/* Files with tables of their own, in random order: more tables than the decoder keeps. */
static bool orders(struct np_jpeg *jpeg)
{
    uint8_t *bytes[6];
    size_t n[6];
    bool good = true;

    for (int i = 0; i < 6; i++)
        bytes[i] = made_jpeg(&(struct made_jpeg){.width = 60 + 7 * i,
                                 .height = 50,
                                 .components = i % 3 == 2 ? 1 : 3,
                                 .own_codes = i > 0,
                                 .quality = 20 + 13 * i},
            &n[i]);
    for (int k = 0; good && k < 60; k++) {
        const int i = below(6);

        good = is_exact(jpeg, bytes[i], n[i], 0);
    }
    for (int i = 0; i < 6; i++)
        free(bytes[i]);
    return good;
}

Test(jpeg, tables_that_are_kept_are_those_of_the_file)
{
    cr_assert(for_each_simd(orders));
}

/* The first DC table of 12 symbols gets the lengths 3 (four) and 4 (eight): the last code is 1111. */
Test(jpeg, a_code_of_all_ones_is_refused)
{
    static const uint8_t usual[] = {0, 1, 5, 1, 1, 1, 1, 1, 1},
                         full[] = {0, 0, 4, 8, 0, 0, 0, 0, 0};
    const struct np_rect need = {0, 0, 20, 20};
    struct np_jpeg *jpeg = np_jpeg_new(NULL);
    struct np_pixels pixels;
    struct picture whole;
    size_t n;
    uint8_t *bytes = made_jpeg(&(struct made_jpeg){.width = 20, .height = 20, .components = 1}, &n);
    uint8_t *found = memmem(bytes, n, usual, sizeof(usual));

    np_jpeg_use_plain(jpeg);
    cr_assert_eq(decode(jpeg, bytes, n, &need, &pixels), 0);
    memcpy(found, full, sizeof(full));
    cr_assert_eq(decode(jpeg, bytes, n, &need, &pixels), -EBADMSG);
    cr_assert(!judge(bytes, n, &whole));
    free(bytes);
    np_jpeg_free(jpeg);
}

/* --- entries ------------------------------------------------------------------------------- */

/* Entries as a loader keeps them. */
struct kept {
    struct np_jpeg_entry at[64 * 64];
    int nr_rows, per_row;
};

static void keep(struct kept *kept, const struct np_jpeg *jpeg)
{
    const struct np_jpeg_entries *entries = np_jpeg_entries(jpeg);

    kept->nr_rows = entries->nr_rows;
    kept->per_row = entries->per_row;
    memcpy(kept->at, entries->at,
        (size_t)entries->nr_rows * (size_t)entries->per_row * sizeof(*kept->at));
}

static int decode_with(struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes,
    const struct kept *kept, const struct np_rect *need, struct np_pixels *ret_pixels)
{
    struct np_image_info info;
    struct np_err err;

    if (!np_jpeg_open(jpeg, bytes, nr_bytes, &info))
        return -EINVAL;
    if (np_jpeg_set_entries(jpeg, kept->at, kept->nr_rows, &err))
        return -ENOMEM;
    return np_jpeg_decode(jpeg, need, info.channels, ret_pixels, &err);
}

/* Crops of one picture, each with the entries that were noted up to it: the judge's pixels, and in the
 * end the entries that decoding the whole notes. */
static bool crops_enter(struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes)
{
    static struct kept kept, of_whole;
    struct np_pixels pixels;
    struct picture whole;
    bool good = judge(bytes, nr_bytes, &whole);
    const struct np_rect all = {0, 0, whole.width, whole.height};

    kept.nr_rows = 0;
    for (int i = 0; good && i < 12; i++) {
        const struct np_rect need = i == 11 ? all : some_box(whole.width, whole.height);
        const int nr_rows = kept.nr_rows;

        good = decode_with(jpeg, bytes, nr_bytes, &kept, &need, &pixels) == 0 &&
               equal(&whole, &need, &pixels);
        keep(&kept, jpeg);
        good = good && kept.nr_rows >= nr_rows;
    }
    good = good && decode(jpeg, bytes, nr_bytes, &all, &pixels) == 0;
    keep(&of_whole, jpeg);
    for (int i = 0; good && i < of_whole.nr_rows * of_whole.per_row; i++)
        good = kept.at[i].bit == of_whole.at[i].bit &&
               memcmp(kept.at[i].dc, of_whole.at[i].dc, sizeof(kept.at[i].dc)) == 0;
    free(whole.pixels);
    return good && kept.nr_rows == of_whole.nr_rows;
}

static bool entries(struct np_jpeg *jpeg)
{
    bool good = true;

    for (int i = 0; good && i < 60; i++) {
        const struct made_jpeg made = {.width = 8 + below(500),
            .height = 8 + below(300),
            .components = i % 7 == 0 ? 1 : 3,
            .h = 1 + i % 2,
            .v = 1 + i / 2 % 2,
            .own_codes = i % 3 == 0,
            .noise = i % 4 == 0,
            .restart = i % 10 == 9 ? 5 : 0,
            .quality = 30 + i};
        size_t n;
        uint8_t *bytes = made_jpeg(&made, &n);

        good = crops_enter(jpeg, bytes, n);
        if (!good)
            fprintf(stderr, "picture %d, %d x %d\n", i, made.width, made.height);
        free(bytes);
    }
    return good;
}

Test(jpeg, crops_with_entries_are_libjpegs_pixels)
{
    cr_assert(for_each_simd(entries));
}

Test(jpeg, all_rows_of_a_whole_picture_get_entries_and_begin_at_its_codes)
{
    const struct np_rect all = {0, 0, 300, 100};
    struct np_jpeg *jpeg = np_jpeg_new(NULL);
    const struct np_jpeg_entries *entries = np_jpeg_entries(jpeg);
    struct np_pixels pixels;
    size_t n;
    uint8_t *bytes = made_jpeg(
        &(struct made_jpeg){.width = 300, .height = 100, .components = 3, .h = 2, .v = 2}, &n);

    np_jpeg_use_plain(jpeg);
    cr_assert_eq(decode(jpeg, bytes, n, &all, &pixels), 0);
    cr_assert(entries->nr_rows == 7 && entries->per_row == 2);
    for (int i = 1; i < 14; i++)
        cr_assert(entries->at[i].bit > entries->at[i - 1].bit && entries->at[i].bit < 8 * n);
    free(bytes);
    np_jpeg_free(jpeg);
}

/* Wrong entries may give wrong pixels, but nothing else: run with the sanitizers. */
Test(jpeg, wrong_entries_do_no_harm)
{
    static struct kept kept;
    struct np_jpeg *jpeg = np_jpeg_new(NULL);
    struct np_pixels pixels;
    size_t n;
    uint8_t *bytes = made_jpeg(
        &(struct made_jpeg){.width = 300, .height = 200, .components = 3, .h = 2, .v = 2}, &n);
    int nr_refused = 0;

    np_jpeg_use_plain(jpeg);
    seed = 1;
    for (int i = 0; i < 500; i++) {
        const struct np_rect need = some_box(300, 200);

        for (int k = 0; k < 64; k++)
            kept.at[k] = (struct np_jpeg_entry){
                below(8) ? (uint64_t)below((int)n * 8) : (uint64_t)below(1 << 30) << below(34),
                {(int16_t)below(65536), (int16_t)below(4096), 0}};
        kept.nr_rows = 1 + below(20);
        nr_refused += decode_with(jpeg, bytes, n, &kept, &need, &pixels) != 0;
    }
    cr_assert(nr_refused > 10 && nr_refused < 500);
    free(bytes);
    np_jpeg_free(jpeg);
}

/* --- memory -------------------------------------------------------------------------------- */

Test(jpeg, no_memory_is_an_error_and_the_decoder_stays_usable)
{
    const struct np_rect need = {0, 0, 70, 60};
    struct np_pixels pixels;
    size_t n;
    uint8_t *bytes = made_jpeg(&(struct made_jpeg){.width = 70, .height = 60, .components = 3}, &n);
    int nr;

    for (nr = 1; nr < 100; nr++) {
        struct np_jpeg *jpeg = np_jpeg_new(NULL);
        int code;

        np_jpeg_use_plain(jpeg);
        made_memory_fail(nr);
        code = decode(jpeg, bytes, n, &need, &pixels);
        made_memory_fail(0);
        cr_assert(code == 0 || code == -ENOMEM);
        cr_assert_eq(decode(jpeg, bytes, n, &need, &pixels), 0);
        np_jpeg_free(jpeg);
        if (code == 0)
            break;
    }
    cr_assert(nr >= 6 && nr < 100);
    free(bytes);
}
