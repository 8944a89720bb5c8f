/* Weights in files of checkpoints and of other programs: which tensors are weights, and which
 * stored tensors fit. */
#ifndef NP_WEIGHTS_H
#define NP_WEIGHTS_H

#include "trainer/graph/graph.h"
#include "trainer/checkpoint/safetensors.h"

bool np_tensor_is_weight(const struct np_tensor *tensor); /* a parameter or a buffer */
bool np_tensor_fits(const struct np_tensor *tensor, const struct np_st_tensor *stored); /* shape */
bool np_is_batch_count(const char *name); /* a batchnorm's num_batches_tracked */

/* Loads weights by name from any safetensors (F32, F64, F16, BF16); *ret_text lists missing,
 * unexpected and misshapen tensors (np_free; NULL: none). A tensor whose shape differs is not
 * loaded. -EINVAL: no tensor of the file fits. */
int np_weights_load(const char *path, const struct np_graph *graph, float *params, float *buffers,
    char **ret_text, struct np_err *err);
/* SHA-256, in hex, over all weights and buffers in name order: each one's name with the NUL,
 * number of dimensions and sizes (u64 each), and elements (f32), all little-endian. */
void np_weights_sha256(
    const struct np_graph *graph, const float *params, const float *buffers, char ret_hex[65]);

#endif
