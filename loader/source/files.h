/* The files of a set while it is read: its shards, open once for all readers; or samples that are files
 * of their own, opened one by one, and which of those are not as they were listed. */
#ifndef NP_FILES_H
#define NP_FILES_H

#include <stddef.h>

#include "loader/source/index.h"

struct np_files;
/* Raises the limit of open files, as far as it goes, to so many and what the rest of a run needs. */
void np_files_allow(int nr_files);
/* Opens every shard, within the limit of open files (raised as far as it goes). Sets whose
 * samples are files of their own have none. Errors name the file. */
int np_files_open(const struct np_index *index, struct np_files **ret_files, struct np_err *err);
void np_files_close(struct np_files *files);
int np_files_fd(const struct np_files *files, uint32_t file); /* any thread */
/* Has a shard been written to since it was opened? Any thread. */
bool np_files_changed(const struct np_files *files, uint32_t file);

/* One sample's place; ret_extent->record points into the index. No reading. */
struct np_extent {
    const struct np_record *record;
    const char *path; /* file to open; for folders written into path_buffer */
    char path_buffer[4096];
};
void np_source_locate(const struct np_index *index, uint64_t sample, struct np_extent *ret_extent);

/* Opens a sample that is a file of its own, and takes into record what the file is now: it may
 * have been written anew since it was listed, and then a checksum counts no more. Returns the
 * descriptor or -errno. Blocks on the disk. */
int np_extent_open(const char *path, struct np_record *record);
/* Does this -errno speak of the one file (it is gone, may not be read, is a folder)? What the storage
 * fails with does not; nor does anything while the set's own folder is not there. Blocks on the disk. */
bool np_extent_is_bad(const struct np_index *index, int code);

/* Files of a set that are not as they were listed: counted once each, the first one named. */
struct np_changed;
/* For a set of so many samples; NULL: out of memory. */
struct np_changed *np_changed_new(uint64_t nr_samples, struct np_err *err);
void np_changed_free(struct np_changed *changed);
/* path is copied. Any thread. */
void np_changed_add(struct np_changed *changed, uint64_t sample, const char *path);
/* How many; first: path of the first one, if there is any. Any thread. */
uint64_t np_changed_read(struct np_changed *changed, char *first, size_t first_bytes);

#endif
