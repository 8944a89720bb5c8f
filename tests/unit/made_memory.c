/* Memory that runs out. The program's own symbols come before libc's, for libraries as well. */
#include "tests/unit/made_memory.h"

static _Thread_local int left, failed; /* allocations until one fails; 0: never */

void made_memory_fail(int n)
{
    left = n;
    failed = 0;
}

int made_memory_failed(void)
{
    return failed;
}

#ifndef NP_SAN
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static int fails(void)
{
    if (left == 0 || --left > 0)
        return 0;
    failed = 1;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}
#endif
