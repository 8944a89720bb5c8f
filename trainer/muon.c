#include "trainer/muon.h"

#include <math.h>
#include <string.h>

#include "trainer/optim.h"

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

uint64_t np_muon_scratch(uint64_t rows, uint64_t cols)
{
    const uint64_t side = rows < cols ? rows : cols;

    return 2 * rows * cols + 2 * side * side;
}

uint64_t np_muon_graph_scratch(const struct np_graph *graph)
{
    uint64_t max = 0;

    for (int t = 0; t < graph->nr_tensors; t++) {
        const uint64_t rows = np_muon_rows(graph, t);
        const uint64_t need =
            rows ? np_muon_scratch(rows, np_tensor_elements(&graph->tensors[t]) / rows) : 0;

        max = need > max ? need : max;
    }
    return max;
}

/* --- means: plain C ------------------------------------------------------------------------- */

static float element(struct np_muon_matrix x, uint64_t row, uint64_t col)
{
    return x.transposed ? x.at[col * x.pitch + row] : x.at[row * x.pitch + col];
}

static void plain_product(uint64_t m, uint64_t n, uint64_t k, struct np_muon_matrix a,
    struct np_muon_matrix b, float *out, uint64_t pitch)
{
    for (uint64_t i = 0; i < m; i++) {
        float *row = out + i * pitch;

        memset(row, 0, n * sizeof(*row));
        for (uint64_t l = 0; l < k; l++) {
            const float factor = element(a, i, l);

            for (uint64_t j = 0; j < n; j++)
                row[j] += factor * element(b, l, j);
        }
    }
}

static void one_after_the_other(
    void *team, int nr_items, void (*work)(void *context, int item, int thread), void *context)
{
    for (int i = 0; i < nr_items; i++)
        work(context, i, 0);
}

const struct np_muon_means np_muon_plain = {plain_product, one_after_the_other, NULL};

/* --- Newton-Schulz -------------------------------------------------------------------------- */

/* x is (n, length), n <= length; where the matrix is tall, it is stored transposed. g and h are
 * symmetric: only the tiles on and below the diagonal are computed. */
struct problem {
    const struct np_muon_means *means;
    const float *now; /* x */
    float *next, *g, *h;
    uint64_t n, length;
    bool tall;
};

#define TILE 64  /* rows and columns of g and h */
#define WIDE 256 /* elements of the longer side of x */

static int pieces(uint64_t n, uint64_t size)
{
    return (int)((n + size - 1) / size);
}

static uint64_t size_at(uint64_t first, uint64_t end, uint64_t size)
{
    return end - first < size ? end - first : size;
}

/* A tile's first row and column, and its size. */
struct tile {
    uint64_t row, col, rows, cols;
};

static struct tile tile_of(const struct problem *p, int item)
{
    uint64_t i = 0, j = (uint64_t)item;

    for (; j > i; i++) /* row i has i + 1 tiles */
        j -= i + 1;
    return (struct tile){
        i * TILE, j * TILE, size_at(i * TILE, p->n, TILE), size_at(j * TILE, p->n, TILE)};
}

static int nr_tiles(const struct problem *p)
{
    const int side = pieces(p->n, TILE);

    return side * (side + 1) / 2;
}

static void mirror(float *x, uint64_t n, struct tile tile)
{
    for (uint64_t i = tile.row; i < tile.row + tile.rows; i++)
        for (uint64_t j = tile.col; j < tile.col + tile.cols && j < i; j++)
            x[j * n + i] = x[i * n + j];
}

/* Row `first` of x and those after it; or, transposed, columns of x^T. */
static struct np_muon_matrix rows_of(const struct problem *p, uint64_t first, bool transposed)
{
    return p->tall ? (struct np_muon_matrix){p->now + first, p->n, !transposed}
                   : (struct np_muon_matrix){p->now + first * p->length, p->length, transposed};
}

/* g = x x^T */
static void gram(void *context, int item, int thread)
{
    const struct problem *p = context;
    const struct tile tile = tile_of(p, item);

    p->means->product(tile.rows, tile.cols, p->length, rows_of(p, tile.row, false),
        rows_of(p, tile.col, true), p->g + tile.row * p->n + tile.col, p->n);
    mirror(p->g, p->n, tile);
}

/* h = a + b g + c g g */
static void polynomial(void *context, int item, int thread)
{
    const struct problem *p = context;
    const uint64_t n = p->n;
    const struct tile tile = tile_of(p, item);
    const struct np_muon_matrix rows = {p->g + tile.row * n, n, false};
    const struct np_muon_matrix cols = {p->g + tile.col * n, n, true};

    p->means->product(tile.rows, tile.cols, n, rows, cols, p->h + tile.row * n + tile.col, n);
    for (uint64_t i = tile.row; i < tile.row + tile.rows; i++)
        for (uint64_t k = i * n + tile.col; k < i * n + tile.col + tile.cols; k++)
            p->h[k] = NP_MUON_B * p->g[k] + NP_MUON_C * p->h[k] + (k == i * n + i ? NP_MUON_A : 0);
    mirror(p->h, n, tile);
}

/* next = h now, a piece of the longer side */
static void product(void *context, int item, int thread)
{
    const struct problem *p = context;
    const struct np_muon_matrix h = {p->h, p->n, false};
    const uint64_t first = (uint64_t)item * WIDE, size = size_at(first, p->length, WIDE);

    if (p->tall)
        p->means->product(size, p->n, p->n,
            (struct np_muon_matrix){p->now + first * p->n, p->n, false}, h, p->next + first * p->n,
            p->n);
    else
        p->means->product(p->n, size, p->n, h,
            (struct np_muon_matrix){p->now + first, p->length, false}, p->next + first, p->length);
}

void np_muon_orthogonal(float *x, uint64_t rows, uint64_t cols, int iterations, float *scratch,
    const struct np_muon_means *means)
{
    const uint64_t size = rows * cols, n = rows < cols ? rows : cols;
    const float norm = (float)sqrt(np_square_sum(x, size));
    struct problem p = {.means = means,
        .now = x,
        .next = scratch,
        .g = scratch + size,
        .h = scratch + size + n * n,
        .n = n,
        .length = size / n,
        .tall = rows > cols};

    for (uint64_t i = 0; i < size; i++)
        x[i] /= norm < 1e-7f ? 1e-7f : norm; /* a NaN stays one */
    for (int i = 0; i < iterations; i++) {
        means->each(means->team, nr_tiles(&p), gram, &p);
        means->each(means->team, nr_tiles(&p), polynomial, &p);
        means->each(means->team, pieces(p.length, WIDE), product, &p);
        p.now = p.next;
        p.next = p.now == x ? scratch : x;
    }
    if (p.now != x)
        memcpy(x, p.now, size * sizeof(*x));
}
