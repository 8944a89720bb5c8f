/* Checkpoints made for tests: a small network's arrays whose numbers follow from the step, and a
 * folder to write them to. */
#ifndef NP_MADE_CHECKPOINT_H
#define NP_MADE_CHECKPOINT_H

#include "trainer/checkpoint/checkpoint_dir.h"

enum { NR_PARAMS = 54 + 4 + 4, NR_BUFFERS = 8 };

struct box { /* a checkpoint with its arrays, and a folder */
    struct np_checkpoint checkpoint;
    float params[NR_PARAMS], buffers[NR_BUFFERS], states[2][NR_PARAMS];
    char dir[64];
    struct np_io io;
    int nr_damaged;
    char damage[1024];
};

/* A fresh folder under /tmp and an io of this backend; one at a time. */
struct box *box_new(const char *backend);
void box_free(struct box *box);
/* Removes everything in the folder, checkpoints too. */
void box_empty(const struct box *box);
/* Every number follows from the step, so that a mix of two checkpoints shows. */
void box_set_step(struct box *box, uint64_t step);
bool box_is_step(const struct box *box, uint64_t step);
/* Sets the step and writes its checkpoint. */
int box_write(struct box *box, struct np_io *io, uint64_t step, struct np_err *err);
/* The step of the newest whole checkpoint, its arrays checked; 0: none; -1: a mix. */
int64_t box_latest(struct box *box);
/* The number of names in the folder that are not finished checkpoints. */
int box_leftovers(const struct box *box);

#endif
