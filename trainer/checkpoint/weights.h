/* What checkpoints and foreign files have in common: which tensors are weights, and which
 * stored ones fit. */
#ifndef NP_WEIGHTS_H
#define NP_WEIGHTS_H

#include "trainer/graph/graph.h"
#include "trainer/checkpoint/safetensors.h"

bool np_tensor_is_weight(const struct np_tensor *tensor); /* a parameter or a buffer */
bool np_tensor_fits(const struct np_tensor *tensor, const struct np_st_tensor *stored); /* shape */
bool np_is_batch_count(const char *name); /* a batchnorm's num_batches_tracked */

#endif
