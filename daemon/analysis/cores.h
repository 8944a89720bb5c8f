/* How many of the cores that this process may use were used by other processes. */
#ifndef NP_CORES_H
#define NP_CORES_H

#include <stdbool.h>

/* CPU seconds used by all processes so far. */
struct np_cores {
    double machine_s; /* on the CPUs of this process's affinity; below 0: unknown */
    double group_s;   /* in this process's cgroup; below 0: unknown */
    int nr_cpus;      /* of the affinity */
};

void np_cores_read(struct np_cores *ret_cores);
/* For tests: reads /proc and /sys under root; mine() says which CPUs count. */
void np_cores_read_under(const char *root, bool (*mine)(int cpu), struct np_cores *ret_cores);
/* The mean number of cores that others used between two moments, out of `usable`
 * (np_box.nr_cpus, within the cgroup's limit). own_s: CPU seconds of this process. With a limit,
 * only use by others that reduces what this process can get counts: by its cgroup, or by the
 * machine beyond what the limit leaves unused. 0 if unknown. */
double np_cores_others(const struct np_cores *start, const struct np_cores *end, double seconds,
    double own_s, double usable);

#endif
