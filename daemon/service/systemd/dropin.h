/* What a run's unit is told beside its template: where it may write, and what of the places that are hidden from
 * it its config names. Text alone; no system call. */
#ifndef NP_DROPIN_H
#define NP_DROPIN_H

#include "loader/base/err.h"

/* A unit's drop-in: the run's folder, the cache's and each cache_dir of the config may be written; of /tmp and
 * /var/tmp, which a unit has for itself, what the config names is there to be read. All paths are absolute.
 * -EINVAL: one of them cannot be written into a unit's file (a control character). np_free *ret_text. */
int np_dropin_text(
    const char *dir, const char *cache, const char *config, char **ret_text, struct np_err *err);

#endif
