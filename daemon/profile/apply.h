/* Settings into a copy of a YAML config, its comments, order and layout kept: only the values named are
 * changed, only keys that are missing are added. What comes out is read back and held against the same
 * settings given by `-o`; where it would differ in anything else, nothing is written. Main thread. */
#ifndef NP_APPLY_H
#define NP_APPLY_H

#include <stddef.h>

#include "loader/base/err.h"

/* settings: (nr) "loader.readers=4", as of `-o`; the last one of a key counts. *ret_text: ends with a NUL
 * beyond *ret_bytes; caller frees (libc). -EINVAL: the text is no config's YAML, a setting names no place in
 * it, or its place cannot be changed by this; err says which. */
int np_apply_text(const char *text, size_t bytes, const char *const *settings, int nr,
    char **ret_text, size_t *ret_bytes, struct np_err *err);
/* The file `from` with the settings, as the file `to` (another one; replaced whole, or left alone where
 * there is an error). Both must mean the same config but for the settings: -EINVAL where they do not. Data
 * paths that start at the config's folder, and a name that is the file's, are written out where they would
 * mean something else in the place of `to`. */
int np_apply_file(
    const char *from, const char *to, const char *const *settings, int nr, struct np_err *err);

#endif
