/* The index of a set: where each sample's bytes lie. Every source makes one, and all that
 * follows reads only it. At most 64 bytes a sample; on disk it is the same bytes behind a
 * header (index_file.h), read in one go, checked whole and ready in milliseconds: no mapping,
 * so that a file cut short or changed under a run can neither kill it nor slip past the checks. */
#ifndef NP_INDEX_H
#define NP_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"
#include "loader/base/io.h"
#include "loader/batch.h"

enum np_packing { NP_PACKING_NONE, NP_PACKING_ZSTD }; /* of an extent */

/* 32 bytes, little-endian, as on disk. */
struct np_record {
    uint64_t offset;       /* of the extent in its file, bytes */
    uint32_t bytes;        /* of the extent; zstd: of the compressed frame */
    uint32_t inner_offset; /* of the sample in the decompressed frame; 0 without packing */
    uint32_t inner_bytes;  /* of the sample; without packing equal to bytes */
    uint32_t crc32c;       /* of the sample's bytes, when has_crc */
    uint32_t file;         /* shard; for NP_FILE_PER_SAMPLE sets: unused */
    uint32_t label : 22;
    uint32_t no_label : 1; /* found in no class: refused by training, or left out */
    uint32_t has_crc : 1;
    uint32_t packing : 4; /* enum np_packing */
    uint32_t unused : 4;
};

struct np_index; /* immutable once opened or finished */

/* Building. One thread. Names are borrowed and copied. What returns int gives a negative errno:
 * -ENOMEM; -ENAMETOOLONG past NP_MAX_NAME bytes; -E2BIG past what a record can hold. */
#define NP_MAX_NAME    4095
#define NP_MAX_CLASSES (1 << 22)
struct np_index *np_index_new(struct np_err *err); /* NULL: out of memory */
/* A file that holds samples; size and mtime decide later whether the index is stale. Returns its number. */
int np_index_add_file(struct np_index *index, const char *path, uint64_t bytes, uint64_t mtime_ns);
/* Class number of a name, added if new. np_index_finish() renumbers classes by name in byte order, as
 * torchvision's ImageFolder does: 1, 10, 2. */
int np_index_add_class(struct np_index *index, const char *name);
/* Class names are decimal numbers and stand for themselves (IDX, .cls): ordered by value. */
void np_index_set_numbered(struct np_index *index);
/* One sample; name: the member's path, or for a folder the file's path below `root`. */
int np_index_add(struct np_index *index, const struct np_record *record, const char *name);
void np_index_set_raw(struct np_index *index, const struct np_raw *raw);
/* Samples are files of their own below root, opened by name. */
void np_index_set_root(struct np_index *index, const char *root);
/* Samples added without a label (WebDataset, class folders found late) get theirs here. */
void np_index_set_label(struct np_index *index, uint64_t i, int label);
/* Where sample i's extent lies, for who learns it after adding it (a frame is compressed whole). */
void np_index_set_extent(struct np_index *index, uint64_t i, uint64_t offset, uint32_t bytes);
/* The largest decompressed frame, where it is larger than what the records show (padding). */
void np_index_set_max_inner(struct np_index *index, uint32_t bytes);
/* Takes back all samples after the first nr_samples; the files and classes they named stay. */
void np_index_cut(struct np_index *index, uint64_t nr_samples);
int np_index_finish(struct np_index *index, struct np_err *err);

/* Writes it (through io, durably) / reads it back. A stale, torn or foreign file is an
 * error (-ESTALE, -EBADMSG; -ENOENT: none) and the caller scans again. Stale: a file's size
 * or mtime differs, or `key` (what was asked of the source: match, path ...) does, or the file belongs
 * to somebody else than the caller, root and `owner`. Paths
 * below the index's own folder are kept relative to it: the two can be moved together. */
int np_index_save(const struct np_index *index, struct np_io *io, const char *path, const char *key,
    struct np_err *err);
