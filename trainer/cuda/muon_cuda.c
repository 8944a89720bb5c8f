#include "trainer/cuda/muon_cuda.h"

#include "loader/base/mem.h"
#include "trainer/muon.h"

#define ALIGNED 256 /* bytes: places in the memory */

enum { GRAM, SQUARE, APPLY, NR_PRODUCTS };

struct shape { /* of one matrix or more */
    uint64_t rows, cols;
    struct np_cuda_linear *products[NR_PRODUCTS];
};

struct np_cuda_muon {
    const struct np_cuda_layout *layout;
    struct shape *shapes;
    int nr_shapes;
    int *shape_of; /* (nr_matrices) */
    struct {
        uint64_t x, next, g, h, partial, workspace, end; /* bytes from the memory's start */
    } at;
    float *x, *next, *g, *h; /* x and next: a matrix; g, h: its shorter side squared */
    double *partial;
};

static uint64_t side_of(uint64_t rows, uint64_t cols)
{
    return rows < cols ? rows : cols;
}

/* G = x x^T, or x^T x of a tall x;  h = G G;  next = h x, or x h. */
static int make_products(
    struct shape *shape, const struct np_cuda *cuda, bool tf32, struct np_err *err)
{
    const uint64_t rows = shape->rows, cols = shape->cols, n = side_of(rows, cols);
    const bool tall = rows > cols;
    const struct np_cuda_factor x = {rows, cols, false}, turned = {rows, cols, true};
    const struct np_cuda_factor square = {n, n, false};
    const struct np_cuda_factor factors[NR_PRODUCTS][2] = {
        [GRAM] = {tall ? turned : x, tall ? x : turned},
        [SQUARE] = {square, square},
        [APPLY] = {tall ? x : square, tall ? square : x},
    };
    int code = 0;

    for (int p = 0; p < NR_PRODUCTS && code == 0; p++)
        code = np_cuda_product_new(&cuda->libs.cublaslt, cuda->cublaslt, factors[p], tf32,
            "optimizer: muon", &shape->products[p], err);
    return code;
}

static int find_shape(struct np_cuda_muon *muon, const struct np_cuda_matrix *matrix)
{
    int s = 0;

    while (s < muon->nr_shapes &&
           (muon->shapes[s].rows != matrix->rows || muon->shapes[s].cols != matrix->cols))
        s++;
    if (s == muon->nr_shapes)
        muon->shapes[muon->nr_shapes++] = (struct shape){matrix->rows, matrix->cols, {NULL}};
    return s;
}

static uint64_t place(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;

    *end += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    return at;
}

static void place_all(struct np_cuda_muon *muon)
{
    uint64_t size = 0, side = 0;

    for (int s = 0; s < muon->nr_shapes; s++) {
        const uint64_t rows = muon->shapes[s].rows, cols = muon->shapes[s].cols;

        size = rows * cols > size ? rows * cols : size;
        side = side_of(rows, cols) > side ? side_of(rows, cols) : side;
    }
    muon->at.x = place(&muon->at.end, size * sizeof(float));
    muon->at.next = place(&muon->at.end, size * sizeof(float));
    muon->at.g = place(&muon->at.end, side * side * sizeof(float));
    muon->at.h = place(&muon->at.end, side * side * sizeof(float));
    muon->at.partial = place(&muon->at.end, np_cuda_norm_scratch(size));
    muon->at.workspace = place(&muon->at.end, NP_LINEAR_WORKSPACE);
}

int np_cuda_muon_new(const struct np_cuda *cuda, const struct np_cuda_layout *layout, bool tf32,
    struct np_cuda_muon **ret_muon, struct np_err *err)
{
    const size_t nr = (size_t)layout->nr_matrices;
    struct np_cuda_muon *muon = np_alloc(sizeof(*muon));
    int code = 0;

    muon->layout = layout;
    muon->shapes = np_alloc_array(nr + 1, sizeof(*muon->shapes));
    muon->shape_of = np_alloc_array(nr + 1, sizeof(*muon->shape_of));
    for (int i = 0; i < layout->nr_matrices; i++)
        muon->shape_of[i] = find_shape(muon, &layout->matrices[i]);
    place_all(muon);
    for (int s = 0; s < muon->nr_shapes && code == 0; s++)
        code = make_products(&muon->shapes[s], cuda, tf32, err);
    if (code < 0)
        np_cuda_muon_free(muon);
    else
        *ret_muon = muon;
    return code;
}

