/* The cache on local disk of a loader's objects (loader/base/range_cache.h): which object has which file
 * there. The thread that starts the loader opens and closes it; readers look up. */
#ifndef NP_STORE_H
#define NP_STORE_H

#include "loader/base/range_cache.h"
#include "loader/base/remote.h"

struct np_remote_store;

struct np_store_set {
    char *const *urls; /* (nr) of objects that are open already */
    int nr;
    const char *cached; /* the set's index in the cache folder: the objects go beside its folder */
};
/* max_bytes: as np_range_options; 0 also: only if all bytes of the sets fit. *ret_store NULL: they do
 * not. Errors name the folder. */
int np_remote_store_open(const struct np_store_set *sets, int nr_sets, uint64_t max_bytes,
    struct np_remote_store **ret_store, struct np_err *err);
void np_remote_store_close(struct np_remote_store *store); /* NULL: nothing */
/* NULL: it has no file there. Any thread. */
struct np_range_object *np_remote_store_find(const struct np_remote_store *store, int file);
/* Sums over the store's caches. Any thread. */
void np_remote_store_numbers(
    const struct np_remote_store *store, struct np_range_numbers *ret_numbers);
/* Why a cache writes no more, or "". Any thread. */
const char *np_remote_store_note(const struct np_remote_store *store);

#endif
