/* Limits a run's memory and CPUs by cgroup v2, if the service has a cgroup that it may divide: each
 * limited run gets a child group, run-ID. The files are the kernel's, so no call blocks. systemd
 * itself limits runs that are its units (worker_unit.h). Called by the service's thread. */
#ifndef NP_CGROUP_H
#define NP_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_cgroup {
    int fd;            /* of the parent group; -1: none */
    char problem[256]; /* why it cannot be used; "": it can be */
};
/* Opens $NNPIPE_CGROUP, or the parent of the daemon's own group if that is named `daemon` (by
 * systemd's DelegateSubgroup=daemon). A failure sets problem. */
void np_cgroup_open(struct np_cgroup *ret_cgroup);
void np_cgroup_close(struct np_cgroup *cgroup);
/* Creates a run's group; memory_bytes or cpus 0: no limit. A process joins by writing "0" to
 * *ret_fd, which the caller closes. -ENOTSUP: there is no cgroup to divide. */
int np_cgroup_begin(const struct np_cgroup *cgroup, int64_t id, int64_t memory_bytes, double cpus,
    int *ret_fd, struct np_err *err);
/* Kills the processes left in the group and removes it. Returns true if the kernel has killed one
 * because of the memory limit. */
bool np_cgroup_end(const struct np_cgroup *cgroup, int64_t id);

#endif
