/* The coding of a picture's entries: what is coded comes back, and other bytes are refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/source/entries_code.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

struct coded {
    uint8_t *bytes;
    size_t room, nr;
};

static struct np_picture_entries make_sizes(
    int across, int down, int step, uint32_t header, uint32_t file)
{
    struct np_picture_entries entries = {.mcus_across = across,
        .mcus_down = down,
        .step = step,
        .header_bytes = header,
        .file_bytes = file};

    if (np_entries_hold(&entries, NULL))
        abort();
    memset(entries.at, 0, (size_t)entries.nr * sizeof(*entries.at));
    entries.at[0].bit = 8ull * header;
    for (int i = 1; i < entries.nr; i++)
        entries.at[i].bit = entries.at[i - 1].bit + 1;
    return entries;
}

/* Like a photograph's; wild: any numbers. */
static struct np_picture_entries make_entries(uint32_t seed, bool wild)
{
    struct np_draws draws;
    struct np_picture_entries entries;

    np_draws_init(&draws, seed, NP_STREAM_TEST, 0, wild, 0);
    entries = make_sizes(1 + (int)np_draw_below(&draws, 70), 1 + (int)np_draw_below(&draws, 60),
        1 + (int)np_draw_below(&draws, 20), np_draw_below(&draws, 2000), 0);
    for (int i = 1; i < entries.nr; i++) {
        struct np_entry *at = &entries.at[i];

        at->bit = at[-1].bit + 1 + np_draw_below(&draws, wild && i % 7 == 0 ? 5000000 : 9000);
        for (int c = 0; c < (seed % 5 ? 3 : 1); c++)
            at->dc[c] = wild ? (int16_t)np_draw_u32(&draws)
                             : (int16_t)(at[-1].dc[c] + (int)np_draw_below(&draws, 61) - 30);
    }
    entries.file_bytes =
        (uint32_t)(entries.at[entries.nr - 1].bit / 8 + 1 + np_draw_below(&draws, 900));
    for (int part = 0; part <= entries.mcus_down; part++)
        entries.crcs[part] = np_draw_u32(&draws);
    return entries;
}

static struct coded encode(const struct np_picture_entries *entries)
{
    struct coded coded = {NULL, 0, 0};

    if (np_entries_encode(entries, &coded.bytes, &coded.room, &coded.nr, NULL))
        abort();
    return coded;
}

static void expect_same(const struct np_picture_entries *a, const struct np_picture_entries *b)
{
    cr_assert_eq(a->mcus_across, b->mcus_across);
    cr_assert_eq(a->mcus_down, b->mcus_down);
    cr_assert_eq(a->step, b->step);
    cr_assert_eq(a->header_bytes, b->header_bytes);
    cr_assert_eq(a->nr, b->nr);
    for (int i = 0; i < a->nr; i++) {
        cr_assert_eq(a->at[i].bit, b->at[i].bit);
        cr_assert_arr_eq(a->at[i].dc, b->at[i].dc, sizeof(a->at[i].dc));
    }
    cr_assert_arr_eq(a->crcs, b->crcs, 4 * ((size_t)a->mcus_down + 1));
}

static void expect_round_trip(const struct np_picture_entries *entries)
{
    struct coded coded = encode(entries);
    struct np_picture_entries back = {0};

    cr_assert_eq(np_entries_decode(coded.bytes, coded.nr, entries->file_bytes, &back, NULL), 0);
    expect_same(entries, &back);
    np_entries_fini(&back);
    np_free(coded.bytes);
}

Test(entries_code, entries_come_back)
{
    for (uint32_t seed = 0; seed < NP_TIMES(400, 20); seed++) {
        struct np_picture_entries entries = make_entries(seed, seed % 2);

        expect_round_trip(&entries);
        np_entries_fini(&entries);
    }
}

