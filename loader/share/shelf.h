/* Memory in which a process offers complete batches to others: a memfd that it alone writes, and
 * that no process can resize. Others map it read-only and copy from it. Each slot has a generation,
 * which is odd while the slot is written; who copies compares it before and after, so nobody
 * waits, and a batch that was overwritten meanwhile is only not taken. docs/SHARING.md has the
 * picture. */
#ifndef NP_SHELF_H
#define NP_SHELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_SHELF_PARTS 4
#define NP_SHELF_MAX   64 /* slots */

/* The same in all processes that share. A slot has parts of these sizes. */
struct np_shelf_shape {
    size_t part_bytes[NP_SHELF_PARTS];
    int nr_slots; /* 1 to NP_SHELF_MAX */
};

/* --- one's own ------------------------------------------------------------------------------ */

struct np_shelf;
/* Pages take no memory before they are written. -ENOSYS, -EPERM: the kernel has no memfds that
 * others cannot write; -EFBIG: a limit of this process forbids so much; -ENOMEM. */
int np_shelf_new(
    const struct np_shelf_shape *shape, struct np_shelf **ret_shelf, struct np_err *err);
void np_shelf_free(struct np_shelf *shelf);
int np_shelf_fd(const struct np_shelf *shelf); /* for others; the shelf's */
/* Says that this process makes batch seq, or no longer does. Any thread. */
void np_shelf_announce(struct np_shelf *shelf, uint64_t seq);
void np_shelf_withdraw(struct np_shelf *shelf, uint64_t seq);
void np_shelf_beat(struct np_shelf *shelf); /* a row of an announced batch is made; any thread */
/* Says that this process takes no batch before seq any more. Any thread. */
void np_shelf_want(struct np_shelf *shelf, uint64_t seq);
/* Copies a complete batch into the shelf: in place of a batch before wanted, which no process takes
 * any more, or else into a new slot, or in place of the oldest batch. bytes: of each part, at most
 * its size. False: another thread writes that slot, and the batch is not offered. Any thread. */
bool np_shelf_put(struct np_shelf *shelf, uint64_t seq, uint64_t wanted,
    const void *const parts[NP_SHELF_PARTS], const size_t bytes[NP_SHELF_PARTS]);

/* --- another process's ---------------------------------------------------------------------- */

struct np_shelf_view;
/* Maps fd, which stays the caller's. -EBADMSG: its size or seals are not those of such a shelf;
 * -ENOMEM. */
int np_shelf_view_new(int fd, const struct np_shelf_shape *shape, struct np_shelf_view **ret_view,
    struct np_err *err);
void np_shelf_view_free(struct np_shelf_view *view); /* when no thread uses it */

enum np_shelf_state { NP_SHELF_NONE, NP_SHELF_MAKING, NP_SHELF_READY };
/* Any thread, as the three below. */
enum np_shelf_state np_shelf_look(const struct np_shelf_view *view, uint64_t seq);
/* Copies batch seq to the parts. False: it is not there, or no longer; parts then hold rubbish. */
bool np_shelf_copy(
    const struct np_shelf_view *view, uint64_t seq, void *const parts[NP_SHELF_PARTS]);
/* What the process said with np_shelf_want(). */
uint64_t np_shelf_wanted(const struct np_shelf_view *view);
/* Grows while the process makes rows. */
uint64_t np_shelf_beats(const struct np_shelf_view *view);

#endif
