/* The parts of libnnpipe (loader/nnpipe.h), for the files of this room alone. */
#ifndef NP_LIB_H
#define NP_LIB_H

#include <pthread.h>
#include <sys/types.h>

#include "loader/base/config_file.h"
#include "loader/lib/lib_store.h"
#include "loader/loader.h"
#include "loader/nnpipe.h"
#include "loader/sets.h"

/* --- data (lib_data.c) -------------------------------------------------------------------------- */

struct nnp_data {
    struct np_index *index; /* NULL: the loader has taken it */
    int32_t *labels;        /* class of the index -> the program's label */
    struct np_node *classes;
};

/* --- the loader --------------------------------------------------------------------------------- */

#define NP_LIB_STEPS                                                                               \
    (1ull << 40) /* batches that a loader can make; loader/exchange.c counts so far */

struct np_lib_options { /* of nnp_open() */
    int set;            /* enum np_which_set */
    int rank, world;
    struct np_row_format format;
    bool drop_last, dealt;
    int held;
    int gpu; /* of cuda:N; NP_LIB_CPU: none */
};
#define NP_LIB_CPU -1

struct np_dealer;

/* --- batches on a GPU (lib_ahead.c) ------------------------------------------------------------- */

/* Batches that were taken from the ring before the program asked for them: their copies are queued,
 * and run while the program works on an earlier one. A copied batch leaves its pinned memory in
 * `spares`, and the ring goes on with another. Under the loader's lock. */
enum { NP_AHEAD = 2, NP_SPARES = NP_AHEAD + 1 };
struct np_ahead {
    struct np_queued {
        struct nnp_batch *batch;
        uint64_t seq;
    } queue[NP_AHEAD + 1];
    _Atomic int nr_queued; /* nnp_counters() reads it */
    struct np_spare {
        struct np_batch_memory memory;
        bool copying;
        uint64_t copy; /* its number */
    } spares[NP_SPARES];
    struct np_err error; /* of a batch ahead: for the call that asks for it */
};

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
    struct np_formatter *formatter;      /* NULL: rows are u8 (height, width, channels) */
    const struct np_rows_plugin *plugin; /* NULL: images are in host memory */
    uint32_t words[4][256];              /* for the plugin */
    struct np_sampler_options order;
    _Atomic uint64_t length; /* batches of an epoch; of the dealt one */
    uint64_t fingerprint;
    uint64_t share_key, pictures_key; /* as np_loader_config */
    struct np_tally *tally;

    pthread_mutex_t lock; /* over everything below */
    struct np_loader *running;
    struct nnp_store *store;
    struct np_stat *stat;
    struct np_block *block;
    struct np_dealer *dealer; /* NULL: the order is our own */
    struct np_ahead ahead;    /* with a plugin */
    uint64_t epoch, taken;    /* the position */
    uint64_t nr_judged;       /* bad samples of batches taken from the ring, since the start */
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
/* The shape of the ring's batches: u8 (height, width, channels) with a GPU. */
struct np_batch_shape np_lib_ring_shape(const struct nnp_loader *loader);
/* Finds the plugin, and looks whether it can use the GPU of the options. -ENODEV. */
int np_lib_find_gpu(struct nnp_loader *loader, struct np_err *err);
/* Opens the GPU, for np_store_new(). */
int np_lib_open_gpu(
    const struct nnp_loader *loader, struct np_store_gpu *ret_gpu, struct np_err *err);
/* The ring's next batch (lib_next.c), which may be void. -ETIMEDOUT. */
int np_lib_take_ring(
    struct nnp_loader *loader, uint64_t until_ns, struct np_batch **ret_batch, struct np_err *err);
/* The facts of a batch that was just taken from the ring: rows, labels, nr_bad. */
void np_lib_describe(
    struct nnp_loader *loader, const struct np_batch *from, struct nnp_batch *batch);
/* The next batch, on the GPU: 1, or an error. */
int np_ahead_take(
    struct nnp_loader *loader, uint64_t until_ns, struct nnp_batch **ret_batch, struct np_err *err);
void np_ahead_drop(struct np_ahead *ahead); /* the readers have stopped */
/* Copies err to the loader; returns its code. */
int np_lib_fail(struct nnp_loader *loader, const struct np_err *err);
bool np_lib_is_foreign(const struct nnp_loader *loader); /* another process opened it */

#endif
