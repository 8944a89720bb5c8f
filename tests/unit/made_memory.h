/* Memory that runs out, for tests: this program's malloc() and its like, also as libraries call them.
 * Not under the sanitizers, which have their own. */
#ifndef MADE_MEMORY_H
#define MADE_MEMORY_H

/* The n-th allocation of this thread from now on fails (1: the next); 0: none does. */
void made_memory_fail(int n);
/* Has it failed? */
int made_memory_failed(void);

#endif
