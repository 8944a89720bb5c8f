/* Limits of a run's memory and CPUs, where the service has a cgroup v2 of its own to divide: each limited run gets one
 * below it, run-ID. Its files are the kernel's, so nothing here waits. The service's thread.
 *
 * Runs that are units of systemd's get their limits from it (dropin.h), and need none of this. */
#ifndef NP_CGROUP_H
#define NP_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_cgroup {
    int fd;            /* of the folder that runs' groups are made in; -1: there is none */
    char problem[256]; /* why not; "": it can be used */
};
/* $NNPIPE_CGROUP, or the parent of the daemon's own group where that is named `daemon`, as systemd's
 * DelegateSubgroup=daemon makes it. */
void np_cgroup_open(struct np_cgroup *ret_cgroup);
void np_cgroup_close(struct np_cgroup *cgroup);
/* The group of a run, made; memory_bytes and cpus 0: any. *ret_fd: a process that writes "0" to it is in the group; the
 * caller's to close. */
int np_cgroup_begin(const struct np_cgroup *cgroup, int64_t id, int64_t memory_bytes, double cpus,
    int *ret_fd, struct np_err *err);
/* Ends what is left in it and removes it. Did the kernel end a process of it for want of memory? */
bool np_cgroup_end(const struct np_cgroup *cgroup, int64_t id);

#endif
