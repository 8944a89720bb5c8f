/* `nnpipe profile` of a run of several processes: which rank is the slowest, and why. Each of them
 * calls it; rank 0 has the answer. Main thread, which is the trainer thread of the run. */
#ifndef NP_PROFILE_RANKS_H
#define NP_PROFILE_RANKS_H

#include <stdio.h>

#include "daemon/analysis/ranks.h"
#include "daemon/profile/trial.h"
#include "trainer/comm.h"

struct np_ranks_profile {
    struct np_ranks ranks;
    struct np_rank_seen *seen; /* (world) */
    char config[256], files[NP_PROFILE_PATH_BYTES + 16];
    int batch;
};
/* Trains for some seconds. Errors: those of the run, in each process. */
int np_ranks_measure(struct np_rig *rig, const struct np_launch *launch,
    struct np_ranks_profile *ret_profile, struct np_err *err);
void np_ranks_fini(struct np_ranks_profile *profile);
/* The `done` event, which profile.json has, too; np_free. NULL: out of memory. */
char *np_ranks_json(const struct np_ranks_profile *profile, struct np_err *err);
void np_ranks_print(const struct np_ranks_profile *profile, FILE *out);

#endif
