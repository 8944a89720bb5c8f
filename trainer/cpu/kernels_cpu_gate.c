/* Products of activations, by pixel or by channel, and stochastic depth; forward and backward. Any
 * pool thread, each its own lane. */
#include "loader/base/rng.h"
#include "trainer/cpu/kernels_cpu.h"
#include "trainer/cpu/simd.h"

/* y (n, c) = a (n, c) * b (c) */
NP_LOOP_HALF(
    scale_pixels, (void *y, const void *a, const void *b, size_t n, size_t c), (y, a, b, n, c))
{
    for (size_t p = 0; p < n * c; p += c) {
        size_t k = 0;

        for (; k + 8 <= c; k += 8)
            np_put(y, p + k, half, np_get(a, p + k, half) * np_get(b, k, half));
        for (; k < c; k++)
            np_put1(y, p + k, half, np_get1(a, p + k, half) * np_get1(b, k, half));
    }
}

/* db (c) = sum over n pixels of dy * a, both (n, c) */
NP_LOOP_HALF(
    sum_products, (void *db, const void *dy, const void *a, size_t n, size_t c), (db, dy, a, n, c))
{
    size_t k = 0;

    for (; k + 8 <= c; k += 8) {
        np_v8 sum = np_zero();

        for (size_t p = k; p < n * c; p += c)
            sum += np_get(dy, p, half) * np_get(a, p, half);
        np_put(db, k, half, sum);
    }
    for (; k < c; k++) {
        float sum = 0;

        for (size_t p = k; p < n * c; p += c)
            sum += np_get1(dy, p, half) * np_get1(a, p, half);
        np_put1(db, k, half, sum);
    }
}

struct gate {
    struct np_cpu cpu;
    bool pixels; /* b has a's pixels */
};

static int gate_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct gate *gate = np_alloc(sizeof(*gate));
    const int code = np_cpu_init(&gate->cpu, graph, node);

    if (code < 0) {
        np_free(gate);
        return code;
    }
    gate->pixels = np_tensor_elements(&graph->tensors[node->ins[1]]) ==
                   np_tensor_elements(&graph->tensors[node->ins[0]]);
    *ret_needs = (struct np_needs){0};
    *ret_state = gate;
    return 0;
}

static void mul_run(void *state, const struct np_run *run)
{
    const struct gate *gate = state;
    const struct np_cpu *cpu = &gate->cpu;
    const size_t row = np_cpu_row(cpu), c = (size_t)cpu->c;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        const size_t gates = gate->pixels ? row : c; /* of a row */

        scale_pixels(cpu->half, np_cpu_at(cpu, run->operands->ptr[2], r * row),
            np_cpu_at(cpu, run->operands->ptr[0], r * row),
            np_cpu_at(cpu, run->operands->ptr[1], r * gates), row / gates, gates);
    }
}

static void mul_sum_run(void *state, const struct np_run *run)
{
    const struct gate *gate = state;
    const struct np_cpu *cpu = &gate->cpu;
    const size_t row = np_cpu_row(cpu), c = (size_t)cpu->c;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++)
        sum_products(cpu->half, np_cpu_at(cpu, run->operands->ptr[2], r * c),
            np_cpu_at(cpu, run->operands->ptr[0], r * row),
            np_cpu_at(cpu, run->operands->ptr[1], r * row), row / c, c);
}

NP_LOOP_HALF(scale_all, (void *y, const void *x, size_t n, float scale), (y, x, n, scale))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_put(y, i, half, np_get(x, i, half) * np_set(scale));
    for (; i < n; i++)
        np_put1(y, i, half, np_get1(x, i, half) * scale);
}

/* Philox (Salmon et al., SC'11): row r of the batch of all processes takes word r % 4 of block r / 4. */
static void drop_rows_run(void *state, const struct np_run *run)
{
    const struct np_cpu *cpu = state;
    const uint64_t seed = cpu->attrs.seed, step = run->info->step;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const size_t row = np_cpu_row(cpu), bytes = cpu->half ? sizeof(uint16_t) : sizeof(float);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        const uint32_t place = (uint32_t)(r + run->info->first_row);
        const uint32_t counter[4] = {place / 4, 0, (uint32_t)step, (uint32_t)(step >> 32)};
        void *y = np_cpu_at(cpu, run->operands->ptr[1], (size_t)r * row);
        uint32_t words[4];

        np_philox(key, counter, words);
        if (words[place % 4] * 0x1p-32 >= cpu->attrs.rate)
            scale_all(cpu->half, y, np_cpu_at(cpu, run->operands->ptr[0], (size_t)r * row), row,
                (float)(1 / (1 - cpu->attrs.rate)));
        else
            memset(y, 0, row * bytes);
    }
}

const struct np_kernel np_kernels_gate[] = {
    NP_KERNEL_ROWS("cpu mul", NP_OP_MUL, gate_prepare, NULL, mul_run, NULL),
    NP_KERNEL_ROWS("cpu mul_sum", NP_OP_MUL_SUM, gate_prepare, NULL, mul_sum_run, NULL),
    NP_KERNEL_ROWS("cpu drop_rows", NP_OP_DROP_ROWS, np_cpu_prepare, NULL, drop_rows_run, NULL),
    NP_KERNEL_ROWS(
        "cpu drop_rows_dgrad", NP_OP_DROP_ROWS_DGRAD, np_cpu_prepare, NULL, drop_rows_run, NULL),
    {NULL},
};
