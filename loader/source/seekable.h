/* zstd files made of independent frames, with a table of the frames at the end: any part can be
 * read by decompressing one frame. The table is a skippable frame, so any zstd program can read the
 * file. Layout of the table (zstd's "seekable format" 0.1.0, little-endian):
 *   u32 0x184D2A5E, u32 bytes that follow;
 *   per frame: u32 compressed bytes, u32 content bytes, [u32 low half of the content's XXH64];
 *   u32 number of frames, u8 descriptor (bit 7: checksums; bits 2-6 must be 0), u32 0x8F92EAB1. */
#ifndef NP_SEEKABLE_H
#define NP_SEEKABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

/* A file with a larger frame is unpacked, since seeking in it would cost more. */
#define NP_SEEK_MAX_CONTENT (16u << 20)

struct np_seek_frame {
    uint64_t offset;  /* in the file */
    uint64_t content; /* where its content starts in the decompressed file */
    uint32_t bytes, content_bytes;
    uint32_t checksum;
};

struct np_seek_table {
    struct np_seek_frame *frames; /* (nr_frames), owned */
    uint64_t nr_frames;
    uint64_t content_bytes; /* of all frames */
    uint32_t max_bytes, max_content;
    bool has_checksums;
};

/* Reads the table at the end of fd (a descriptor, or a handle of loader/base/remote.h). -ENOENT: there is none (err stays unset); -EBADMSG: it is
 * damaged. The caller frees it. path is for errors. */
int np_seek_table_read(
    int fd, const char *path, struct np_seek_table **ret_table, struct np_err *err);
void np_seek_table_free(struct np_seek_table *table);
/* The frame that holds byte `content` of the decompressed file; past its end: nr_frames. */
uint64_t np_seek_table_find(const struct np_seek_table *table, uint64_t content);

/* Reads any part of the decompressed file; keeps the frame decompressed last. One thread. -EFBIG: a
 * frame is larger than NP_SEEK_MAX_CONTENT. */
struct np_seek_reader;
int np_seek_reader_open(int fd, const char *path, const struct np_seek_table *table,
    struct np_seek_reader **ret_reader, struct np_err *err);
void np_seek_reader_free(struct np_seek_reader *reader);
/* An np_tar_read_fn; context: the np_seek_reader. Checks each frame's size and checksum. */
int64_t np_seek_reader_read(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err);

/* Compresses frames, one after another. One thread. */
struct np_seek_writer;
int np_seek_writer_new(int level, struct np_seek_writer **ret_writer, struct np_err *err);
void np_seek_writer_free(struct np_seek_writer *writer);
/* Compresses content into one frame that stores its size, and adds it to the table. The frame is
 * valid until the writer's next call. */
int np_seek_writer_frame(struct np_seek_writer *writer, const void *content, size_t bytes,
    const void **ret_frame, size_t *ret_bytes, struct np_err *err);
/* The table's bytes, to append to the frames; np_free. The next frame starts another file. NULL:
 * out of memory, or too many frames. */
uint8_t *np_seek_writer_finish(
    struct np_seek_writer *writer, size_t *ret_bytes, struct np_err *err);

#endif
