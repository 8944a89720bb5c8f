/* CRC-32C, reflected polynomial 0x82f63b78. Any thread. */
#include "loader/base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(
    uint32_t crc, const uint8_t *bytes, size_t n)
{
    uint64_t wide = crc;

    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;

        memcpy(&word, bytes, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    while (n--)
        crc = _mm_crc32_u8(crc, *bytes++);
    return crc;
}
#endif

/* The change of the register by each value of four bits. */
static const uint32_t nibbles[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc,
    0x5125dad3, 0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4,
    0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t np_crc32c_plain(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    crc = ~crc;
    for (; bytes > 0; bytes--) {
        crc ^= *at++;
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return ~crc;
}

uint32_t np_crc32c(uint32_t crc, const void *data, size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, data, bytes);
#endif
    return np_crc32c_plain(crc, data, bytes);
}
