#include "trainer/whiten.h"

#include <math.h>
#include <string.h>

#include "loader/base/mem.h"

#define GRID  32 /* windows along each side of a large picture */
#define FLOOR 5e-4

struct np_whiten {
    const struct np_graph *graph;
    const struct np_tensor *weight;
    int height, width, channels, kernel_h, kernel_w, size; /* of a window, in torch's order */
    float values[4][256];                                  /* of each channel's bytes */
    double moments[NP_MAX_WHITENED * NP_MAX_WHITENED];     /* (size, size), sums: its upper half */
    double nr_windows;
};

struct np_whiten *np_whiten_new(const struct np_graph *graph, int height, int width)
{
    const struct np_attrs *attrs = &graph->nodes[0].attrs;
    int t = 0;

    while (t < graph->nr_tensors &&
           (graph->tensors[t].role != NP_ROLE_PARAM || graph->tensors[t].init != NP_INIT_WHITENING))
        t++;
    if (t == graph->nr_tensors)
        return NULL;
    struct np_whiten *whiten = np_alloc(sizeof(*whiten));
    const int *dims = graph->tensors[t].dims;

    memset(whiten, 0, sizeof(*whiten));
    whiten->graph = graph;
    whiten->weight = &graph->tensors[t];
    whiten->height = height;
    whiten->width = width;
    whiten->channels = dims[1];
    whiten->kernel_h = dims[2];
    whiten->kernel_w = dims[3];
    whiten->size = dims[1] * dims[2] * dims[3];
    for (int c = 0; c < dims[1]; c++)
        for (int v = 0; v < 256; v++)
            whiten->values[c][v] = ((float)v / 255 - attrs->mean[c]) / attrs->std[c];
    return whiten;
}

void np_whiten_free(struct np_whiten *whiten)
{
    np_free(whiten);
}

/* The window at (y, x), as a filter lies in memory: (in, kh, kw). */
static void take_window(
    const struct np_whiten *whiten, const uint8_t *pixels, int y, int x, double *ret_window)
{
    int i = 0;

    for (int c = 0; c < whiten->channels; c++)
        for (int ky = 0; ky < whiten->kernel_h; ky++)
            for (int kx = 0; kx < whiten->kernel_w; kx++) {
                const size_t at = (size_t)(y + ky) * (size_t)whiten->width + (size_t)(x + kx);

                ret_window[i++] =
                    (double)whiten->values[c][pixels[at * (size_t)whiten->channels + (size_t)c]];
            }
}

static void add_window(struct np_whiten *whiten, const double *window)
{
    const int n = whiten->size;

    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            whiten->moments[i * n + j] += window[i] * window[j];
    whiten->nr_windows++;
}

void np_whiten_add(struct np_whiten *whiten, const uint8_t *pixels)
{
    const int rows = whiten->height - whiten->kernel_h + 1;
    const int columns = whiten->width - whiten->kernel_w + 1;
    const int down = (rows + GRID - 1) / GRID, along = (columns + GRID - 1) / GRID;
    double window[NP_MAX_WHITENED];

    for (int y = 0; y < rows; y += down)
        for (int x = 0; x < columns; x += along) {
            take_window(whiten, pixels, y, x, window);
            add_window(whiten, window);
        }
}

/* --- eigenvectors ---------------------------------------------------------------------------- */

/* Jacobi's rotation of rows and columns p, q of a, (n, n), which makes a[p][q] 0; the rows of v
 * turn with them (Golub and Van Loan, "Matrix computations", section 8.5). */
static void rotate(double *a, double *v, int n, int p, int q)
{
    const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;

    for (int k = 0; k < n; k++) {
        const double kp = a[k * n + p], kq = a[k * n + q];

        a[k * n + p] = c * kp - s * kq;
        a[k * n + q] = s * kp + c * kq;
    }
    for (int k = 0; k < n; k++) {
        const double pk = a[p * n + k], qk = a[q * n + k], vp = v[p * n + k], vq = v[q * n + k];

        a[p * n + k] = c * pk - s * qk;
        a[q * n + k] = s * pk + c * qk;
        v[p * n + k] = c * vp - s * vq;
        v[q * n + k] = s * vp + c * vq;
    }
}

/* Afterwards a has the eigenvalues on its diagonal, and row i of v is eigenvector i. */
static void find_eigenvectors(double *a, double *v, int n)
{
    double sum = 0;

    for (int i = 0; i < n * n; i++) {
        v[i] = i % (n + 1) == 0;
        sum += a[i] * a[i];
    }
    for (int sweep = 0; sweep < 100; sweep++) {
        double off = 0;

        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++)
                off += a[p * n + q] * a[p * n + q];
        if (off <= 1e-30 * sum)
            return;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++)
                if (a[p * n + q] * a[p * n + q] > 1e-36 * sum)
                    rotate(a, v, n, p, q);
    }
}

static double with_sign(const double *vector, int n)
{
    int largest = 0;

    for (int i = 1; i < n; i++)
        if (fabs(vector[i]) > fabs(vector[largest]) + 1e-9)
            largest = i;
    return vector[largest] < 0 ? -1 : 1;
}

/* The number of the k-th largest element of the diagonal. */
static int find_rank(const double *a, int n, int k)
{
    for (int i = 0; i < n; i++) {
        int rank = 0;

        for (int j = 0; j < n; j++)
            rank += a[j * n + j] > a[i * n + i] || (a[j * n + j] == a[i * n + i] && j < i);
        if (rank == k)
            return i;
    }
    return 0; /* one is not a number: there is no order */
}

void np_whiten_write(const struct np_whiten *whiten, float *params)
{
    const int n = whiten->size, half = whiten->weight->dims[0] / 2;
    double *a = np_alloc_array((size_t)(2 * n * n), sizeof(*a)), *v = a + n * n;
    float *weight = params + whiten->weight->offset; /* (out, in, kh, kw) */

    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            a[i * n + j] = a[j * n + i] = whiten->moments[i * n + j] / whiten->nr_windows;
    if (whiten->nr_windows > 0)
        find_eigenvectors(a, v, n);
    for (int k = 0; whiten->nr_windows > 0 && k < half; k++) {
        const int at = find_rank(a, n, k);
        const double value = a[at * n + at];
        const double scale = with_sign(v + at * n, n) / sqrt((value > 0 ? value : 0) + FLOOR);

        for (int i = 0; i < n; i++) {
            weight[k * n + i] = (float)(scale * v[at * n + i]);
            weight[(half + k) * n + i] = -weight[k * n + i];
        }
    }
    np_free(a);
}
