/* The memory plan of a graph, and the options of a network on a device. plan.c places tensors
 * for all devices; program.c runs a graph's calls on the CPU. */
#ifndef NP_PLAN_H
#define NP_PLAN_H

#include "trainer/device.h"
#include "trainer/graph/graph.h"

/* The place of each activation and saved tensor in one arena. Two tensors share bytes only when
 * their lifetimes do not overlap; best fit, biggest first (Pisarchyk and Lee, arXiv:2001.03288,
 * "greedy by size"). A node's first output (BN_REDUCE: its gradient) takes an operand's place when
 * the operand's lifetime ends at the node and the operation is elementwise: kernels of these operations must read an
 * element before they write it. */
struct np_memory {
    uint64_t *offsets; /* (nr_tensors) bytes, aligned to 64; UINT64_MAX: not in the arena (params,
                          grads, buffers, inputs, tensors of no node) */
    uint64_t arena_bytes;
};
/* when: (nr_nodes) time of each node, never falling. Nodes with the same time may overlap in any
 * order across rows, and gradients of weights may come last of them. NULL: one after the other. */
void np_memory_plan(const struct np_graph *graph, const int *when, struct np_memory *ret_memory);
void np_memory_fini(struct np_memory *memory);

/* What batchnorm averages over in a batch in parts: all rows of the batch, those of a process, or
 * groups of this many rows: whole parts, or a part of one. */
#define NP_MAX_LANES    1024
#define NP_OVER_ALL     0
#define NP_OVER_PROCESS (-1)

struct np_plan_options {
    int lanes; /* of the plan's batch, for threads; 0: as many as threads */
    int threads;
    /* Of a batch: the lanes of train.lanes, as many in each process. Up to 1: whole batches. A device that
     * computes them at_once has a plan for all rows of this process; others for those of one part. */
    int parts;
    int batchnorm_over;     /* at_once: NP_OVER_ALL ... */
    struct np_comm *comm;   /* the other processes; NULL: none. Borrowed */
    struct np_block *block; /* and where waits for them are named; NULL: nowhere. Borrowed */
    bool reference;         /* kernels_ref only */
    bool sum_fast;          /* a GPU: sums in the order of NCCL's, which depends on the processes */
    bool comm_halves;       /* with sum_fast: gradients travel in bf16 */
    bool deterministic;
    bool tf32;      /* a GPU's f32 products may round their factors to 10 bits */
    bool recompute; /* np_recompute_best() */
    bool muon;      /* updates may be muon's, whose matrices take memory */
    bool losses;    /* the caller calls plan_ops->losses() */
    /* eval() need not compute rows with a negative label: their logits are then undefined. */
    bool skip_masked;
    unsigned snapshot; /* 1 << NP_ARRAY_* of the arrays that snap() copies; 0: it is not called */
    const char *state; /* text of plan_ops->state() in a checkpoint; NULL: none */
    /* Optional. Receives lines for the log from prepare(): kernels that are not used. */
    void (*note)(void *context, const char *text);
    void *note_context;
};

/* The first row of a lane; of lane nr_lanes: the end of the batch. */
int np_lane_start(int batch, int nr_lanes, int lane);

#endif
