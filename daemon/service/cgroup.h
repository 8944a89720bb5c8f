/* Limits a run's memory and CPUs by cgroup v2, where the service has a cgroup it may divide: each
 * limited run gets a child group, run-ID. The files are the kernel's, so no call blocks. Called by
 * the service's thread.
 *
 * Runs that are systemd units get their limits from systemd (dropin.h). */
#ifndef NP_CGROUP_H
#define NP_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_cgroup {
    int fd;            /* of the parent group; -1: there is none */
    char problem[256]; /* why it cannot be used; "": it can */
};
/* Opens $NNPIPE_CGROUP, or the parent of the daemon's own group where that is named `daemon`
 * (DelegateSubgroup=daemon of systemd creates it). Failure is reported in problem. */
void np_cgroup_open(struct np_cgroup *ret_cgroup);
void np_cgroup_close(struct np_cgroup *cgroup);
/* Creates a run's group; memory_bytes and cpus 0: no limit. A process that writes "0" to *ret_fd
 * joins the group; the caller closes it. -ENOTSUP: there is no cgroup to divide. */
int np_cgroup_begin(const struct np_cgroup *cgroup, int64_t id, int64_t memory_bytes, double cpus,
    int *ret_fd, struct np_err *err);
/* Kills the processes left in the group and removes it. Returns whether the kernel killed one
 * because of the memory limit. */
bool np_cgroup_end(const struct np_cgroup *cgroup, int64_t id);

#endif
