/* Muon's step: the momentum of a matrix, made orthogonal (Jordan et al. 2024,
 * kellerjordan.github.io/posts/muon; torch.optim.Muon, here in f32). Any thread. */
#ifndef NP_MUON_H
#define NP_MUON_H

#include "trainer/graph/graph.h"

/* Rows of parameter t if muon updates it as a matrix, (out, all else): a weight of a conv or linear
 * layer, but the layer of the logits. Otherwise 0. */
uint64_t np_muon_rows(const struct np_graph *graph, int t);
/* The factor on the rate of such a matrix: torch's adjust_lr_fn "original". */
double np_muon_rate(uint64_t rows, uint64_t cols);

struct np_muon_matrix {
    const float *at;
    uint64_t pitch;  /* elements from row to row, as stored */
    bool transposed; /* as stored */
};

/* What an update computes with. */
struct np_muon_means {
    /* out (m, n), with rows `pitch` apart, = a (m, k) b (k, n) */
    void (*product)(uint64_t m, uint64_t n, uint64_t k, struct np_muon_matrix a,
        struct np_muon_matrix b, float *out, uint64_t pitch);
    /* work(context, item, a thread's number) for item 0..nr_items-1, in any order and on any
     * threads; returns when all are done */
    void (*each)(
        void *team, int nr_items, void (*work)(void *context, int item, int thread), void *context);
    void *team;
};
/* Plain C, on the thread that calls. */
extern const struct np_muon_means np_muon_plain;

/* Floats of scratch for an update of a matrix: its size, and that of np_muon_orthogonal(). */
uint64_t np_muon_scratch(uint64_t rows, uint64_t cols);
/* Of the largest matrix. */
uint64_t np_muon_graph_scratch(const struct np_graph *graph);
/* Of the iteration; as in torch. */
#define NP_MUON_A 3.4445f
#define NP_MUON_B (-4.7750f)
#define NP_MUON_C 2.0315f
/* x (rows, cols) becomes nearly the orthogonal matrix next to it, in place: x / max(|x|, 1e-7),
 * then so many times  x = A x + (B G + C G G) x  with G = x x^T (Newton-Schulz). The shorter side is
 * the one of G. Sums in f32; the tiles that are computed at once depend on the size only. scratch:
 * rows cols + 2 min(rows, cols)^2 floats. */
void np_muon_orthogonal(float *x, uint64_t rows, uint64_t cols, int iterations, float *scratch,
    const struct np_muon_means *means);

#endif
