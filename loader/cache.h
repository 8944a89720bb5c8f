/* Samples kept in memory between epochs, up to a limit. Nothing is evicted: every sample is read
 * once an epoch, so evicting one for another gains nothing. */
#ifndef NP_CACHE_H
#define NP_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

/* One sample: its encoded bytes, or (width > 0) its pixels, u8 (height, width, channels). */
struct np_cached {
    const uint8_t *data;
    uint32_t bytes;
    int32_t width, height, channels;
};

struct np_cache;
/* Memory that a sample of `bytes` bytes takes in the cache. */
uint64_t np_cache_entry_bytes(uint64_t bytes);
/* For samples 0..nr_samples[s]-1 of nr_sets sets (1 or 2). Takes 8 bytes a sample, and up to
 * cap_bytes as it fills. -ENOMEM. */
int np_cache_new(uint64_t cap_bytes, int nr_sets, const uint64_t *nr_samples,
    struct np_cache **ret_cache, struct np_err *err);
void np_cache_free(struct np_cache *cache);
/* Any thread; the data is valid until np_cache_free(). */
bool np_cache_find(
    const struct np_cache *cache, int set, uint64_t sample, struct np_cached *ret_cached);
/* A hint: np_cache_find() will be called for the sample soon. Any thread. */
void np_cache_expect(const struct np_cache *cache, int set, uint64_t sample);
/* True: np_cache_put() would store these bytes, unless another thread does so first. */
bool np_cache_wants(const struct np_cache *cache, int set, uint64_t sample, uint64_t bytes);
/* Copies a sample into the cache, unless it is there, another thread is writing it, or the limit is
 * reached. Any thread. */
void np_cache_put(struct np_cache *cache, int set, uint64_t sample, const struct np_cached *cached);

/* For a device that keeps a copy of the whole arena: the arena's start, its maximum size, and
 * whether the entry whose data lies at `offset` is to be copied (true once). Trainer thread. */
const uint8_t *np_cache_arena(const struct np_cache *cache);
uint64_t np_cache_cap(const struct np_cache *cache);
bool np_cache_mirror(struct np_cache *cache, uint64_t offset);

#endif
