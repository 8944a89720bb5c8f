/* Functions shared by the scans of several sources. For loader/source/source_*.c and unpack.c. */
#ifndef NP_SOURCE_SCAN_H
#define NP_SOURCE_SCAN_H

#include "loader/source/source.h"

/* progress may be NULL, here and below. */
void np_source_note(const struct np_source_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Calls progress->count every 256 samples. */
void np_source_count(const struct np_source_progress *progress, const struct np_index *index);

/* Max threads that list the set, the caller's among them. The index does not depend on their
 * number. */
#define NP_MAX_LISTERS 8 /* they wait for the storage more than for a core */
int np_listers(const struct np_source_options *options);

/* True if the extension is an image's. Only such files are listed; the decoder detects the
 * format. */
bool np_is_image_name(const char *name);
bool np_is_index_name(const char *name); /* ends in .npidx */

/* Length of the literal folders at the start of `match`, before any glob character. Classes are the
 * folders below. */
size_t np_scan_literal_folders(const char *match);

/* Opens path for reading and adds it to index with size and mtime. The caller closes
 * ret_file->fd. */
struct np_scan_file {
    int fd, number;
    uint64_t bytes;
};
int np_scan_open(
    struct np_index *index, const char *path, struct np_scan_file *ret_file, struct np_err *err);
/* Reads up to `bytes` bytes at offset; returns their number, fewer only at the file's end. */
int64_t np_scan_read_some(const struct np_scan_file *file, const char *path, uint64_t offset,
    void *buffer, size_t bytes, struct np_err *err);
/* Reads `bytes` bytes at offset. -EBADMSG: the file ends early; else the read's -errno. */
int np_scan_read(const struct np_scan_file *file, const char *path, uint64_t offset, void *buffer,
    size_t bytes, struct np_err *err);

#endif
