/* Memory the pipeline lives in: big aligned blocks taken at start. */
#ifndef NP_MEM_H
#define NP_MEM_H

#include <stddef.h>

#include "loader/base/err.h"

#define NP_ALIGN 64 /* bytes; cache line, AVX-512 register */

/* Who gives pinned memory: the device, through daemon/run/run.c, so that the loader never
 * sees CUDA. alloc returns zeroed memory aligned to a page, or NULL. */
struct np_allocator {
    void *(*alloc)(void *context, size_t bytes);
    void (*free)(void *context, void *memory, size_t bytes);
    void *context;
};

extern const struct np_allocator np_page_allocator; /* mmap, huge pages where offered */

void *np_alloc(size_t bytes); /* aligned to NP_ALIGN, zeroed; NULL when out of memory */
void *np_alloc_array(size_t n, size_t bytes); /* the same, overflow checked */
void np_free(void *memory);                   /* of np_alloc */
/* Makes *memory (a pointer of any type, NULL at first) hold `bytes`, *room says how many it holds.
 * What it held is lost when it grows; a quarter more than asked, so that wandering sizes settle.
 * 0 or -ENOMEM, and then *memory is NULL. */
int np_hold(void *memory, size_t *room, size_t bytes);
char *np_strdup(const char *text); /* freed with np_free; NULL for NULL */
char *np_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
