/* `loader: {grow: ...}`: training rows that are small in the first epochs (progressive resizing: Tan
 * and Le, arXiv:2104.00298). A run has stages, each with its size and its chain. Set once, then any
 * thread. */
#ifndef NP_GROWTH_H
#define NP_GROWTH_H

#include "loader/base/option.h"
#include "loader/pixels/augment.h"

struct np_grow_options {
    int64_t from, step;  /* pixels; from 0: rows do not grow */
    double since, until; /* epochs */
};
extern const struct np_option np_grow_option_table[];

/* Parses `grow:` (NULL: rows do not grow) for a chain of training. Mistakes go to report. */
void np_grow_parse(const struct np_node *node, const struct np_chain *augment,
    struct np_grow_options *ret_options, struct np_report *report);

struct np_grown {
    uint64_t first_row; /* in the run; an update begins with it */
    int height, width;
    struct np_chain *chain; /* owned */
};
struct np_growth {
    int nr; /* at least 1; the last one has the chain's own size */
    struct np_grown *stages;
};

/* nr_train: samples in an epoch; update_rows: rows of an update. *ret_growth is NULL if rows do not
 * grow. -ENOMEM. The caller frees it. */
int np_growth_new(const struct np_grow_options *options, const struct np_chain *augment,
    uint64_t nr_train, uint64_t update_rows, struct np_growth **ret_growth, struct np_err *err);
void np_growth_free(struct np_growth *growth);
/* The stage of a row of the run; NULL: growth is NULL. */
const struct np_grown *np_growth_at(const struct np_growth *growth, uint64_t row);

#endif
