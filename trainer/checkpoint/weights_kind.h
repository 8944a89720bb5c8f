/* What a file of weights is that is not a safetensors file, and how it becomes one. Pure; any thread. */
#ifndef NP_WEIGHTS_KIND_H
#define NP_WEIGHTS_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_KIND_BYTES 128 /* of a file's start, as many as tell its kind */

/* start: the first bytes of the file, fewer where it is shorter. Writes "a PyTorch file; ..." with what to
 * do about it; false: nothing that is known. */
bool np_weights_kind(
    const char *name, const uint8_t *start, size_t bytes, char *text, size_t text_bytes);

#endif
