/* How many bytes the checkpoints of runs that are over may take: the oldest runs are pruned to their best one
 * (`nnpipe prune`, as the run's owner, one at a time). The service's thread. */
#ifndef NP_RETENTION_H
#define NP_RETENTION_H

#include "daemon/service/child.h"
#include "daemon/service/service.h"

struct np_retention {
    struct np_child child; /* pid 0: none */
    int64_t id;            /* the run it is at */
    bool prunes;           /* else it only looks */
    pid_t left;            /* one that has been ended, and has not ended yet */
};
/* Takes what the child said, and begins the next. */
void np_retention_turn(struct np_service *service);
void np_retention_stop(struct np_retention *retention);
/* Is it at the run's checkpoints, or not yet gone from them? A worker would find the run's folder locked. */
bool np_retention_is_at(const struct np_retention *retention, int64_t id);

#endif
