#include "loader/base/crc32c.h"

#include <string.h>

#include "loader/base/vectors.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define SSE42  __attribute__((target("sse4.2,pclmul")))
#define STREAM 512 /* bytes */

/* x^(8 n - 33) mod P for n = STREAM and n = 2 STREAM, bits reflected. P: 0x82f63b78, reflected. */
#define PAST_ONE 0xdd7e3b0cu
#define PAST_TWO 0x170076fau

SSE42 static uint64_t load(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, 8);
    return word;
}

/* Moves `crc` to the end of the bytes that `past` stands for. The product lacks a factor of x^33:
 * the instruction adds x^32, the reflected product x. */
SSE42 static uint64_t carry(uint64_t crc, uint32_t past)
{
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128(past), 0));
}

/* The instruction takes three cycles, but one starts in each, so three streams run at once. The
 * next bytes are prefetched, because consecutive pages are not adjacent in memory. */
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

#define AVX512 __attribute__((target("sse4.2,avx512f,avx512vl,vpclmulqdq")))
#define VECTOR 64
#define BLOCK  (4 * VECTOR)

/* Factors that carry the two words of a lane over n bytes: x^(8 n + 31), x^(8 n - 33) mod P, bits
 * reflected. See "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel, 2009. */
static const uint64_t past_block[2] = {0xdcb17aa4, 0xb9e02b86};
static const uint64_t past_vector[2] = {0x740eef02, 0x9e4addf8};
static const uint64_t past_lanes[8] = {/* 48, 32, 16 bytes */
    0x1c291d04, 0xddc0152b, 0x3da6d0cb, 0xba4fc28e, 0xf20c0dfe, 0x493c7d27, 0, 0};

AVX512 static __m512i both(const uint64_t past[2])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)past));
}

/* Carries the lanes of sum past their bytes, and adds next. */
AVX512 static __m512i fold(__m512i sum, __m512i past, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, past, 0x00),
        _mm512_clmulepi64_epi128(sum, past, 0x11), next, 0x96); /* XOR of the three */
}

/* Carries each lane of a block over the next block and adds it to its lane; at the end carries all
 * lanes to the last one, whose CRC is that of the bytes. n: at least a block. */
AVX512 static uint32_t crc_blocks(uint32_t crc, const uint8_t *bytes, size_t n)
{
    const __m512i past = both(past_block);
    __m512i sums[4], sum;
    __m256i half;
    __m128i lane;

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sums[i] = _mm512_loadu_si512(bytes + i * VECTOR);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (size_t at = BLOCK; at + BLOCK <= n; at += BLOCK)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            _mm_prefetch((const char *)bytes + at + 8 * BLOCK + i * VECTOR, _MM_HINT_T0);
            sums[i] = fold(sums[i], past, _mm512_loadu_si512(bytes + at + i * VECTOR));
        }
    sum = sums[0];
#pragma GCC unroll 3
    for (int i = 1; i < 4; i++)
        sum = fold(sum, both(past_vector), sums[i]);
    sum = fold(sum, _mm512_loadu_si512(past_lanes), _mm512_maskz_mov_epi64(0xc0, sum));
    half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    lane = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return (uint32_t)_mm_crc32_u64(
        _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(lane)), (uint64_t)_mm_extract_epi64(lane, 1));
}

static uint32_t crc_avx512(uint32_t crc, const uint8_t *bytes, size_t n)
{
    const size_t blocks = n / BLOCK * BLOCK;

    if (blocks > 0)
        crc = crc_blocks(crc, bytes, blocks);
    return crc_sse42(crc, bytes + blocks, n - blocks);
}
#endif

/* Changes of the register, by four bits. */
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
    if (np_vectors_used() >= NP_AVX512 && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("vpclmulqdq"))
        return ~crc_avx512(~crc, data, bytes);
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        return ~crc_sse42(~crc, data, bytes);
#endif
    return np_crc32c_plain(crc, data, bytes);
}
