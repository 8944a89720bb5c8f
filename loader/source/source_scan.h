/* What the scans of several sources share. For loader/source/source_*.c and unpack.c. */
#ifndef NP_SOURCE_SCAN_H
#define NP_SOURCE_SCAN_H

#include "loader/source/source.h"

/* The rows of np_sources[], each in its own file. */
extern const struct np_source np_source_folder, np_source_tar, np_source_cifar10, np_source_idx,
    np_source_synth;

/* Through progress->note, where there is one. */
void np_source_note(const struct np_source_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Through progress->count, every 256 samples. */
void np_source_count(const struct np_source_progress *progress, const struct np_index *index);

/* Is it an image by the end of its name? Only a choice of what to list; what it is, its bytes say. */
bool np_is_image_name(const char *name);
/* Is it an index that somebody has put beside data? */
bool np_is_index_name(const char *name);

/* Bytes of the folders that match begins with, before anything that is a glob: classes lie below. */
size_t np_scan_literal_folders(const char *match);

/* Opens path for reading and enters it into index with size and mtime. *ret_fd is the caller's. */
struct np_scan_file {
    int fd, number;
    uint64_t bytes;
};
int np_scan_open(
    struct np_index *index, const char *path, struct np_scan_file *ret_file, struct np_err *err);
/* np_index_add() and np_index_add_class() with an error that names path and name. */
int np_scan_add(struct np_index *index, const struct np_record *record, const char *path,
    const char *name, struct np_err *err);
int np_scan_class(struct np_index *index, const char *path, const char *name, struct np_err *err);
/* All of bytes at offset, or -EIO / -EBADMSG with err. */
int np_scan_read(const struct np_scan_file *file, const char *path, uint64_t offset, void *buffer,
    size_t bytes, struct np_err *err);

#endif
