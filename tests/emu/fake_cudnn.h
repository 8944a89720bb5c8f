/* cuDNN's graph API on the CPU, for tests: the inside of the emulated libcudnn.so.9. Descriptors are
 * lists of attributes as they were set; a plan's graph is worked off by plain loops in f32, on the
 * stream of its handle. What cuDNN refuses is refused here where that is known.
 *
 * Its engines differ in what the notes say of them, so that a caller that ignores a note gets other
 * numbers: see the table in fake_cudnn_plan.c. */
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
    size_t bytes;
    void *values; /* descriptors among them are held */
    struct attribute *next;
};
struct descriptor {
    uint32_t magic;
    int holders;
    cudnnBackendDescriptorType_t type;
    bool finalized;
    struct attribute *attributes;
    struct program *program; /* of a plan */
};
struct cudnnContext {
    uint32_t magic;
    cudaStream_t stream;
};

/* fake_cudnn.c. set_error() keeps the text for cudnnGetLastErrorString() and returns its status. */
cudnnStatus_t fake_error(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct descriptor *fake_descriptor(const void *descriptor, const char *call);
struct descriptor *fake_new(cudnnBackendDescriptorType_t type);
void fake_drop(struct descriptor *descriptor);
size_t fake_type_bytes(cudnnBackendAttributeType_t type);
void fake_put(struct descriptor *descriptor, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t count, const void *values);
/* Every number below 0 and NULL: not set. */
const struct attribute *fake_get(
    const struct descriptor *descriptor, cudnnBackendAttributeName_t name);
int64_t fake_int(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t otherwise);
double fake_float(const struct descriptor *d, cudnnBackendAttributeName_t name, double otherwise);
struct descriptor *fake_part(const struct descriptor *d, cudnnBackendAttributeName_t name);

/* fake_cudnn_check.c: is a descriptor whole, does a graph hold together, would cuDNN take it? */
cudnnStatus_t fake_check(const struct descriptor *descriptor);
cudnnStatus_t fake_check_graph(const struct descriptor *graph);
bool fake_graph_has(const struct descriptor *graph, cudnnBackendDescriptorType_t op);
bool fake_graph_has_type(const struct descriptor *graph, cudnnDataType_t type);
/* Calls for each operand of an operation: its tensor, and whether it is written. */
void fake_operands(const struct descriptor *op,
    void (*see)(void *context, struct descriptor *tensor, bool written), void *context);

/* fake_cudnn_plan.c */
cudnnStatus_t fake_heuristics(
    struct descriptor *heuristics, int64_t room, int64_t *ret_count, void **ret_configs);
cudnnStatus_t fake_engine_get(const struct descriptor *engine, cudnnBackendAttributeName_t name,
    int64_t room, int64_t *ret_count, void *ret_values);
cudnnStatus_t fake_plan_finish(struct descriptor *plan);
cudnnStatus_t fake_plan_get(const struct descriptor *plan, cudnnBackendAttributeName_t name,
    int64_t room, int64_t *ret_count, void *ret_values);

/* fake_cudnn_text.c: a plan as text, and back. Caller frees the text. */
char *fake_write(const struct descriptor *graph, int engine);
cudnnStatus_t fake_read(const char *text, struct descriptor **ret_graph, int *ret_engine);

/* fake_cudnn_run.c: a graph made ready to run. */
enum rounding { EXACT, TF32, BF16 };
struct manner {             /* what an engine does its own way */
    enum rounding products; /* f32 is rounded to this before it is multiplied */
    bool backwards;         /* sums run from the end */
    bool any_order;         /* sums of a batch in an order drawn anew each time */
};
struct program *fake_program(
    const struct descriptor *graph, struct manner manner, int64_t workspace_bytes);
void fake_program_free(struct program *program);
int64_t fake_program_workspace(const struct program *program);
cudnnStatus_t fake_execute(
    cudnnHandle_t handle, struct descriptor *plan, const struct descriptor *pack);

/* fake_cudnn_conv.c. Dense f32: x (n, h, w, c), weights (out, kh, kw, c / groups), y. */
struct fake_conv {
    int64_t n, h, w, c, out_h, out_w, out, kernel_h, kernel_w, groups;
    int64_t pad[2], stride[2], dilation[2];
    struct manner manner;
};
void fake_forward(const struct fake_conv *conv, const float *x, const float *weights, float *y);
void fake_dgrad(const struct fake_conv *conv, const float *dy, const float *weights, float *dx);
void fake_wgrad(const struct fake_conv *conv, const float *x, const float *dy, float *dw);

#endif
