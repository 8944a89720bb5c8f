/* Reading and writing safetensors (u64 length of a JSON header, the header, the tensors' bytes
 * without holes): names -> tensors. A malformed file gives an error that names the file and the
 * tensor. Any thread. */
#ifndef NP_SAFETENSORS_H
#define NP_SAFETENSORS_H

#include "loader/base/io.h"

#define NP_ST_MAX_DIMS 8

struct np_st_tensor {
    const char *name;
    const char *dtype; /* "F32", "I64", ... */
    int64_t dims[NP_ST_MAX_DIMS];
    int nr_dims;
    const void *data; /* the caller's when writing; NULL when reading */
    uint64_t bytes;
    uint64_t offset; /* when reading: of its bytes from the file's start */
};
struct np_st_file {
    char *name; /* for errors */
    int fd;
    uint64_t nr_bytes;
    struct json_t *root;          /* the header: holds the names */
    struct np_st_tensor *tensors; /* (n) in the order of their bytes */
    int *by_name;                 /* (n) */
    int n;
};
/* Opens a file and reads its header; its tensors live until close. Nothing is mapped: if the disk
 * fails or the file is truncated later, the call that reads returns the error. Checked: the
 * header's length and JSON, known dtypes, shapes against sizes, no gaps, no overlaps, nothing after
 * the last tensor. */
int np_st_open(const char *path, struct np_st_file **ret_file, struct np_err *err);
void np_st_close(struct np_st_file *file);
const struct np_st_tensor *np_st_find(
    const struct np_st_file *file, const char *name); /* or NULL */
/* Reads bytes [from, from + bytes) of a tensor. -EBADMSG: the file has become shorter. */
int np_st_read(const struct np_st_file *file, const struct np_st_tensor *tensor, uint64_t from,
    void *out, uint64_t bytes, struct np_err *err);
/* XXH3-64 of the whole file, read once from end to end. Errors as np_st_read(). */
int np_st_hash(const struct np_st_file *file, uint64_t *ret_xxh3, struct np_err *err);
/* Bytes per element; 0 for an unknown dtype. */
uint64_t np_st_dtype_bytes(const char *dtype);

/* Writes through io (create, append, sync) without renaming; a failed write leaves its file.
 * Tensors with larger elements come first, so that all are aligned. ret_bytes, ret_xxh3 (may be
 * NULL): size and XXH3-64. */
int np_st_write(struct np_io *io, const char *path, const struct np_st_tensor *tensors, int n,
    uint64_t *ret_bytes, uint64_t *ret_xxh3, struct np_err *err);

/* Identifies a file of weights that is not a safetensors file, from its first bytes. Writes "a
 * PyTorch file; ..." and how to convert it; false: unknown. */
bool np_weights_kind(
    const char *name, const uint8_t *start, size_t bytes, char *text, size_t text_bytes);

#endif
