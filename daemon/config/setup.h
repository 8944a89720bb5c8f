/* What a run is built from: its sets and the graph. For train, eval, predict, check, show and
 * bench. One thread, before a run; starts no threads. */
#ifndef NP_SETUP_H
#define NP_SETUP_H

#include "daemon/config/config.h"
#include "loader/sets.h"
#include "trainer/graph/graph.h"

struct np_setup {
    struct np_sets sets;
    struct np_graph *graph, *eval_graph; /* autodiff done, not fused; its np_graph_eval() */
    struct np_growth *growth;            /* NULL: training rows have one size */
    int lanes; /* of a batch, each a step of the plan: the graphs have the rows of one; 0: none */
    int processes;                /* the graphs have the rows of one; 0: of a whole batch */
    const struct np_grown *stage; /* of growth: graph is for its rows; NULL: the last one */
};

/* Makes setup->growth, replacing an older one. nr_train: samples in an epoch. -ENOMEM. */
int np_setup_growth(
    const struct np_config *config, uint64_t nr_train, struct np_setup *setup, struct np_err *err);

/* The shape of the config's batches; setup's classes and size are known. */
struct np_batch_shape np_setup_shape(const struct np_config *config, const struct np_setup *setup);
/* "classes", or "values" where the network gives numbers. */
const char *np_classes_word(const struct np_config *config);
/* Builds both graphs, replacing older ones, for the rows of setup->stage. -EINVAL: report has the model's mistakes. */
int np_setup_graph(const struct np_config *config, enum np_dtype precision, struct np_setup *setup,
    struct np_report *report);
void np_setup_fini(struct np_setup *setup);

#endif
