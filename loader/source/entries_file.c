/* See entries_file.h. Segments are read with pread and used only after header, table and each
 * record have been checked. One thread for each segment and writer. */
#include "loader/source/entries_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include "loader/base/crc32c.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define BUFFER_BYTES (1u << 19) /* larger than any record */
#define MAX_BYTES    ((1ull << 32) * 8 - BUFFER_BYTES)

_Static_assert(sizeof(struct np_segment_header) == 48 && sizeof(struct np_segment_item) == 8 &&
                   sizeof(struct np_entries_record) == 24,
    "they are the file's");

uint64_t np_entries_set(const struct np_index *index)
{
    XXH64_state_t state;

    XXH64_reset(&state, NP_SEGMENT_VERSION);
    XXH64_update(&state, &index->nr_samples, sizeof(index->nr_samples));
    XXH64_update(&state, index->names, index->names_bytes);
    for (int i = 0; !index->root && i < index->nr_files; i++) {
        XXH64_update(&state, index->paths[i], strlen(index->paths[i]) + 1);
        XXH64_update(&state, &index->stamps[i], sizeof(index->stamps[i]));
    }
    return XXH64_digest(&state);
}

static uint32_t crc_of(const struct np_entries_record *record)
{
    const size_t from = offsetof(struct np_entries_record, sample);

    return np_crc32c(0, &record->sample, sizeof(*record) - from + record->coded_bytes);
}

void np_record_seal(struct np_entries_record *record)
{
    record->crc = crc_of(record);
}

bool np_record_check(const struct np_entries_record *record, size_t units, uint64_t sample)
{
    return 8 * units >= sizeof(*record) && record->coded_bytes > 0 &&
           record->coded_bytes <= NP_MAX_ENTRIES_BYTES &&
           np_record_units(record->coded_bytes) == units && record->sample == sample &&
           record->crc == crc_of(record);
}

static int damaged(const struct np_segment *segment, struct np_err *err, const char *what)
{
    return np_err_set(err, -EBADMSG, "%s: damaged: %s", segment->path, what);
}

static int check_header(const struct np_segment *segment, const struct np_segment_header *header,
    uint64_t set, uint64_t nr_samples, struct np_err *err)
{
    struct np_segment_header copy = *header;

    copy.header_crc = 0;
    if (memcmp(header->magic, NP_SEGMENT_MAGIC, sizeof(header->magic)) != 0)
        return damaged(segment, err, "it is not a file of entries");
    if (header->version != NP_SEGMENT_VERSION)
        return np_err_set(err, -ESTALE, "%s: of another version", segment->path);
    if (np_crc32c(0, &copy, sizeof(copy)) != header->header_crc)
        return damaged(segment, err, "its header has a wrong checksum");
    if (header->set != set)
        return np_err_set(err, -ESTALE, "%s: of another list of samples", segment->path);
    if (header->file_bytes != segment->file_bytes || header->nr > nr_samples ||
        header->table_offset < sizeof(copy) || header->table_offset % 8 ||
        header->table_offset > MAX_BYTES ||
        header->table_offset + 8ull * (header->nr + 1ull) != header->file_bytes)
        return damaged(segment, err, "it is truncated");
    return 0;
}

static int check_items(const struct np_segment *segment, const struct np_segment_header *header,
    const struct np_segment_item *items, uint64_t nr_samples, struct np_err *err)
{
    const uint32_t least = sizeof(struct np_entries_record) / 8;
    bool good = items[0].at == sizeof(*header) / 8 &&
                items[header->nr].at == header->table_offset / 8 &&
                (header->nr == 0 || items[header->nr - 1].sample < nr_samples);

    for (uint32_t i = 0; i < header->nr; i++) {
        const uint32_t units = items[i + 1].at - items[i].at;

        good &= (items[i + 1].at > items[i].at) & (units >= least) & (units <= UINT16_MAX) &
                (i == 0 || items[i].sample > items[i - 1].sample);
    }
    return good ? 0 : damaged(segment, err, "its table is not in order");
}

static int read_table(struct np_segment *segment, uint64_t set, uint64_t nr_samples,
    struct np_segment_item **ret_items, uint32_t *ret_nr, struct np_err *err)
{
    struct np_segment_header header;
    struct np_segment_item *items;
    size_t bytes;
    int code;

    if (np_read_at(segment->fd, 0, &header, sizeof(header)) != sizeof(header))
        return damaged(segment, err, "it is truncated");
    code = check_header(segment, &header, set, nr_samples, err);
    if (code)
        return code;
    bytes = 8 * ((size_t)header.nr + 1);
    items = np_try_alloc(bytes, err);
    if (!items)
        return -ENOMEM;
    if (np_read_at(segment->fd, header.table_offset, items, bytes) != (int64_t)bytes ||
        np_crc32c(0, items, bytes) != header.table_crc)
        code = damaged(segment, err, "its table has a wrong checksum");
    else
        code = check_items(segment, &header, items, nr_samples, err);
    if (code) {
        np_free(items);
        return code;
    }
    *ret_items = items;
    *ret_nr = header.nr;
    return 0;
}

