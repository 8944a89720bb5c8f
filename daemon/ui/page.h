/* The page and its assets (daemon/ui/page/), built into the program. Any thread. */
#ifndef NP_PAGE_H
#define NP_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "loader/base/err.h"

struct np_asset {
    const char *type;
    const char *bytes; /* static */
    size_t nr_bytes;
};
/* path: "/", "/assets/dygraph.js", "/openapi.json". false: no such path. */
bool np_page_asset(const char *path, struct np_asset *ret_asset);
typedef void np_put_fn(FILE *out, const void *what);

/* An asset may have holes, "{name}": put(out, what) writes the text that replaces it. */
struct np_hole {
    const char *name; /* NULL: end of the holes */
    np_put_fn *put;
    const void *what;
};
void np_page_fill(FILE *out, const char *asset_path, const struct np_hole *holes);
/* Fills a page that holds JSON (borrowed text) and the script that draws it, an asset, in one file
 * that needs no other file and no network: the holes json, script, nonce, words, and the styles. The
 * page's policy allows only these scripts, by the file's random nonce. */
void np_page_fill_json(FILE *out, const char *asset, const char *script, const void *json);
/* `put` writes into memory, which then goes to path as np_write_output() says. */
int np_page_write(const char *path, np_put_fn *put, const void *what, struct np_err *err);

#endif
