/* Reading and writing safetensors (u64 length of a JSON header, the header, the tensors' bytes
 * without holes): names -> tensors. A malformed file gives an error that names the file and the
 * tensor. Any thread. */
#ifndef NP_SAFETENSORS_H
#define NP_SAFETENSORS_H

#include "loader/base/io.h"
#include "trainer/checkpoint/tensor_file.h"

/* Opens a file and reads its header; its tensors live until close. Checked: the header's length and
 * JSON, known dtypes, shapes against sizes, no gaps, no overlaps, nothing after the last tensor. */
int np_st_open(const char *path, struct np_st_file **ret_file, struct np_err *err);
/* The same for a file that np_st_open_raw() has opened. After an error only np_st_close(). */
int np_st_parse(struct np_st_file *file, struct np_err *err);

/* Writes through io (create, append, sync) without renaming; a failed write leaves its file.
 * Tensors with larger elements come first, so that all are aligned. ret_bytes, ret_xxh3 (may be
 * NULL): size and XXH3-64. */
int np_st_write(struct np_io *io, const char *path, const struct np_st_tensor *tensors, int n,
    uint64_t *ret_bytes, uint64_t *ret_xxh3, struct np_err *err);

#endif
