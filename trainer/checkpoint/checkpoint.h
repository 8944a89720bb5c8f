/* Checkpoints: checkpoints/step-N/{weights,optimizer}.safetensors and manifest.json.
 * Written under another name, synced, renamed, and the folder synced; verified on load. One thread at
 * a time.
 *
 *   weights.safetensors    every parameter and buffer by its torch name, f32 in torch's layouts,
 *                          and X.num_batches_tracked (i64, = steps) for every batchnorm X
 *   optimizer.safetensors  state0.NAME, state1.NAME for every parameter NAME; where the weights are
 *                          an average, raw.NAME for every parameter and buffer that it is made of
 *   manifest.json          size and XXH3-64 of both, the position, the facts, and its own XXH3 */
#ifndef NP_CHECKPOINT_H
#define NP_CHECKPOINT_H

#include "loader/base/io.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/graph/graph.h"

struct np_checkpoint {
    const struct np_graph *graph;
    struct np_position position;
    float *params, *buffers, *state[2]; /* flat; state[i] NULL: not used */
    float *raw_params, *raw_buffers;    /* NULL: params and buffers are no average of them */
    const char *facts_json; /* class names, test chain ...: an object, stored unchanged */
};

/* Writes dir/step-N whole or not at all and replaces an existing one of that step; a failed write
 * leaves nothing behind. Blocks until it is on the disk. -EDOM: a weight is not finite; nothing was
 * changed. */
int np_checkpoint_write(
    struct np_io *io, const char *dir, const struct np_checkpoint *checkpoint, struct np_err *err);
/* Loads and verifies a checkpoint (sizes, XXH3, names, shapes) into allocated arrays. After a
 * failure they are unchanged, unless a read failed after all files were verified. *ret_facts_json:
 * np_free. */
int np_checkpoint_read(
    const char *path, struct np_checkpoint *checkpoint, char **ret_facts_json, struct np_err *err);
/* Checks sizes and XXH3 of a checkpoint's files against its manifest; loads nothing. -ENODATA: the
 * weights are whole, but the optimizer's state was removed; np_checkpoint_read() returns it too. */
int np_checkpoint_check(const char *path, struct np_err *err);

#endif
