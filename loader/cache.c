/* One arena, filled from its start, and a word for each sample: its offset in the arena. Any reader
 * thread writes; storing the word publishes the sample. */
#include "loader/cache.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "loader/base/mem.h"

#define ENTRY_ALIGN 16
#define EXPECTED    1024 /* bytes to prefetch: the rest of an entry is read in order */

/* A sample's word: EMPTY: not cached; TAKEN: a thread is writing it, or the arena was full; else
 * its entry's offset in the arena plus FIRST. */
enum { EMPTY = 0, TAKEN = 1, FIRST = 16 };

struct entry {
    uint32_t bytes;
    int32_t width, height;
    int16_t channels;
    bool mirrored; /* only the thread of np_cache_mirror() */
    _Alignas(ENTRY_ALIGN) uint8_t data[];
};

struct np_cache {
    uint8_t *arena; /* set once */
    uint64_t cap_bytes;
    int nr_sets;
    uint64_t nr_samples[2];
    uint64_t *words[2]; /* atomic: (nr_samples) */
    uint64_t used;      /* atomic */
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

void np_cache_free(struct np_cache *cache)
{
    if (!cache)
        return;
    if (cache->arena)
        munmap(cache->arena, cache->cap_bytes ? cache->cap_bytes : 1);
    for (int s = 0; s < cache->nr_sets; s++)
        np_free(cache->words[s]);
    np_free(cache);
}

bool np_cache_find(
    const struct np_cache *cache, int set, uint64_t sample, struct np_cached *ret_cached)
{
    /* Acquire: pairs with the release store of np_cache_put(); the entry is whole. */
    const uint64_t word = __atomic_load_n(&cache->words[set][sample], __ATOMIC_ACQUIRE);
    const struct entry *entry;

    assert(sample < cache->nr_samples[set]);
    if (word < FIRST)
        return false;
    entry = (const void *)(cache->arena + (word - FIRST));
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
    const uint8_t *entry = cache->arena + word - FIRST;

    for (int i = 0; word >= FIRST && i < EXPECTED; i += NP_ALIGN)
        __builtin_prefetch(entry + i);
}

uint64_t np_cache_entry_bytes(uint64_t bytes)
{
    return (bytes + sizeof(struct entry) + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
}

/* NULL: the arena is full. */
static struct entry *take_room(struct np_cache *cache, uint64_t bytes)
{
    uint64_t used = __atomic_load_n(&cache->used, __ATOMIC_RELAXED);

    do {
        if (bytes > cache->cap_bytes - used)
            return NULL;
    } while (!__atomic_compare_exchange_n(
        &cache->used, &used, used + bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return (void *)(cache->arena + used);
}

bool np_cache_wants(const struct np_cache *cache, int set, uint64_t sample, uint64_t bytes)
{
    assert(sample < cache->nr_samples[set]);
    return __atomic_load_n(&cache->words[set][sample], __ATOMIC_RELAXED) == EMPTY &&
           bytes <= UINT32_MAX &&
           bytes + sizeof(struct entry) + ENTRY_ALIGN <=
               cache->cap_bytes - __atomic_load_n(&cache->used, __ATOMIC_RELAXED);
}

void np_cache_put(struct np_cache *cache, int set, uint64_t sample, const struct np_cached *cached)
{
    uint64_t *word = &cache->words[set][sample], expected = EMPTY;
    struct entry *entry;

    assert(sample < cache->nr_samples[set]);
    /* Two readers may have the same sample (one as a replacement): only one of them writes it. */
    if (!__atomic_compare_exchange_n(
            word, &expected, TAKEN, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    entry = take_room(cache, np_cache_entry_bytes(cached->bytes));
    if (!entry)
        return;
    entry->bytes = cached->bytes;
    entry->width = cached->width;
    entry->height = cached->height;
    entry->channels = (int16_t)cached->channels;
    entry->mirrored = false;
    memcpy(entry->data, cached->data, cached->bytes);
    /* Release: pairs with the acquire load of np_cache_find(). */
    __atomic_store_n(word, (uint64_t)((uint8_t *)entry - cache->arena) + FIRST, __ATOMIC_RELEASE);
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
    struct entry *entry = (void *)(cache->arena + offset - offsetof(struct entry, data));

    assert(offset >= offsetof(struct entry, data) &&
           offset < __atomic_load_n(&cache->used, __ATOMIC_RELAXED));
    if (entry->mirrored)
        return false;
    entry->mirrored = true;
    return true;
}