static int open_file(struct np_segment *segment, struct np_err *err)
{
    struct stat st;

    segment->fd = open(segment->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (segment->fd < 0 || fstat(segment->fd, &st) < 0)
        return np_err_set(err, -errno, "%s: %s", segment->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return damaged(segment, err, "it is not a file of entries");
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return np_err_set(err, -ESTALE, "%s: belongs to another user", segment->path);
    segment->file_bytes = (uint64_t)st.st_size;
    posix_fadvise(segment->fd, 0, 0, POSIX_FADV_RANDOM); /* only a hint */
    return 0;
}

int np_segment_open(const char *folder, uint32_t number, uint64_t set, uint64_t nr_samples,
    struct np_segment **ret_segment, struct np_segment_item **ret_items, uint32_t *ret_nr,
    struct np_err *err)
{
    struct np_segment *segment = np_try_alloc(sizeof(*segment), err);
    int code = -ENOMEM;

    if (!segment)
        return -ENOMEM;
    segment->fd = -1;
    segment->number = number;
    segment->path = np_try_format(err, "%s/%08x.segment", folder, (unsigned)number);
    if (segment->path)
        code = open_file(segment, err);
    if (!code)
        code = read_table(segment, set, nr_samples, ret_items, ret_nr, err);
    if (code)
        np_segment_close(segment);
    else
        *ret_segment = segment;
    return code;
}

void np_segment_close(struct np_segment *segment)
{
    if (segment && segment->fd >= 0)
        close(segment->fd);
    if (segment)
        np_free(segment->path);
    np_free(segment);
}

uint32_t np_segment_number(const char *name)
{
    unsigned number = 0;
    int end = 0;

    if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 8 ||
        sscanf(name, "%8x.segment%n", &number, &end) != 1 || end != 16)
        return 0;
    return number;
}

int np_segment_begin(struct np_segment_writer *writer, const char *folder, struct np_err *err)
{
    *writer = (struct np_segment_writer){.fd = -1, .folder = folder};
    writer->path = np_try_format(err, "%s/new.segment", folder);
    writer->buffer = np_try_alloc(BUFFER_BYTES, err);
    if (!writer->path || !writer->buffer)
        return -ENOMEM;
    writer->used = writer->size = sizeof(struct np_segment_header); /* zeros until put_header() */
    return np_io_create(NULL, writer->path, &writer->fd, err);
}

static int flush(struct np_segment_writer *writer, struct np_err *err)
{
    const int code = np_io_append(NULL, writer->fd, writer->buffer, writer->used, err);

    writer->used = 0;
    return code;
}

static int add_item(struct np_segment_writer *writer, uint32_t sample, struct np_err *err)
{
    if (np_try_grow(&writer->items, &writer->items_room, (size_t)writer->nr + 1,
            sizeof(*writer->items), err))
        return -ENOMEM;
    writer->items[writer->nr] = (struct np_segment_item){sample, (uint32_t)(writer->size / 8)};
    return 0;
}

int np_segment_add(
    struct np_segment_writer *writer, const struct np_entries_record *record, struct np_err *err)
{
    const size_t whole = sizeof(*record) + record->coded_bytes,
                 padded = 8 * np_record_units(record->coded_bytes);
    int code = writer->size + padded > MAX_BYTES
                   ? np_err_set(err, -EFBIG, "%s: more than 32 GiB", writer->path)
                   : add_item(writer, record->sample, err);

    if (!code && writer->used + padded > BUFFER_BYTES)
        code = flush(writer, err);
    if (code)
        return code;
    writer->nr++;
    memcpy(writer->buffer + writer->used, record, whole);
    memset(writer->buffer + writer->used + whole, 0, padded - whole);
    writer->used += padded;
    writer->size += padded;
    return 0;
}

/* Written last, over zeros: an unfinished file has no header. */
static int put_header(struct np_segment_writer *writer, uint64_t set, struct np_err *err)
{
    const size_t bytes = 8 * ((size_t)writer->nr + 1);
    struct np_segment_header header = {
        .magic = NP_SEGMENT_MAGIC,
        .version = NP_SEGMENT_VERSION,
        .nr = writer->nr,
        .set = set,
        .file_bytes = writer->size + bytes,
        .table_offset = writer->size,
        .table_crc = np_crc32c(0, writer->items, bytes),
    };
    int code = np_io_append(NULL, writer->fd, writer->items, bytes, err);

    header.header_crc = np_crc32c(0, &header, sizeof(header));
    if (!code && pwrite(writer->fd, &header, sizeof(header), 0) != sizeof(header))
        code = np_err_set(err, -EIO, "cannot write %s", writer->path);
    return code;
}

int np_segment_finish(struct np_segment_writer *writer, uint64_t set, uint32_t number, bool durable,
    struct np_err *err)
{
    char *path = np_try_format(err, "%s/%08x.segment", writer->folder, (unsigned)number);
    int code = path ? add_item(writer, 0, err) : -ENOMEM;

    if (!code)
        code = flush(writer, err);
    if (!code)
        code = put_header(writer, set, err);
    if (!code && durable && fsync(writer->fd) < 0)
        code = np_err_set(err, -errno, "cannot write %s: %s", writer->path, strerror(errno));
    if (!code)
        code = np_io_rename(NULL, writer->path, path, err);
    if (!code) {
        close(writer->fd);
        writer->fd = -1;
    }
    np_free(path);
    return code;
}

void np_segment_fini(struct np_segment_writer *writer)
{
    if (writer->fd >= 0) {
        unlink(writer->path); /* this process holds the lock: the file is its own */
        close(writer->fd);
    }
    np_free(writer->path);
    np_free(writer->buffer);
    np_free(writer->items);
}
