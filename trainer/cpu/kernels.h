/* The kernel table of the CPU device: a row for each (operation, dtype). kernels_ref.c is plain C,
 * the reference in tests; kernels_onednn.c and kernels_cpu.c are the fast kernels.
 *
 * A batch is cut into lanes (a fixed number, chosen at a run's start: rounding depends on it)
 * and a lane into chunks of a few rows. The executor (program.c) runs a group of calls chunk by
 * chunk, so that what one call writes is still in cache when the next reads it; sums over the
 * batch (statistics, weight gradients, losses) go to the lane's partial, and `finish` adds the
 * lanes in order. So results depend on the lanes only, never on threads or timing. */
#ifndef NP_KERNELS_H
#define NP_KERNELS_H

#include <stddef.h>

#include "loader/base/mem.h"
#include "trainer/graph/graph.h"

/* A call's operands in the order of enum np_op: ins, then outs. NULL: absent. */
struct np_operands {
    void *ptr[2 * NP_MAX_OPERANDS]; /* whole tensors: row r of an activation is at r * row bytes */
};

struct np_step_info { /* values that change from step to step */
    uint64_t step;
    float loss_scale; /* of the gradient: 1 / (valid rows * accumulation) */
    /* (batch) labels: chunks in which all are negative are not computed; NULL: all rows are */
    const int32_t *skip;
    int view; /* of attrs.tta: the run is of this view of the batch */
};

struct np_needs {
    size_t scratch_bytes; /* per thread, for one run() */
    size_t partial_bytes; /* per lane; lives from the lane's first run() to finish() */
    size_t shared_bytes;  /* per call; filled by begin(), read by run(): reordered weights */
    int max_rows;         /* per run(); 0: all rows of the lane (one run a lane) */
};

struct np_run {
    const struct np_operands *operands;
    const struct np_step_info *info;
    int first_row, nr_rows;
    bool first_in_lane; /* partial is uninitialised */
    void *scratch, *partial, *shared;
};

struct np_finish {
    const struct np_operands *operands;
    const struct np_step_info *info;
    void *const *partials; /* one per lane */
    int nr_lanes, batch;
    bool accumulate;    /* add to the gradient instead of setting it */
    int part, nr_parts; /* this call handles part of the elements, for several threads */
};

struct np_kernel {
    const char *name; /* "onednn conv f32" */
    enum np_op op;
    enum np_dtype dtype;
    /* Required. Makes private state and needs for a node and its shapes. -ENOTSUP: not for this
     * shape or CPU; the next row is tried. max_rows bounds nr_rows of any run(). */
    int (*prepare)(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
        void **ret_state, struct np_needs *ret_needs, struct np_err *err);
    /* Optional: NULL means nothing to do before the first chunk. Before the
     * first run and after each change of the weights, one thread. */
    void (*begin)(void *state, const struct np_operands *operands, void *shared);
    /* Required. Rows first_row.. of the batch. Several threads at once, each its own lane. */
    void (*run)(void *state, const struct np_run *run);
    /* Optional: NULL means no sums over rows. After all lanes. */
    void (*finish)(void *state, const struct np_finish *finish);
    void (*free)(void *state);
};

/* The lists of rows; a row without a name ends each. The reference supports every node. */
extern const struct np_kernel np_kernels_cpu[], np_kernels_bn[], np_kernels_pool[],
    np_kernels_winograd[], np_kernels_dropout[], np_kernels_loss[], np_kernels_onednn[],
    np_kernels_linear[], np_kernels_act[], np_kernels_token[], np_kernels_attention[],
    np_kernels_gate[], np_kernels_resample[], np_kernels_ref[];

/* The rows of an operation in f32 and bf16. */
#define NP_KERNEL_ROWS(name_, op_, prepare_, begin_, run_, finish_)                                \
    {name_ " f32", op_, NP_F32, prepare_, begin_, run_, finish_, np_free},                         \
    {                                                                                              \
        name_ " bf16", op_, NP_BF16, prepare_, begin_, run_, finish_, np_free                      \
    }

/* Rounding depends on these: oneDNN's version ("2.6.3") and the instructions that it uses (its
 * bits). */
void np_onednn_version(char ret_text[32]);
unsigned np_onednn_isa(void);

/* bf16 <-> f32, round to nearest even; a NaN stays one. */
void np_bf16_from_f32(uint16_t *out, const float *in, size_t n);
void np_f32_from_bf16(float *out, const uint16_t *in, size_t n);

#endif
