/* zstd files made of independent frames, with a table of them at the end: any part can be read
 * by decompressing one frame. The table is a skippable frame, so every zstd program reads such a
 * file as an ordinary one. Layout (zstd's "seekable format" 0.1.0, little-endian):
 *   u32 0x184D2A5E, u32 bytes that follow;
 *   a frame each: u32 compressed bytes, u32 content bytes, [u32 low half of the content's XXH64];
 *   u32 number of frames, u8 descriptor (bit 7: checksums; bits 2-6 must be 0), u32 0x8F92EAB1. */
#ifndef NP_SEEKABLE_H
#define NP_SEEKABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

/* Frames with more content are not worth seeking in: such a file is unpacked instead. */
#define NP_SEEK_MAX_CONTENT (16u << 20)

struct np_seek_frame {
    uint64_t offset;  /* in the file */
    uint64_t content; /* where its content starts in the whole */
    uint32_t bytes, content_bytes;
    uint32_t checksum;
};

struct np_seek_table {
    struct np_seek_frame *frames; /* (nr_frames), owned */
    uint64_t nr_frames;
    uint64_t content_bytes; /* of all */
    uint32_t max_bytes, max_content;
    bool has_checksums;
};

/* Reads the table at the end of fd. -ENOENT: it has none (err is left alone); -EBADMSG: what is
 * there cannot be right. Caller frees. path is for errors. */
int np_seek_table_read(
    int fd, const char *path, struct np_seek_table **ret_table, struct np_err *err);
void np_seek_table_free(struct np_seek_table *table);
/* The frame that holds byte `content` of the whole; nr_frames past the end. */
uint64_t np_seek_table_find(const struct np_seek_table *table, uint64_t content);
/* The table as bytes to append to the frames; np_free. NULL: out of memory, or too many frames. */
uint8_t *np_seek_table_write(const struct np_seek_table *table, size_t *ret_bytes);

/* Reads any part of the whole; keeps the frame it last decompressed. One thread. -EFBIG: a frame
 * is larger than NP_SEEK_MAX_CONTENT. */
struct np_seek_reader;
int np_seek_reader_open(int fd, const char *path, const struct np_seek_table *table,
    struct np_seek_reader **ret_reader, struct np_err *err);
void np_seek_reader_free(struct np_seek_reader *reader);
/* As np_tar_read_fn; context is a np_seek_reader. Checks each frame's size and checksum. */
int64_t np_seek_reader_read(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err);

/* Makes frames, one after another. One thread. */
struct np_seek_writer;
int np_seek_writer_new(int level, struct np_seek_writer **ret_writer, struct np_err *err);
void np_seek_writer_free(struct np_seek_writer *writer);
/* Compresses content into one frame with its size inside; the bytes are the writer's until its
 * next call. Enters it into the writer's table. */
int np_seek_writer_frame(struct np_seek_writer *writer, const void *content, size_t bytes,
    const void **ret_frame, size_t *ret_bytes, struct np_err *err);
const struct np_seek_table *np_seek_writer_table(const struct np_seek_writer *writer);
/* Forgets the frames: the next file begins. */
void np_seek_writer_reset(struct np_seek_writer *writer);

#endif
