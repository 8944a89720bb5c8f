/* libnnpipe: the loader of nnpipe for other programs. It reads, decodes and augments a data set on
 * threads of its own, and hands out batches in memory of its own. docs/LIBRARY.md has an example.
 *
 * ABI: the soname is libnnpipe.so.1. Types are opaque, and no struct is passed by value. Functions
 * are added, never changed; nnp_abi() grows with them.
 *
 * Errors: functions that can fail return 0 (or a count) or a negative errno; nnp_error() has the
 * text. No function prints, or ends the process.
 *
 * Threads: a loader may be used by any thread; calls on one loader run one after the other, except
 * nnp_counters() and nnp_error(), which do not wait for nnp_next(). Functions of batches may be
 * called by any thread at any time, also after nnp_close(). After fork() a loader belongs to the
 * parent: in the child nnp_close() does nothing, functions that return a code return -ECHILD, and
 * what was known when the loader was opened (nnp_shape(), ...) can still be asked. */
#ifndef NNPIPE_H
#define NNPIPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NNP_ABI 1

struct nnp_data;
struct nnp_loader;
struct nnp_batch;

int nnp_abi(void);             /* NNP_ABI of the library */
const char *nnp_version(void); /* of nnpipe: "1.2.3" */

/* --- data that the program names itself ------------------------------------------------------- */

/* Files, relative to root, with their labels. Everything is copied. The class of label k is named
 * classes[k]; nr_classes 0: no names. NULL: error has the text. */
struct nnp_data *nnp_data_files(const char *root, const char *const *paths, const int64_t *labels,
    uint64_t nr_samples, const char *const *classes, int nr_classes, char *error,
    size_t error_bytes);
/* Parts of files, such as the members of tar archives: sample i has extents[i]: file (its
 * place in paths), offset and bytes. Everything is copied; the files must stay as they are. The
 * classes are the labels. NULL: error has the text. */
struct nnp_extent {
    uint64_t file, offset, bytes;
};
struct nnp_data *nnp_data_extents(const char *const *paths, uint64_t nr_paths,
    const struct nnp_extent *extents, const int64_t *labels, uint64_t nr_samples, char *error,
    size_t error_bytes);
/* Pixels in memory: u8 (nr_samples, height, width, channels), dense. Borrowed until the loader is
 * closed; the labels are copied. */
struct nnp_data *nnp_data_pixels(const uint8_t *pixels, uint64_t nr_samples, int height, int width,
    int channels, const int64_t *labels, char *error, size_t error_bytes);
void nnp_data_free(struct nnp_data *data); /* NULL: nothing */

/* --- a loader --------------------------------------------------------------------------------- */

/* config: the text of a config (YAML), of which the keys `data`, `loader` and `seed` are used.
 * folder: where its relative paths and `base:` start; NULL: the working directory. data: replaces
 * `data:`, taken over when the call succeeds; NULL: none. options: "key=value" texts, NULL-ended
 * (NULL: none):
 *   set=train|val|test       the set to load (train); val and test: in order, each sample once
 *   rank=R world=W           this process loads rows R of each W (0 of 1)
 *   dtype=uint8|float32|bfloat16|float16   (uint8); the float types are normalized with
 *                            loader.normalize: (x / 255 - mean) / std, each operation in float32
 *   layout=nhwc|nchw         (nhwc)
 *   drop_last=yes|no         an epoch's last batch, if it is not full: left out, or short (no)
 *   held=N                   the number of batches that the program may hold at a time (32); those
 *                            from before nnp_seek() do not count
 *   device=cpu|cuda:N        where the images are (cpu); labels are always in host memory. cuda:N
 *                            needs libnnpipe-cuda-rows.so: beside libnnpipe.so, in nnpipe/,
 *                            ../nnpipe/ or ../lib/nnpipe/ from there, on the library path, or the file that the
 *                            environment's NNPIPE_CUDA_PLUGIN names. Memory of cpu is never
 *                            registered with CUDA
 *   order=own|dealt          dealt: nnp_deal() names each sample (own)
 * Opens the sets, starts the reader threads. May list a set or unpack an archive, which takes long.
 * *ret_loader: to be closed. Errors (loader unchanged): error has the text; -EINVAL: the config, one
 * line for each mistake; -ENODEV: no such GPU, or what must be installed; -ENOENT and others: data
 * cannot be read; -ENOMEM. */
