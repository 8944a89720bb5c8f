/* The parts of libnnpipe (loader/nnpipe.h), for the files of this room alone. */
#ifndef NP_LIB_H
#define NP_LIB_H

#include <pthread.h>
#include <sys/types.h>

#include "loader/base/config_file.h"
#include "loader/loader.h"
#include "loader/nnpipe.h"
#include "loader/sets.h"

/* --- the memory of batches (lib_store.c) -------------------------------------------------------- */

/* A batch that the program holds, or may be given. */
struct nnp_batch {
    struct nnp_store *store;
    _Atomic int nr_owners; /* 0: free */
    int rows;
    uint64_t epoch, number;
    struct np_batch_memory memory; /* NULL: none yet */
    int64_t *labels;               /* (rows), beside the memory */
};

/* The memory of all batches between two starts of the readers. It lives until the readers have
 * stopped and the last batch is released. */
struct nnp_store;
/* held: batches that the program may hold. NULL: out of memory. */
struct nnp_store *np_store_new(const struct np_batch_shape *shape, int held, struct np_err *err);
/* The store's owner lets go of it. */
void np_store_drop(struct nnp_store *store);
/* For the ring: its memory stays as long as the store does. */
struct np_allocator np_store_allocator(struct nnp_store *store);
/* A free batch with memory and one owner. NULL: -EBUSY: all are held; -ENOMEM. */
struct nnp_batch *np_store_take(struct nnp_store *store, struct np_err *err);
int np_store_held(const struct nnp_store *store); /* batches with an owner, now */

/* --- data (lib_data.c) -------------------------------------------------------------------------- */

struct nnp_data {
    struct np_index *index; /* NULL: the loader has taken it */
    int32_t *labels;        /* class of the index -> the program's label */
    struct np_node *classes;
};

/* --- the loader --------------------------------------------------------------------------------- */

enum np_lib_device { NP_LIB_CPU };

#define NP_LIB_STEPS (1ull << 48) /* batches that a loader can make */

struct np_lib_options { /* of nnp_open() */
    int set;            /* enum np_which_set */
    int rank, world;
    struct np_row_format format;
    bool drop_last, dealt;
    int held;
};

struct np_dealer;

struct nnp_loader {
    /* set once by nnp_open() */
    pid_t pid;
    struct np_lib_options options;
    struct np_config_file file;
    struct np_data_options data_options;
    struct np_loader_options loader_options;
    int64_t seed;
    struct np_sets sets;
    struct np_index *index; /* of sets: the one that is loaded */
    const int32_t *labels;
    const struct np_chain *chain;
    struct np_batch_shape shape;
    struct np_formatter *formatter; /* NULL: rows are u8 (height, width, channels) */
    struct np_sampler_options order;
    uint64_t length; /* batches of an epoch; of dealt ones: the present epoch's */
    uint64_t fingerprint;

    pthread_mutex_t lock; /* over everything below */
    struct np_loader *running;
    struct nnp_store *store;
    struct np_stat *stat;
    struct np_block *block;
    struct np_dealer *dealer; /* NULL: the order is our own */
    uint64_t epoch, taken;    /* the position */
    bool failed;              /* until nnp_seek() */

    /* Over error and the counts, and the changes of running, store and stat: what nnp_error(),
     * nnp_counters() and nnp_close() use while nnp_next() waits. Taken after `lock`. */
    pthread_mutex_t error_lock;
    struct np_err error;
    uint64_t nr_batches, nr_images, wait_ns, nr_bad;
};

/* Starts the readers at the position. */
int np_lib_start(struct nnp_loader *loader, struct np_err *err);
void np_lib_stop(struct nnp_loader *loader);
/* Sets how rows are formatted: values (channels, 256), NULL: by loader.normalize. Before a start. */
int np_lib_format(struct nnp_loader *loader, const float *values, struct np_err *err);
/* Copies err to the loader; returns its code. */
int np_lib_fail(struct nnp_loader *loader, const struct np_err *err);
bool np_lib_is_foreign(const struct nnp_loader *loader); /* another process opened it */

#endif
