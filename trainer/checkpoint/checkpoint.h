/* Checkpoints: checkpoints/step-N/{weights,optimizer}.safetensors and manifest.json.
 * Written beside, synced, renamed, the folder synced; verified on load. Trainer thread.
 *
 *   weights.safetensors    every parameter and buffer by its torch name, f32 in torch's layouts, and
 *                          X.num_batches_tracked (i64, = steps) for every batchnorm X
 *   optimizer.safetensors  state0.NAME, state1.NAME for every parameter NAME
 *   manifest.json          size and XXH3-64 of both, the position, the facts, and its own XXH3 */
#ifndef NP_CHECKPOINT_H
#define NP_CHECKPOINT_H

#include "loader/base/io.h"
#include "trainer/graph/graph.h"

/* Where a run stands besides its weights. Goes to manifest.json and back. */
struct np_position {
    uint64_t step;              /* training steps done */
    bool eval_due;              /* the evaluation after that step has not been made */
    uint64_t ticket_hash;       /* running XXH3 of all sample indices so far */
    uint64_t nr_bad, bad_epoch; /* bad samples of that epoch */
    uint64_t log_bytes, metrics_bytes, bad_bytes, history_bytes; /* logs are cut back to these */
    double best_accuracy;
    uint64_t best_step;
    double train_seconds; /* so far */
    double loss_sum;
    uint64_t loss_rows; /* of the epoch so far */
};

struct np_checkpoint {
    const struct np_graph *graph;
    struct np_position position;
    float *params, *buffers, *state[2]; /* flat; state[i] NULL: not used */
    const char
        *facts_json; /* class names, test chain, rounding facts: an object, stored as it is */
};

/* Writes dir/step-N whole or not at all; one of the same step is replaced. Nothing is left of one
 * that could not be written. -EDOM: a weight is infinite or no number; nothing was touched. */
int np_checkpoint_write(
    struct np_io *io, const char *dir, const struct np_checkpoint *checkpoint, struct np_err *err);
/* Loads and verifies one (sizes, XXH3, names, shapes); arrays must be there, and are untouched on
 * failure, unless a file that was whole a moment before cannot be read a second time. *ret_facts_json: np_free. */
int np_checkpoint_read(
    const char *path, struct np_checkpoint *checkpoint, char **ret_facts_json, struct np_err *err);
/* Is it whole? Sizes and XXH3 of its files against its manifest; nothing is loaded. -ENODATA: its weights
 * are, and its optimizer's state was dropped: np_checkpoint_read() fails with the same. */
int np_checkpoint_check(const char *path, struct np_err *err);
/* Removes the optimizer's state of all checkpoints but that of step `newest`: no run continues from them any
 * more, their weights stay. Call it after a write: the newest one is on the disk then. */
int np_checkpoint_drop_optimizers(const char *dir, uint64_t newest, struct np_err *err);
/* The newest whole checkpoint of dir; damaged ones are named through `damaged` and passed over.
 * -ENOENT: none. */
int np_checkpoint_latest(const char *dir, struct np_checkpoint *checkpoint, char **ret_facts_json,
    void (*damaged)(void *context, const char *text), void *context, struct np_err *err);
/* Makes dir/best a link to step-N, replaced whole; that it is there is on the disk afterwards. Nothing
 * to do where step-N is not there, or N is 0. Call it before np_checkpoint_prune(), which removes what
 * was the best before. -EPERM ...: a file system without links. */
int np_checkpoint_name_best(
    struct np_io *io, const char *dir, uint64_t best_step, struct np_err *err);
/* Keeps the newest `keep` up to step `newest` and the best one. Removes torn leftovers, and what is
 * newer: damaged ones, which the run that wrote `newest` passed over when it was resumed, and which
 * would take the places of whole ones. Call it after a write: what it removes is older than that, or
 * in pieces. */
int np_checkpoint_prune(
    const char *dir, int keep, uint64_t newest, uint64_t best_step, struct np_err *err);
/* Weights by name from any safetensors (F32, F64, F16, BF16): missing, unexpected and misshapen are
 * listed in *ret_text (np_free; NULL: none). A tensor whose shape differs is left as it was.
 * -EINVAL: no tensor of the file fits. */
int np_weights_load(const char *path, const struct np_graph *graph, float *params, float *buffers,
    char **ret_text, struct np_err *err);
/* SHA-256 over all weights and buffers in name order, hex: of each its name with the NUL, the number
 * of sizes and the sizes (u64 each), the elements (f32), all little-endian. */
void np_weights_sha256(
    const struct np_graph *graph, const float *params, const float *buffers, char ret_hex[65]);

#endif
