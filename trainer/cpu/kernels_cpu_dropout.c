/* Dropout, forward and backward (the same draws): 32 elements at a time, as eight Philox blocks
 * side by side (Salmon et al., SC'11). Equals the reference bit for bit: element i takes word i
 * % 4 of block i / 4 however the batch is cut; elements count from the first row of all processes. */
#include "trainer/cpu/kernels_cpu.h"

#include <immintrin.h>
#include <errno.h>
#include <math.h>

#include "loader/base/rng.h"
#include "trainer/cpu/simd.h"

#define BLOCKS   8
#define ELEMENTS (4 * BLOCKS)    /* of these blocks */
#define STRETCH  (16 * ELEMENTS) /* words drawn ahead */

struct draws { /* of a node and a step */
    uint32_t key[2], step[2];
    uint32_t least; /* a word below it drops its element */
    float scale;
};

static void draw_plain(uint32_t *words, const struct draws *draws, uint64_t first, size_t n)
{
    for (size_t at = 0; at < n; at += 4) {
        uint64_t block = (first + at) / 4;
        const uint32_t counter[4] = {
            (uint32_t)block, (uint32_t)(block >> 32), draws->step[0], draws->step[1]};

        np_philox(draws->key, counter, words + at);
    }
}

struct product { /* of eight times eight numbers: halves of 32 bits */
    __m256i low, high;
};

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline struct product multiply(__m256i a, __m256i b)
{
    __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);

    return (struct product){_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa),
        _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa)};
}

/* Word w of blocks 0..7 in c[w] -> block after block. */
AVX2 static inline void store_blocks(uint32_t *words, const __m256i c[4])
{
    __m256i a = _mm256_unpacklo_epi32(c[0], c[1]), b = _mm256_unpackhi_epi32(c[0], c[1]);
    __m256i d = _mm256_unpacklo_epi32(c[2], c[3]), e = _mm256_unpackhi_epi32(c[2], c[3]);
    __m256i b04 = _mm256_unpacklo_epi64(a, d), b15 = _mm256_unpackhi_epi64(a, d);
    __m256i b26 = _mm256_unpacklo_epi64(b, e), b37 = _mm256_unpackhi_epi64(b, e);
    const __m256i out[4] = {_mm256_permute2x128_si256(b04, b15, 0x20),
        _mm256_permute2x128_si256(b26, b37, 0x20), _mm256_permute2x128_si256(b04, b15, 0x31),
        _mm256_permute2x128_si256(b26, b37, 0x31)};

    memcpy(words, out, sizeof(out));
}

AVX2 static void draw_avx2(uint32_t *words, const struct draws *draws, uint64_t first, size_t n)
{
    const __m256i mul0 = _mm256_set1_epi32((int)0xd2511f53u);
    const __m256i mul1 = _mm256_set1_epi32((int)0xcd9e8d57u);

    for (size_t at = 0; at < n; at += ELEMENTS) {
        uint32_t k0 = draws->key[0], k1 = draws->key[1], low[BLOCKS], high[BLOCKS];
        __m256i c[4];

        for (uint64_t b = 0; b < BLOCKS; b++) {
            low[b] = (uint32_t)((first + at) / 4 + b);
            high[b] = (uint32_t)(((first + at) / 4 + b) >> 32);
        }
        memcpy(&c[0], low, sizeof(c[0]));
        memcpy(&c[1], high, sizeof(c[1]));
        c[2] = _mm256_set1_epi32((int)draws->step[0]);
        c[3] = _mm256_set1_epi32((int)draws->step[1]);
        for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
            struct product p0 = multiply(c[0], mul0), p1 = multiply(c[2], mul1);

            c[0] = _mm256_xor_si256(_mm256_xor_si256(p1.high, c[1]), _mm256_set1_epi32((int)k0));
            c[2] = _mm256_xor_si256(_mm256_xor_si256(p0.high, c[3]), _mm256_set1_epi32((int)k1));
            c[1] = p1.low;
            c[3] = p0.low;
        }
        store_blocks(words + at, c);
    }
}

/* The words of elements first..first + n, both multiples of ELEMENTS, in their order. */
static void draw(uint32_t *words, const struct draws *draws, uint64_t first, size_t n)
{
    (np_has_avx2() ? draw_avx2 : draw_plain)(words, draws, first, n);
}

/* out = word >= least ? x * scale : 0 */
NP_LOOP_HALF(keep,
    (void *out, const void *x, const uint32_t *words, size_t n, uint32_t least, float scale),
    (out, x, words, n, least, scale))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        np_v8u word;

        memcpy(&word, words + i, sizeof(word));
        np_put(out, i, half, np_mask((np_v8i)(word >= least), np_get(x, i, half) * np_set(scale)));
    }
    for (; i < n; i++) {
        float kept = np_get1(x, i, half) * scale;

        np_put1(out, i, half, words[i] >= least ? kept : 0);
    }
}

static void dropout_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    const size_t row = np_cpu_row(cpu), before = (size_t)run->info->first_row * row;
    const size_t first = np_cpu_first(run, row) + before;
    uint64_t seed = cpu->attrs.seed, step = run->info->step;
    const struct draws draws = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .step = {(uint32_t)step, (uint32_t)(step >> 32)},
        .least = (uint32_t)ceil(cpu->attrs.rate * 0x1p32),
        .scale = (float)(1 / (1 - cpu->attrs.rate))};

    uint32_t words[STRETCH];

    for (size_t i = first, end = first + row * (size_t)run->nr_rows, n; i < end; i += n) {
        size_t skipped = i % ELEMENTS, left = STRETCH - skipped;

        n = end - i < left ? end - i : left;
        draw(words, &draws, i - skipped, (skipped + n + ELEMENTS - 1) / ELEMENTS * ELEMENTS);
        keep(cpu->half, np_cpu_at(cpu, run->operands->ptr[1], i - before),
            np_cpu_at(cpu, run->operands->ptr[0], i - before), words + skipped, n, draws.least,
            draws.scale);
    }
}

static int dropout_prepare(const struct np_graph *graph, const struct np_op_node *node,
    int max_rows, void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    if (node->attrs.relu) /* np_fusions.relu_dropout */
        return -ENOTSUP;
    return np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err);
}

const struct np_kernel np_kernels_dropout[] = {
    NP_KERNEL_ROWS("cpu dropout", NP_OP_DROPOUT, dropout_prepare, NULL, dropout_run, NULL),
    NP_KERNEL_ROWS(
        "cpu dropout_dgrad", NP_OP_DROPOUT_DGRAD, dropout_prepare, NULL, dropout_run, NULL),
    {NULL},
};
