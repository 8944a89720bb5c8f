/* The page and what it needs, built into the program (daemon/ui/page/). Any thread. */
#ifndef NP_PAGE_H
#define NP_PAGE_H

#include <stdbool.h>
#include <stddef.h>

struct np_asset {
    const char *type;
    const char *bytes; /* for ever */
    size_t nr_bytes;
};
/* path: "/", "/assets/dygraph.js", "/openapi.json". false: there is none of that path. */
bool np_page_asset(const char *path, struct np_asset *ret_asset);

#endif
