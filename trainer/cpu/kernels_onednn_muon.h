/* Muon's matrices on the CPU: oneDNN's products. Small matrices are updated one by each thread, at the
 * same time; large ones one after the other, by all threads. The bits do not depend on their
 * number. */
#ifndef NP_KERNELS_ONEDNN_MUON_H
#define NP_KERNELS_ONEDNN_MUON_H

#include "trainer/cpu/pool.h"
#include "trainer/optim.h"

struct np_cpu_muon;
/* The memory for all updates of the graph's parameters. graph and pool live longer. */
int np_cpu_muon_new(const struct np_graph *graph, struct np_pool *pool,
    struct np_cpu_muon **ret_muon, struct np_err *err);
void np_cpu_muon_free(struct np_cpu_muon *muon); /* NULL: nothing */
/* Does parameter t need all threads? Such updates come after those of the others. */
bool np_cpu_muon_is_large(const struct np_cpu_muon *muon, int t);
/* Fills what np_optim_update() needs for parameter t on this thread of the pool; a large one's
 * update is called outside of the pool. */
void np_cpu_muon_fill(const struct np_cpu_muon *muon, int t, int thread, struct np_update *update);

#endif
