/* A disk that is only computed, as a VFS of SQLite ("made-disk"): files in memory, every write and sync of them
 * kept in order, so that the disk can be had as a power cut at any moment would have left it. One thread. */
#ifndef NP_MADE_DISK_H
#define NP_MADE_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum made_cut {
    MADE_CUT_CLEAN,     /* all that was written up to there is there */
    MADE_CUT_DROPPED,   /* only what was synced */
    MADE_CUT_SOME,      /* of the rest, any part, in order */
    MADE_CUT_REORDERED, /* in any order */
    MADE_CUT_TORN_512,  /* some writes only in part, by sectors */
    MADE_CUT_TORN_4096, /* by pages */
    NR_MADE_CUTS
};

/* Registers the VFS, with an empty disk. skip_sync: the so-maniest sync (from 1) does nothing; 0: none. */
void made_disk_new(int skip_sync);
int made_disk_calls(void); /* writes, truncations, deletions, syncs so far */
int made_disk_syncs(void);
/* From now on the disk is as it would be found after a cut behind so many calls; what happens to it then is
 * not kept. */
void made_disk_cut(int nr_calls, enum made_cut cut, uint64_t seed);
void made_disk_free(void);

#endif