int nnp_open(const char *config, const char *folder, struct nnp_data *data,
    const char *const *options, struct nnp_loader **ret_loader, char *error, size_t error_bytes);
/* Stops the threads and frees the loader; batches that the program holds stay. A call of nnp_next()
 * that waits in another thread ends with -EINTR; no other call may be in progress or follow. NULL:
 * nothing. */
void nnp_close(struct nnp_loader *loader);
/* Copies the text of the loader's last error; "": none. Returns its length. */
size_t nnp_error(struct nnp_loader *loader, char *text, size_t text_bytes);

/* The shape of a full batch: rows, height, width, channels, whatever the layout. */
void nnp_shape(const struct nnp_loader *loader, int64_t ret_shape[4]);
const char *nnp_dtype(const struct nnp_loader *loader); /* as the option */
const char *nnp_layout(const struct nnp_loader *loader);
uint64_t nnp_samples(const struct nnp_loader *loader); /* of the set, all ranks together */
uint64_t nnp_length(const struct nnp_loader *loader);  /* batches of an epoch of this rank */
int nnp_nr_classes(const struct nnp_loader *loader);
const char *nnp_class(const struct nnp_loader *loader, int label); /* NULL: no such class */
/* Floats of a sample's label: 0 where it is one class. `label_type: multi`: 1 or 0 for each class;
 * `value`: numbers, of which nnp_class() has the names. */
int nnp_nr_values(const struct nnp_loader *loader);
/* A number that is the same for the same data, config and options but for rank: a position is only
 * good for such a loader. */
uint64_t nnp_fingerprint(const struct nnp_loader *loader);

/* --- batches ---------------------------------------------------------------------------------- */

/* Waits for the next batch, at most timeout_ms (-1: without limit). 1: *ret_batch is one, to be
 * released; 0: the epoch has ended, and the next call begins the next one. Errors: -ETIMEDOUT: not
 * ready yet, call again; -EBUSY: the program holds as many batches as the option `held` allows;
 * -EINTR: nnp_close(); -ECHILD; -EINVAL: no epoch was dealt; -ECANCELED: as struct nnp_deal says;
 * -EBADMSG: the bad-sample policy ended the run; -EIO and others: storage failed; -ENOMEM. After the
 * last three nnp_seek(), or nnp_deal_epoch(), starts again. */
int nnp_next(struct nnp_loader *loader, int timeout_ms, struct nnp_batch **ret_batch);
/* The position: nr_batches of `epoch` were returned by nnp_next(). In a child of fork(): 0, 0. */
void nnp_position(struct nnp_loader *loader, uint64_t *ret_epoch, uint64_t *ret_nr_batches);
/* Sets the position; at once if it is the present one, else the readers start again there. */
int nnp_seek(struct nnp_loader *loader, uint64_t epoch, uint64_t nr_batches);
/* Writes the counters as one JSON object; returns its length, or -ENOSPC. Fields: batches, images,
 * bytes_read, bad_samples, ready (batches waiting), held (all batches that the program has),
 * made_batches and taken_batches (made here, and taken from other jobs; 0 if the loader does not
 * share), wait_seconds (of nnp_next()), readers, io, cache, and `<stage>_seconds` of all readers.
 * bytes_read, made_batches, taken_batches and the readers' seconds count from the last start of the
 * readers: nnp_open(), or an nnp_seek() to another place. */
int nnp_counters(struct nnp_loader *loader, char *json, size_t json_bytes);
/* The next bad sample that was replaced, as a sentence that names it. 0: none. Returns its length.
 * A start of the readers forgets those that were not asked for. */
int nnp_bad_sample(struct nnp_loader *loader, char *text, size_t text_bytes);
/* Writes what the loader has learnt of the data to the cache folder (entries of JPEGs). nnp_close()
 * does it, too. */
int nnp_flush(struct nnp_loader *loader);

int nnp_batch_rows(const struct nnp_batch *batch); /* less than nnp_shape()'s in a short batch */
uint64_t nnp_batch_epoch(const struct nnp_batch *batch);
uint64_t nnp_batch_number(const struct nnp_batch *batch); /* in its epoch, from 0 */
int nnp_batch_nr_bad(const struct nnp_batch *batch); /* rows that are bad and were not replaced */
/* (rows, height, width, channels) or (rows, channels, height, width), dense. The program may write
 * to it. device=cuda:N: an address of the GPU's, for streams that nnp_batch_use() was called with. */
