/* The open files of a set: its shards, opened once for all readers; or, if each sample is a file of
 * its own, the opening of one, and the list of those that have changed since the set was listed. */
#ifndef NP_FILES_H
#define NP_FILES_H

#include <stddef.h>

#include "loader/source/index.h"

struct np_files;
/* Raises the limit of open files to the hard limit if it does not allow nr_files beside those that
 * the rest of a run needs. */
void np_files_allow(int nr_files);
/* Opens every shard; calls np_files_allow() first. parts: readers read parts of samples in random
 * order, so read-ahead is switched off. A set with a root has no shards. Errors name the file. */
int np_files_open(
    const struct np_index *index, bool parts, struct np_files **ret_files, struct np_err *err);
void np_files_close(struct np_files *files);
/* A descriptor, or the handle of an object; -1: none. Any thread. */
int np_files_fd(const struct np_files *files, uint32_t file);
uint64_t np_files_bytes(
    const struct np_files *files); /* of all local shards, when they were opened */
/* Counts the shards that are objects of servers (loader/base/remote.h). */
int np_files_nr_remote(const struct np_files *files);
/* For a set larger than the page cache, which would evict what the next epoch needs: limits the
 * cache to this share of the samples (0 to 1), always the same ones. Call it before readers
 * start. */
void np_files_share(struct np_files *files, const struct np_index *index, double share);
/* True if readers read this sample past the page cache: in a shard through np_files_direct(), a
 * descriptor opened with O_DIRECT. Any thread. */
bool np_files_is_direct(
    const struct np_files *files, const struct np_index *index, uint64_t sample);
int np_files_direct(const struct np_files *files, uint32_t file);
/* True if a shard was written to after it was opened. Any thread. */
bool np_files_changed(const struct np_files *files, uint32_t file);

/* Where a sample's bytes are. */
struct np_extent {
    const struct np_record *record; /* in the index */
    const char *path;               /* of the file; with a root, it is in path_buffer */
    char path_buffer[4096];
};
/* Finds the sample's extent in the index; does not touch the disk. */
void np_source_locate(const struct np_index *index, uint64_t sample, struct np_extent *ret_extent);

/* Opens a sample that is a file of its own. If its size has changed since it was listed, record
 * gets the new size and no checksum. *ret_mtime_ns: of a regular file, else not set. Returns the
 * descriptor or -errno. Blocks on the disk. */
int np_extent_open(const char *path, struct np_record *record, uint64_t *ret_mtime_ns);
/* The same for an open file. fd may be an -errno: then returns it. Closes fd on an error. */
int np_extent_opened(int fd, struct np_record *record, uint64_t *ret_mtime_ns);
/* True if this -errno concerns the one file: it is missing, may not be read, or is a folder. False
 * if it comes from the storage, or while the set's own folder is missing. Blocks on the disk. */
bool np_extent_is_bad(const struct np_index *index, int code);

/* The files of a set that have changed since they were listed: each is counted once. */
struct np_changed;
struct np_changed *np_changed_new(
    uint64_t nr_samples, struct np_err *err); /* NULL: out of memory */
void np_changed_free(struct np_changed *changed);
/* path is copied. Any thread. */
void np_changed_add(struct np_changed *changed, uint64_t sample, const char *path);
/* Returns their number; first: the first one's path, if any. Any thread. */
uint64_t np_changed_read(struct np_changed *changed, char *first, size_t first_bytes);

#endif