int np_index_open(const char *path, const char *key, uid_t owner, struct np_index **ret_index,
    struct np_err *err);
void np_index_free(struct np_index *index);

/* The key of what was listed, kept so that the index is never saved under a later one: a shard that
 * came meanwhile would be lost to every run after. NULL: none was set. */
int np_index_set_key(struct np_index *index, const char *key, struct np_err *err);
const char *np_index_key(const struct np_index *index);

/* Samples in no class; *ret_first is the first of them. */
uint64_t np_index_unlabelled(const struct np_index *index, uint64_t *ret_first);
/* From now on the index has no such samples, for all that is asked of it; np_index_save() writes them
 * all the same. Before other threads ask. -ENOMEM. */
int np_index_skip_unlabelled(struct np_index *index);

/* So with all samples but these, which are given in ascending order. -ENOMEM. */
int np_index_keep(struct np_index *index, const uint32_t *samples, uint64_t nr_samples);

uint64_t np_index_samples(const struct np_index *index);
const struct np_record *np_index_record(const struct np_index *index, uint64_t i);
/* Member name of sample i, into text; returns its length. Front-coded: walks up to 16 names. */
int np_index_name(const struct np_index *index, uint64_t i, char *text, int text_bytes);
/* The names of all samples in their order, each decoded once. */
struct np_index_names {
    const struct np_index *index;
    uint64_t sample; /* whose name is in `name` */
    uint64_t next, next_listed;
    const uint8_t *at;
    int length;
    char name[NP_MAX_NAME + 1];
};
void np_index_names_begin(const struct np_index *index, struct np_index_names *names);
bool np_index_names_next(struct np_index_names *names); /* false: that was the last one */

/* What tells one set from another with as many samples, in their order. labels: class of the index ->
 * class of the run (NULL: equal); a sample without a label counts as -1. The sum over names and
 * labels stays when a set is moved or its pictures are written anew. The sum over labels and sizes
 * is what checkpoints had alone before. */
uint64_t np_index_names_sum(const struct np_index *index, const int32_t *labels);
uint64_t np_index_sizes_sum(const struct np_index *index, const int32_t *labels);
int np_index_files(const struct np_index *index);
const char *np_index_file(const struct np_index *index, int file); /* absolute path */
int np_index_classes(const struct np_index *index);
const char *np_index_class(const struct np_index *index, int label);
const struct np_raw *np_index_raw(const struct np_index *index);
const char *np_index_root(const struct np_index *index); /* NULL: samples lie in shards */
/* Largest extent and largest frame, bytes: what a reader's buffers must hold. */
uint32_t np_index_max_extent(const struct np_index *index);
uint32_t np_index_mean_extent(const struct np_index *index); /* of a sample */
uint32_t np_index_max_inner(const struct np_index *index);
/* Sets a record's CRC (first epoch, data verify). Atomic per record; any thread: stores crc32c,
 * then has_crc's word with release, both as 32-bit words. */
void np_index_set_crc(struct np_index *index, uint64_t i, uint32_t crc32c);
/* How many were set since it was made or opened: is it worth saving again? Any thread. */
uint64_t np_index_new_crcs(const struct np_index *index);
/* A copy of a record, right also while another thread sets its CRC. */
static inline struct np_record np_record_get(const struct np_record *record)
{
    const uint32_t *from = (const uint32_t *)(const void *)record;
    union {
        uint32_t words[8];
        struct np_record record;
    } copy;

    copy.words[7] = __atomic_load_n(&from[7], __ATOMIC_ACQUIRE); /* has_crc: before the CRC */
    for (int w = 0; w < 7; w++)
        copy.words[w] = __atomic_load_n(&from[w], __ATOMIC_RELAXED);
    return copy.record;
}
static inline struct np_record np_index_get(const struct np_index *index, uint64_t i)
{
    return np_record_get(np_index_record(index, i));
}

#endif
