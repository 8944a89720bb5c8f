/* CRC-32C, reflected polynomial 0x82f63b78. Any thread. */
#include "loader/base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define SSE42  __attribute__((target("sse4.2,pclmul")))
#define STREAM 512 /* bytes */

/* x^(8 n - 33) mod P for n = STREAM and n = 2 STREAM, bits reflected. */
#define PAST_ONE 0xdd7e3b0cu
#define PAST_TWO 0x170076fau

SSE42 static uint64_t load(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, 8);
    return word;
}

/* The word that has the effect, at the end of the bytes, of `crc` that many bytes before. The
 * product lacks a factor of x^33: the instruction brings x^32, the reflected product x. */
SSE42 static uint64_t carry(uint64_t crc, uint32_t past)
{
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128(past), 0));
}

/* The instruction takes three cycles, but one starts in each: three streams at once. The next bytes
 * are prefetched, since pages are not one after another in memory. */
SSE42 static uint64_t crc_streams(uint64_t crc, const uint8_t *bytes)
{
    uint64_t second = 0, third = 0;

    for (int i = 0; i < 3 * STREAM; i += 64)
        _mm_prefetch((const char *)bytes + 3 * STREAM + i, _MM_HINT_T0);
    for (int i = 0; i < STREAM - 8; i += 8) {
        crc = _mm_crc32_u64(crc, load(bytes + i));
        second = _mm_crc32_u64(second, load(bytes + STREAM + i));
        third = _mm_crc32_u64(third, load(bytes + 2 * STREAM + i));
    }
    crc = _mm_crc32_u64(crc, load(bytes + STREAM - 8));
    second = _mm_crc32_u64(second, load(bytes + 2 * STREAM - 8));
    return _mm_crc32_u64(
        third, load(bytes + 3 * STREAM - 8) ^ carry(crc, PAST_TWO) ^ carry(second, PAST_ONE));
}

SSE42 static uint32_t crc_sse42(uint32_t crc, const uint8_t *bytes, size_t n)
{
    uint64_t wide = crc;

    for (; n >= 3 * STREAM; n -= 3 * STREAM, bytes += 3 * STREAM)
        wide = crc_streams(wide, bytes);
    for (; n >= 8; n -= 8, bytes += 8)
        wide = _mm_crc32_u64(wide, load(bytes));
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
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        return ~crc_sse42(~crc, data, bytes);
#endif
    return np_crc32c_plain(crc, data, bytes);
}
