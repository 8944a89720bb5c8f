/* The memory of batches, for the files of this room alone: on the host, or on a GPU. */
#ifndef NP_LIB_STORE_H
#define NP_LIB_STORE_H

#include <pthread.h>
#include <stdbool.h>

#include "loader/base/mem.h"
#include "loader/nnpipe.h"
#include "loader/rows_gpu.h"

/* A batch that the program holds, or may be given. */
struct nnp_batch {
    struct nnp_store *store;
    _Atomic int nr_owners;
    _Atomic bool taken; /* false: free; later than the last owner, who may have work to do */
    int rows;
    uint64_t nr_bad; /* samples of its rows: those that were replaced, and masked ones */
    uint64_t epoch, number;
    struct np_batch_memory memory; /* NULL: none yet */
    int64_t *labels;               /* (rows), beside the memory */
    float *values;                 /* (rows, shape.values), behind them; NULL: labels are classes */
    struct np_gpu_buffer *buffer;  /* where the images are; NULL: in host memory */
    pthread_mutex_t lock;          /* over use_error */
    struct np_err use_error;       /* of nnp_batch_use() */
};

/* The number of batches that are taken, now, of all stores of a loader. Each of them owns it, and the
 * loader, since batches outlive both. */
struct np_tally {
    _Atomic int nr_users, nr_taken;
};
struct np_tally *np_tally_new(struct np_err *err); /* NULL: out of memory */
void np_tally_drop(struct np_tally *tally);        /* NULL: nothing */

/* The memory of all batches between two starts of the readers. It lives until the readers have
 * stopped and the last batch is released. */
struct nnp_store;
/* A GPU of a store; plugin NULL: none. */
struct np_store_gpu {
    const struct np_rows_plugin *plugin;
    struct np_gpu *gpu;
};
/* shape: of the ring's batches. held: batches that the program may hold. gpu: taken over, also on an
 * error: the images are there. NULL: out of memory. */
struct nnp_store *np_store_new(const struct np_batch_shape *shape, int held,
    const struct np_store_gpu *gpu, struct np_tally *tally, struct np_err *err);
const struct np_store_gpu *np_store_gpu(const struct nnp_store *store);
/* The store's owner lets go of it. */
void np_store_drop(struct nnp_store *store);
/* For the ring: its memory stays as long as the store does, and the GPU can read it. */
struct np_allocator np_store_allocator(struct nnp_store *store);
/* Why the allocator failed, if it knows: into err. */
void np_store_explain(const struct nnp_store *store, struct np_err *err);
/* As the ring's, for n more batches. */
int np_store_spares(
    struct nnp_store *store, int n, struct np_batch_memory *ret_spares, struct np_err *err);
/* A free batch with memory and one owner. NULL: -EBUSY: all are held; -ENOMEM. */
struct nnp_batch *np_store_take(struct nnp_store *store, struct np_err *err);
int np_store_held(const struct nnp_store *store); /* its batches that are taken, now */
int np_store_busy(int held, struct np_err *err);  /* -EBUSY: the program holds so many batches */

#endif
