/* The allocator of pinned memory: huge pages on the GPU's NUMA node, each block registered once.
 * Trainer thread. */
#ifndef NP_PINNED_CUDA_H
#define NP_PINNED_CUDA_H

#include "trainer/device.h"

struct np_cuda_block { /* as mapped */
    void *memory;
    size_t bytes;
};
struct np_cuda_pinned {
    struct np_device *device; /* borrowed: its fault receives errors */
    int node;                 /* NUMA node to prefer; -1: none */
    struct np_cuda_block *blocks;
    int nr_blocks;
    size_t blocks_room;
};

/* As in struct np_allocator; context: a struct np_cuda_pinned. NULL: the reason is in
 * device->fault. */
void *np_cuda_pinned_alloc(void *context, size_t bytes);
void np_cuda_pinned_free(void *context, void *memory, size_t bytes);
/* Frees the blocks that are left. */
void np_cuda_pinned_fini(struct np_cuda_pinned *pinned);

#endif
