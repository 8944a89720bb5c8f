/* A simulated disk, as a VFS of SQLite ("made-disk"): files in memory, with every write and sync recorded in order,
 * so that the state after a power cut at any moment can be restored. One thread. */
#ifndef NP_MADE_DISK_H
#define NP_MADE_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum made_cut {
    MADE_CUT_CLEAN,     /* everything written before the cut */
    MADE_CUT_DROPPED,   /* only synced data */
    MADE_CUT_SOME,      /* of the rest, any part, in order */
    MADE_CUT_REORDERED, /* in any order */
    MADE_CUT_TORN_512,  /* some writes only in part, by sectors */
    MADE_CUT_TORN_4096, /* by pages */
    NR_MADE_CUTS
};

/* Registers the VFS, with an empty disk. skip_sync: the number of the sync (from 1) that does nothing; 0: none. */
void made_disk_new(int skip_sync);
int made_disk_calls(void); /* writes, truncations, deletions, syncs so far */
int made_disk_syncs(void);
int made_disk_skipped_at(void); /* the calls before the sync that did nothing; 0: there was none */
/* Sets the disk to its state after a power cut that follows so many calls; later changes are not
 * recorded. */
void made_disk_cut(int nr_calls, enum made_cut cut, uint64_t seed);
void made_disk_free(void);

#endif
