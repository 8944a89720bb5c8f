/* One arena, filled from its start, and a word for each sample: its offset in the arena. Any reader
 * thread writes; storing the word publishes the sample, also to other processes. */
#include "loader/cache.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/cache_memory.h"
#include "loader/cache_peers.h"
#include "loader/share/memfd.h"

#define EXPECTED 1024 /* bytes to prefetch: the rest of an entry is read in order */

struct np_cache {
    uint8_t *arena; /* set once, as all up to spare_bytes */
    uint64_t cap_bytes;
    int nr_sets;
    uint64_t nr_samples[2];
    uint64_t *words[2];           /* atomic: (nr_samples) */
    struct np_cache_head *shared; /* the memfd, with words and arena; NULL: it is not shared */
    int fd;
    struct np_cache_peers *peers;
    uint64_t spare_bytes; /* with so little memory left, nothing is claimed */

    uint64_t used;    /* atomic, as the next */
    uint64_t decoded; /* only if shared */
};

int np_cache_new(uint64_t cap_bytes, int nr_sets, const uint64_t *nr_samples,
    struct np_cache **ret_cache, struct np_err *err)
{
    struct np_cache *cache = np_try_alloc(sizeof(*cache), err);
    bool whole = cache != NULL;

    assert(nr_sets >= 1 && nr_sets <= 2);
    if (cache) {
        cache->nr_sets = nr_sets;
        cache->cap_bytes = cap_bytes;
        cache->arena = np_try_reserve(cap_bytes ? cap_bytes : 1, err);
        whole = cache->arena != NULL;
    }
    for (int s = 0; whole && s < nr_sets; s++) {
        cache->nr_samples[s] = nr_samples[s];
        cache->words[s] = np_try_array(nr_samples[s] ? nr_samples[s] : 1, sizeof(uint64_t), err);
        whole = cache->words[s] != NULL;
    }
    if (!whole) {
        np_cache_free(cache);
        np_err_context(err, "loader.cache (give it fewer bytes, or set it to none)");
        return -ENOMEM;
    }
    madvise(cache->arena, cap_bytes, MADV_HUGEPAGE); /* fewer page faults in the first epoch */
    *ret_cache = cache;
    return 0;
}

static uint64_t shared_bytes(const struct np_cache *cache)
{
    return np_cache_arena_at(cache->nr_samples, cache->nr_sets) + cache->cap_bytes;
}

static void free_private(struct np_cache *cache)
{
    if (cache->arena)
        munmap(cache->arena, cache->cap_bytes ? cache->cap_bytes : 1);
    for (int s = 0; s < cache->nr_sets; s++)
        np_free(cache->words[s]);
}

void np_cache_free(struct np_cache *cache)
{
    if (!cache)
        return;
    np_cache_peers_close(cache->peers);
    if (cache->shared) {
        munmap(cache->shared, shared_bytes(cache));
        close(cache->fd);
    } else {
        free_private(cache);
    }
    np_free(cache);
}

/* --- sharing -------------------------------------------------------------------------------- */

int np_cache_share(
    struct np_cache *cache, const struct np_cache_sharing *sharing, struct np_err *err)
{
    const uint64_t arena_at = np_cache_arena_at(cache->nr_samples, cache->nr_sets);
    struct np_cache_peers *peers = NULL;
    void *memory;
    int fd, code;

    assert(!cache->shared && cache->used == 0);
    code = np_memfd_new(shared_bytes(cache), &fd, &memory, err);
    if (code)
        return code;
    code = np_memfd_populate(memory, 0, arena_at); /* the words */
    if (code)
        np_err_set(err, code, "no memory that can be shared: %s", strerror(-code));
    else
        code = np_cache_peers_open(sharing, fd, cache->nr_sets, cache->nr_samples, &peers, err);
    if (code) {
        munmap(memory, shared_bytes(cache));
        close(fd);
        return code;
    }
    free_private(cache);
    cache->shared = memory;
    cache->fd = fd;
    cache->peers = peers;
    cache->spare_bytes = np_cache_entry_bytes(sharing->picture_bytes);
    cache->arena = (uint8_t *)memory + arena_at;
    for (int s = 0; s < cache->nr_sets; s++)
        cache->words[s] = (void *)((uint8_t *)memory + np_cache_words_at(cache->nr_samples, s));
    return 0;
}

void np_cache_meet(struct np_cache *cache)
{
    if (cache->peers)
        np_cache_peers_meet(cache->peers);
}

int np_cache_met(const struct np_cache *cache)
{
    return cache->peers ? np_cache_peers_met(cache->peers) : 0;
}

bool np_cache_awaits(
    const struct np_cache *cache, int set, uint64_t sample, uint64_t since_ns, uint64_t now_ns)
{
    return cache->peers &&
           __atomic_load_n(&cache->words[set][sample], __ATOMIC_RELAXED) < NP_CACHE_FIRST &&
           np_cache_peers_await(cache->peers, set, sample, since_ns, now_ns);
}

struct np_cache_shared np_cache_shared(const struct np_cache *cache)
{
    struct np_cache_shared shared = {0};

    if (cache->peers) {
        shared.decoded = __atomic_load_n(&cache->decoded, __ATOMIC_RELAXED);
        shared.found = np_cache_peers_found(cache->peers);
    }
    return shared;
}

