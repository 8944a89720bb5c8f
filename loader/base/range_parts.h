/* What range_cache.c and range_writer.c share; nobody else includes it. */
#ifndef NP_RANGE_PARTS_H
#define NP_RANGE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/base/range_cache.h"
#include "loader/base/range_folder.h"

#define NP_RANGE_JOBS 512 /* blocks put and not yet stored; 64 MiB, as far as they are used */

struct np_range_object {
    /* set once */
    struct np_range_cache *cache;
    char *url; /* owned */
    struct np_range_layout layout;
    uint64_t bytes;
    int fd, direct_fd; /* -1: none */

    /* Any thread. sums: (nr_blocks) the map, 0: not stored. The loads (acquire) pair with the
     * writing thread's stores (release), after the block was synced; a sum can also come from the
     * file. The rest: (nr_blocks + 63) / 64 words, a bit a block. */
    _Atomic uint64_t *sums;
    _Atomic uint64_t *checked; /* compared with its sum */
    _Atomic uint64_t *queued;
    _Atomic uint64_t *dropped; /* the file's sum or bytes are wrong */

    /* under the writer's lock */
    int nr_users; /* its jobs, and 1 until it is closed */
};

struct np_range_job {
    struct np_range_object *object;
    uint64_t block;
    uint32_t bytes;
    bool is_rewrite; /* of a dropped block: its space is on the account */
    bool is_due;     /* it is to be written */
    void *data;
};

struct np_range_writer {
    /* set once */
    pthread_t thread;
    bool runs;
    void *memory; /* (NP_RANGE_JOBS, NP_RANGE_BLOCK) */

    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake, idle; /* idle: nothing is queued or being written, or the thread ended */
    void *free[NP_RANGE_JOBS]; /* blocks of memory */
    int nr_free;
    struct np_range_job queue[NP_RANGE_JOBS];
    int nr_queued, nr_busy;
    bool stop, ended;

    struct np_range_job batch[NP_RANGE_JOBS]; /* writing thread only */
};

struct np_range_cache {
    /* set once */
    struct np_range_folder folder;
    const struct np_range_disk *disk;
    bool direct;

    struct np_range_writer writer;

    /* any thread; for numbers alone, relaxed */
    _Atomic uint64_t nr_hits, hit_bytes, nr_misses, nr_stored, nr_slow, nr_full, nr_wrong,
        nr_damaged, used_bytes, nr_evicted;
    _Atomic uint64_t full_until_ns; /* np_now_ns(); 0: not full */
    _Atomic bool has_note;          /* a thread writes the note, or has */
    _Atomic bool is_off;            /* release: after note; pairs with np_range_note() */
    char note[800];
};

static inline bool np_bit(_Atomic uint64_t *bits, uint64_t i)
{
    return atomic_load_explicit(&bits[i / 64], memory_order_relaxed) >> i % 64 & 1;
}

/* Returns the old value. */
static inline bool np_bit_set(_Atomic uint64_t *bits, uint64_t i)
{
    const uint64_t bit = 1ull << i % 64;

    return atomic_fetch_or_explicit(&bits[i / 64], bit, memory_order_relaxed) & bit;
}

static inline void np_bit_clear(_Atomic uint64_t *bits, uint64_t i)
{
    atomic_fetch_and_explicit(&bits[i / 64], ~(1ull << i % 64), memory_order_relaxed);
}

static inline uint32_t np_range_block_bytes(const struct np_range_object *object, uint64_t block)
{
    const uint64_t left = object->bytes - block * NP_RANGE_BLOCK;

    return left < NP_RANGE_BLOCK ? (uint32_t)left : NP_RANGE_BLOCK;
}

int np_range_writer_start(struct np_range_cache *cache, struct np_err *err);
/* Ends the thread when all is written. False: it hangs, and may still use the cache. */
bool np_range_writer_stop(struct np_range_cache *cache);
/* Frees the object when its last user has gone. */
void np_range_object_leave(struct np_range_object *object);
void np_range_object_free(struct np_range_object *object); /* for the writer */
/* Turns the cache off for writing, for an -errno; the first one stays. Any thread. */
void np_range_turn_off(struct np_range_cache *cache, int code);
/* True if blocks are stored at present. */
bool np_range_stores(const struct np_range_object *object);

#endif
