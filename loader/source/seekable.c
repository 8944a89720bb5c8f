/* See seekable.h. Hostile tables give an error. Runs in the thread that lists or packs a set; a
 * run's readers need only the offsets. */
#include "loader/source/seekable.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"

#define TABLE_MAGIC  0x184D2A5Eu
#define FOOTER_MAGIC 0x8F92EAB1u
#define FOOTER_BYTES 9
#define MAX_FRAMES   0x8000000u /* the format's own limit */

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
    return at + 4;
}

static int no_memory(struct np_err *err)
{
    return np_err_set(err, -ENOMEM, "out of memory for zstd");
}

void np_seek_table_free(struct np_seek_table *table)
{
    if (table)
        np_free(table->frames);
    np_free(table);
}

static void add_frame(struct np_seek_table *table, const struct np_seek_frame *frame)
{
    table->frames[table->nr_frames++] = *frame;
    table->content_bytes += frame->content_bytes;
    table->max_bytes = frame->bytes > table->max_bytes ? frame->bytes : table->max_bytes;
    table->max_content =
        frame->content_bytes > table->max_content ? frame->content_bytes : table->max_content;
}

/* data_bytes: of the file before the table. */
static int parse_entries(const uint8_t *entries, uint32_t nr_frames, uint64_t data_bytes,
    const char *path, struct np_seek_table *table, struct np_err *err)
{
    const size_t entry_bytes = table->has_checksums ? 12 : 8;
    uint64_t offset = 0;

    table->frames = np_try_array(nr_frames, sizeof(*table->frames), err);
    if (!table->frames)
        return -ENOMEM;
    for (uint32_t i = 0; i < nr_frames; i++) {
        const uint8_t *entry = entries + i * entry_bytes;
        const struct np_seek_frame frame = {
            .offset = offset,
            .content = table->content_bytes,
            .bytes = get_u32(entry),
            .content_bytes = get_u32(entry + 4),
            .checksum = table->has_checksums ? get_u32(entry + 8) : 0,
        };

        if (frame.bytes > data_bytes - offset)
            return np_err_set(err, -EBADMSG,
                "%s: its seek table puts frame %u past the end of the file", path, i);
        offset += frame.bytes;
        add_frame(table, &frame);
    }
    if (offset != data_bytes)
        return np_err_set(err, -EBADMSG,
            "%s: its seek table lists %llu bytes of frames, but the file has %llu", path,
            (unsigned long long)offset, (unsigned long long)data_bytes);
    return 0;
}

int np_seek_table_read(
    int fd, const char *path, struct np_seek_table **ret_table, struct np_err *err)
{
    uint8_t footer[FOOTER_BYTES], *whole = NULL;
    struct np_seek_table *table = NULL;
    struct stat st;
    uint64_t file_bytes, table_bytes;
    uint32_t nr_frames;
    int code = 0;

    if ((code = np_file_fstat(fd, &st)) < 0)
        return np_err_set(err, code, "%s: %s", path, strerror(-code));
    file_bytes = (uint64_t)st.st_size;
    if (file_bytes < 8 + FOOTER_BYTES ||
        np_file_read(fd, file_bytes - FOOTER_BYTES, footer, FOOTER_BYTES, err) != FOOTER_BYTES ||
        get_u32(footer + 5) != FOOTER_MAGIC)
        return -ENOENT;
    nr_frames = get_u32(footer);
    table_bytes = 8 + (uint64_t)nr_frames * (footer[4] & 0x80 ? 12 : 8) + FOOTER_BYTES;
    if (nr_frames > MAX_FRAMES || footer[4] & 0x7c || table_bytes > file_bytes)
        return np_err_set(err, -EBADMSG, "%s: its seek table has an impossible size", path);
    whole = np_try_alloc(table_bytes, err);
    table = np_try_alloc(sizeof(*table), err);
    if (!whole || !table)
        code = -ENOMEM;
    else if (np_file_read(fd, file_bytes - table_bytes, whole, table_bytes, err) !=
             (int64_t)table_bytes)
        code = np_err_set(err, -EIO, "%s: its seek table cannot be read", path);
    else if (get_u32(whole) != TABLE_MAGIC || get_u32(whole + 4) != table_bytes - 8)
        code = np_err_set(err, -EBADMSG, "%s: its seek table begins at the wrong offset", path);
    if (!code) {
        table->has_checksums = footer[4] & 0x80;
        code = parse_entries(whole + 8, nr_frames, file_bytes - table_bytes, path, table, err);
    }
    np_free(whole);
    if (code) {
        np_seek_table_free(table);
        return code;
    }
    *ret_table = table;
    return 0;
}

