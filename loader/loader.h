/* The pipeline as one thing: sampler, readers and ring, started and stopped together. */
#ifndef NP_LOADER_H
#define NP_LOADER_H

#include "loader/loader_options.h"
#include "loader/base/stat.h"
#include "loader/bad.h"
#include "loader/cache.h"
#include "loader/source/index.h"
#include "loader/ring.h"
#include "loader/sampler.h"

struct np_loader_config {
    const struct np_loader_options *options;
    struct np_sampler_options sampler;
    struct np_index *train, *eval; /* borrowed; CRCs may be filled in */
    /* Class of the set -> class of the run, by name; NULL: equal. */
    const int32_t *train_labels, *eval_labels;
    const struct np_chain *augment, *test_augment; /* borrowed */
    struct np_batch_shape shape;
    const struct np_allocator *allocator;
    struct np_stat *stat; /* borrowed */
    uint64_t first_step;
    bool eval_due;          /* where to begin */
    uint64_t picture_bytes; /* of one sample's pixels, about; 0: not known */
    uint64_t nr_bad;        /* of this epoch so far, from the checkpoint */
    /* cache: device. Memory that the device has free for it; 0: it keeps none, and the cache is the
     * host's. Else rows whose picture is cached come without pixels (about->resident), and the
     * caller's feed keeps a copy of np_loader_resident() on the device. */
    uint64_t device_room;
};

struct np_loader;
int np_loader_start(
    const struct np_loader_config *config, struct np_loader **ret_loader, struct np_err *err);
struct np_ring *np_loader_ring(struct np_loader *loader);
const struct np_sampler *np_loader_sampler(const struct np_loader *loader);
/* The cache that the device is to have a copy of; NULL: none. */
struct np_cache *np_loader_resident(struct np_loader *loader);
/* What `auto` became. */
int np_loader_readers(const struct np_loader *loader);
const char *np_loader_io(const struct np_loader *loader);
int np_loader_depth(const struct np_loader *loader);
const char *np_loader_cache(const struct np_loader *loader);
/* cache: auto. Pixels are kept where all of them fit with room to spare (an eighth of the memory, a
 * quarter of what is free), decoding whole pictures costs nothing (they are small), and at least
 * two more epochs will be served from there; else nothing is, since the page cache keeps the
 * files. free_bytes, memory_bytes: of the box. */
enum np_cache_kind np_loader_auto_cache(
    const struct np_loader_config *config, uint64_t memory_bytes, uint64_t free_bytes);
/* What `auto` becomes for these sets (either may be NULL); a number given stays. depth: by the mean
 * file, and no more than keeps the buffers, which hold the largest one, within 128 MiB a reader. */
int np_loader_auto_readers(const struct np_loader_options *options);
int np_loader_auto_depth(const struct np_loader_options *options, const struct np_index *train,
    const struct np_index *eval);
/* How many files of a set (a split set counts as the training set) have another size than when they were
 * listed; they were read as they are. first: the first one's path, if there is any. Any thread. */
uint64_t np_loader_changed(
    struct np_loader *loader, enum np_batch_kind kind, char *first, size_t first_bytes);
/* The next bad sample, in the order of batches and rows; false: none waits. Any thread. Those of batches
 * that were taken are here, and of the one that the policy ended the run with: np_ring_take() gives
 * -EBADMSG in its place, whatever the readers have found behind it. */
bool np_loader_next_bad(struct np_loader *loader, struct np_bad_sample *ret_bad);
/* Stops the ring, joins the readers, frees all. Batches taken before are gone. A reader that hangs in
 * open() or a read for half a second is left behind: it costs its thread and memory, and nothing else. */
void np_loader_stop(struct np_loader *loader);

#endif
