/* The kernel table of the CPU device: a row for each (operation, dtype). kernels_ref.c is plain C,
 * the reference in tests; kernels_onednn.c and kernels_cpu.c are the fast kernels.
 *
 * A batch is cut into lanes (a fixed number, chosen at a run's start: rounding depends on it)
 * and a lane into chunks of a few rows. The executor (program.c) runs a group of calls chunk by
 * chunk, so that what one call writes is still in cache when the next reads it; sums over the
 * batch (statistics, weight gradients, losses) go to the lane's partial, and `finish` adds the
 * lanes in order. So results depend on the lanes only, never on threads or timing.
 *
 * In a run with train.lanes (attr lane_rows above 0) the lanes are those of the run, and their sums
 * are added in a fixed binary tree, which goes on across processes: the executor adds the sums for
 * gradients, as f32 (leaf_bytes), and finish() gets the root; batchnorm's finish() joins its own. So
 * results do not depend on the number of processes either. */
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
    int view;      /* of attrs.tta: the run is of this view of the batch */
    int first_row; /* of the batch of all processes: the first one of this process */
    /* Above 0: what losses with class weights are scaled by, from all processes' labels. */
    float class_scale;
};

struct np_needs {
    size_t scratch_bytes; /* per thread, for one run() */
    size_t partial_bytes; /* per lane; lives from the lane's first run() to finish() */
    /* Of a lane's sum as f32, which the executor may add to those of other lanes: partial_bytes, or
     * those of leaf(). 0: finish() needs the lanes apart. */
    size_t leaf_bytes;
    size_t shared_bytes; /* per call; filled by begin(), read by run(): reordered weights */
    int max_rows;        /* per run(); 0: all rows of the lane (one run a lane) */
};

struct np_run {
    const struct np_operands *operands;
    const struct np_step_info *info;
    int first_row, nr_rows;
    bool first_in_lane; /* partial is uninitialised */
    void *scratch, *partial, *shared;
};

/* Joins a batchnorm's sums with those of the other processes. */
struct np_join {
    /* Each process gets the same bits in x (n). pair: left, the lower ranks', becomes left and right. */
    void (*all)(void *context, double *x, size_t n,
        void (*pair)(double *left, const double *right, size_t n));
    void *context;
    bool leads; /* this process's gradients have the joined sums; those of the others 0 */
};

struct np_finish {
    const struct np_operands *operands;
    const struct np_step_info *info;
    void *const *partials; /* one per lane */
    int nr_lanes, batch;
    bool accumulate;            /* add to the gradient instead of setting it */
    int part, nr_parts;         /* this call handles part of the elements, for several threads */
    const struct np_join *join; /* batchnorm over several processes; NULL: over this one's rows */
    void *scratch;              /* of the thread */
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
    /* Optional: NULL means no sums over rows, nor products for all lanes. After all lanes. */
    void (*finish)(void *state, const struct np_finish *finish);
    void (*free)(void *state);
    /* Optional: NULL means that a partial is the lane's sum as f32. Makes of a partial the lane's
     * outputs as f32, in the files' layouts, one after the other; finish() is then not called for
     * the root, which has their form. Only in lanes. Several threads at once. */
    void (*leaf)(void *state, const void *partial, float *out);
};

/* May a run of these rows be left out? */
static inline bool np_may_skip(const struct np_step_info *info, int first_row, int nr_rows)
{
    for (int r = first_row; info->skip && r < first_row + nr_rows; r++)
        if (info->skip[r] >= 0)
            return false;
    return info->skip != NULL;
}

/* True: the outputs of this linear layer, or of its input's gradient, are complete only after
 * finish(). */
bool np_linear_waits(const struct np_graph *graph, const struct np_op_node *node);

/* The lists of rows; a row without a name ends each. The reference supports every node. */
extern const struct np_kernel np_kernels_cpu[], np_kernels_bn[], np_kernels_pool[],
    np_kernels_winograd[], np_kernels_dropout[], np_kernels_loss[], np_kernels_onednn[],
    np_kernels_linear[], np_kernels_act[], np_kernels_token[], np_kernels_attention[],
    np_kernels_gate[], np_kernels_resample[], np_kernels_ref[];

/* The rows of an operation in f32 and bf16. */
#define NP_KERNEL_ROWS(name_, op_, prepare_, begin_, run_, finish_)                                \
    {name_ " f32", op_, NP_F32, prepare_, begin_, run_, finish_, np_free, NULL},                   \
    {                                                                                              \
        name_ " bf16", op_, NP_BF16, prepare_, begin_, run_, finish_, np_free, NULL                \
    }

/* The rows of an operation with sums for gradients. */
#define NP_SUM_ROWS(name_, op_, prepare_, run_, leaf_, finish_)                                    \
    {name_ " f32", op_, NP_F32, prepare_, NULL, run_, finish_, np_free, leaf_},                    \
    {                                                                                              \
        name_ " bf16", op_, NP_BF16, prepare_, NULL, run_, finish_, np_free, leaf_                 \
    }

/* Rounding depends on these: oneDNN's version ("2.6.3") and the instructions that it uses (its
 * bits). */
void np_onednn_version(char ret_text[32]);
unsigned np_onednn_isa(void);

/* bf16 <-> f32, round to nearest even; a NaN stays one. */
void np_bf16_from_f32(uint16_t *out, const float *in, size_t n);
void np_f32_from_bf16(float *out, const uint16_t *in, size_t n);

#endif
