/* Internals of an operation graph, shared by dnn.c (building) and dnn_plan.c (plans). */
#ifndef NP_DNN_GRAPH_H
#define NP_DNN_GRAPH_H

#include "trainer/cuda/dnn.h"

struct np_dnn {
    const struct np_dnn_target *target;
    cudnnBackendDescriptor_t tensors[NP_DNN_MAX], ops[NP_DNN_MAX], parts[NP_DNN_MAX], graph;
    int64_t bound[NP_DNN_MAX]; /* uids of the tensors for np_dnn_bind() */
    int nr_tensors, nr_ops, nr_parts, nr_bound;
    bool has_f32;      /* a convolution reads f32 */
    struct np_err err; /* the first */
};

/* Fills err with cuDNN's message for its last error, on one line; returns its code. */
int np_dnn_refuse(
    const struct np_cudnn *cudnn, cudnnStatus_t status, const char *what, struct np_err *err);

#endif
