#include "loader/base/mem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20)

static void *page_alloc(void *context, size_t bytes)
{
    void *memory;

    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE)
        madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static void page_free(void *context, void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

const struct np_allocator np_page_allocator = {page_alloc, page_free, NULL};

static int no_memory(struct np_err *err, size_t bytes)
{
    return np_err_set(err, -ENOMEM, "out of memory: %zu bytes asked for", bytes);
}

static _Thread_local jmp_buf *recovery; /* of np_recover(); NULL: none */

int np_recover(int (*call)(void *context), void *context)
{
    jmp_buf here;
    int code;

    if (setjmp(here)) {
        recovery = NULL;
        return -ENOMEM;
    }
    recovery = &here;
    code = call(context);
    recovery = NULL;
    return code;
}

/* Only here a process ends for lack of memory. */
static void *must(void *memory, size_t bytes)
{
    if (!memory && recovery)
        longjmp(*recovery, 1);
    if (!memory) {
        fprintf(stderr, "nnpipe: out of memory: %zu bytes asked for\n", bytes);
        abort();
    }
    return memory;
}

/* Zeroes the bytes from `from` on. */
static void *aligned(size_t bytes, size_t from)
{
    uint8_t *memory;

    if (bytes > SIZE_MAX - NP_ALIGN)
        return NULL;
    bytes = bytes ? (bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN : NP_ALIGN;
    memory = aligned_alloc(NP_ALIGN, bytes);
    if (memory)
        memset(memory + from, 0, bytes - from);
    return memory;
}

/* SIZE_MAX: overflow. */
static size_t product(size_t n, size_t bytes)
{
    size_t total;

    return __builtin_mul_overflow(n, bytes, &total) ? SIZE_MAX : total;
}

void *np_try_alloc(size_t bytes, struct np_err *err)
{
    void *memory = aligned(bytes, 0);

    if (!memory)
        no_memory(err, bytes);
    return memory;
}

void *np_try_array(size_t n, size_t bytes, struct np_err *err)
{
    return np_try_alloc(product(n, bytes), err);
}

void *np_try_reserve(size_t bytes, struct np_err *err)
{
    void *memory = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory != MAP_FAILED)
        return memory;
    no_memory(err, bytes);
    return NULL;
}

char *np_try_strdup(const char *text, struct np_err *err)
{
    const size_t bytes = text ? strlen(text) + 1 : 0;
    char *copy = text ? np_try_alloc(bytes, err) : NULL;

    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

static char *format_text(struct np_err *err, const char *format, va_list args)
{
    va_list again;
    char *text = NULL;
    int bytes;

    va_copy(again, args);
    bytes = vsnprintf(NULL, 0, format, args);
    if (bytes < 0)
        no_memory(err, 0);
    else if ((text = np_try_alloc((size_t)bytes + 1, err)))
        vsnprintf(text, (size_t)bytes + 1, format, again);
    va_end(again);
    return text;
}

char *np_try_format(struct np_err *err, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = format_text(err, format, args);
    va_end(args);
    return text;
}

int np_try_grow(void *array, size_t *room, size_t n, size_t item_bytes, struct np_err *err)
{
    const size_t held = *room * item_bytes; /* cannot overflow: it is allocated */
    size_t more = *room ? *room : 8;
    void *old, *larger;

    if (n <= *room)
        return 0;
    while (more < n)
        more = more > SIZE_MAX / 2 ? n : 2 * more;
    memcpy(&old, array, sizeof(old));
    larger = aligned(product(more, item_bytes), held);
    if (!larger)
        return no_memory(err, product(more, item_bytes));
    if (old)
        memcpy(larger, old, held);
    np_free(old);
    memcpy(array, &larger, sizeof(larger));
    *room = more;
    return 0;
}

int np_hold(void *memory, size_t *room, size_t bytes, struct np_err *err)
{
    void *block;

    if (bytes <= *room)
        return 0;
    memcpy(&block, memory, sizeof(block));
    np_free(block);
    *room = 0;
    if (bytes < SIZE_MAX / 2)
        bytes += bytes / 4;
    block = aligned(bytes, bytes);
    memcpy(memory, &block, sizeof(block));
    if (!block)
        return no_memory(err, bytes);
    *room = bytes;
    return 0;
}

void *np_alloc(size_t bytes)
{
    return must(aligned(bytes, 0), bytes);
}

void *np_alloc_array(size_t n, size_t bytes)
{
    return np_alloc(product(n, bytes));
}

char *np_strdup(const char *text)
{
    return text ? must(np_try_strdup(text, NULL), strlen(text) + 1) : NULL;
}

char *np_format(const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = must(format_text(NULL, format, args), 0);
    va_end(args);
    return text;
}

void np_grow(void *array, size_t *room, size_t n, size_t item_bytes)
{
    if (np_try_grow(array, room, n, item_bytes, NULL) < 0)
        must(NULL, product(n, item_bytes));
}

void np_free(void *memory)
{
    free(memory);
}
