/* Open files of tensors: finding a tensor by name, reading bytes, hashing. Any thread. */
#include "trainer/checkpoint/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/base/mem.h"

#define MAX_READ   (1u << 30) /* bytes per system call */
#define HASH_PIECE (1u << 20) /* bytes */

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {{"F32", 4}, {"I64", 8}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"BOOL", 1}, {"U8", 1},
    {"I8", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"I32", 4}, {"U32", 4},
    {"U64", 8}};

uint64_t np_st_dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            return (uint64_t)dtypes[i].bytes;
    return 0;
}

/* --- files --------------------------------------------------------------------------------- */

int np_st_open_raw(const char *path, struct np_st_file **ret_file, struct np_err *err)
{
    struct stat info;
    int code = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return np_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info) < 0)
        code = np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        code = np_err_set(err, -EINVAL, "%s: not a regular file", path);
    if (code < 0) {
        close(fd);
        return code;
    }
    struct np_st_file *file = np_alloc(sizeof(*file));
    file->name = np_strdup(path);
    file->fd = fd;
    file->nr_bytes = (uint64_t)info.st_size;
    *ret_file = file;
    return 0;
}

void np_st_close(struct np_st_file *file)
{
    if (!file)
        return;
    close(file->fd);
    if (file->free_names)
        file->free_names(file->names);
    np_free(file->tensors);
    np_free(file->by_name);
    np_free(file->part);
    np_free(file->others);
    np_free(file->prefix);
    np_free(file->name);
    np_free(file);
}

static int compare_names(const void *a, const void *b, void *context)
{
    const struct np_st_tensor *tensors = context;

    return strcmp(tensors[*(const int *)a].name, tensors[*(const int *)b].name);
}

int np_st_sort_names(struct np_st_file *file, struct np_err *err)
{
    file->by_name = np_try_array((size_t)file->n, sizeof(*file->by_name), err);
    if (!file->by_name)
        return np_err_context(err, "%s", file->name);
    for (int i = 0; i < file->n; i++)
        file->by_name[i] = i;
    qsort_r(file->by_name, (size_t)file->n, sizeof(*file->by_name), compare_names, file->tensors);
    for (int i = 1; i < file->n; i++)
        if (compare_names(&file->by_name[i - 1], &file->by_name[i], file->tensors) == 0)
            return np_err_set(err, -EBADMSG, "%s: %s: there are two of this name", file->name,
                file->tensors[file->by_name[i]].name);
    return 0;
}

const struct np_st_tensor *np_st_find(const struct np_st_file *file, const char *name)
{
    int first = 0, last = file->n;

    while (first < last) {
        int middle = first + (last - first) / 2;
        const struct np_st_tensor *tensor = &file->tensors[file->by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0)
            return tensor;
        if (order < 0)
            last = middle;
        else
            first = middle + 1;
    }
    return NULL;
}

/* --- bytes --- bytes --------------------------------------------------------------------------------- */

int np_st_read_at(
    const struct np_st_file *file, uint64_t from, void *out, uint64_t bytes, struct np_err *err)
{
    uint8_t *to = out;

    while (bytes > 0) {
        ssize_t n = pread(file->fd, to, bytes < MAX_READ ? bytes : MAX_READ, (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return np_err_set(err, -errno, "%s: cannot be read at byte %" PRIu64 ": %s", file->name,
                from, strerror(errno));
        if (n == 0)
            return np_err_set(err, -EBADMSG,
                "%s: truncated: it ends at byte %" PRIu64 ", before its former end", file->name,
                from);
        to += n;
        from += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

int np_st_read(const struct np_st_file *file, const struct np_st_tensor *tensor, uint64_t from,
    void *out, uint64_t bytes, struct np_err *err)
{
    return np_st_read_at(file, tensor->offset + from, out, bytes, err);
}

int np_st_hash(const struct np_st_file *file, uint64_t *ret_xxh3, struct np_err *err)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *piece = np_try_alloc(HASH_PIECE, err);
    int code = state && piece ? 0 : np_err_set(err, -ENOMEM, "%s: out of memory", file->name);

    if (code == 0)
        XXH3_64bits_reset(state);
    for (uint64_t at = 0; code == 0 && at < file->nr_bytes;) {
        uint64_t left = file->nr_bytes - at, n = left < HASH_PIECE ? left : HASH_PIECE;
        code = np_st_read_at(file, at, piece, n, err);
        if (code == 0)
            XXH3_64bits_update(state, piece, n);
        at += n;
    }
    if (code == 0)
        *ret_xxh3 = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    np_free(piece);
    return code;
}