void *nnp_batch_images(const struct nnp_batch *batch);
/* (rows); -1: no class. With nnp_nr_values() 0, or -1: the row was bad. */
int64_t *nnp_batch_labels(const struct nnp_batch *batch);
/* (rows, nnp_nr_values()); NaN: the row was bad. NULL: labels are classes. */
float *nnp_batch_values(const struct nnp_batch *batch);
/* The sample of a row: its number in the set. UINT64_MAX: it was bad, and the row is all 0. */
uint64_t nnp_batch_sample(const struct nnp_batch *batch, int row);
/* One more owner; each owner releases once. The memory is used again after the last release. Atomic
 * counts, nothing else: safe in a destructor, without a lock held or in an exiting process. With
 * device=cuda:N the last release also records events on the streams of nnp_batch_use(); after
 * nnp_close() the last release of all frees the GPU's memory, and waits for the work there. */
void nnp_batch_retain(struct nnp_batch *batch);
void nnp_batch_release(struct nnp_batch *batch);
/* device=cuda:N. Makes a cudaStream_t of the program (NULL: the default one; those of the driver and of
 * any runtime library are the same) wait until the images are there, and remembers it until the last
 * release: our next copy into the memory waits for what was queued on the stream until then. So the
 * stream must live until then, too, and each stream that works on the images is named once; nnp_next()
 * itself does not wait for the copy. -ENOTSUP: the images are in host memory; -EIO: CUDA refused. */
int nnp_batch_use(struct nnp_batch *batch, void *stream);
/* Copies the text of the last error of nnp_batch_use() for this batch. Returns its length. */
size_t nnp_batch_error(struct nnp_batch *batch, char *text, size_t text_bytes);

/* --- dealt order: the rows that a torch DataLoader would give ---------------------------------- */

/* For order=dealt. The random operations of loader.augment draw as torchvision's (version 1 or 2)
 * do, from generators like torch's, one a worker. */
struct nnp_deal {
    size_t bytes; /* of this struct, for later versions */
    int workers;  /* of the DataLoader; 0: draws come from the program's own generator */
    int transforms_version;
    /* torch.exp() and torch.log() of a float32. Called within nnp_next() and nnp_deal_epoch(),
     * rarely: where the last bits of our exp() would decide a crop, and once a logarithm. They may
     * call no function of this loader, nor wait for a thread that does. NaN: it failed (raised an
     * exception); the call returns -ECANCELED, and when it is repeated it asks again. */
    float (*exp)(void *context, float x);
    float (*log)(void *context, float x);
    void *context;
    /* NNP_DEAL_PROBES times torch.empty(1).uniform_(0.08, 1) after torch.manual_seed(1): how this
     * torch rounds on this CPU. */
    const float *probes;
    /* (channels, 256): the value of each pixel, for the float types; instead of loader.normalize.
     * NULL: as that says. */
    const float *values;
};
#define NNP_DEAL_PROBES 256
/* Once, before nnp_deal_epoch(). -ENOTSUP: this torch draws in a way that we do not know. */
int nnp_deal(struct nnp_loader *loader, const struct nnp_deal *deal);
/* Begins an epoch with these samples in this order. base_seed: of the workers, whose generators
 * start anew with it; or continues: those of the epoch before (persistent workers), which first
 * skip its batches up to nr_skipped that were not taken, if it was broken off. After nnp_next() has
 * returned 0 an epoch must be dealt. */
int nnp_deal_epoch(struct nnp_loader *loader, const int64_t *samples, uint64_t nr_samples,
    uint64_t base_seed, int continues, uint64_t nr_skipped);
/* Without workers: the state of the program's generator (torch.get_rng_state(), 5056 bytes). The
 * next nnp_next() draws from it; what was made ahead is used if it began with the same state. On
 * return of a batch, nnp_deal_after() has the state behind its draws. */
int nnp_deal_state(struct nnp_loader *loader, const void *state, size_t bytes);
int nnp_deal_after(struct nnp_loader *loader, void *state, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
