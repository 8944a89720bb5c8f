/* Initial weights: filters that whiten the pictures' windows, and filters that pass channels on. */
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "tests/test.h"
#include "trainer/whiten.h"

#define SIDE 24

/* A conv of 3 channels in a graph of its own. */
static struct np_graph *conv_of(enum np_init init, int out, int kernel)
{
    struct np_graph *graph = np_alloc(sizeof(*graph));
    const int dims[] = {out, 3, kernel, kernel};

    memset(graph, 0, sizeof(*graph));
    const int node = np_graph_node(graph, NP_OP_INPUT, "input", 0);
    const int t = np_graph_tensor(graph, "conv.weight", NP_ROLE_PARAM, NP_F32, 4, dims);

    for (int c = 0; c < 3; c++) {
        graph->nodes[node].attrs.mean[c] = 0.4f + 0.05f * (float)c;
        graph->nodes[node].attrs.std[c] = 0.2f + 0.01f * (float)c;
    }
    graph->tensors[t].init = init;
    graph->tensors[t].fan_in = 3 * kernel * kernel;
    graph->nr_params = np_tensor_elements(&graph->tensors[t]);
    return graph;
}

/* Smooth noise: neighbours and channels go together. */
static void draw_picture(struct np_draws *draws, uint8_t pixels[SIDE * SIDE * 3])
{
    double before[3] = {128, 128, 128};

    for (int i = 0; i < SIDE * SIDE; i++) {
        const double grey = 15 * np_draw_normal(draws);

        for (int c = 0; c < 3; c++) {
            before[c] = 0.8 * before[c] + 0.2 * 128 + grey + 5 * np_draw_normal(draws);
            pixels[i * 3 + c] = (uint8_t)fmin(fmax(before[c], 0), 255);
        }
    }
}

/* Adds the products of the filters' outputs over all windows of a picture: sums (n, n). */
static void add_products(
    const struct np_graph *graph, const float *w, int k, const uint8_t *pixels, double *sums)
{
    const struct np_attrs *attrs = &graph->nodes[0].attrs;
    const int n = 3 * k * k;

    for (int y = 0; y + k <= SIDE; y++)
        for (int x = 0; x + k <= SIDE; x++) {
            double outs[32] = {0};

            for (int f = 0; f < n; f++)
                for (int i = 0; i < n; i++) {
                    const int c = i / (k * k), ky = i / k % k, kx = i % k;
                    const double v = pixels[((y + ky) * SIDE + x + kx) * 3 + c] / 255.0;

                    outs[f] +=
                        (double)w[f * n + i] * (v - (double)attrs->mean[c]) / (double)attrs->std[c];
                }
            for (int f = 0; f < n * n; f++)
                sums[f] += outs[f / n] * outs[f % n] / ((SIDE - k + 1) * (SIDE - k + 1));
        }
}

static void whitens(int k)
{
    const int n = 3 * k * k;
    struct np_graph *graph = conv_of(NP_INIT_WHITENING, 2 * n, k);
    struct np_whiten *whiten = np_whiten_new(graph, SIDE, SIDE);
    static uint8_t pictures[40][SIDE * SIDE * 3];
    static float weight[2 * 27 * 27];
    double sums[27 * 27] = {0}, before = 2;
    struct np_draws draws;

    np_draws_init(&draws, 3, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < 40; i++) {
        draw_picture(&draws, pictures[i]);
        np_whiten_add(whiten, pictures[i]);
    }
    np_whiten_write(whiten, weight);
    for (int i = 0; i < 40; i++)
        add_products(graph, weight, k, pictures[i], sums);
    for (int f = 0; f < n * n; f++) {
        const double variance = sums[f] / 40;

        if (f / n != f % n)
            cr_expect(fabs(variance) < 1e-4, "%d %d: %g", f / n, f % n, variance);
        else
            cr_expect(variance > 0.5 && variance <= before + 1e-6, "%d: %g", f / n, variance);
        if (f / n == f % n)
            before = variance; /* lambda / (lambda + 5e-4): the largest first */
    }
    for (int i = 0; i < n * n; i++)
        cr_expect(weight[n * n + i] == -weight[i]);
    np_whiten_free(whiten);
    np_graph_free(graph);
}

Test(whiten, outputs_have_variance_one_and_go_their_own_ways)
{
    whitens(1);
    whitens(2);
    whitens(3);
}

Test(whiten, one_colour_and_no_pictures_give_numbers)
{
    struct np_graph *graph = conv_of(NP_INIT_WHITENING, 24, 2);
    struct np_whiten *whiten = np_whiten_new(graph, SIDE, SIDE);
    static uint8_t grey[SIDE * SIDE * 3];
    float weight[24 * 12];

    weight[5] = 7;
    np_whiten_write(whiten, weight);
    cr_expect(weight[5] == 7);
    memset(grey, 100, sizeof(grey));
    np_whiten_add(whiten, grey);
    np_whiten_write(whiten, weight);
    for (int i = 0; i < 24 * 12; i++)
        cr_expect(isfinite(weight[i]));
    np_whiten_free(whiten);
    np_graph_free(graph);
    graph = conv_of(NP_INIT_DIRAC, 4, 3);
    cr_expect_null(np_whiten_new(graph, SIDE, SIDE));
    np_graph_free(graph);
}

Test(whiten, dirac_passes_channels_on_and_leaves_the_rest_random)
{
    struct np_graph *graph = conv_of(NP_INIT_DIRAC, 5, 3);
    float weight[5 * 27];
    int nr_others = 0;

    np_graph_init(graph, 1, weight, NULL);
    for (int i = 0; i < 5 * 27; i++) {
        const int out = i / 27, at = i % 27;

        if (out < 3)
            cr_expect(weight[i] == (at == out * 9 + 4 ? 1 : 0), "%d", i);
        else
            nr_others += fabsf(weight[i]) > 1e-3f && fabsf(weight[i]) <= 1 / sqrtf(27);
    }
    cr_expect(nr_others > 50, "%d", nr_others);
    np_graph_free(graph);
}
