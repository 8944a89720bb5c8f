/* The state of the store of entries: a slot for each sample, with the place of its record. For
 * entries*.c alone. */
#ifndef NP_ENTRIES_SLOTS_H
#define NP_ENTRIES_SLOTS_H

#include <pthread.h>

#include "loader/source/entries_file.h"

#define NP_WRITE_ABOVE  (12u << 20) /* bytes: the thread writes a larger batch without a flush */
#define NP_MAX_SEGMENTS 64          /* slot.where is 1 + the place in segments[] */
#define NP_IN_BATCH     254         /* slot.where of batches[0]; 255: of batches[1] */

struct np_entries_batch {
    uint8_t *arena;
    size_t used, arena_room; /* bytes */
    struct np_segment_item *items;
    size_t items_room;
    uint32_t nr;
};

struct np_entries {
    /* set once */
    const struct np_index *index;
    char *folder;
    uint64_t set, max_bytes;
    struct np_entries_slot *slots; /* (index->nr_samples), mapped; the slots: under lock */
    pthread_mutex_t lock;
    pthread_cond_t work, written; /* with `lock` */

    /* under flushing: one thread opens, joins or waits */
    pthread_mutex_t flushing;
    bool only_reads; /* set once */
    int lock_fd;     /* -1: another process writes, or none can */
    pthread_t thread;

    /* under lock. Only the writing thread changes segments and next_number, and reads them without
     * the lock; if there is none, the thread that holds flushing does. */
    struct np_segment *segments[NP_MAX_SEGMENTS];
    uint32_t next_number;
    struct np_entries_batch batches[2]; /* the thread writes the one that is not filling */
    int filling;
    uint64_t bytes;       /* of segments and batches */
    uint64_t asked, done; /* batches to write; written */
    bool writes, stop;
    char note[768]; /* set once; as np_err.text */
};

/* The segment of slot.where; NULL: not in a segment. Locking as for segments[]. */
struct np_segment *np_entries_segment(const struct np_entries *entries, uint8_t where);
void np_entries_set_slot(
    struct np_entries *entries, uint64_t sample, struct np_entries_slot slot); /* under lock */
/* A later note is ignored. */
void np_entries_note_locked(struct np_entries *entries, const struct np_err *err);
void np_entries_add_note(struct np_entries *entries, const struct np_err *err);

/* Adds a segment, then owned by entries, and points to it the slots of its samples whose `where` is
 * in replaces (256; NULL: all). */
void np_entries_install(struct np_entries *entries, struct np_segment *segment,
    const struct np_segment_item *items, uint32_t nr, const bool *replaces);
/* Removes a segment: clears the slots that still point to it; its last user closes it. remove:
 * deletes the file. */
void np_entries_drop(struct np_entries *entries, struct np_segment *segment, bool remove);

#endif
