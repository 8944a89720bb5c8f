/* The index of a set: where each sample's bytes are. Every source makes one, and all later stages
 * read only the index. It takes at most 64 bytes a sample. On disk the same bytes follow a header
 * (index_file.h). The file is read whole and checked, not mapped, so that a file truncated or
 * changed during a run can neither kill the run nor escape the checks. */
#ifndef NP_INDEX_H
#define NP_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

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
    uint32_t no_label : 1; /* in no class: training refuses or skips it */
    uint32_t has_crc : 1;
    uint32_t packing : 4; /* enum np_packing */
    uint32_t unused : 4;
};

/* The state of a file or folder, to detect a change. */
struct np_index_stamp {
    uint64_t bytes, mtime_ns; /* bytes: 0 for a folder */
};
static inline struct np_index_stamp np_index_stamp_of(const struct stat *st)
{
    return (struct np_index_stamp){S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
        (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec};
}

/* Immutable once opened or finished, except the CRCs. Read samples with the functions below, which
 * hide those that were left out. */
struct np_index {
    char **paths, **classes; /* (nr_files), absolute; (nr_classes) */
    int nr_files, nr_classes;
    char *root;            /* the folder of a set with a file for each sample; NULL: other sets */
    const uint8_t *memory; /* the samples' bytes, if they are in memory; borrowed */
    char *key;             /* np_index_set_key(); NULL: none */
    char *cached;          /* its file in the cache folder, of np_source_open(); NULL: none */
    /* Of np_source_open(). Not NP_LABEL_CLASS: the classes are texts of label_text.h. */
    enum np_label_type label_type;
    float
        *values; /* (nr_classes, nr_values) by np_label_values(), owned; NULL: labels are classes */
    int nr_values;
    struct np_raw raw;
    uint32_t max_extent, max_inner; /* bytes of the largest extent and decompressed frame */
    uint64_t nr_new_crcs;           /* set since it was built or opened; atomic */

    /* Private to index*.c: */
    struct np_record *records; /* (nr_samples) */
    uint64_t *blocks;          /* (nr_samples / 16, rounded up) */
    uint8_t *names;
    uint64_t nr_samples, names_bytes;
    struct np_index_stamp *stamps; /* (nr_files) */
    uint64_t extents_bytes;        /* of all samples */
    void *whole; /* the file's bytes, if it was opened: records, blocks and names point into it */
    uint32_t *kept; /* (nr_kept): numbers of the visible samples; NULL: all are */
    uint64_t nr_kept;
    struct np_index_builder *builder; /* until finished */
};

/* Building. One thread. Names are copied. path: of the set, for errors. -ENOMEM; -ENAMETOOLONG: a
 * name is empty or longer than NP_MAX_NAME bytes; -E2BIG: too many samples or classes. */
#define NP_MAX_NAME    4095
#define NP_MAX_CLASSES (1 << 22)
struct np_index *np_index_new(struct np_err *err); /* NULL: out of memory */
/* Adds a file that holds samples, or a folder; its stamp decides later whether the index is stale.
 * Returns its number. */
int np_index_add_file(
    struct np_index *index, const char *path, const struct stat *st, struct np_err *err);
/* Returns the class's number, and adds the class if it is new. np_index_finish() renumbers the
 * classes by name in byte order, as torchvision's ImageFolder does: 1, 10, 2. */
int np_index_add_class(
    struct np_index *index, const char *name, const char *path, struct np_err *err);
/* Class names are decimal numbers (IDX, .cls): np_index_finish() orders them by value. */
void np_index_set_numbered(struct np_index *index);
/* Adds a sample; name: the member's path, or for a folder the file's path below `root`. */
int np_index_add(struct np_index *index, const struct np_record *record, const char *name,
    const char *path, struct np_err *err);
/* Sets the label of a sample that was added without one; -1: none. */
void np_index_set_label(struct np_index *index, uint64_t i, int label);
/* Sets sample i's extent, if it is not known when the sample is added (its frame is compressed
 * later). */
void np_index_set_extent(struct np_index *index, uint64_t i, uint64_t offset, uint32_t bytes);
/* Sets the size of the largest decompressed frame, if padding makes it larger than the records
 * show. */
void np_index_set_max_inner(struct np_index *index, uint32_t bytes);
/* Adds all files, classes and samples of `part`, whose building is not finished either. */
int np_index_append(
    struct np_index *index, const struct np_index *part, const char *path, struct np_err *err);
/* Removes all samples but the first nr_samples; their files and classes stay. */
void np_index_cut(struct np_index *index, uint64_t nr_samples);
int np_index_finish(struct np_index *index, struct np_err *err);

/* np_index_save() writes the index durably; np_index_open() reads it. -ENOENT: there is no file;
 * -EBADMSG: it is damaged or truncated; -ESTALE: the size or mtime of a file differs, or `key` (the
 * source's options) does, or the index belongs to a user other than the caller, root and `owner`.
 * The caller then scans again. Paths below the index's own folder are stored relative to it: index
 * and data can be moved together. */
int np_index_save(const struct np_index *index, struct np_io *io, const char *path, const char *key,
    struct np_err *err);
int np_index_open(const char *path, const char *key, uid_t owner, struct np_index **ret_index,
    struct np_err *err);
/* Reads the index at `url` beside the archives `urls`, which np_remote_table.look() knows. key: with
 * what its own begins. -ENOENT: it cannot be read; -EBADMSG: damaged; -ESTALE: it is of other settings,
 * names or sizes; -ENOMEM. index_beside.c */
int np_index_fetch(
    const char *url, const char *key, char *const *urls, int nr_urls, struct np_index **ret_index);
void np_index_free(struct np_index *index);

/* Sets the key under which the set was listed. The index is never saved under a later key: a shard
 * added meanwhile would be missing from all later runs. */
int np_index_set_key(struct np_index *index, const char *key, struct np_err *err);

/* Counts the samples in no class; *ret_first: the first of them. */
uint64_t np_index_unlabelled(const struct np_index *index, uint64_t *ret_first);
/* Hides the samples in no class from all other functions but np_index_save(). Call it before other
 * threads use the index. -ENOMEM. */
int np_index_skip_unlabelled(struct np_index *index, struct np_err *err);
/* Hides all samples but these, in ascending order. Threads and errors as
 * np_index_skip_unlabelled(). */
int np_index_keep(
    struct np_index *index, const uint32_t *samples, uint64_t nr_samples, struct np_err *err);

uint64_t np_index_samples(const struct np_index *index);
/* The number of sample i among all samples of the index, hidden ones included: a number that
 * np_index_keep() and its kin do not change. */
uint64_t np_index_number(const struct np_index *index, uint64_t i);
const struct np_record *np_index_record(const struct np_index *index, uint64_t i);
/* Copies the member name of sample i into text, truncated; returns its length. Decodes up to 16
 * names. */
int np_index_name(const struct np_index *index, uint64_t i, char *text, int text_bytes);
/* Iterates over the names of all samples in order; each is decoded once. */
struct np_index_names {
    const struct np_index *index;
    uint64_t sample; /* of `name` */
    uint64_t next, next_listed;
    const uint8_t *at;
    int length;
    char name[NP_MAX_NAME + 1];
};
void np_index_names_begin(const struct np_index *index, struct np_index_names *names);
bool np_index_names_next(struct np_index_names *names); /* false: no more */

/* Checksums that identify the set, samples in order. labels: class of the index -> class of the run
 * (NULL: equal); a sample without a label counts as -1. names_sum covers names and labels: it does
 * not change when a set is moved or its pictures are rewritten. sizes_sum covers labels and sizes;
 * old checkpoints have only that. */
uint64_t np_index_names_sum(const struct np_index *index, const int32_t *labels);
uint64_t np_index_sizes_sum(const struct np_index *index, const int32_t *labels);
uint32_t np_index_mean_extent(const struct np_index *index);
bool np_index_is_remote(const struct np_index *index); /* its files are objects of servers */
/* Sets a record's CRC (first epoch, data verify). Any thread: stores crc32c, then the word of
 * has_crc with release. */
void np_index_set_crc(struct np_index *index, uint64_t i, uint32_t crc32c);
/* The name of what the index has as classes. */
static inline const char *np_index_labels_word(const struct np_index *index)
{
    return index->label_type == NP_LABEL_CLASS ? "classes" : "different labels";
}
/* A consistent copy of a record, even while another thread sets its CRC. */
static inline struct np_record np_record_get(const struct np_record *record)
{
    const uint32_t *from = (const uint32_t *)(const void *)record;
    union {
        uint32_t words[8];
        struct np_record record;
    } copy;

    copy.words[7] = __atomic_load_n(&from[7], __ATOMIC_ACQUIRE); /* has_crc: before crc32c */
    for (int w = 0; w < 7; w++)
        copy.words[w] = __atomic_load_n(&from[w], __ATOMIC_RELAXED);
    return copy.record;
}
static inline struct np_record np_index_get(const struct np_index *index, uint64_t i)
{
    return np_record_get(np_index_record(index, i));
}

#endif
