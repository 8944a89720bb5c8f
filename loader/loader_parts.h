/* Parts of starting a loader, for loader.c and loader_cache.c. */
#ifndef NP_LOADER_PARTS_H
#define NP_LOADER_PARTS_H

#include "loader/loader.h"

/* The cache that the config asks for, if any, in loader->config.row. -ENOMEM; what
 * np_loader_settle_sharing() returns. */
int np_loader_open_cache(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err);
/* code: of the attempt to share, which *why explains. `share: auto` is off where it cannot be: 0; a
 * name must be met: the code, with *err set. */
int np_loader_settle_sharing(
    const struct np_loader_config *config, int code, const struct np_err *why, struct np_err *err);

#endif
