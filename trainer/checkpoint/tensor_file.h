/* An open file of named tensors, whatever its format: where each tensor's bytes lie, and reading
 * them. safetensors.c and torch_state.c fill it. Nothing is mapped: if the disk fails or the file is
 * truncated later, the call that reads returns the error. Any thread. */
#ifndef NP_TENSOR_FILE_H
#define NP_TENSOR_FILE_H

#include <stdint.h>

#include "loader/base/err.h"

#define NP_ST_MAX_DIMS 8

struct np_st_tensor {
    const char *name;
    const char *dtype; /* safetensors' name: "F32", "I64", ... */
    int64_t dims[NP_ST_MAX_DIMS];
    int nr_dims;
    const void *data; /* the caller's when writing; NULL when reading */
    uint64_t bytes;   /* from the first element to the last, with the holes that strides leave */
    uint64_t offset;  /* when reading: of its first element from the file's start */
    bool strided;     /* the elements are not one after another: */
    int64_t strides[NP_ST_MAX_DIMS]; /* elements; only if strided */
};
struct np_st_file {
    char *name; /* for errors */
    int fd;
    uint64_t nr_bytes;
    struct np_st_tensor *tensors; /* (n) in the order of their bytes */
    int *by_name;                 /* (n) */
    int n;
    char *part;   /* the part of the file that the tensors are, such as "model"; NULL: all of it */
    char *others; /* other parts that hold tensors: "model_ema, net"; NULL: none */
    char *prefix; /* of the names, as the user gave it; NULL: not given */
    void *names;  /* what the tensors' names point into */
    void (*free_names)(void *names); /* called by np_st_close(); NULL: nothing to free */
};

/* Opens a regular file without a format: no tensors yet. np_st_close(). */
int np_st_open_raw(const char *path, struct np_st_file **ret_file, struct np_err *err);
void np_st_close(struct np_st_file *file);
/* Makes by_name of the tensors. -EBADMSG: two have one name. */
int np_st_sort_names(struct np_st_file *file, struct np_err *err);
const struct np_st_tensor *np_st_find(
    const struct np_st_file *file, const char *name); /* or NULL */
/* Reads bytes [from, from + bytes) of the file. -EBADMSG: it has become shorter. */
int np_st_read_at(
    const struct np_st_file *file, uint64_t from, void *out, uint64_t bytes, struct np_err *err);
/* Reads bytes [from, from + bytes) of a tensor. Errors as np_st_read_at(). */
int np_st_read(const struct np_st_file *file, const struct np_st_tensor *tensor, uint64_t from,
    void *out, uint64_t bytes, struct np_err *err);
/* XXH3-64 of the whole file, read once from end to end. Errors as np_st_read_at(). */
int np_st_hash(const struct np_st_file *file, uint64_t *ret_xxh3, struct np_err *err);
/* Bytes per element; 0 for an unknown dtype. */
uint64_t np_st_dtype_bytes(const char *dtype);

#endif
