/* What the kernel's scheduler knows of a thread. */
#ifndef NP_SCHED_H
#define NP_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* Of a thread of this process, since it began: on a core, and ready but without one. false: it has ended,
 * or this kernel does not say (schedstat). Allocates nothing. Any thread. */
bool np_sched_read(int tid, uint64_t *ret_cpu_ns, uint64_t *ret_delay_ns);

#endif