/* --- samples -------------------------------------------------------------------------------- */

bool np_cache_find(
    const struct np_cache *cache, int set, uint64_t sample, struct np_cached *ret_cached)
{
    /* Acquire: pairs with the release store of np_cache_put(); the entry is whole. */
    const uint64_t word = __atomic_load_n(&cache->words[set][sample], __ATOMIC_ACQUIRE);
    const struct np_cache_entry *entry;

    assert(sample < cache->nr_samples[set]);
    if (word < NP_CACHE_FIRST)
        return cache->peers && np_cache_peers_find(cache->peers, set, sample, ret_cached);
    entry = (const void *)(cache->arena + (word - NP_CACHE_FIRST));
    *ret_cached = (struct np_cached){
        .data = entry->data,
        .bytes = entry->bytes,
        .width = entry->width,
        .height = entry->height,
        .channels = entry->channels,
    };
    return true;
}

void np_cache_expect(const struct np_cache *cache, int set, uint64_t sample)
{
    const uint64_t word = __atomic_load_n(&cache->words[set][sample], __ATOMIC_RELAXED);
    const uint8_t *entry = cache->arena + word - NP_CACHE_FIRST;

    for (int i = 0; word >= NP_CACHE_FIRST && i < EXPECTED; i += NP_ALIGN)
        __builtin_prefetch(entry + i);
}

uint64_t np_cache_entry_bytes(uint64_t bytes)
{
    return (bytes + sizeof(struct np_cache_entry) + NP_CACHE_ALIGN - 1) / NP_CACHE_ALIGN *
           NP_CACHE_ALIGN;
}

static uint64_t arena_at(const struct np_cache *cache)
{
    return (uint64_t)(cache->arena - (const uint8_t *)cache->shared);
}

/* NULL: the arena is full, or no memory is left. */
static struct np_cache_entry *take_room(struct np_cache *cache, uint64_t bytes)
{
    uint64_t used = __atomic_load_n(&cache->used, __ATOMIC_RELAXED);

    do {
        if (bytes > cache->cap_bytes - used)
            return NULL;
    } while (!__atomic_compare_exchange_n(
        &cache->used, &used, used + bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (cache->shared && np_memfd_populate(cache->shared, arena_at(cache) + used, bytes) < 0)
        return NULL;
    return (void *)(cache->arena + used);
}

static uint64_t left(const struct np_cache *cache)
{
    return cache->cap_bytes - __atomic_load_n(&cache->used, __ATOMIC_RELAXED);
}

bool np_cache_fits(const struct np_cache *cache, uint64_t bytes)
{
    return bytes <= UINT32_MAX && np_cache_entry_bytes(bytes) <= left(cache);
}

bool np_cache_claim(struct np_cache *cache, int set, uint64_t sample)
{
    uint64_t expected = NP_CACHE_EMPTY;

    assert(sample < cache->nr_samples[set]);
    if (cache->peers)
        __atomic_fetch_add(&cache->decoded, 1, __ATOMIC_RELAXED);
    /* Two readers may have the same sample (one as a replacement): only one of them writes it. */
    return left(cache) > cache->spare_bytes &&
           __atomic_compare_exchange_n(&cache->words[set][sample], &expected, NP_CACHE_TAKEN, false,
               __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void end_claim(struct np_cache *cache, int set, uint64_t sample, uint64_t word)
{
    /* Release: pairs with the acquire load of np_cache_find(). */
    __atomic_store_n(&cache->words[set][sample], word, __ATOMIC_RELEASE);
    if (cache->shared)
        __atomic_fetch_add(&cache->shared->beats, 1, __ATOMIC_RELAXED);
}

void np_cache_withdraw(struct np_cache *cache, int set, uint64_t sample)
{
    end_claim(cache, set, sample, NP_CACHE_EMPTY);
}

void np_cache_put(struct np_cache *cache, int set, uint64_t sample, const struct np_cached *cached)
{
    struct np_cache_entry *entry = take_room(cache, np_cache_entry_bytes(cached->bytes));

    if (!entry) {
        np_cache_withdraw(cache, set, sample);
        return;
    }
    entry->bytes = cached->bytes;
    entry->width = cached->width;
    entry->height = cached->height;
    entry->channels = (int16_t)cached->channels;
    entry->mirrored = false;
    memcpy(entry->data, cached->data, cached->bytes);
    end_claim(cache, set, sample, (uint64_t)((uint8_t *)entry - cache->arena) + NP_CACHE_FIRST);
}

const uint8_t *np_cache_arena(const struct np_cache *cache)
{
    return cache->arena;
}

uint64_t np_cache_cap(const struct np_cache *cache)
{
    return cache->cap_bytes;
}

bool np_cache_mirror(struct np_cache *cache, uint64_t offset)
{
    struct np_cache_entry *entry =
        (void *)(cache->arena + offset - offsetof(struct np_cache_entry, data));

    assert(offset >= offsetof(struct np_cache_entry, data) &&
           offset < __atomic_load_n(&cache->used, __ATOMIC_RELAXED));
    if (entry->mirrored)
        return false;
    entry->mirrored = true;
    return true;
}
