/* CRC-32C: known answers, and the instruction against the table. */
#include <stdlib.h>
#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/rng.h"

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

Test(crc32c, any_length_offset_and_split_equal_the_table)
{
    unsigned char bytes[300];
    struct np_draws draws;

    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)np_draw_u32(&draws);
    for (size_t start = 0; start < 9; start++)
        for (size_t n = 0; n + start < sizeof(bytes); n += 1 + n / 20) {
            size_t split = n ? np_draw_below(&draws, (uint32_t)n) : 0;
            uint32_t whole = np_crc32c(7, bytes + start, n);
            uint32_t part = np_crc32c(7, bytes + start, split);

            cr_assert_eq(whole, np_crc32c_plain(7, bytes + start, n));
            cr_assert_eq(whole, np_crc32c(part, bytes + start + split, n - split));
        }
}
