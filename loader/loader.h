/* The loader: sampler, readers and ring, started and stopped together. */
#ifndef NP_LOADER_H
#define NP_LOADER_H

#include "loader/base/range_cache.h"
#include "loader/loader_options.h"
#include "loader/reader.h"

struct np_loader_config {
    const struct np_loader_options *options;
    struct np_sampler_options sampler;
    struct np_index *train, *eval;                 /* borrowed; the loader may add CRCs */
    const int32_t *train_labels, *eval_labels;     /* class of the set -> of the run; NULL: equal */
    const struct np_chain *augment, *test_augment; /* borrowed */
    struct np_batch_shape shape;
    const struct np_allocator *allocator;
    struct np_stat *stat; /* borrowed */
    uint64_t first_step;
    bool eval_due;          /* begin with the evaluation that precedes first_step */
    uint64_t picture_bytes; /* estimated bytes of a picture's pixels; 0: not known */
    uint64_t nr_bad;        /* bad samples of this epoch, from the checkpoint */
    /* For `cache: device`: bytes of free memory on the device. 0: the cache is in host memory. Else
     * rows whose picture is cached come without pixels (about->resident), and the caller's feed
     * keeps a copy of `resident` on the device. */
    uint64_t device_room;
    const struct np_formatter *formatter; /* as np_row_options; borrowed */
    /* np_share_key(): batches are shared as options->share says. 0: they are not. */
    uint64_t share_key;
    uint64_t pictures_key; /* np_share_pictures_key(): the same for a decoded cache */
};

/* A running loader. np_loader_start() fills in the values that it chose for `auto`. */
struct np_loader {
    struct np_ring *ring;
    const struct np_sampler *sampler;
    struct np_cache *resident; /* the cache of which the device keeps a copy; NULL: none */
    int nr_readers, depth;
    const char *io;    /* the backend's name */
    const char *cache; /* "none", "encoded", "decoded" or "device" */

    /* for loader.c; set once */
    struct np_reader_config config;
    struct np_set sets[2]; /* by enum np_batch_kind */
    struct np_files *files[2];
    struct np_changed *changed[2];
    struct np_entries *entries[2];
    struct np_balance *balance;        /* NULL: classes are not balanced */
    struct np_entered entered;         /* atomic */
    struct np_remote_session *session; /* with objects of servers; NULL: all files are local */
    char disk_note[400];               /* why their cache on local disk is off; "": it is not */
    struct np_reader **readers;        /* (nr_readers) */
};
/* A hash of all that rows are a function of, but the sampler's options and the shape: the sets
 * (eval may be NULL), the keys of `loader:` that change a row, the name under which jobs share, and
 * `more` of the caller. Takes time for each sample of the sets. 0: the batches cannot be shared. */
uint64_t np_share_key(const struct np_loader_config *config, uint64_t more);
/* A hash of all that decoded pictures are a function of; not of how rows are made from them. Takes
 * time for each sample of the sets. 0: there is no decoded cache that is worth sharing. */
uint64_t np_share_pictures_key(const struct np_loader_config *config);
/* Opens the files, allocates the ring and the cache, and starts the readers. */
int np_loader_start(
    const struct np_loader_config *config, struct np_loader **ret_loader, struct np_err *err);
/* Resolves `cache: auto`. Decoded pictures if all fit in an eighth of the memory and a quarter of
 * the free memory, they are small (decoding them whole costs nothing extra), and at least two later
 * epochs use them; else none, since the page cache keeps the files. */
enum np_cache_kind np_loader_auto_cache(
    const struct np_loader_config *config, uint64_t memory_bytes, uint64_t free_bytes);
/* Resolve `auto` for these sets (either may be NULL); a number in the config wins. The depth
 * follows from the mean size of the records. */
int np_loader_auto_readers(const struct np_loader_options *options);
int np_loader_auto_depth(const struct np_loader_options *options, const struct np_index *train,
    const struct np_index *eval);
/* Batches of the ring; the config's prefetch, or as many as fit into 32 MiB, from 4 to 8. */
int np_loader_slots(const struct np_loader_options *options, const struct np_batch_shape *shape);
/* Number of files of a set (a split set counts as the training set) whose size has changed since
 * they were listed; they are read as they are. first: receives the path of the first one, if any.
 * Any thread. */
uint64_t np_loader_changed(
    struct np_loader *loader, enum np_batch_kind kind, char *first, size_t first_bytes);
/* Any thread. */
struct np_entered np_loader_entered(const struct np_loader *loader);
/* What readers have asked servers for, and found on local disk instead. False: all files are local.
 * Any thread. */
struct np_loader_remote {
    struct np_remote_numbers remote; /* of the process */
    struct np_range_numbers disk;    /* zeros: there is no cache */
};
bool np_loader_remote(const struct np_loader *loader, struct np_loader_remote *ret_numbers);
/* Writes the new entries of pictures, and waits for the disk. Returns "", or a sentence for the log
 * that says why some entries were not kept; valid until np_loader_stop(). */
const char *np_loader_flush(struct np_loader *loader);
/* Zeros: batches are not shared. Any thread. */
struct np_exchanged np_loader_exchanged(const struct np_loader *loader);
/* The number of bad samples of the batches taken. The thread that takes them. */
uint64_t np_loader_nr_bad(const struct np_loader *loader);
/* Zeros: the cache is not shared. Any thread. */
struct np_cache_shared np_loader_cache_shared(const struct np_loader *loader);
/* The next bad sample of the batches taken, in the order of batches and rows; false: none. If the
 * policy ended the run, np_ring_take() has failed with -EBADMSG, and the bad samples of that batch
 * come too. Any thread. */
bool np_loader_next_bad(struct np_loader *loader, struct np_bad_sample *ret_bad);
/* Stops the ring, joins the readers, frees everything, batches included. A reader that hangs in
 * open() or a read for half a second is abandoned: its thread and memory are lost. */
void np_loader_stop(struct np_loader *loader);

#endif