Test(entries_code, the_extremes_come_back)
{
    static const int sizes[][3] = {
        {1, 1, 1}, {1, 1, 8192}, {8192, 1, 1}, {1, 8192, 16}, {17, 2, 16}, {16, 3, 16}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct np_picture_entries entries =
            make_sizes(sizes[i][0], sizes[i][1], sizes[i][2], 0, UINT32_MAX);

        memset(entries.crcs, 0xff, 4 * ((size_t)entries.mcus_down + 1));
        expect_round_trip(&entries); /* a bit apart, and nothing else */
        for (int n = 1; n < entries.nr; n++)
            for (int c = 0; c < 3; c++)
                entries.at[n].dc[c] = (n + c) % 2 ? INT16_MAX : INT16_MIN;
        if (entries.nr > 1)
            entries.at[entries.nr - 1].bit = 8ull * UINT32_MAX - 1;
        expect_round_trip(&entries);
        np_entries_fini(&entries);
    }
}

Test(entries_code, a_photographs_entries_take_few_bytes)
{
    struct np_picture_entries entries = make_sizes(63, 47, 16, 600, 107000);
    struct np_draws draws;
    struct coded coded;

    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 1; i < entries.nr; i++) {
        entries.at[i].bit = entries.at[i - 1].bit + 3000 + np_draw_below(&draws, 3000);
        for (int c = 0; c < 3; c++)
            entries.at[i].dc[c] = (int16_t)(np_draw_below(&draws, c ? 20 : 80));
    }
    coded = encode(&entries);
    cr_expect_leq(coded.nr, 1100); /* 188 entries and 48 checksums */
    np_free(coded.bytes);
    np_entries_fini(&entries);
}

Test(entries_code, each_byte_of_a_file_is_in_a_part_and_its_change_is_seen)
{
    struct np_picture_entries entries = make_entries(3, false);
    uint8_t *file = calloc(1, entries.file_bytes);
    uint32_t *crcs = calloc((size_t)entries.mcus_down + 1, sizeof(*crcs)), offset, bytes, end = 0;

    cr_assert_eq(np_entries_sum(&entries, file, NULL), 0);
    memcpy(crcs, entries.crcs, 4 * ((size_t)entries.mcus_down + 1));
    for (int part = 0; part <= entries.mcus_down; part++) {
        np_entries_part(&entries, part, &offset, &bytes);
        cr_assert(offset == end || (part > 1 && offset + 1 == end)); /* rows may share a byte */
        end = offset + bytes;
        file[end - 1] ^= 4;
        cr_assert_eq(np_entries_sum(&entries, file, NULL), 0);
        cr_assert_neq(entries.crcs[part], crcs[part]);
        file[end - 1] ^= 4;
    }
    cr_assert_eq(end, entries.file_bytes);
    free(crcs);
    free(file);
    np_entries_fini(&entries);
}

Test(entries_code, entries_out_of_order_are_not_coded)
{
    struct np_picture_entries good = make_entries(8, false);
    struct coded coded = {NULL, 0, 0};
    uint8_t *file = calloc(1, good.file_bytes);

    cr_assert_gt(good.nr, 10);
    for (int fault = 0; fault < 7; fault++) {
        struct np_picture_entries bad = make_entries(8, false);
        struct np_err err = {0};

        if (fault == 0)
            bad.at[5].bit = bad.at[4].bit;
        else if (fault == 1)
            bad.file_bytes = (uint32_t)(bad.at[bad.nr - 1].bit / 8);
        else if (fault == 2)
            bad.at[0].dc[2] = 1;
        else if (fault == 3)
            bad.at[0].bit++;
        else if (fault == 4)
            bad.nr--;
        else if (fault == 5)
            bad.step = 0;
        else
            bad.mcus_down = NP_MAX_MCUS + 1;
        cr_expect_eq(np_entries_encode(&bad, &coded.bytes, &coded.room, &coded.nr, &err), -EINVAL);
        cr_expect_eq(np_entries_sum(&bad, file, NULL), -EINVAL);
        cr_expect(*err.text);
        np_entries_fini(&bad);
    }
    free(file);
    np_free(coded.bytes);
    np_entries_fini(&good);
}

/* Whatever is decoded must be what the encoder makes of it. Returns whether it was. */
static bool decode_exactly(const uint8_t *bytes, size_t nr, uint32_t file_bytes)
{
    static struct np_picture_entries entries;
    static struct coded again;
    const int code = np_entries_decode(bytes, nr, file_bytes, &entries, NULL);

    if (code) {
        cr_assert_eq(code, -EBADMSG);
        return false;
    }
    cr_assert_eq(np_entries_encode(&entries, &again.bytes, &again.room, &again.nr, NULL), 0);
    cr_assert_eq(again.nr, nr);
    cr_assert_arr_eq(again.bytes, bytes, nr);
    return true;
}

