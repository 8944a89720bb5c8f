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

/* Bit by bit: only where there is no instruction for it. */
static uint32_t crc_plain(uint32_t crc, const uint8_t *bytes, size_t n)
{
    while (n--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    return crc;
}

uint32_t np_crc32c(uint32_t crc, const void *data, size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, data, bytes);
#endif
    return ~crc_plain(~crc, data, bytes);
}
