/* Aligned blocks, and pages for the ring. Any thread. */
#include "loader/base/mem.h"

#include <errno.h>
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

    (void)context;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE)
        madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: small pages work too */
    return memory;
}

static void page_free(void *context, void *memory, size_t bytes)
{
    (void)context;
    if (memory)
        munmap(memory, bytes);
}

const struct np_allocator np_page_allocator = {page_alloc, page_free, NULL};

void *np_alloc(size_t bytes)
{
    void *memory;

    if (bytes > SIZE_MAX - NP_ALIGN)
        return NULL;
    bytes = bytes ? (bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN : NP_ALIGN;
    memory = aligned_alloc(NP_ALIGN, bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

void *np_alloc_array(size_t n, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(n, bytes, &total))
        return NULL;
    return np_alloc(total);
}

void np_free(void *memory)
{
    free(memory);
}

int np_hold(void *memory, size_t *room, size_t bytes)
{
    void *block;

    if (bytes <= *room)
        return 0;
    memcpy(&block, memory, sizeof(block));
    np_free(block);
    *room = 0;
    if (bytes < SIZE_MAX / 2)
        bytes += bytes / 4;
    block = np_alloc(bytes);
    memcpy(memory, &block, sizeof(block));
    if (!block)
        return -ENOMEM;
    *room = bytes;
    return 0;
}

char *np_strdup(const char *text)
{
    size_t bytes;
    char *copy;

    if (!text)
        return NULL;
    bytes = strlen(text) + 1;
    copy = np_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *np_format(const char *format, ...)
{
    va_list args, again;
    int bytes;
    char *text;

    va_start(args, format);
    va_copy(again, args);
    bytes = vsnprintf(NULL, 0, format, args);
    text = bytes < 0 ? NULL : np_alloc((size_t)bytes + 1);
    if (text)
        vsnprintf(text, (size_t)bytes + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}
