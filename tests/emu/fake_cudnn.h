/* cuDNN's graph API on the CPU, for tests: the inside of the emulated libcudnn.so.9. Descriptors are
 * lists of attributes as they were set. Graphs of one convolution, alone, with bias and relu behind it,
 * or with the sums of its channels, become plans; plain loops in f32 execute a plan on
 * the stream of its handle. All other graphs are refused.
 *
 * Engines differ in their notes, so that a caller that ignores a note gets other numbers: see
 * the table in fake_cudnn_plan.c, whose rows these name, "4" or "4=VALUE" with spaces between them:
 *     NNPIPE_EMU_FUSE=0         no engine takes more than the convolution
 *     NNPIPE_EMU_SHIFT=ROW      offers begin with that row and go round
 *     NNPIPE_EMU_NO_BUILD       rows whose plans cannot be finalized
 *     NNPIPE_EMU_NO_CAPTURE     rows that break a capture; with =1 without an error of their own
 *     NNPIPE_EMU_WORKSPACE      rows and the bytes they need
 *     NNPIPE_EMU_HOST_US        rows and the host's time to queue them, in the modelled clock
 *     NNPIPE_EMU_DEVICE_US      rows and the device's time for them
 *     NNPIPE_EMU_BUILDS=FILE    a line is added for each plan that is finalized: its row */
#ifndef NP_FAKE_CUDNN_H
#define NP_FAKE_CUDNN_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/emu/cudart.h"

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *values; /* descriptors among them are held */
    struct attribute *next;
};
struct descriptor {
    uint32_t magic;
    int holders;
    cudnnBackendDescriptorType_t type;
    bool finalized;
    bool loaded; /* a plan that has run */
    struct attribute *attributes;
};

/* fake_cudnn.c. error() keeps the text for cudnnGetLastErrorString() and returns its status. */
cudnnStatus_t fake_error(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct descriptor *fake_descriptor(const void *descriptor, const char *call); /* or it dies */
struct descriptor *fake_new(cudnnBackendDescriptorType_t type);
void fake_drop(struct descriptor *descriptor);
void fake_put(struct descriptor *descriptor, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t count, const void *values);
const struct attribute *fake_get(
    const struct descriptor *descriptor, cudnnBackendAttributeName_t name); /* NULL: not set */
int64_t fake_int(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t otherwise);
struct descriptor *fake_part(const struct descriptor *d, cudnnBackendAttributeName_t name);

/* fake_cudnn_plan.c: engines, and running them. */
cudnnStatus_t fake_heuristics(
    struct descriptor *heuristics, int64_t room, int64_t *ret_count, void **ret_configs);
cudnnStatus_t fake_notes(const struct descriptor *engine, cudnnBackendAttributeName_t name,
    int64_t room, int64_t *ret_count, int *ret_notes);
cudnnStatus_t fake_plan_finish(struct descriptor *plan);
cudnnStatus_t fake_execute(
    cudaStream_t stream, struct descriptor *plan, const struct descriptor *pack);

/* fake_cudnn_conv.c. Dense f32: x (n, h, w, c), weights (out, kh, kw, c / groups), y. */
enum rounding { EXACT, TO_TF32, TO_BF16 };
struct manner {             /* the details in which engines differ */
    enum rounding products; /* f32 is rounded to this before it is multiplied */
    bool backwards;         /* sums run from the end */
    bool any_order;         /* sums of a batch in a newly drawn order each time */
};
struct fake_conv {
    int64_t n, h, w, c, out_h, out_w, out, kernel_h, kernel_w, groups;
    int64_t pad[2], stride[2], dilation[2];
    struct manner manner;
};
void fake_forward(const struct fake_conv *conv, const float *x, const float *weights, float *y);
void fake_dgrad(const struct fake_conv *conv, const float *dy, const float *weights, float *dx);
void fake_wgrad(const struct fake_conv *conv, const float *x, const float *dy, float *dw);

/* fake_cudnn_graph.c: an operation graph as a list of steps. */
enum fake_kind { FORWARD, DGRAD, WGRAD };
struct fake_operand {
    int64_t uid; /* 0: there is none */
    cudnnDataType_t type;
    int64_t elements, alignment;
};
struct fake_program {
    enum fake_kind kind;
    struct fake_conv conv;
    struct fake_operand ins[2], bias, out; /* ins: x, w; dy, w; x, dy */
    struct fake_operand sums[2];           /* f32, of out's channels and of their squares */
    bool relu;
};
/* NOT_SUPPORTED: no graph of ours; BAD_PARAM: its shapes or types do not fit. */
cudnnStatus_t fake_lower(const struct descriptor *graph, struct fake_program *ret_program);

#endif
