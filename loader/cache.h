/* Samples kept in memory between epochs, up to a limit. Nothing is evicted: every sample is read
 * once an epoch, so evicting one for another gains nothing. Jobs of one user can share decoded
 * pictures: each finds those of the others, too, and leaves a picture to the job that is making
 * it. docs/SHARING.md has the picture. */
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
/* When no thread uses the data that it found. */
void np_cache_free(struct np_cache *cache);
/* Any thread; the data is valid until np_cache_free(). */
bool np_cache_find(
    const struct np_cache *cache, int set, uint64_t sample, struct np_cached *ret_cached);
/* A hint: np_cache_find() will be called for the sample soon. Any thread. */
void np_cache_expect(const struct np_cache *cache, int set, uint64_t sample);
/* The caller is about to make this sample, and alone may put it. False: it is there, another thread
 * is making it, or the cache is full. The claim ends with np_cache_put() or np_cache_withdraw().
 * Any thread, as the next three. */
bool np_cache_claim(struct np_cache *cache, int set, uint64_t sample);
void np_cache_withdraw(struct np_cache *cache, int set, uint64_t sample);
/* True: a sample of so many bytes still fits. */
bool np_cache_fits(const struct np_cache *cache, uint64_t bytes);
/* Copies a claimed sample into the cache; if the limit is reached, it only ends the claim. */
void np_cache_put(struct np_cache *cache, int set, uint64_t sample, const struct np_cached *cached);

/* For a device that keeps a copy of the whole arena: the arena's start, its maximum size, and
 * whether the entry whose data lies at `offset` is to be copied (true once). Trainer thread. */
const uint8_t *np_cache_arena(const struct np_cache *cache);
uint64_t np_cache_cap(const struct np_cache *cache);
bool np_cache_mirror(struct np_cache *cache, uint64_t offset);

/* --- shared with other processes ----------------------------------------------------------- */

struct np_cache_sharing {
    uint64_t hash;          /* of all that the cached pictures are a function of */
    uint64_t wait_ns;       /* for a sign of life of a process that makes a picture */
    uint64_t picture_bytes; /* about; with less memory left, nothing more is claimed */
    int channels;           /* of all pictures */
};
/* Rows since the start. */
struct np_cache_shared {
    uint64_t decoded; /* whose picture this process read and decoded */
    uint64_t found;   /* whose picture another process had decoded */
};
/* From now on the cache, which is still empty, is shared. If this fails, the cache is as before:
 * there is no place to meet, or no memory that can be shared; -ENOMEM. */
int np_cache_share(
    struct np_cache *cache, const struct np_cache_sharing *sharing, struct np_err *err);
/* Meets newcomers and lets go of those that have ended, if it is time. Any thread, as all below; it
 * does nothing for a cache that is not shared. */
void np_cache_meet(struct np_cache *cache);
int np_cache_met(const struct np_cache *cache); /* processes so far */
/* True: another process is making the picture, and it is worth waiting for. since_ns: when the
 * caller began to wait, or now_ns. A process without a sign of life for wait_ns is not waited for
 * until its next one, and one that takes ten times as long not in the next ten seconds. */
bool np_cache_awaits(
    const struct np_cache *cache, int set, uint64_t sample, uint64_t since_ns, uint64_t now_ns);
struct np_cache_shared np_cache_shared(const struct np_cache *cache);

#endif