uint64_t np_seek_table_find(const struct np_seek_table *table, uint64_t content)
{
    uint64_t low = 0, high = table->nr_frames;

    if (content >= table->content_bytes)
        return table->nr_frames;
    while (high - low > 1) { /* the last frame that starts at or before it */
        const uint64_t middle = low + (high - low) / 2;

        if (table->frames[middle].content <= content)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct np_seek_reader {
    int fd;
    const char *path;
    const struct np_seek_table *table;
    ZSTD_DCtx *zstd;
    uint8_t *frame, *content; /* (table->max_bytes), (table->max_content) */
    uint64_t number;          /* of the frame in content; UINT64_MAX: none */
};

int np_seek_reader_open(int fd, const char *path, const struct np_seek_table *table,
    struct np_seek_reader **ret_reader, struct np_err *err)
{
    struct np_seek_reader *reader;

    if (table->max_content > NP_SEEK_MAX_CONTENT)
        return np_err_set(err, -EFBIG, "%s: a zstd frame of %u bytes is too large to seek in", path,
            table->max_content);
    reader = np_try_alloc(sizeof(*reader), err);
    if (!reader)
        return -ENOMEM;
    *reader = (struct np_seek_reader){fd, path, table, ZSTD_createDCtx(),
        np_try_alloc(table->max_bytes, err), np_try_alloc(table->max_content, err), UINT64_MAX};
    if (!reader->zstd)
        no_memory(err);
    if (!reader->zstd || !reader->frame || !reader->content) {
        np_seek_reader_free(reader);
        return -ENOMEM;
    }
    *ret_reader = reader;
    return 0;
}

void np_seek_reader_free(struct np_seek_reader *reader)
{
    if (!reader)
        return;
    ZSTD_freeDCtx(reader->zstd);
    np_free(reader->frame);
    np_free(reader->content);
    np_free(reader);
}

static int load_frame(struct np_seek_reader *reader, uint64_t number, struct np_err *err)
{
    const struct np_seek_frame *frame = &reader->table->frames[number];
    size_t got;

    if (reader->number == number)
        return 0;
    reader->number = UINT64_MAX;
    if (np_file_read(reader->fd, frame->offset, reader->frame, frame->bytes, err) !=
        (int64_t)frame->bytes)
        return np_err_set(err, -EIO, "%s: cannot read the frame at offset %llu", reader->path,
            (unsigned long long)frame->offset);
    got = ZSTD_decompressDCtx(
        reader->zstd, reader->content, frame->content_bytes, reader->frame, frame->bytes);
    if (ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation)
        return no_memory(err);
    if (ZSTD_isError(got))
        return np_err_set(err, -EBADMSG, "%s: the zstd frame at offset %llu is damaged: %s",
            reader->path, (unsigned long long)frame->offset, ZSTD_getErrorName(got));
    if (got != frame->content_bytes)
        return np_err_set(err, -EBADMSG,
            "%s: the zstd frame at offset %llu holds %zu bytes, but the seek table says %u",
            reader->path, (unsigned long long)frame->offset, got, frame->content_bytes);
    if (reader->table->has_checksums && (uint32_t)XXH64(reader->content, got, 0) != frame->checksum)
        return np_err_set(err, -EBADMSG, "%s: the zstd frame at offset %llu has a wrong checksum",
            reader->path, (unsigned long long)frame->offset);
    reader->number = number;
    return 0;
}

int64_t np_seek_reader_read(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err)
{
    struct np_seek_reader *reader = context;
    const struct np_seek_table *table = reader->table;
    uint64_t number = np_seek_table_find(table, offset);
    size_t done = 0;

    for (; done < bytes && number < table->nr_frames; number++) {
        const struct np_seek_frame *frame = &table->frames[number];
        const uint64_t skip = offset + done - frame->content;
        size_t part = (size_t)(frame->content_bytes - skip);
        int code;

        if (frame->content_bytes == 0) /* skippable or empty */
            continue;
        code = load_frame(reader, number, err);
        if (code)
            return code;
        part = part < bytes - done ? part : bytes - done;
        memcpy((uint8_t *)buffer + done, reader->content + skip, part);
        done += part;
    }
    return (int64_t)done;
}

struct np_seek_writer {
    ZSTD_CCtx *zstd;
    struct np_seek_table table;
    uint64_t offset;
    uint8_t *frame;
    size_t frame_cap, table_cap;
};

int np_seek_writer_new(int level, struct np_seek_writer **ret_writer, struct np_err *err)
{
    struct np_seek_writer *writer = np_try_alloc(sizeof(*writer), err);

    if (!writer)
        return -ENOMEM;
    writer->zstd = ZSTD_createCCtx();
    if (!writer->zstd) {
        np_free(writer);
        return no_memory(err);
    }
    ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_checksumFlag, 0); /* records have a CRC */
    *ret_writer = writer;
    return 0;
}

void np_seek_writer_free(struct np_seek_writer *writer)
{
    if (!writer)
        return;
    ZSTD_freeCCtx(writer->zstd);
    np_free(writer->table.frames);
    np_free(writer->frame);
    np_free(writer);
}

int np_seek_writer_frame(struct np_seek_writer *writer, const void *content, size_t bytes,
    const void **ret_frame, size_t *ret_bytes, struct np_err *err)
{
    const size_t max = ZSTD_compressBound(bytes);
    struct np_seek_table *table = &writer->table;
    struct np_seek_frame frame = {.offset = writer->offset};
    size_t got;

    if (bytes > UINT32_MAX / 2)
        return np_err_set(err, -EFBIG, "%zu bytes are too many for one zstd frame", bytes);
    if (np_hold(&writer->frame, &writer->frame_cap, max, err) ||
        np_try_grow(
            &table->frames, &writer->table_cap, table->nr_frames + 1, sizeof(*table->frames), err))
        return -ENOMEM;
    got = ZSTD_compress2(writer->zstd, writer->frame, writer->frame_cap, content, bytes);
    if (ZSTD_isError(got))
        return np_err_set(err, -EIO, "zstd: %s", ZSTD_getErrorName(got));
    frame.bytes = (uint32_t)got;
    frame.content = table->content_bytes;
    frame.content_bytes = (uint32_t)bytes;
    frame.checksum = (uint32_t)XXH64(content, bytes, 0);
    add_frame(table, &frame);
    writer->offset += got;
    *ret_frame = writer->frame;
    *ret_bytes = got;
    return 0;
}

uint8_t *np_seek_writer_finish(struct np_seek_writer *writer, size_t *ret_bytes, struct np_err *err)
{
    struct np_seek_table *table = &writer->table;
    const size_t bytes = 8 + table->nr_frames * 12 + FOOTER_BYTES;
    uint8_t *whole, *at;

    if (table->nr_frames > MAX_FRAMES) {
        np_err_set(err, -EFBIG, "too many zstd frames in a file");
        return NULL;
    }
    at = whole = np_try_alloc(bytes, err);
    if (!whole)
        return NULL;
    at = put_u32(at, TABLE_MAGIC);
    at = put_u32(at, (uint32_t)(bytes - 8));
    for (uint64_t i = 0; i < table->nr_frames; i++) {
        at = put_u32(at, table->frames[i].bytes);
        at = put_u32(at, table->frames[i].content_bytes);
        at = put_u32(at, table->frames[i].checksum);
    }
    at = put_u32(at, (uint32_t)table->nr_frames);
    *at++ = 0x80; /* with checksums */
    put_u32(at, FOOTER_MAGIC);
    *table = (struct np_seek_table){.frames = table->frames};
    writer->offset = 0;
    *ret_bytes = bytes;
    return whole;
}
