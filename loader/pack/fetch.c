/* Keeps one file open and one frame unpacked. */
#include "loader/pack/fetch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/pixels/codec.h"
#include "loader/source/files.h"

struct np_fetch {
    const struct np_index *index;
    struct np_unzstd *unzstd;
    struct np_extent extent;
    int fd;
    char *fd_path;
    uint8_t *buffer;
    size_t buffer_bytes;
    uint8_t *frame; /* the frame unpacked last: of frame_file, at frame_offset */
    size_t frame_room, frame_bytes;
    uint32_t frame_file;
    uint64_t frame_offset;
    bool has_frame;
    uint64_t number; /* for a drawn sample, its bytes */
    uint64_t mtime_ns;
};

int np_fetch_open(const struct np_index *index, struct np_fetch **ret_fetch, struct np_err *err)
{
    struct np_fetch *fetch = np_try_alloc(sizeof(*fetch), err);

    if (!fetch)
        return -ENOMEM;
    fetch->index = index;
    fetch->fd = -1;
    fetch->unzstd = np_unzstd_new(err);
    if (!fetch->unzstd) {
        np_fetch_close(fetch);
        return -ENOMEM;
    }
    *ret_fetch = fetch;
    return 0;
}

void np_fetch_close(struct np_fetch *fetch)
{
    if (!fetch)
        return;
    np_file_close(fetch->fd);
    np_unzstd_free(fetch->unzstd);
    np_free(fetch->fd_path);
    np_free(fetch->buffer);
    np_free(fetch->frame);
    np_free(fetch);
}

/* record receives the current size if the sample is a file of its own. */
static int open_file(
    struct np_fetch *fetch, const char *path, struct np_record *record, struct np_err *err)
{
    const bool own = fetch->index->root != NULL;
    struct stat st;
    int code;

    if (own && stat(path, &st) == 0 &&
        !S_ISREG(st.st_mode)) /* open() of a pipe waits for a writer */
        return np_err_set(err, -EBADMSG, "not a file");
    if (!own && fetch->fd != -1 && strcmp(fetch->fd_path, path) == 0)
        return 0;
    np_file_close(fetch->fd);
    np_free(fetch->fd_path);
    fetch->fd_path = np_try_strdup(path, err);
    fetch->fd = -1;
    if (!fetch->fd_path)
        return -ENOMEM;
    code = own ? np_extent_open(path, record, &fetch->mtime_ns) : np_file_open(path, err);
    if (code >= 0 || np_is_remote(code)) {
        fetch->fd = code;
        return 0;
    }
    return np_err_set(err, own && np_extent_is_bad(fetch->index, code) ? -EBADMSG : code,
        "cannot be opened: %s", strerror(-code));
}

static int read_extent(struct np_fetch *fetch, struct np_record *record, struct np_err *err)
{
    int64_t got;
    int code = open_file(fetch, fetch->extent.path, record, err);

    if (!code && record->bytes == 0)
        return np_err_set(err, -EBADMSG, "is empty");
    if (!code)
        code = np_hold(&fetch->buffer, &fetch->buffer_bytes, record->bytes, err);
    if (code)
        return code;
    got = np_file_read(fetch->fd, record->offset, fetch->buffer, record->bytes, err);
    if (got < 0)
        return np_err_set(err, (int)got, "cannot read at offset %llu: %s",
            (unsigned long long)record->offset, strerror((int)-got));
    if (got < (int64_t)record->bytes)
        return np_err_set(err, -EBADMSG, "the file ends %lld bytes early",
            (long long)record->bytes - (long long)got);
    return 0;
}

static int read_frame(struct np_fetch *fetch, struct np_record *record, struct np_err *err)
{
    const uint64_t end = (uint64_t)record->inner_offset + record->inner_bytes;
    int code;

    if (!fetch->has_frame || fetch->frame_file != record->file ||
        fetch->frame_offset != record->offset) {
        fetch->has_frame = false;
        code = read_extent(fetch, record, err);
        if (!code)
            code = np_hold(&fetch->frame, &fetch->frame_room, fetch->index->max_inner, err);
        if (!code)
            code = np_unzstd_frame(fetch->unzstd, fetch->buffer, record->bytes, fetch->frame,
                fetch->index->max_inner, &fetch->frame_bytes, err);
        if (code)
            return code;
        fetch->has_frame = true;
        fetch->frame_file = record->file;
        fetch->frame_offset = record->offset;
    }
    return end <= fetch->frame_bytes
               ? 0
               : np_err_set(
                     err, -EBADMSG, "its zstd frame holds only %zu bytes", fetch->frame_bytes);
}

int np_fetch_get(struct np_fetch *fetch, uint64_t sample, const uint8_t **ret_bytes,
    uint32_t *ret_nr_bytes, struct np_err *err)
{
    struct np_record record = np_index_get(fetch->index, sample);
    const uint8_t *bytes;
    uint32_t crc;
    int code;

    if (fetch->index->raw.kind == NP_RAW_SYNTH) {
        fetch->number = record.offset;
        *ret_bytes = (const uint8_t *)&fetch->number;
        *ret_nr_bytes = sizeof(fetch->number);
        return 0;
    }
    if (record.inner_bytes == 0 && !fetch->index->root)
        return np_err_set(err, -EBADMSG, "is empty");
    np_source_locate(fetch->index, sample, &fetch->extent);
    code = record.packing == NP_PACKING_NONE ? read_extent(fetch, &record, err)
                                             : read_frame(fetch, &record, err);
    if (code)
        return code;
    bytes = record.packing == NP_PACKING_NONE ? fetch->buffer : fetch->frame + record.inner_offset;
    crc = np_crc32c(0, bytes, record.inner_bytes);
    if (record.has_crc && crc != record.crc32c)
        return np_err_set(err, -EBADMSG, "wrong checksum: CRC32C is %08x, the index has %08x", crc,
            record.crc32c);
    *ret_bytes = bytes;
    *ret_nr_bytes = record.inner_bytes;
    return 0;
}

uint64_t np_fetch_mtime_ns(const struct np_fetch *fetch)
{
    return fetch->mtime_ns;
}
