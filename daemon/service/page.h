/* The page and what it needs, built into the program (daemon/ui/page/). */
#ifndef NP_PAGE_H
#define NP_PAGE_H

#include <stddef.h>

struct np_asset {
    const char *path; /* "/", "/assets/dygraph.js", "/openapi.json" */
    const char *type;
    const char *bytes;
    size_t nr_bytes;
};
/* NULL: there is none of that path. */
const struct np_asset *np_page_asset(const char *path);

#endif
