/* CPUs and memory that this process may use, by its affinity and the limits of its cgroup (v1 and
 * v2), for `auto`. Any thread; reads /proc and /sys. */
#ifndef NP_BOX_H
#define NP_BOX_H

#include <stdint.h>

struct np_box {
    int nr_cpus;            /* min(affinity, cpuset, ceil(cpu.max)), at least 1 */
    uint64_t memory_bytes;  /* min(MemTotal, memory.max) */
    uint64_t free_bytes;    /* MemAvailable, at most memory_bytes */
    uint64_t memlock_bytes; /* RLIMIT_MEMLOCK; UINT64_MAX: no limit */
};

void np_box_read(struct np_box *ret_box);
/* For tests: reads /proc and /sys below root, with an affinity of nr_affine CPUs. */
void np_box_read_under(const char *root, int nr_affine, struct np_box *ret_box);

#endif
