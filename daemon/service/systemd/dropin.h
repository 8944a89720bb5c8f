/* The drop-in of a run's unit: the paths that it may write, and the hidden ones that its config
 * names. Text only; no system call. */
#ifndef NP_DROPIN_H
#define NP_DROPIN_H

#include "loader/base/err.h"

/* Writes a unit's drop-in: the run's folder, the cache and each cache_dir of the config become
 * writable; what the config names below /tmp and /var/tmp, which the unit has private copies of,
 * becomes readable. All paths are absolute. np_free *ret_text. -EINVAL: a path contains a
 * control character; -ENOMEM. */
int np_dropin_text(
    const char *dir, const char *cache, const char *config, char **ret_text, struct np_err *err);

#endif
