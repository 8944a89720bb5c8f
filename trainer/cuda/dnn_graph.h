/* Internals of an operation graph, shared by dnn_graph.c (builds it) and dnn_plan.c (plans). make()
 * to get() do nothing after an error, so that callers read like the graphs they build. */
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

static inline void check(struct np_dnn *dnn, cudnnStatus_t status, const char *what)
{
    if (status != CUDNN_STATUS_SUCCESS)
        np_dnn_refuse(dnn->target->cudnn, status, what, &dnn->err);
}

static inline cudnnBackendDescriptor_t make(
    struct np_dnn *dnn, cudnnBackendDescriptorType_t type, const char *what)
{
    cudnnBackendDescriptor_t descriptor = NULL;

    if (dnn->err.code == 0)
        check(dnn, dnn->target->cudnn->new_descriptor(type, &descriptor), what);
    return descriptor;
}

static inline void set(struct np_dnn *dnn, cudnnBackendDescriptor_t descriptor,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
    const void *values, const char *what)
{
    if (dnn->err.code == 0)
        check(dnn, dnn->target->cudnn->set(descriptor, name, type, count, values), what);
}

static inline void finalize(
    struct np_dnn *dnn, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (dnn->err.code == 0)
        check(dnn, dnn->target->cudnn->finalize(descriptor), what);
}

/* Returns the number of values. */
static inline int get(struct np_dnn *dnn, cudnnBackendDescriptor_t descriptor,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int max, void *ret_values,
    const char *what)
{
    int64_t count = 0;

    if (dnn->err.code == 0)
        check(dnn, dnn->target->cudnn->get(descriptor, name, type, max, &count, ret_values), what);
    return (int)count;
}

#endif