void np_cuda_muon_free(struct np_cuda_muon *muon)
{
    if (!muon)
        return;
    for (int s = 0; s < muon->nr_shapes; s++)
        for (int p = 0; p < NR_PRODUCTS; p++)
            np_cuda_linear_free(muon->shapes[s].products[p]);
    np_free(muon->shapes);
    np_free(muon->shape_of);
    np_free(muon);
}

uint64_t np_cuda_muon_bytes(const struct np_cuda_muon *muon)
{
    return muon->at.end;
}

static int bind_shape(
    const struct np_cuda_muon *muon, struct shape *shape, void *workspace, struct np_err *err)
{
    const bool tall = shape->rows > shape->cols;
    float *const operands[NR_PRODUCTS][4] = {
        [GRAM] = {muon->x, muon->x, muon->g},
        [SQUARE] = {muon->g, muon->g, muon->h},
        [APPLY] = {tall ? muon->x : muon->h, tall ? muon->h : muon->x, muon->next},
    };
    int code = 0;

    for (int p = 0; p < NR_PRODUCTS && code == 0; p++) {
        void *const all[4] = {operands[p][0], operands[p][1], operands[p][2]};

        code = np_cuda_linear_bind(shape->products[p], all, workspace, err);
    }
    return code;
}

int np_cuda_muon_bind(struct np_cuda_muon *muon, void *memory, struct np_err *err)
{
    char *start = memory;
    int code = 0;

    muon->x = (float *)(void *)(start + muon->at.x);
    muon->next = (float *)(void *)(start + muon->at.next);
    muon->g = (float *)(void *)(start + muon->at.g);
    muon->h = (float *)(void *)(start + muon->at.h);
    muon->partial = (double *)(void *)(start + muon->at.partial);
    for (int s = 0; s < muon->nr_shapes && code == 0; s++)
        code = bind_shape(muon, &muon->shapes[s], start + muon->at.workspace, err);
    return code;
}

/* x becomes A x + (B G + C G G) x. */
static int iterate(const struct np_cuda_muon *muon, const struct shape *shape, cudaStream_t stream,
    struct np_err *err)
{
    const uint64_t n = side_of(shape->rows, shape->cols), size = shape->rows * shape->cols;
    int code = np_cuda_linear_run(shape->products[GRAM], stream, err);

    if (code == 0)
        code = np_cuda_linear_run(shape->products[SQUARE], stream, err);
    if (code < 0)
        return code;
    np_cuda_combine(stream, NP_MUON_B, muon->g, NP_MUON_C, muon->h, n * n);
    code = np_cuda_linear_run(shape->products[APPLY], stream, err);
    if (code == 0)
        np_cuda_combine(stream, 1, muon->next, NP_MUON_A, muon->x, size);
    return code;
}

int np_cuda_muon_queue(struct np_cuda_muon *muon, cudaStream_t stream,
    const struct np_cuda_arrays *arrays, const struct np_cuda_optimizer *update, int iterations,
    struct np_err *err)
{
    int code = 0;

    for (int m = 0; m < muon->layout->nr_matrices && code == 0; m++) {
        const struct np_cuda_matrix *matrix = &muon->layout->matrices[m];
        const struct np_cuda_muon_step part = {.at = matrix->at,
            .n = matrix->rows * matrix->cols,
            .x = muon->x,
            .partial = muon->partial,
            .rate = matrix->rate};

        if (matrix->thaw == NP_NEVER)
            continue;
        np_cuda_muon_begin(stream, arrays->step, arrays->scaler, update, &part);
        for (int i = 0; i < iterations && code == 0; i++)
            code = iterate(muon, &muon->shapes[muon->shape_of[m]], stream, err);
        np_cuda_muon_end(stream, arrays->step, arrays->scaler, update, &part);
    }
    return code < 0 ? np_err_context(err, "optimizer: muon") : 0;
}
