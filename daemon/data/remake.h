/* Makes some training rows of a run again, with a loader of its own. A row depends only on the
 * data, the seed and its number, so the loader starts right there. Main thread. */
#ifndef NP_REMAKE_H
#define NP_REMAKE_H

#include "loader/loader.h"

/* Valid during the call of take(). */
struct np_remade {
    uint64_t number;       /* step * batch + row, in the run */
    const uint8_t *pixels; /* u8 (height, width, channels) */
    int height, width;
    int32_t label;
    const struct np_row *about;
    const struct np_bad_sample *bad; /* (nr_bad): the bad samples that it replaces, in order */
    int nr_bad;
};
typedef int np_remade_fn(void *context, const struct np_remade *row, struct np_err *err);

/* Makes nr_rows rows from `number` (a multiple of nr_rows) on, and calls take() for each, in order.
 * config: of the run; its cache, budget of bad samples, evaluations and batch do not matter. Blocks
 * while it reads. changed: receives the path of a file whose size differs from the listed size, if
 * there is one. Errors: those of the loader and of take(). */
int np_remake_rows(const struct np_loader_config *config, uint64_t number, int nr_rows,
    np_remade_fn *take, void *context, char changed[1024], struct np_err *err);

#endif
