/* CRC-32C: known answers, and the instruction against the table. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/rng.h"
#include "loader/base/vectors.h"

#include "tests/test.h"

Test(crc32c, known_answers)
{
    unsigned char bytes[32];

    cr_assert_eq(np_crc32c(0, "", 0), 0u);
    cr_assert_eq(np_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, sizeof(bytes)); /* RFC 3720, B.4 */
    cr_assert_eq(np_crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    cr_assert_eq(np_crc32c(0, bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    cr_assert_eq(np_crc32c(0, bytes, 32), 0x46dd794eu);
    cr_assert_eq(np_crc32c_plain(0, bytes, 32), 0x46dd794eu);
    cr_assert_eq(np_crc32c_plain(0, "123456789", 9), 0xe3069283u);
}

/* With the streams, then with vectors, if the CPU has them. */
static const enum np_vectors levels[] = {NP_SSE2, NP_AVX512_BF16};

Test(crc32c, any_length_and_alignment_equals_the_table)
{
    enum { LENGTHS = 5000 }; /* the streams run three times */
    unsigned char *bytes = malloc(LENGTHS + 16);
    struct np_draws draws;

    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (size_t i = 0; i < LENGTHS + 16; i++)
        bytes[i] = (unsigned char)np_draw_u32(&draws);
    for (size_t start = 0; start < 32; start++) {
        const unsigned char *from = bytes + start % 16;
        uint32_t plain = 7;

        np_vectors_limit(levels[start / 16]);
        for (size_t n = 0; n < LENGTHS; n++) {
            cr_assert_eq(np_crc32c(7, from, n), plain, "%zu bytes from %zu", n, start);
            plain = np_crc32c_plain(plain, from + n, 1);
        }
    }
    free(bytes);
}

Test(crc32c, parts_continue_each_other)
{
    enum { LENGTH = 1 << 20 };
    unsigned char *bytes = malloc(LENGTH);
    struct np_draws draws;

    np_draws_init(&draws, 2, NP_STREAM_TEST, 0, 0, 0);
    for (size_t i = 0; i < LENGTH; i++)
        bytes[i] = (unsigned char)np_draw_u32(&draws);
    for (int i = 0; i < 100; i++) {
        const size_t n = np_draw_below(&draws, i < 50 ? 5000 : LENGTH);
        const size_t split = n ? np_draw_below(&draws, (uint32_t)n) : 0;
        const uint32_t part = np_crc32c(7, bytes, split), plain = np_crc32c_plain(7, bytes, split);

        np_vectors_limit(levels[i % 2]);
        cr_assert_eq(part, plain);
        cr_assert_eq(np_crc32c(part, bytes + split, n - split), np_crc32c(7, bytes, n));
    }
    free(bytes);
}
