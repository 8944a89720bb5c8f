/* Which process of a run is slower than the others, and why. A step ends for all of them when the last
 * one has sent its sums: the others wait for it. Pure; any thread. */
#ifndef NP_RANKS_H
#define NP_RANKS_H

#include "daemon/analysis/profile.h"

#define NP_RANK_WINDOWS 6 /* a rank that is slower is so in nearly all of them */

/* What a rank saw; sums over a window of steps, which is the same for all ranks. */
struct np_rank_window {
    double seconds, steps;
    double others_s;              /* in exchanges: for the data to move, for the others to come */
    double late_s;                /* its device was idle because no batch was ready */
    double late_of[NP_NR_STAGES]; /* late_s by cause, as struct np_observation's blame_s */
    double checkpoint_s;
    double cpu_s; /* of the process */
    /* Of a reader, in work and reads; of a device with memory of its own. Both go on while the process waits
     * for the others, and a GPU's includes its waits for their sums. */
    double reader_s, device_s;
};
/* Numbers and texts only: ranks send it to each other as it is. */
struct np_rank_seen {
    int32_t rank, readers;
    char host[64], device[32];
    struct np_rank_window windows[NP_RANK_WINDOWS];
    double p99_s[NP_NR_STAGES]; /* of an item */
};

/* Seconds of a step, means over the windows. step_s = compute_s + late_s + checkpoint_s + others_s. */
struct np_rank_times {
    double step_s, compute_s, late_s, checkpoint_s, others_s, cpu_s, reader_s, device_s;
    double late_of[NP_NR_STAGES];
    enum np_stage late_most; /* most of late_s */
};

struct np_ranks {
    int nr;                          /* at least 2 */
    const struct np_rank_seen *seen; /* (nr), borrowed */
    struct np_rank_times *times; /* (nr), of the owner of this struct; filled by np_ranks_judge() */
    double images_per_second;    /* of all */
    int slowest;                 /* -1: none is slower than the others */
    enum np_stage stage;         /* what makes it so; step: its computation */
    double excess_s;             /* of a step; what it would save to be as fast as the others */
    double gain;                 /* the rate without it / the rate */
    int nr_windows;              /* in which it was the slowest */
    double exchange_s;           /* of a step: the least that a rank spent in exchanges */
    char text[400];              /* a sentence or three */
};

/* A rank is named if it was the slowest in all windows but one at most, and its excess is at least
 * this share of a step. Else what changes from window to window is called what it is: chance. */
#define NP_RANK_EXCESS 0.08
/* batch: images of all ranks in a step. */
void np_ranks_judge(struct np_ranks *ranks, double batch);

#endif
