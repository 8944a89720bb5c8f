/* Memory: zeroed and aligned. docs/STYLE.md has the policy. Any thread. */
#ifndef NP_MEM_H
#define NP_MEM_H

#include <stddef.h>

#include "loader/base/err.h"

#define NP_ALIGN 64 /* bytes; cache line, AVX-512 register */

/* A source of pinned memory: a device's allocator, which daemon/run/run.c passes on, so that the
 * loader never sees CUDA. alloc returns zeroed memory aligned to a page, or NULL. */
struct np_allocator {
    void *(*alloc)(void *context, size_t bytes);
    void (*free)(void *context, void *memory, size_t bytes);
    void *context;
};

extern const struct np_allocator np_page_allocator; /* mmap, huge pages where offered */

/* Small memory: at most 64 KiB, or as many small blocks as our own constants allow. Aligned to
 * NP_ALIGN, zeroed, freed with np_free(). Never NULL: without memory the process aborts with a
 * message, and a killed run loses nothing. Not for loader/, which is also a library. */
void *np_alloc(size_t bytes);
void *np_alloc_array(size_t n, size_t bytes);
char *np_strdup(const char *text); /* NULL for NULL */
char *np_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Makes *array (a pointer of any type to items of item_bytes, NULL at first) hold n items, and
 * keeps the old ones. *room: items that fit; it doubles. */
void np_grow(void *array, size_t *room, size_t n, size_t item_bytes);

/* Runs call(context) and returns its result; -ENOMEM where one of these functions ended the process
 * otherwise: what the call held then is lost. For libnnpipe, whose configs are parsed into small
 * memory. Not nested. */
int np_recover(int (*call)(void *context), void *context);

/* The same for sizes from files, configs or the network, for arenas and caches, and for all of
 * loader/. Return NULL or -ENOMEM, and err has the number of bytes. */
void *np_try_alloc(size_t bytes, struct np_err *err);
void *np_try_array(size_t n, size_t bytes, struct np_err *err); /* overflow checked */
char *np_try_strdup(const char *text, struct np_err *err);      /* NULL for NULL, err unchanged */
char *np_try_format(struct np_err *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int np_try_grow(void *array, size_t *room, size_t n, size_t item_bytes, struct np_err *err);
/* Zeroed pages, which take no memory before they are written, so that a size above the need costs
 * nothing. The owner calls munmap(). */
void *np_try_reserve(size_t bytes, struct np_err *err);
/* Makes *memory (a pointer of any type, NULL at first) hold `bytes`. *room: its size in bytes.
 * Growing loses the content, and takes a quarter more than needed, so that varying sizes soon need
 * no growth. New memory is not zeroed, so unused pages take none. -ENOMEM: *memory is NULL. */
int np_hold(void *memory, size_t *room, size_t bytes, struct np_err *err);

void np_free(void *memory); /* of any call above, or of malloc(); NULL: nothing */

#endif
