/* Weights in files of checkpoints and of other programs: which tensors are weights, and which
 * stored tensors fit. */
#ifndef NP_WEIGHTS_H
#define NP_WEIGHTS_H

#include "trainer/checkpoint/tensor_file.h"
#include "trainer/checkpoint/weights_table.h"
#include "trainer/graph/graph.h"

bool np_tensor_is_weight(const struct np_tensor *tensor); /* a parameter or a buffer */
bool np_tensor_fits(const struct np_tensor *tensor, const struct np_st_tensor *stored); /* shape */
bool np_is_batch_count(const char *name); /* a batchnorm's num_batches_tracked */

/* Loads weights by name from any file that np_weights_open() takes, also FILE#KEY (F32, F64, F16,
 * BF16; strides). If that fits more names of the network, the prefixes "module.", "_orig_mod." and
 * "model." of the file's names are left out. A tensor whose shape differs is not loaded.
 * *ret_table: what was loaded; np_weights_table_free(). -EINVAL: no tensor of the file fits. */
int np_weights_load(const char *path, const struct np_graph *graph, float *params, float *buffers,
    struct np_weights_table **ret_table, struct np_err *err);
/* SHA-256, in hex, over all weights and buffers in name order: each one's name with the NUL,
 * number of dimensions and sizes (u64 each), and elements (f32), all little-endian. */
void np_weights_sha256(
    const struct np_graph *graph, const float *params, const float *buffers, char ret_hex[65]);

#endif
