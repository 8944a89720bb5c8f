/* Dropout, forward and backward (the same draws): 32 elements at a time, as eight Philox blocks side
 * by side (Salmon et al., SC'11). Bit for bit the reference: element i takes word i % 4 of block
 * i / 4 whatever the cut of the batch. */
#include "trainer/kernels_cpu.h"

#include <math.h>

#include "trainer/simd.h"

#define BLOCKS   8
#define ELEMENTS (4 * BLOCKS) /* of these blocks */

struct draws { /* of a node and a step */
    uint32_t key[2], step[2];
    uint32_t least; /* words below it drop their element */
    float scale;
};

/* The words of elements first.. (a multiple of ELEMENTS), in their order. loader/base/rng.c has the
 * same one block at a time; here gcc makes vectors of the inner loops. */
NP_INLINE void draw(const struct draws *draws, uint64_t first, uint32_t words[ELEMENTS])
{
    uint32_t k0 = draws->key[0], k1 = draws->key[1];
    uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS], c3[BLOCKS];

    for (uint64_t b = 0; b < BLOCKS; b++) {
        c0[b] = (uint32_t)(first / 4 + b);
        c1[b] = (uint32_t)((first / 4 + b) >> 32);
        c2[b] = draws->step[0];
        c3[b] = draws->step[1];
    }
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u)
        for (int b = 0; b < BLOCKS; b++) {
            uint64_t p0 = (uint64_t)0xd2511f53u * c0[b], p1 = (uint64_t)0xcd9e8d57u * c2[b];

            c0[b] = (uint32_t)(p1 >> 32) ^ c1[b] ^ k0;
            c2[b] = (uint32_t)(p0 >> 32) ^ c3[b] ^ k1;
            c1[b] = (uint32_t)p1;
            c3[b] = (uint32_t)p0;
        }
    for (int b = 0; b < BLOCKS; b++) {
        words[4 * b] = c0[b];
        words[4 * b + 1] = c1[b];
        words[4 * b + 2] = c2[b];
        words[4 * b + 3] = c3[b];
    }
}

/* Elements first..first + n of the activation; out and x are where they begin. */
NP_LOOP_HALF(drop, (void *out, const void *x, uint64_t first, size_t n, const struct draws *draws),
    (out, x, first, n, draws))
{
    for (size_t i = 0; i < n;) {
        size_t skipped = (first + i) % ELEMENTS;
        uint32_t words[ELEMENTS];

        draw(draws, first + i - skipped, words);
        if (skipped == 0 && n - i >= ELEMENTS) {
            for (size_t j = 0; j < ELEMENTS; j += 8, i += 8) {
                np_v8u word;

                memcpy(&word, words + j, sizeof(word));
                np_put(out, i, half,
                    np_mask(
                        (np_v8i)(word >= draws->least), np_get(x, i, half) * np_set(draws->scale)));
            }
            continue;
        }
        for (; skipped < ELEMENTS && i < n; skipped++, i++) {
            float kept = np_get1(x, i, half) * draws->scale;

            np_put1(out, i, half, words[skipped] >= draws->least ? kept : 0);
        }
    }
}

static void dropout_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row);
    uint64_t seed = cpu->attrs.seed, step = run->info->step;
    const struct draws draws = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .step = {(uint32_t)step, (uint32_t)(step >> 32)},
        .least = (uint32_t)ceil(cpu->attrs.rate * 0x1p32),
        .scale = (float)(1 / (1 - cpu->attrs.rate))};

    drop(cpu->half, np_cpu_at(cpu, run->operands->ptr[1], first),
        np_cpu_at(cpu, run->operands->ptr[0], first), first, row * (size_t)run->nr_rows, &draws);
}

static int dropout_prepare(const struct np_graph *graph, const struct np_op_node *node,
    int max_rows, void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    (void)max_rows;
    return np_cpu_prepare(graph, node, 0, ret_state, ret_needs, err);
}

#define ROW(name_, op_)                                                                            \
    const struct np_kernel np_cpu_##name_##_f32 = {                                                \
        "cpu " #name_ " f32", op_, NP_F32, dropout_prepare, NULL, dropout_run, NULL, np_cpu_free}; \
    const struct np_kernel np_cpu_##name_##_bf16 = {"cpu " #name_ " bf16", op_, NP_BF16,           \
        dropout_prepare, NULL, dropout_run, NULL, np_cpu_free};
ROW(dropout, NP_OP_DROPOUT)
ROW(dropout_dgrad, NP_OP_DROPOUT_DGRAD)
