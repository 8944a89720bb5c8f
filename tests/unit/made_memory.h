/* Memory that runs out, for tests. */
#ifndef MADE_MEMORY_H
#define MADE_MEMORY_H

/* The n-th call from now on, of any thread, of np_try_alloc, np_try_array, np_try_strdup, np_try_format, np_try_grow and
 * np_hold together fails with -ENOMEM (1: the next); 0: none does. Calls that allocate nothing (a NULL text, an array
 * that is large enough) are not counted. Counts anew. Also under the sanitizers. */
void made_memory_fail(int n);
/* Has it failed? */
int made_memory_failed(void);
/* So many there were since made_memory_fail(). */
int made_memory_calls(void);

/* The same for malloc() and its like, also as libraries call them: the n-th of this thread. Not under the sanitizers,
 * which have their own: there none fails. */
void made_memory_fail_libc(int n);
int made_memory_failed_libc(void);

#endif
