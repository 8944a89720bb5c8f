/* The entries of a set's pictures (entries_code.h), kept from run to run beside its index in the
 * cache folder: whoever has decoded a picture puts its coded entries here, and a later crop of it
 * gets them. A picture's entries are the same in every run, so results never depend on what is
 * here.
 *
 * INDEX.entries/ holds segments, each written once and renamed into place (entries_file.h). One
 * process writes (flock on its file `lock`), in a thread of its own, and merges segments when there
 * are many; all others only read. Segments are read with pread, and each record has a checksum, so
 * that no other process can cut a run or give it wrong bytes. What is damaged, or belongs to
 * another list of samples, is ignored, and the writer removes it.
 *
 * Any thread, but for open and close. NULL entries: none are kept. */
#ifndef NP_ENTRIES_H
#define NP_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/source/index.h"

struct np_entries;

/* The bytes whose entries they are. mark: mtime in ns of a file of its own; in an archive, where
 * the record is: np_entries_mark(). 0, for np_entries_get() alone: not known, the caller compares
 * the checksums of all parts. */
struct np_entries_of {
    uint32_t bytes;
    uint64_t mark;
};
static inline uint64_t np_entries_mark(const struct np_record *record)
{
    return 1 + record->offset + record->inner_offset;
}

#define NP_ENTRIES_AUTO (-1) /* 2 % of the set's bytes, at least 64 MiB */

/* Opens what is kept for the index, which must outlive the result; writes: and becomes the writer if
 * there is none. max_bytes: of all segments, when full no more are taken; 0: *ret_entries is NULL. An
 * index without a place in the cache folder has NULL, too. Blocks on the disk. -ENOMEM; another
 * cause is no error: np_entries_note() names it, and nothing is kept. */
int np_entries_open(const struct np_index *index, int64_t max_bytes, bool writes,
    struct np_entries **ret_entries, struct np_err *err);
/* One sentence for the log: what was damaged, or why nothing is kept; "": all is well. Valid until
 * np_entries_close(); it may be new after np_entries_flush(). */
const char *np_entries_note(struct np_entries *entries);

/* Copies the coded entries of a sample (as np_index_get() numbers them) into *buffer (of np_hold();
 * *room). Returns their bytes; 0: there are none, or they are of other bytes; -ENOMEM. Waits for
 * the disk if they are not in the page cache. */
int64_t np_entries_get(struct np_entries *entries, uint64_t sample, struct np_entries_of of,
    uint8_t **buffer, size_t *room, struct np_err *err);
/* Would np_entries_put() take entries? Else nobody needs to note them. */
bool np_entries_takes(struct np_entries *entries);
/* Does this process write, and has no write failed? A full store is written, too. */
bool np_entries_writes(struct np_entries *entries);
/* Copies a sample's coded entries, which replace those that are there. Never waits for the disk:
 * the thread writes them when there are many. They are left out (0) if the store is full or another
 * process writes, or while the thread is behind. -ENOMEM. */
int np_entries_put(struct np_entries *entries, uint64_t sample, struct np_entries_of of,
    const void *coded, size_t bytes, struct np_err *err);
/* Waits until all that was put before is in a segment: at checkpoints. A process that does not
 * write finds the writer's new segments, and becomes the writer if it has ended. A failed write is
 * in np_entries_note(), and no more are taken. -ENOMEM. */
int np_entries_flush(struct np_entries *entries, struct np_err *err);
/* Flushes, and ends the thread. */
void np_entries_close(struct np_entries *entries);

/* Removes what is kept for the index file at path, if any. */
void np_entries_remove(const char *path);

#endif
