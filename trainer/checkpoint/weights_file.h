/* Opens files of weights that other programs wrote: safetensors, and what torch.save() writes. A
 * table has a row for each format. Any thread. */
#ifndef NP_WEIGHTS_FILE_H
#define NP_WEIGHTS_FILE_H

#include "trainer/checkpoint/tensor_file.h"

/* Opens FILE, or FILE#KEY, where KEY is a part of a PyTorch file ("model_ema"), a prefix of names
 * that ends with a dot ("encoder."), or both ("model_ema/module."). -EBADMSG: damaged, or of a
 * program whose files are not read here, with the way to convert it; -EINVAL: no such part.
 * np_st_close(). */
int np_weights_open(const char *path, struct np_st_file **ret_file, struct np_err *err);

/* Does FILE, or FILE#KEY, begin as one of these formats does? */
bool np_weights_is_file(const char *path);

/* The length of FILE in FILE#KEY: all of path if there is no '#', or a file of the whole name. */
size_t np_weights_path(const char *path);

/* Identifies a file of weights of another program from its first bytes. Writes "an ONNX file; ..."
 * and how to convert it; false: unknown. */
bool np_weights_kind(
    const char *name, const uint8_t *start, size_t bytes, char *text, size_t text_bytes);

#endif
