/* The caches of the other processes of this user that want the same pictures. Each is mapped
 * read-only from the first meeting on, and stays mapped when its process has ended: what was
 * published there is used where it lies. All that is read there is checked before it is used. Any
 * thread, without waiting. */
#ifndef NP_CACHE_PEERS_H
#define NP_CACHE_PEERS_H

#include "loader/cache.h"

struct np_cache_peers;
/* fd: of the own cache; borrowed. As np_cache_share(). */
int np_cache_peers_open(const struct np_cache_sharing *sharing, int fd, int nr_sets,
    const uint64_t *nr_samples, struct np_cache_peers **ret_peers, struct np_err *err);
/* When no thread uses the data that it found. NULL: nothing. */
void np_cache_peers_close(struct np_cache_peers *peers);
void np_cache_peers_meet(struct np_cache_peers *peers);
/* The data is valid until np_cache_peers_close(). */
bool np_cache_peers_find(
    struct np_cache_peers *peers, int set, uint64_t sample, struct np_cached *ret_cached);
/* As np_cache_awaits(). */
bool np_cache_peers_await(
    struct np_cache_peers *peers, int set, uint64_t sample, uint64_t since_ns, uint64_t now_ns);
int np_cache_peers_met(const struct np_cache_peers *peers);
uint64_t np_cache_peers_found(const struct np_cache_peers *peers);

#endif
