#include "trainer/cpu/kernels_onednn_muon.h"

#include "loader/base/mem.h"
#include "trainer/cpu/kernels_onednn_api.h"
#include "trainer/muon.h"

/* Multiply-adds of a product with all of a matrix from which on it is worth waking threads: about
 * 100 microseconds. */
#define LARGE (1u << 23)

struct np_cpu_muon {
    const struct np_graph *graph;
    uint64_t *rows; /* (tensors) np_muon_rows() */
    struct np_muon_means alone, all;
    float *small, *large; /* (threads, small_each); of the largest matrix */
    uint64_t small_each;
};

static void product(uint64_t m, uint64_t n, uint64_t k, struct np_muon_matrix a,
    struct np_muon_matrix b, float *out, uint64_t pitch)
{
    np_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1, a.at, a.pitch, b.at,
        b.pitch, 0, out, pitch);
}

static void all_threads(
    void *team, int nr_items, void (*work)(void *context, int item, int thread), void *context)
{
    np_pool_run(team, nr_items, work, context);
}

static uint64_t cols_of(const struct np_cpu_muon *muon, int t)
{
    return muon->rows[t] ? np_tensor_elements(&muon->graph->tensors[t]) / muon->rows[t] : 0;
}

bool np_cpu_muon_is_large(const struct np_cpu_muon *muon, int t)
{
    const uint64_t rows = muon->rows[t], cols = cols_of(muon, t);

    return rows * cols * (rows < cols ? rows : cols) >= LARGE;
}

void np_cpu_muon_free(struct np_cpu_muon *muon)
{
    if (!muon)
        return;
    np_free(muon->rows);
    np_free(muon->small);
    np_free(muon->large);
    np_free(muon);
}

int np_cpu_muon_new(const struct np_graph *graph, struct np_pool *pool,
    struct np_cpu_muon **ret_muon, struct np_err *err)
{
    struct np_cpu_muon *muon = np_alloc(sizeof(*muon));
    uint64_t large = 0;

    *muon = (struct np_cpu_muon){.graph = graph,
        .alone = {product, np_muon_plain.each, NULL},
        .all = {product, all_threads, pool}};
    muon->rows = np_alloc_array((size_t)graph->nr_tensors, sizeof(*muon->rows));
    for (int t = 0; t < graph->nr_tensors; t++) {
        muon->rows[t] = np_muon_rows(graph, t);
        const uint64_t need = np_muon_scratch(muon->rows[t], cols_of(muon, t));
        uint64_t *max = np_cpu_muon_is_large(muon, t) ? &large : &muon->small_each;

        *max = need > *max ? need : *max;
    }
    muon->small =
        np_try_array((uint64_t)np_pool_threads(pool) * muon->small_each + 1, sizeof(float), err);
    muon->large = muon->small ? np_try_array(large + 1, sizeof(float), err) : NULL;
    if (!muon->large) {
        np_cpu_muon_free(muon);
        return np_err_context(err, "muon's matrices");
    }
    *ret_muon = muon;
    return 0;
}

void np_cpu_muon_fill(const struct np_cpu_muon *muon, int t, int thread, struct np_update *update)
{
    const bool large = np_cpu_muon_is_large(muon, t);

    update->rows = muon->rows[t];
    update->scratch = large ? muon->large : muon->small + (uint64_t)thread * muon->small_each;
    update->means = large ? &muon->all : &muon->alone;
}
