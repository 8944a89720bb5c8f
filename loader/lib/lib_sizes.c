/* See lib_sizes.h. */
#include "loader/lib/lib_sizes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/lib/lib_header.h"
#include "loader/lib/lib_sizes_file.h"
#include "loader/lib/lib_spread.h"
#include "loader/pack/fetch.h"
#include "loader/pixels/codec.h"
#include "loader/source/entries_file.h"
#include "loader/source/files.h"

struct np_sizes {
    const struct np_index *index; /* while they are read */
    struct np_sizes_header *file; /* with the sizes behind it */
    struct np_size *sizes;        /* (samples), in file */
    uint64_t nr_read;             /* atomic */
};

/* --- one picture -------------------------------------------------------------------------------- */

/* What the decoder says of the whole sample; 0 x 0: it cannot be read. Rarely called. */
static int decode_size(const struct np_index *index, uint64_t sample, struct np_fetch *fetch,
    struct np_size *size, struct np_err *err)
{
    struct np_image_info info = {0};
    struct np_decoder *decoder;
    struct np_err why = {0};
    const uint8_t *bytes;
    uint32_t nr_bytes;
    int code = np_decoder_new(&decoder, err);

    if (code)
        return code;
    code = np_fetch_get(fetch, sample, &bytes, &nr_bytes, &why);
    if (!code)
        code = np_decoder_open(decoder, bytes, nr_bytes, &index->raw, &info, &why);
    size->width = code ? 0 : (uint16_t)info.width;
    size->height = code ? 0 : (uint16_t)info.height;
    np_decoder_free(decoder);
    return code == -ENOMEM ? np_err_set(err, code, "%s", why.text) : 0;
}

/* The header of a picture's own file, if it has changed. 1: the decoder decides. */
static int read_header(struct np_sizes *sizes, const char *path, struct np_size *size)
{
    struct np_index_stamp stamp;
    int32_t width, height;
    struct stat st;
    bool found;
    int fd;

    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) {
        *size = (struct np_size){0};
        return 0;
    }
    stamp = np_index_stamp_of(&st);
    if (size->mtime_ns == stamp.mtime_ns && size->bytes == (uint32_t)stamp.bytes)
        return 0;
    __atomic_fetch_add(&sizes->nr_read, 1, __ATOMIC_RELAXED);
    *size = (struct np_size){.mtime_ns = stamp.mtime_ns, .bytes = (uint32_t)stamp.bytes};
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 1;
    found = np_header_size(fd, 0, UINT64_MAX, &width, &height);
    close(fd);
    if (!found)
        return 1;
    size->width = (uint16_t)width;
    size->height = (uint16_t)height;
    return 0;
}

/* The file whose parts are read. */
struct open_file {
    int fd;
    const char *path; /* of the index */
};

/* The header of a part of a file. 1: the decoder decides. */
static int read_part(struct np_sizes *sizes, struct open_file *file, const struct np_extent *extent,
    struct np_size *size)
{
    const struct np_record *record = extent->record;
    int32_t width, height;

    if (record->packing)
        return 1;
    if (file->path != extent->path) {
        if (file->fd >= 0)
            close(file->fd);
        *file = (struct open_file){open(extent->path, O_RDONLY | O_CLOEXEC), extent->path};
    }
    if (file->fd < 0 || !np_header_size(file->fd, record->offset, record->bytes, &width, &height))
        return 1;
    __atomic_fetch_add(&sizes->nr_read, 1, __ATOMIC_RELAXED);
    *size = (struct np_size){.width = (uint16_t)width, .height = (uint16_t)height};
    return 0;
}

static int read_some(void *context, uint64_t first, uint64_t end, struct np_err *err)
{
    struct np_sizes *sizes = context;
    struct np_fetch *fetch = NULL;
    struct open_file file = {-1, NULL};
    struct np_extent extent;
    int code = np_fetch_open(sizes->index, &fetch, err);

    for (uint64_t i = first; !code && i < end; i++) {
        np_source_locate(sizes->index, i, &extent);
        code = sizes->index->root ? read_header(sizes, extent.path, &sizes->sizes[i])
                                  : read_part(sizes, &file, &extent, &sizes->sizes[i]);
        if (code > 0)
            code = decode_size(sizes->index, i, fetch, &sizes->sizes[i], err);
    }
    if (file.fd >= 0)
        close(file.fd);
    np_fetch_close(fetch);
    return code;
}

/* --- the file ----------------------------------------------------------------------------------- */

static size_t file_bytes(uint64_t nr)
{
    return sizeof(struct np_sizes_header) + nr * sizeof(struct np_size);
}

/* Takes what was kept; a damaged file, or one of another set, is none. */
static void read_kept(struct np_sizes *sizes, const char *path)
{
    const struct np_sizes_header *header = sizes->file;
    char *file = NULL;
    uint64_t bytes;

    if (np_read_file(path, file_bytes(header->nr), &file, &bytes, NULL) == 0)
        np_sizes_parse(file, bytes, header->set, header->nr, sizes->sizes);
    np_free(file);
}

/* Where it fails, the next loader reads the headers again. */
static void keep(struct np_sizes *sizes, const char *path)
{
    np_sizes_seal(sizes->file);
    if (np_make_parent(path, NULL) == 0)
        np_write_file(path, sizes->file, file_bytes(sizes->file->nr), 0, NULL);
}

int np_sizes_read(const struct np_index *index, struct np_sizes **ret_sizes, struct np_err *err)
{
    const uint64_t nr = np_index_samples(index);
    const char *path = index->root ? index->cached : NULL;
    struct np_sizes *sizes;
    int code;

    *ret_sizes = NULL;
    if (index->raw.kind != NP_RAW_NONE)
        return 0;
    sizes = np_try_alloc(sizeof(*sizes), err);
    if (!sizes)
        return -ENOMEM;
    sizes->index = index;
    sizes->file = np_try_alloc(file_bytes(nr), err);
    if (!sizes->file) {
        np_sizes_free(sizes);
        return -ENOMEM;
    }
    sizes->sizes = (struct np_size *)(sizes->file + 1);
    *sizes->file = (struct np_sizes_header){
        .version = NP_SIZES_VERSION, .set = np_entries_set(index), .nr = nr};
    memcpy(sizes->file->magic, NP_SIZES_MAGIC, sizeof(sizes->file->magic));
    if (path)
        read_kept(sizes, path);
    code = np_spread(nr, read_some, sizes, err);
    if (!code && path && sizes->nr_read > 0)
        keep(sizes, path);
    if (code)
        np_sizes_free(sizes);
    else
        *ret_sizes = sizes;
    return code;
}

void np_sizes_free(struct np_sizes *sizes)
{
    if (!sizes)
        return;
    np_free(sizes->file);
    np_free(sizes);
}

void np_sizes_get(const struct np_sizes *sizes, const struct np_index *index, uint64_t sample,
    int32_t *ret_width, int32_t *ret_height)
{
    *ret_width = sizes ? sizes->sizes[sample].width : index->raw.width;
    *ret_height = sizes ? sizes->sizes[sample].height : index->raw.height;
}

uint64_t np_sizes_nr_read(const struct np_sizes *sizes)
{
    return sizes->nr_read;
}