Test(entries_code, other_lengths_and_sizes_are_refused)
{
    for (uint32_t seed = 0; seed < 6; seed++) {
        struct np_picture_entries entries = make_entries(seed, seed % 2);
        struct coded coded = encode(&entries);
        uint8_t *longer = calloc(1, coded.nr + 1);

        memcpy(longer, coded.bytes, coded.nr);
        cr_expect(decode_exactly(longer, coded.nr, entries.file_bytes));
        cr_expect_not(decode_exactly(longer, coded.nr + 1, entries.file_bytes));
        for (size_t nr = 0; nr < coded.nr; nr += 1 + nr / 64) {
            uint8_t *cut = malloc(nr + 1); /* the sanitizer sees a read beyond it */

            memcpy(cut, longer, nr);
            cr_expect_not(decode_exactly(cut, nr, entries.file_bytes));
            free(cut);
        }
        cr_expect_not(
            decode_exactly(longer, coded.nr, (uint32_t)(entries.at[entries.nr - 1].bit / 8)));
        free(longer);
        np_free(coded.bytes);
        np_entries_fini(&entries);
    }
}

Test(entries_code, a_few_bytes_never_ask_for_much_memory)
{
    /* 8192 by 8192 MCUs, each with an entry; the checksums are there. */
    static const uint8_t head[] = {1, 0x80, 0x40, 0x80, 0x40, 1, 0};
    uint8_t *bytes = calloc(1, 40000);
    struct np_picture_entries entries = {0};

    memcpy(bytes, head, sizeof(head));
    cr_expect_eq(np_entries_decode(bytes, 40000, UINT32_MAX, &entries, NULL), -EBADMSG);
    cr_expect_null(entries.at);
    free(bytes);
}

Test(entries_code, damaged_bytes_are_refused_or_mean_what_they_say, .timeout = 120)
{
    struct np_draws draws;
    int nr_refused = 0, nr = 0;

    np_draws_init(&draws, 9, NP_STREAM_TEST, 0, 0, 0);
    for (uint32_t seed = 0; seed < NP_TIMES(100, 5); seed++) {
        struct np_picture_entries entries = make_entries(seed, seed % 2);
        struct coded coded = encode(&entries);
        uint8_t *bytes = malloc(coded.nr);

        for (int i = 0; i < 1000; i++, nr++) {
            const uint32_t faults = 1 + np_draw_below(&draws, 4);
            const size_t sums = 4 * ((size_t)entries.mcus_down + 1) + 8;

            memcpy(bytes, coded.bytes, coded.nr);
            for (uint32_t f = 0; f < faults;
                 f++) { /* not in the checksums, which may be anything */
                size_t at = np_draw_below(&draws, (uint32_t)coded.nr);

                if (at >= 8 && at < sums && sums < coded.nr)
                    at = i % 2 ? at % 8 : sums + at % (coded.nr - sums);
                bytes[at] ^= (uint8_t)(1u << np_draw_below(&draws, 8));
            }
            nr_refused += !decode_exactly(bytes, coded.nr, entries.file_bytes);
        }
        free(bytes);
        np_free(coded.bytes);
        np_entries_fini(&entries);
    }
    cr_expect_gt(nr_refused, nr / 2, "%d of %d", nr_refused, nr);
}

#ifndef NP_SAN
Test(entries_code, every_allocation_fails_once_and_is_reported)
{
    struct np_picture_entries entries = make_entries(8, false);
    struct coded coded = encode(&entries);

    for (int n = 1, failed = 1; failed; n++) {
        struct np_picture_entries back = {0};
        struct coded again = {NULL, 0, 0};
        struct np_err err = {0};
        int code;

        made_memory_fail(n);
        code = np_entries_encode(&entries, &again.bytes, &again.room, &again.nr, &err);
        if (!code)
            code = np_entries_decode(coded.bytes, coded.nr, entries.file_bytes, &back, &err);
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert_eq(code, failed ? -ENOMEM : 0);
        cr_assert(!failed || *err.text);
        np_entries_fini(&back);
        np_free(again.bytes);
    }
    np_free(coded.bytes);
    np_entries_fini(&entries);
}
#endif
