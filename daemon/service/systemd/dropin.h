/* The text of a unit's drop-in. No system call. */
#ifndef NP_DROPIN_H
#define NP_DROPIN_H

#include "loader/base/err.h"

/* The run's folder, the cache and each cache_dir of the config become writable; paths of the config
 * below /tmp and /var/tmp, of which the unit has private copies, become readable. All paths are
 * absolute. np_free *ret_text. -EINVAL: a path contains a control character; -ENOMEM. */
int np_dropin_text(
    const char *dir, const char *cache, const char *config, char **ret_text, struct np_err *err);

#endif
