/* The page and what it needs, built into the program (daemon/ui/page/). Any thread. */
#ifndef NP_PAGE_H
#define NP_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "loader/base/err.h"

struct np_asset {
    const char *type;
    const char *bytes; /* for ever */
    size_t nr_bytes;
};
/* path: "/", "/assets/dygraph.js", "/openapi.json". false: there is none of that path. */
bool np_page_asset(const char *path, struct np_asset *ret_asset);
void np_page_put(const char *path, FILE *out); /* its bytes */

typedef void np_put_fn(FILE *out, const void *what);
/* A file that is seen whole or as it was: `put` writes one beside it, which is then renamed. */
int np_page_write(const char *path, np_put_fn *put, const void *what, struct np_err *err);

#endif
