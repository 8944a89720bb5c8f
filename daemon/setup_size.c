/* The size of a set's images, from its first sample: what an empty chain leaves as it is. */
#include "daemon/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/codec.h"
#include "loader/maker.h"

#define MAX_TRIES 16 /* bad samples before the size is given up */

static int read_extent(const struct np_extent *extent, uint8_t *bytes, struct np_err *err)
{
    int fd = open(extent->path, O_RDONLY | O_CLOEXEC);
    uint32_t done = 0;

    if (fd < 0)
        return np_err_set(err, -errno, "%s: cannot be opened: %s", extent->path, strerror(errno));
    while (done < extent->record->bytes) {
        ssize_t n = pread(
            fd, bytes + done, extent->record->bytes - done, (off_t)(extent->record->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (uint32_t)n;
    }
    close(fd);
    if (done < extent->record->bytes)
        return np_err_set(err, -EIO, "%s: ends before byte %llu", extent->path,
            (unsigned long long)(extent->record->offset + extent->record->bytes));
    return 0;
}

static int unpack(const struct np_record *record, const uint8_t *packed, uint8_t *bytes,
    uint64_t room, struct np_err *err)
{
    struct np_unzstd *unzstd = np_unzstd_new();
    size_t got = 0;
    int code = unzstd ? np_unzstd_frame(unzstd, packed, record->bytes, bytes, room, &got, err)
                      : np_err_set(err, -ENOMEM, "out of memory");

    np_unzstd_free(unzstd);
    if (code == 0 && got < (uint64_t)record->inner_offset + record->inner_bytes)
        code = np_err_set(err, -EBADMSG, "its zstd frame is too short");
    return code;
}

static int header_size(const struct np_index *index, const uint8_t *bytes, size_t nr_bytes,
    int *ret_width, int *ret_height, struct np_err *err)
{
    struct np_decoder *decoder = NULL;
    struct np_image_info info = {0};
    int code = np_decoder_new(&decoder, err);

    if (code == 0)
        code = np_decoder_open(decoder, bytes, nr_bytes, np_index_raw(index), &info, err);
    np_decoder_free(decoder);
    if (code == 0) {
        *ret_width = info.width;
        *ret_height = info.height;
    }
    return code;
}

static int sample_size(const struct np_index *index, uint64_t sample, int *ret_width,
    int *ret_height, struct np_err *err)
{
    struct np_extent extent;

    np_source_locate(index, sample, &extent);
    const struct np_record *record = extent.record;
    if (record->bytes > NP_MAX_SAMPLE_BYTES)
        return np_err_set(err, -EBADMSG, "%u bytes are too many for an image", record->bytes);
    bool packed = record->packing == NP_PACKING_ZSTD;
    uint64_t room = packed ? np_index_max_inner(index) : 0;
    uint8_t *bytes = np_alloc((size_t)record->bytes + 1), *inner = np_alloc(room + 1);
    int code = bytes && inner ? read_extent(&extent, bytes, err)
                              : np_err_set(err, -ENOMEM, "out of memory for the first image");

    if (code == 0 && packed)
        code = unpack(record, bytes, inner, room, err);
    if (code == 0)
        code = header_size(index, packed ? inner + record->inner_offset : bytes,
            record->inner_bytes, ret_width, ret_height, err);
    np_free(bytes);
    np_free(inner);
    return code;
}

int np_first_size(const struct np_index *index, int *ret_width, int *ret_height, struct np_err *err)
{
    const struct np_raw *raw = np_index_raw(index);
    struct np_err first = {0};
    char name[1024] = "";

    if (raw && raw->kind != NP_RAW_NONE) {
        *ret_width = raw->width;
        *ret_height = raw->height;
        return 0;
    }
    for (uint64_t i = 0; i < np_index_samples(index) && i < MAX_TRIES; i++)
        if (sample_size(index, i, ret_width, ret_height, &first) == 0)
            return 0;
    np_index_name(index, 0, name, sizeof(name));
    return np_err_set(err, first.code,
        "the size of the network's input comes from the first image, %.300s: %.400s", name,
        first.text);
}

uint64_t np_picture_bytes(const struct np_index *index, int channels)
{
    int width, height;

    if (np_first_size(index, &width, &height, NULL) < 0)
        return 0;
    return (uint64_t)width * (uint64_t)height * (uint64_t)channels;
}
