/* Parts of starting a loader, for loader.c and loader_cache.c. */
#ifndef NP_LOADER_PARTS_H
#define NP_LOADER_PARTS_H

#include "loader/base/box.h"
#include "loader/loader.h"

/* What `auto` may use: this loader's share of the machine, if others of its run are on it. */
void np_loader_own_box(const struct np_loader_options *options, struct np_box *ret_box);
/* The cache that the config asks for, if any, in loader->config.row. -ENOMEM; what
 * np_loader_settle_sharing() returns. */
int np_loader_open_cache(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err);
/* code: of the attempt to share, which *why explains. `share: auto` is off where it cannot be: 0; a
 * name must be met: the code, with *err set. */
int np_loader_settle_sharing(
    const struct np_loader_config *config, int code, const struct np_err *why, struct np_err *err);

#endif
