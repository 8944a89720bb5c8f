/* How a cache lies in memory, for cache.c, and for cache_peers.c, which reads the caches of other
 * processes. One that is shared is a single memfd: a head, a word for each sample of each set, and
 * the arena, which begins with a page. It only grows: an entry whose offset is in its sample's word
 * is whole, and never changes or moves. */
#ifndef NP_CACHE_MEMORY_H
#define NP_CACHE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define NP_CACHE_ALIGN 16
#define NP_CACHE_PAGE  4096u

/* A sample's word: EMPTY: not cached; TAKEN: a thread makes it; else its entry's offset in the
 * arena plus FIRST. */
enum { NP_CACHE_EMPTY = 0, NP_CACHE_TAKEN = 1, NP_CACHE_FIRST = 16 };

struct np_cache_head {
    uint64_t beats; /* atomic: grows when a claimed sample is put, or the claim withdrawn */
    uint64_t reserved[7];
};

struct np_cache_entry {
    uint32_t bytes;
    int32_t width, height;
    int16_t channels;
    bool mirrored; /* only the thread of np_cache_mirror() */
    _Alignas(NP_CACHE_ALIGN) uint8_t data[];
};

/* Where the words of a set begin in a shared cache; of the set past the last one: their end. */
static inline uint64_t np_cache_words_at(const uint64_t *nr_samples, int set)
{
    uint64_t at = sizeof(struct np_cache_head);

    for (int s = 0; s < set; s++)
        at += nr_samples[s] * sizeof(uint64_t);
    return at;
}

static inline uint64_t np_cache_arena_at(const uint64_t *nr_samples, int nr_sets)
{
    const uint64_t end = np_cache_words_at(nr_samples, nr_sets);

    return (end + NP_CACHE_PAGE - 1) / NP_CACHE_PAGE * NP_CACHE_PAGE;
}

#endif
