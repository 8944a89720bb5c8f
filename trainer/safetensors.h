/* Reading and writing safetensors (header layout: the format's README): names -> f32
 * tensors. Hostile files give an error. */
#ifndef NP_SAFETENSORS_H
#define NP_SAFETENSORS_H

#include "loader/base/io.h"

struct np_st_tensor {
    const char *name;
    const char *dtype; /* "F32", "I64", ... */
    int64_t dims[8];
    int nr_dims;
    const void *data; /* borrowed from the file, or the caller's when writing */
    uint64_t bytes;
};
struct np_st_file;
/* Maps a file; tensors live until close. */
int np_st_open(const char *path, struct np_st_file **ret_file, struct np_err *err);
void np_st_close(struct np_st_file *file);
int np_st_count(const struct np_st_file *file);
const struct np_st_tensor *np_st_at(const struct np_st_file *file, int i);
const struct np_st_tensor *np_st_find(
    const struct np_st_file *file, const char *name);                       /* or NULL */
const char *np_st_metadata(const struct np_st_file *file, const char *key); /* or NULL */
/* Writes through io (create, append, sync), not renamed; metadata pairs key, value, NULL-ended. */
int np_st_write(struct np_io *io, const char *path, const struct np_st_tensor *tensors, int n,
    const char *const *metadata, struct np_err *err);

#endif
