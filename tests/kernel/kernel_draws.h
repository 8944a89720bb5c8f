/* Shapes drawn at random for the tests of kernels: a few, always the same; with KERNEL_SHAPES and
 * KERNEL_SEED so many and others (kernels_campaign.sh). */
#ifndef NP_KERNEL_DRAWS_H
#define NP_KERNEL_DRAWS_H

#include <stdbool.h>

#include "loader/base/rng.h"
#include "trainer/graph/graph.h"

struct kernel_draws {
    struct np_draws draws;
    int nr_shapes;
    const char *seed;
    int nr_results, nr_wrong; /* of kernel_draws_note() */
};

/* An activation, and how the executor cuts it: lanes of a row at least, chunks of `chunk` rows. */
struct kernel_shape {
    int batch, h, w, c, lanes, chunk;
};

/* which: another number gives other shapes from the same seed. */
void kernel_draws_init(struct kernel_draws *draws, int which);
/* least..most, all alike */
int kernel_draws_int(struct kernel_draws *draws, int least, int most);
/* One pixel or up to 24x24, 1 to 600 channels, batch 1 to 5; up to 8000 elements. */
struct kernel_shape kernel_draws_shape(struct kernel_draws *draws);
/* Outputs of a pool along one side; up: with ceil_mode. */
int kernel_pool_out(int in, int kernel, int stride, int pad, bool up);
/* A pool's window of up to 7x7 that fits the picture with its padding. */
struct np_window kernel_draws_pool(struct kernel_draws *draws, struct kernel_shape shape);
void kernel_draws_note(struct kernel_draws *draws, bool right);
/* Fails the test if a result was wrong, with their number; prints the count if there are many. */
void kernel_draws_done(const struct kernel_draws *draws);

#endif
