/* The store of entries of a set's pictures (entries_code.h), beside the set's index in the cache
 * folder. After decoding a picture a reader puts its coded entries here, and gets them for a later
 * crop. A picture has the same entries in every run, so results never depend on the store.
 *
 * INDEX.entries/ holds segments, each written once and renamed into place (entries_file.h). One
 * process writes (it holds flock on the file `lock`), in a thread of its own, and merges segments
 * when there are many; the others only read. They use pread and check each record's checksum, so
 * that no process can crash another or give it wrong bytes. Segments that are damaged or belong to
 * another list of samples are ignored, and the writer removes them.
 *
 * Any thread, except open and close. NULL entries: an empty store that takes none. */
#ifndef NP_ENTRIES_H
#define NP_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/source/index.h"

struct np_entries;

/* Identifies the bytes to which entries belong. mark: mtime in ns of a picture's own file; in an
 * archive the record's place, np_entries_mark(). 0, only in np_entries_get(): unknown, and the
 * caller compares the checksums of all parts. */
struct np_entries_of {
    uint32_t bytes;
    uint64_t mark;
};
static inline uint64_t np_entries_mark(const struct np_record *record)
{
    return 1 + record->offset + record->inner_offset;
}

#define NP_ENTRIES_AUTO (-1) /* 2 % of the set's bytes, at least 64 MiB */

/* Opens the store of the index, which must outlive it. writes: becomes the writer if there is none.
 * max_bytes: of all segments; a full store takes no more. *ret_entries is NULL if max_bytes is 0 or
 * the index has no place in the cache folder. Blocks on the disk. -ENOMEM; another failure is no
 * error: np_entries_note() names it, and nothing is stored. */
int np_entries_open(const struct np_index *index, int64_t max_bytes, bool writes,
    struct np_entries **ret_entries, struct np_err *err);
/* One sentence for the log: the damage, or why nothing is stored; "": neither. Valid until
 * np_entries_close(); np_entries_flush() may set it. */
const char *np_entries_note(struct np_entries *entries);

/* Copies the coded entries of a sample (as np_index_get() numbers them) into *buffer (of np_hold();
 * *room). Returns their bytes; 0: none, or those of other bytes; -ENOMEM. Waits for the disk if the
 * page cache does not have them. */
int64_t np_entries_get(struct np_entries *entries, uint64_t sample, struct np_entries_of of,
    uint8_t **buffer, size_t *room, struct np_err *err);
/* True if np_entries_put() would take entries. Otherwise the decoder need not note them. */
bool np_entries_takes(struct np_entries *entries);
/* True if this process writes and no write has failed, even if the store is full. */
bool np_entries_writes(struct np_entries *entries);
/* Copies a sample's coded entries, which replace earlier ones. Never waits for the disk: the thread
 * writes them when there are many. Ignores them (0) if the store is full, another process writes,
 * or the thread is behind. -ENOMEM. */
int np_entries_put(struct np_entries *entries, uint64_t sample, struct np_entries_of of,
    const void *coded, size_t bytes, struct np_err *err);
/* Waits until all entries put before are in a segment; for checkpoints. A process that does not
 * write loads the writer's new segments, and becomes the writer if the writer has ended.
 * np_entries_note() names a failed write, after which the store takes no more. -ENOMEM. */
int np_entries_flush(struct np_entries *entries, struct np_err *err);
/* Flushes, ends the thread and frees the store. */
void np_entries_close(struct np_entries *entries);

/* Removes the store of the index file at path, if any. */
void np_entries_remove(const char *path);

#endif
