/* Paths of configs: ${NAME}, ~, relative paths. Any thread. The caller frees results with
 * np_free(). */
#ifndef NP_PATH_H
#define NP_PATH_H

#include "loader/base/err.h"

/* Expands ${NAME} and ${NAME:-default}, and a first ~ to $HOME. NULL: a variable is not set, which
 * err names; or -ENOMEM. */
char *np_expand(const char *text, struct np_err *err);
/* Expands a path. A relative path starts at dir, or at the working directory if it exists only
 * there; the result is absolute if dir is. A URL stays as it is. dir NULL: a relative path stays relative. */
char *np_resolve_path(const char *text, const char *dir, struct np_err *err);

#endif
