/* Readers beside the GPU whose batches they make: of several processes on a machine with several NUMA
 * nodes each has its readers on the CPUs of its GPU's node. Main thread. */
#ifndef NP_NEAR_H
#define NP_NEAR_H

#include <sched.h>
#include <stdbool.h>

/* Of several processes on this machine. */
struct np_near {
    int node;       /* of this process's device; -1: none, or not known */
    int nr_on_node; /* processes with devices of this node */
    int nr_here;    /* processes on this machine */
};
/* The CPUs of the node that are in allowed. False: the process has no node, all allowed CPUs are of it
 * (a launcher may have bound the process already), or its share of them would be smaller than that of
 * the whole machine, as where all GPUs hang on one node. root: "" or, for tests, a folder with a sys/. */
bool np_near_cpus(
    const char *root, const struct np_near *near, const cpu_set_t *allowed, cpu_set_t *ret_cpus);

#endif
