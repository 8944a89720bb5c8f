#include "trainer/muon.h"

#include <math.h>
#include <string.h>

#include "trainer/optim.h"

/* gcc 12 at -O2 does not vectorise loops of unknown length. */
#define NP_VECTOR __attribute__((optimize("O3")))

uint64_t np_muon_rows(const struct np_graph *graph, int t)
{
    const struct np_tensor *tensor = &graph->tensors[t];

    if (tensor->role != NP_ROLE_PARAM || (tensor->nr_dims != 2 && tensor->nr_dims != 4))
        return 0;
    for (int i = 0; i < graph->nr_nodes; i++)
        if (graph->nodes[i].ins[1] == t && graph->nodes[i].outs[0] == graph->logits)
            return 0;
    return (uint64_t)tensor->dims[0];
}

double np_muon_rate(uint64_t rows, uint64_t cols)
{
    return rows > cols ? sqrt((double)rows / (double)cols) : 1;
}

static uint64_t scratch_of(uint64_t rows, uint64_t cols)
{
    const uint64_t side = rows < cols ? rows : cols;

    return 2 * rows * cols + 2 * side * side;
}

uint64_t np_muon_graph_scratch(const struct np_graph *graph)
{
    uint64_t max = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const uint64_t rows = np_muon_rows(graph, t);
        const uint64_t n = rows > 0 ? np_tensor_elements(&graph->tensors[t]) : 0;

        if (n > 0 && n + scratch_of(rows, n / rows) > max)
            max = n + scratch_of(rows, n / rows);
    }
    return max;
}

/* Eight partial sums: the same order for every vector width. */
NP_VECTOR static float dot(const float *restrict x, const float *restrict y, uint64_t n)
{
    float sums[8] = {0};
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += x[i + lane] * y[i + lane];
    for (; i < n; i++)
        sums[i % 8] += x[i] * y[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* to (n, n) = x x^T; x: (n, length). */
static void gram(float *to, const float *x, uint64_t n, uint64_t length)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++)
            to[i * n + j] = to[j * n + i] = dot(x + i * length, x + j * length, length);
}

/* y += factor * x */
NP_VECTOR static void add(float *restrict y, const float *restrict x, float factor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

/* y (n, length) = A x + h x; h: (n, n). */
static void product(float *y, const float *h, const float *x, uint64_t n, uint64_t length)
{
    for (uint64_t i = 0; i < n; i++) {
        float *row = y + i * length;

        for (uint64_t k = 0; k < length; k++)
            row[k] = NP_MUON_A * x[i * length + k];
        for (uint64_t j = 0; j < n; j++)
            add(row, x + j * length, h[i * n + j], length);
    }
}

static void transpose(float *to, const float *from, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++)
            to[j * rows + i] = from[i * cols + j];
}

void np_muon_orthogonal(float *x, uint64_t rows, uint64_t cols, int iterations, float *scratch)
{
    const bool tall = rows > cols;
    const uint64_t n = tall ? cols : rows, length = tall ? rows : cols, size = rows * cols;
    float *now = scratch, *next = scratch + size, *g = next + size, *h = g + n * n;
    const float norm = (float)sqrt(np_square_sum(x, size));

    if (tall)
        transpose(now, x, rows, cols);
    else
        memcpy(now, x, size * sizeof(*x));
    for (uint64_t i = 0; i < size; i++)
        now[i] /= norm < 1e-7f ? 1e-7f : norm; /* a NaN stays one */
    for (int i = 0; i < iterations; i++) {
        float *done = now;

        gram(g, now, n, length);
        gram(h, g, n, n); /* g is symmetric */
        for (uint64_t k = 0; k < n * n; k++)
            h[k] = NP_MUON_B * g[k] + NP_MUON_C * h[k];
        product(next, h, now, n, length);
        now = next;
        next = done;
    }
    if (tall)
        transpose(x, now, n, length);
    else
        memcpy(x, now, size * sizeof(*x));
}
