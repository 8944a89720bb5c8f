/* Work on many files at once, spread over threads: they wait for the storage more than for a core. */
#ifndef NP_LIB_SPREAD_H
#define NP_LIB_SPREAD_H

#include <stdint.h>

#include "loader/base/err.h"

/* Does the work of items first to end - 1. Any thread; items come in any order, each once. */
typedef int np_spread_fn(void *context, uint64_t first, uint64_t end, struct np_err *err);
/* Calls work() for all of 0 to n - 1, in pieces, on the calling thread and others, and waits for
 * all. Returns the first error; then some items are not done. Where no thread can be started, the
 * caller works alone. */
int np_spread(uint64_t n, np_spread_fn *work, void *context, struct np_err *err);

#endif
