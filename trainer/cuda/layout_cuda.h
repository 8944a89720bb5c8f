/* The layout of weights on the GPU. Files and the graph use torch's layouts (conv: OIHW); the
 * device has conv weights as (out, kh, kw, in), with `in` padded if the network's input is
 * padded, each tensor at a multiple of NP_CUDA_CHUNK elements of one flat array. Gradients,
 * optimizer states and the halves for tensor cores have the same layout, so that one kernel
 * updates everything. Conv weights come first, so that one kernel casts their gradients. Host
 * code. */
#ifndef NP_LAYOUT_CUDA_H
#define NP_LAYOUT_CUDA_H

#include "trainer/graph/graph.h"

/* A parameter that muon updates as a matrix. */
struct np_cuda_matrix {
    uint64_t at;         /* its first element */
    uint64_t rows, cols; /* on the device: the padding's columns are 0, and stay so */
    double rate;         /* np_muon_rate() of its shape in the files */
    uint64_t thaw;       /* of its rule */
};

struct np_cuda_layout {
    const struct np_graph *files; /* borrowed: shapes as files have them */
    uint64_t *offsets;            /* (nr_tensors) element in the device's array; only params */
    uint64_t nr_params;           /* elements on the device, padding included */
    uint64_t nr_convs;            /* of these, the conv weights, which come first */
    uint8_t *rule_of;             /* (nr_params / NP_CUDA_CHUNK) into rules */
    struct np_rule *rules;        /* the different rules of the parameters */
    bool *for_matrices;           /* (nr_rules) muon: whose parameters are matrices */
    int nr_rules;
    struct np_cuda_matrix *matrices; /* of muon, in the files' order */
    int nr_matrices;
};

/* Returns a copy of graph whose input is padded, to 8 halves or 4 floats, if only convolutions
 * without groups read it (cuDNN has its fast engines there); its offsets are not those of the
 * files. Caller frees with np_graph_free(). */
struct np_graph *np_cuda_graph(const struct np_graph *graph);

/* muon: its matrices are found, and have rules of their own. */
int np_cuda_layout_init(
    struct np_cuda_layout *layout, const struct np_graph *files, bool muon, struct np_err *err);
void np_cuda_layout_fini(struct np_cuda_layout *layout);
/* Copy between a flat array in the files' layout and one in the device's, both on the host;
 * padding becomes 0. */
void np_cuda_layout_pack(const struct np_cuda_layout *layout, const float *files, float *device);
void np_cuda_layout_unpack(const struct np_cuda_layout *layout, const float *device, float *files);

#endif
