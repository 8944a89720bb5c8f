/* Identifies a file of weights that is not a safetensors file, and says how to convert it. Pure;
 * any thread. */
#ifndef NP_WEIGHTS_KIND_H
#define NP_WEIGHTS_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_KIND_BYTES 128 /* at a file's start, enough to identify it */

/* start: the first bytes of the file, fewer if it is shorter. Writes "a PyTorch file; ..." and
 * how to convert it; false: unknown. */
bool np_weights_kind(
    const char *name, const uint8_t *start, size_t bytes, char *text, size_t text_bytes);

#endif
