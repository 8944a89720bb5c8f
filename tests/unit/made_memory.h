/* Failing allocations, for tests. */
#ifndef MADE_MEMORY_H
#define MADE_MEMORY_H

#include <stddef.h>

/* Makes the n-th call from now on (1: the next; 0: none), by any thread, fail with -ENOMEM, counted
 * over np_try_alloc, np_try_array, np_try_strdup, np_try_format, np_try_grow and np_hold together.
 * Calls that allocate nothing (a NULL text, an array that is large enough) are not counted. Starts
 * the count again. Works under the sanitizers too. */
void made_memory_fail(int n);
/* Has that call failed? */
int made_memory_failed(void);
/* The function that made the failing call, by its name; "": no call has failed. Overwritten by the next call. */
const char *made_memory_caller(void);
/* The calls since made_memory_fail(). */
int made_memory_calls(void);
/* Bytes that np_try_alloc and np_try_array were asked for since then. */
size_t made_memory_bytes(void);

/* The same for malloc(), calloc() and realloc(), also where libraries call them: the n-th call of
 * this thread. Under the sanitizers, which have their own malloc(), none fails. */
void made_memory_fail_libc(int n);
int made_memory_failed_libc(void);

#endif
