/* Where weights lie on the GPU, and as what. Files and the graph hold torch's layouts (conv: OIHW);
 * the device holds conv weights as (out, kh, kw, in), with `in` padded where the network's input is
 * padded, each tensor at a multiple of NP_CUDA_CHUNK elements of one flat array: gradients,
 * optimizer states and the halves that tensor cores read lie alike, so that an update is one
 * kernel over everything. Conv weights come first: their gradients are cast in one go. Host code. */
#ifndef NP_LAYOUT_CUDA_H
#define NP_LAYOUT_CUDA_H

#include "trainer/graph/graph.h"

struct np_cuda_layout {
    const struct np_graph *files; /* borrowed: shapes as files have them */
    uint64_t *offsets;            /* (nr_tensors) element in the device's array; params alone */
    uint64_t nr_params;           /* elements on the device, padding included */
    uint64_t nr_convs;            /* of these, the conv weights in front */
    uint8_t *decay;               /* (nr_params / NP_CUDA_CHUNK) does weight decay apply */
};

/* Channels that the network's input is padded to: 8 halves or 4 floats where only convolutions
 * without groups read it (cuDNN has its good engines there), else as they are. */
int np_cuda_padded(const struct np_graph *graph);
/* A copy of graph with the padding in its shapes; offsets are not the files' any more. Caller frees
 * with np_graph_free(); NULL: no memory. */
struct np_graph *np_cuda_graph(const struct np_graph *graph);

/* device: np_cuda_graph(files); both have the same tensors under the same numbers. */
int np_cuda_layout_init(struct np_cuda_layout *layout, const struct np_graph *files,
    const struct np_graph *device, struct np_err *err);
void np_cuda_layout_fini(struct np_cuda_layout *layout);
/* files' flat array <-> the device's; padding is written as 0. Both of the host. */
void np_cuda_layout_pack(const struct np_cuda_layout *layout, const float *files, float *device);
void np_cuda_layout_unpack(const struct np_cuda_layout *layout, const float *device, float *files);

#endif
