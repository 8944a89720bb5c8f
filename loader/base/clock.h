/* Monotonic time, and the CPU's. */
#ifndef NP_CLOCK_H
#define NP_CLOCK_H

#include <stdint.h>

uint64_t np_now_ns(void); /* CLOCK_MONOTONIC */
/* Sleeps until the given np_now_ns() time, whatever signals arrive. */
void np_sleep_until_ns(uint64_t time_ns);
double np_cpu_seconds(void); /* user and system, of the process so far */

#endif
