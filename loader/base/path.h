/* Paths as configs have them: ${NAME}, ~, relative ones. Any thread. */
#ifndef NP_PATH_H
#define NP_PATH_H

#include "loader/base/err.h"

/* Expands ${NAME} and ${NAME:-default}, and a first ~ to $HOME; -EINVAL names a variable that is not set.
 * Caller frees. */
char *np_expand(const char *text, struct np_err *err);
/* Expanded; a relative path starts at dir, or at the working directory if only that has it, and comes out
 * absolute where dir is. dir NULL: it stays as it is. Caller frees. */
char *np_resolve_path(const char *text, const char *dir, struct np_err *err);

#endif
