/* How much of the cores that this process may use others have used. */
#ifndef NP_CORES_H
#define NP_CORES_H

#include <stdbool.h>

/* Seconds that cores have worked for anybody, at one moment. */
struct np_cores {
    double machine_s; /* of the CPUs of this process's affinity; below 0: not known */
    double group_s;   /* in this process's cgroup; below 0: not known */
    int nr_cpus;      /* of the affinity */
};

void np_cores_read(struct np_cores *ret_cores);
/* For tests: with /proc and /sys under root; mine says which CPUs count. */
void np_cores_read_under(const char *root, bool (*mine)(int cpu), struct np_cores *ret_cores);
/* The mean of cores that others took between two moments, of `usable` ones (np_box.nr_cpus, which knows the
 * cgroup's limit). own_s: what this process has used. Of what a limit leaves unused nobody has taken
 * anything; of the limit itself what others of the group have used is gone. 0 where nothing is known. */
double np_cores_others(const struct np_cores *start, const struct np_cores *end, double seconds,
    double own_s, double usable);

#endif
