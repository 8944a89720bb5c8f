/* A bounded cache of ranges of remote objects in a folder on local disk, shared by processes. It
 * knows nothing of the network: a reader finds a range here, or fetches it and puts it.
 *
 * An object is one sparse file (range_file.h) in blocks of NP_RANGE_BLOCK. A block is in the file's
 * map only after its bytes were synced, and a process compares a block with its checksum before it
 * uses it for the first time: neither kill -9 nor a power cut nor a damaged folder gives wrong
 * bytes. The objects of a data set are one folder, which each process holds by a lock while its
 * cache is open. When max_bytes is reached, sets that nobody holds are evicted, the one used
 * longest ago first; what is held stays, and new blocks are not stored.
 *
 * One thread of the cache writes; np_range_put() copies and returns. np_range_find() takes no lock
 * and never waits for the disk, but on file systems without RWF_NOWAIT. */
#ifndef NP_RANGE_CACHE_H
#define NP_RANGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/range_file.h"

struct np_range_cache;
struct np_range_object;

/* The calls that write; tests have their own. Both return 0 or -errno. */
struct np_range_disk {
    int (*write)(int fd, const void *data, uint64_t bytes, uint64_t offset); /* all of it */
    int (*sync)(int fd);
};
extern const struct np_range_disk np_range_posix_disk;

struct np_range_options {
    const char *folder; /* made if missing, for the user alone; not a link */
    const char *set; /* the data set: held and evicted as one, for example the path in the config */
    uint64_t
        max_bytes; /* of the folder, all sets; 0: half of what it and the disk's free space have */
    bool direct;   /* also opens each object with O_DIRECT */
    const struct np_range_disk *disk; /* NULL: np_range_posix_disk */
};

/* Opens the folder, holds the set and starts the writing thread. Waits up to 10 s for other
 * processes that open or evict. Errors name the folder, and what to do: it is a link, belongs to
 * another user, is open to writes of all, or cannot be made. */
int np_range_cache_open(
    const struct np_range_options *options, struct np_range_cache **ret_cache, struct np_err *err);
/* Writes what was put, closes, and gives the set back. After 5 s it leaves a writing thread that the
 * disk holds behind, with its memory. All objects are closed before. NULL: nothing. */
void np_range_cache_close(struct np_range_cache *cache);

/* Opens the object's file, or makes it; removes files of other versions that nobody has open. Keeps
 * up to two descriptors. May wait as np_range_cache_open(). Strings are copied. Errors concern this
 * object alone (a link, a foreign owner, no descriptors): go on without its cache. A full cache is
 * none: then the object has no file, and every find is a miss. Any thread. */
int np_range_object_open(struct np_range_cache *cache, const struct np_range_name *name,
    struct np_range_object **ret_object, struct np_err *err);
/* No find, put or read of it is in progress. */
void np_range_object_close(struct np_range_object *object);

enum np_range_state {
    NP_RANGE_MISS,   /* fetch it; if np_range_wants(), fetch the blocks and put them */
    NP_RANGE_BLOCKS, /* read the whole blocks at the place, then np_range_check() them */
    NP_RANGE_HIT     /* read the bytes at the place */
};

struct np_range_place {
    int fd, direct_fd;      /* the object's, until it is closed; direct_fd -1: none */
    uint64_t file_offset;   /* in these; keeps the object's offset modulo 4096 */
    uint64_t offset, bytes; /* in the object: of what was asked for, or of its blocks */
};

/* Where these bytes lie. A range outside of the object is a miss. Any thread, no lock. */
enum np_range_state np_range_find(struct np_range_object *object, uint64_t offset, uint64_t bytes,
    struct np_range_place *ret_place);
/* Compares whole blocks, as read from a place, with their checksums; from then on this process finds
 * them as NP_RANGE_HIT. False: at least one is wrong; those are dropped and counted, so fetch it.
 * Any thread, no lock. */
bool np_range_check(
    struct np_range_object *object, uint64_t offset, const void *data, uint64_t bytes);
/* A read of a place failed or came short: this process finds these blocks no more. Any thread. */
void np_range_drop(struct np_range_object *object, uint64_t offset, uint64_t bytes);

/* Widens a range to whole blocks, if blocks are stored at present; else it stays and the result is
 * false: the cache is full or off, so fetch just what is needed. Any thread. */
bool np_range_wants(struct np_range_object *object, uint64_t *offset, uint64_t *bytes);
/* Queues copies of the whole blocks in this range of the object (its last block ends with it). What
 * the disk cannot take in time is not stored. Never waits for the disk. Any thread. */
void np_range_put(
    struct np_range_object *object, uint64_t offset, const void *data, uint64_t bytes);
/* Waits until what was put is stored or not. */
void np_range_flush(struct np_range_cache *cache);

struct np_range_numbers {
    uint64_t nr_hits, hit_bytes; /* NP_RANGE_HIT and NP_RANGE_BLOCKS */
    uint64_t nr_misses;
    uint64_t nr_stored;  /* blocks, by this process */
    uint64_t nr_slow;    /* blocks not stored because the disk was too slow */
    uint64_t nr_full;    /* blocks not stored because of max_bytes, or the disk's free space */
    uint64_t nr_wrong;   /* blocks that did not match their checksum */
    uint64_t nr_damaged; /* files that were damaged, and removed */
    uint64_t nr_evicted; /* files of other sets, by this process */
    uint64_t used_bytes, max_bytes; /* of the folder, when this process asked last */
    bool is_off;                    /* for writing: np_range_note() says why */
};
void np_range_numbers(const struct np_range_cache *cache, struct np_range_numbers *ret_numbers);
/* Why the cache writes no more (a full disk, an error of the disk), or ""; set once, valid until
 * close. Any thread. */
const char *np_range_note(const struct np_range_cache *cache);

#endif
