/* Shared by the CPU device's own kernels. Internal to kernels_cpu*.c. */
#ifndef NP_KERNELS_CPU_H
#define NP_KERNELS_CPU_H

#include "trainer/cpu/kernels.h"

#define NP_CPU_BLOCK 16 /* elements: a cache line in f32; two vectors */

/* The facts of a node. Kernels with more facts use a struct that begins with this one. */
struct np_cpu {
    enum np_op op;
    bool half; /* activations are bf16 */
    int nr_ins, nr_outs, batch;
    int h, w, c;      /* of the first input (INPUT: output) */
    int out_h, out_w; /* of the first output */
    struct np_attrs attrs;
    /* Period: the shortest stretch of an activation that is a whole number of pixels and of
     * blocks. Tile: enough periods for an efficient loop. Channels' values are laid out over a
     * tile. */
    int period, tile;
};

/* Fills the facts from a node; -ENOTSUP for dtypes other than f32 and bf16, and for 2^27
 * channels. */
int np_cpu_init(struct np_cpu *cpu, const struct np_graph *graph, const struct np_op_node *node);
/* A prepare() that allocates a struct np_cpu and needs five tiles of floats as scratch. */
int np_cpu_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err);

/* out (n) = max(in, 0) of f32 (half: bf16); a NaN stays one. out may be in. */
void np_cpu_relu(bool half, void *out, const void *in, size_t n);

/* The run's first element; row: elements of a row. */
static inline size_t np_cpu_first(const struct np_run *run, size_t row)
{
    return (size_t)run->first_row * row;
}

static inline size_t np_cpu_row(const struct np_cpu *cpu) /* of the first input */
{
    return (size_t)cpu->h * (size_t)cpu->w * (size_t)cpu->c;
}

static inline size_t np_cpu_out_row(const struct np_cpu *cpu) /* of the first output, with c */
{
    return (size_t)cpu->out_h * (size_t)cpu->out_w * (size_t)cpu->c;
}

static inline void *np_cpu_at(const struct np_cpu *cpu, void *data, size_t i)
{
    return data ? (char *)data + i * (cpu->half ? sizeof(uint16_t) : sizeof(float)) : NULL;
}

#endif
