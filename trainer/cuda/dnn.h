/* cuDNN's graph API in a few calls: tensors and operations become an operation graph, the graph
 * gives plans, a plan runs on a stream. Building needs no GPU: plans can be made for any GPU
 * that a DEVICEPROP descriptor describes. Trainer thread. */
#ifndef NP_DNN_H
#define NP_DNN_H

#include <cudnn.h>
#include <stdbool.h>

#include "loader/base/err.h"
#include "trainer/graph/graph.h"

/* The functions of cuDNN that are used; filled by libs.c. */
struct np_cudnn {
    size_t (*version)(void);
    const char *(*error_string)(cudnnStatus_t status);
    void (*last_error)(char *text, size_t bytes);
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*new_descriptor)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *);
    cudnnStatus_t (*free_descriptor)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
        cudnnBackendAttributeType_t, int64_t count, const void *values);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
        cudnnBackendAttributeType_t, int64_t room, int64_t *ret_count, void *ret_values);
    cudnnStatus_t (*execute)(
        cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant_pack);
};

/* The GPU that plans are made for: open (handle), or only described (props). */
struct np_dnn_target {
    const struct np_cudnn *cudnn;
    cudnnHandle_t handle;           /* NULL: no GPU, plans are built but cannot run */
    cudnnBackendDescriptor_t props; /* DEVICEPROP; NULL with a handle */
};
/* Frees the descriptors that are not NULL. */
void np_dnn_drop(const struct np_cudnn *cudnn, cudnnBackendDescriptor_t *list, int n);

/* --- an operation graph ---------------------------------------------------------------------- */

#define NP_DNN_MAX 24 /* tensors and operations of a graph, each */

/* A graph under construction. np_dnn_finish() returns the first error. */
struct np_dnn;
struct np_dnn *np_dnn_new(const struct np_dnn_target *target);
void np_dnn_free(struct np_dnn *dnn);

enum np_dnn_kind {
    NP_DNN_REAL,   /* in device memory */
    NP_DNN_VIRTUAL /* only between operations of the graph */
};
/* Tensors are named by numbers below; a real tensor's number is its index in np_dnn_run()'s
 * pointers. dims: n, c, h, w in this order whatever the layout; stored NHWC. */
int np_dnn_tensor(
    struct np_dnn *dnn, enum np_dnn_kind kind, cudnnDataType_t type, const int64_t dims[4]);
/* Statistics and parameters of channels: (1, c, 1, 1), f32. */
int np_dnn_channels(struct np_dnn *dnn, int64_t c);

/* w: dims (out, in/groups, kh, kw), stored out, kh, kw, in. */
void np_dnn_conv(struct np_dnn *dnn, const struct np_window *window, int x, int w, int y);
void np_dnn_dgrad(struct np_dnn *dnn, const struct np_window *window, int dy, int w, int dx);
void np_dnn_wgrad(struct np_dnn *dnn, const struct np_window *window, int x, int dy, int dw);
/* y = mode(x, b); b -1: mode(x). */
void np_dnn_pointwise(struct np_dnn *dnn, cudnnPointwiseMode_t mode, int x, int b, int y);
/* Sum and sum of squares of each channel of x. */
void np_dnn_stats(struct np_dnn *dnn, int x, int sum, int square_sum);
/* Completes the graph. Errors: cuDNN's own message about what it rejects. */
int np_dnn_finish(struct np_dnn *dnn, struct np_err *err);

/* --- plans ----------------------------------------------------------------------------------- */

struct np_dnn_rules {
    bool deterministic; /* no engine with an undefined order of additions */
    bool tf32;          /* f32 products may round their inputs to 10 bits */
    bool runtime;       /* engines that compile at run time may be taken (NVRTC is there) */
};
#define NP_DNN_OFFERS 64 /* maximum of a graph */
#define NP_DNN_ID     192
/* An offer of cuDNN for a graph: an engine with its knobs set. */
struct np_dnn_offer {
    cudnnBackendDescriptor_t config;
    char id[NP_DNN_ID]; /* "40:2=1,7=64": engine, knobs; the order of offers means nothing */
    bool compiled;      /* at run time */
};
struct np_dnn_plan {
    cudnnBackendDescriptor_t plan;
    uint64_t workspace_bytes;
    char id[NP_DNN_ID]; /* of its offer */
};
/* Lists the offers within the rules in cuDNN's order of preference, each once. Builds nothing.
 * Returns their number, or a negative errno: -ENOTSUP if there are none. */
int np_dnn_offers(struct np_dnn *dnn, const struct np_dnn_rules *rules,
    struct np_dnn_offer offers[NP_DNN_OFFERS], struct np_err *err);
void np_dnn_offers_free(const struct np_cudnn *cudnn, struct np_dnn_offer *offers, int n);
/* Builds the plan of an offer; kernels compiled at run time take a second. -ENOTSUP: cuDNN
 * cannot build it; try the next offer. */
int np_dnn_build(const struct np_dnn_target *target, const struct np_dnn_offer *offer,
    struct np_dnn_plan *ret_plan, struct np_err *err);
void np_dnn_plan_free(const struct np_cudnn *cudnn, struct np_dnn_plan *plan);
/* The memory that a graph's plans run on: pointers in the order of its real tensors, and the
 * largest workspace. Valid for any plan of the graph. Replaces *pack; np_dnn_drop(). */
int np_dnn_bind(const struct np_dnn *dnn, void *const *pointers, void *workspace,
    cudnnBackendDescriptor_t *pack, struct np_err *err);
int np_dnn_run(const struct np_dnn_target *target, const struct np_dnn_plan *plan,
    cudnnBackendDescriptor_t pack, struct np_err *err);

#endif
