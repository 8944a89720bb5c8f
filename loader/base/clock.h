/* Monotonic time, CPU time and the scheduler's times. Any thread. */
#ifndef NP_CLOCK_H
#define NP_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

uint64_t np_now_ns(void); /* CLOCK_MONOTONIC */
/* Blocks until np_now_ns() has reached time_ns; a signal does not end the sleep. */
void np_sleep_until_ns(uint64_t time_ns);
/* Milliseconds until then, rounded up, for poll(): at least 0 and at most most_ms. */
int np_until_ms(uint64_t time_ns, int most_ms);
double np_cpu_seconds(void); /* user and system time of the process */
/* Reads how long a thread of this process has been on a core, and ready without a core. False: the
 * thread has ended, or the kernel has no schedstat. Allocates nothing. */
bool np_sched_read(int tid, uint64_t *ret_cpu_ns, uint64_t *ret_delay_ns);

#endif
