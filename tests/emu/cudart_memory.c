/* Memory of the emulated runtime: the device's, pinned host memory, and copies. Device memory lies in a
 * region of its own, which is accessible only while queued operations run: the host that
 * follows a device pointer faults. Guards around allocations are looked at whenever the host waits;
 * under the address sanitizer it watches them itself. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/emu/cudart_inside.h"
#include "tests/emu/traffic.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes)   ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)0)
#endif
#define GUARD        1024
#define ALIGNMENT    512 /* a GPU's allocations */
#define PAGE         ((size_t)4096)
#define HUGE_PAGE    ((size_t)2 << 20)
#define POISON       0xff
#define REGION_BYTES ((size_t)64 << 30) /* of addresses; more than a test's GPU has */

struct block {
    uint8_t *base, *memory; /* whole pages; as the caller has it */
    size_t all, bytes;      /* of the two */
    struct block *next;
};
struct range {                   /* of the host, known to the device */
    uint8_t *memory, *allocated; /* allocated: by cudaHostAlloc(), as malloc() gave it */
    size_t bytes;
    struct range *next;
};

static struct block *blocks; /* by address */
static struct range *ranges;
static uint64_t used_bytes, max_bytes;
static uint8_t *region; /* NULL: nothing was allocated yet */
static size_t region_used;
static bool shown;

void np_emu_count(struct np_emu_counts *ret_counts)
{
    np_emu_lock();
    *ret_counts = (struct np_emu_counts){np_emu_ran(), used_bytes, max_bytes, np_emu_calls()};
    np_emu_unlock();
}

/* --- the region ------------------------------------------------------------------------------- */

static void protect(int protection)
{
    if (region_used && mprotect(region, region_used, protection) != 0)
        np_emu_die("memory", "mprotect() failed");
}

void np_emu_show_memory(void)
{
    if (!shown)
        protect(PROT_READ | PROT_WRITE);
    shown = true;
}

void np_emu_hide_memory(void)
{
    if (shown)
        protect(PROT_NONE);
    shown = false;
}

/* The first gap of so many bytes; ret_link: where a block there belongs in the list. */
static uint8_t *find_gap(size_t all, struct block ***ret_link)
{
    uint8_t *at = region;
    struct block **link = &blocks;

    while (*link && (size_t)((*link)->base - at) < all) {
        at = (*link)->base + (*link)->all;
        link = &(*link)->next;
    }
    if (all > REGION_BYTES - (size_t)(at - region))
        np_emu_die("memory", "the emulation has no addresses for %zu bytes", all);
    *ret_link = link;
    return at;
}

/* Huge pages, where there are any: to show and to hide is then a matter of a few. */
static void reserve(void)
{
    uint8_t *all = mmap(NULL, REGION_BYTES + HUGE_PAGE, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (all == MAP_FAILED)
        np_emu_die("memory", "the host has no addresses for it");
    region = (uint8_t *)(((uintptr_t)all + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(region, REGION_BYTES, MADV_HUGEPAGE);
    np_emu_traffic_region(region, REGION_BYTES);
}

static struct block *new_block(size_t bytes)
{
    struct block *block = np_emu_new(sizeof(*block)), **link;

    if (!region)
        reserve();
    np_emu_show_memory();
    block->bytes = bytes;
    block->all = (bytes + 2 * GUARD + PAGE - 1) / PAGE * PAGE;
    block->base = find_gap(block->all, &link);
    block->memory = block->base + GUARD;
    block->next = *link;
    *link = block;
    if ((size_t)(block->base - region) + block->all > region_used) {
        region_used = (size_t)(block->base - region) + block->all;
        region_used = (region_used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        protect(PROT_READ | PROT_WRITE);
    }
    ASAN_UNPOISON_MEMORY_REGION(block->base, block->all);
    memset(block->base, POISON, block->all);
    ASAN_POISON_MEMORY_REGION(block->base, GUARD);
    ASAN_POISON_MEMORY_REGION(block->memory + bytes, block->all - GUARD - bytes);
    return block;
}

static void free_block(struct block *block)
{
    ASAN_POISON_MEMORY_REGION(block->base, block->all);
    if (madvise(block->base, block->all, MADV_DONTNEED) != 0)
        np_emu_die("memory", "madvise() failed");
    free(block);
}

static uint8_t *aligned(size_t bytes, uint8_t **ret_base)
{
    uint8_t *base = malloc(bytes + ALIGNMENT);

    if (!base)
        np_emu_die("memory", "the host has no %zu bytes", bytes);
    memset(base, POISON, bytes + ALIGNMENT);
    *ret_base = base;
    return base + (ALIGNMENT - (uintptr_t)base % ALIGNMENT) % ALIGNMENT;
}

static void check_guard(const uint8_t *guard, const struct block *block, const char *call)
{
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != POISON)
            np_emu_die(call, "written %td bytes from the start of %zu bytes of device memory",
                guard + i - block->memory, block->bytes);
}

void np_emu_check_guards(const char *call)
{
#ifdef __SANITIZE_ADDRESS__
    return;
#endif
    np_emu_show_memory();
    for (const struct block *block = blocks; block; block = block->next) {
        check_guard(block->memory - GUARD, block, call);
        check_guard(block->memory + block->bytes, block, call);
    }
}

static const struct block *block_of(const void *memory)
{
    const uint8_t *p = memory;

    for (const struct block *block = blocks; block; block = block->next)
        if (p >= block->memory && p < block->memory + block->bytes)
            return block;
    return NULL;
}

static const struct range *range_of(const void *memory)
{
    const uint8_t *p = memory;

    for (const struct range *range = ranges; range; range = range->next)
        if (p >= range->memory && p < range->memory + range->bytes)
            return range;
    return NULL;
}

static bool in_block(const void *memory, size_t bytes)
{
    const struct block *block = block_of(memory);

    return block && bytes <= block->bytes - (size_t)((const uint8_t *)memory - block->memory);
}

static bool in_range(const void *memory, size_t bytes)
{
    const struct range *range = range_of(memory);

    return range && bytes <= range->bytes - (size_t)((const uint8_t *)memory - range->memory);
}

bool np_emu_holds(const void *memory, size_t bytes)
{
    bool holds;

    np_emu_lock();
    holds = bytes == 0 || in_block(memory, bytes) || in_range(memory, bytes);
    np_emu_unlock();
    return holds;
}

/* A kernel's argument, or a word of a structure that is one: the host's memory is out of its reach. */
void np_emu_check_argument(const char *kernel, uint64_t word, int is_pointer)
{
    unsigned char resident;
    bool of_host =
        word >= PAGE && word >> 47 == 0 && mincore((void *)(word / PAGE * PAGE), 1, &resident) == 0;

    if ((is_pointer && word) || of_host)
        if (!np_emu_holds((void *)word, 1))
            np_emu_die(kernel, "is given %p, which is neither the device's memory nor pinned",
                (void *)word);
}

/* --- the device's ---------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **ret_memory, size_t bytes)
{
    struct block *block;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    np_emu_check_steady(__func__, "memory is taken");
    if (np_emu_capturing())
        return np_emu_leave(cudaErrorStreamCaptureUnsupported);
    if (bytes == 0) {
        *ret_memory = NULL;
        return np_emu_leave(cudaSuccess);
    }
    if (bytes > np_emu_memory_bytes() - used_bytes || used_bytes > np_emu_memory_bytes())
        return np_emu_leave(cudaErrorMemoryAllocation);
    block = new_block(bytes);
    used_bytes += bytes;
    max_bytes = used_bytes > max_bytes ? used_bytes : max_bytes;
    *ret_memory = block->memory;
    return np_emu_leave(cudaSuccess);
}

/* As on a GPU all that is queued ends first, so that memory in use may be freed. */
cudaError_t cudaFree(void *memory)
{
    struct block **at = &blocks, *block;

    np_emu_lock();
    if (!memory)
        return np_emu_leave(cudaSuccess);
    if (np_emu_capturing())
        np_emu_die(__func__, "a stream is capturing");
    np_emu_finish_stream(NULL, __func__);
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    block = *at;
    if (!block)
        np_emu_die(__func__, "%p was not allocated, or is freed already", memory);
    *at = block->next;
    used_bytes -= block->bytes;
    free_block(block);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorUnknown);
    *ret_total = np_emu_memory_bytes();
    *ret_free = used_bytes < *ret_total ? *ret_total - used_bytes : 0;
    return np_emu_leave(cudaSuccess);
}

/* --- pinned ---------------------------------------------------------------------------------- */

static void add_range(uint8_t *memory, uint8_t *allocated, size_t bytes)
{
    struct range *range = np_emu_new(sizeof(*range));

    *range = (struct range){memory, allocated, bytes, ranges};
    ranges = range;
}

/* CUDA does not promise that either call waits for work that uses the memory: such a call is a mistake. */
static void remove_range(void *memory, bool allocated, const char *call)
{
    struct range **at = &ranges, *range;

    while (*at && ((*at)->memory != memory || ((*at)->allocated != NULL) != allocated))
        at = &(*at)->next;
    range = *at;
    if (!range)
        np_emu_die(call, "%p is not pinned by its counterpart, or no longer", memory);
    if (!np_emu_dead() && np_emu_queue_uses(memory, range->bytes))
        np_emu_die(call, "work that is queued still uses %p", memory);
    *at = range->next;
    free(range->allocated);
    free(range);
}

cudaError_t cudaHostAlloc(void **ret_memory, size_t bytes, unsigned int flags)
{
    uint8_t *base;

    (void)flags;
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    np_emu_check_steady(__func__, "memory is taken");
    if (bytes == 0)
        return np_emu_leave(cudaErrorInvalidValue);
    *ret_memory = aligned(bytes, &base);
    add_range(*ret_memory, base, bytes);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaFreeHost(void *memory)
{
    np_emu_lock();
    if (memory)
        remove_range(memory, true, __func__);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    uint8_t *p = memory;

    (void)flags;
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    np_emu_check_steady(__func__, "memory is taken");
    if (!memory || bytes == 0)
        return np_emu_leave(cudaErrorInvalidValue);
    for (const struct range *range = ranges; range; range = range->next)
        if (p < range->memory + range->bytes && range->memory < p + bytes)
            return np_emu_leave(cudaErrorHostMemoryAlreadyRegistered);
    add_range(p, NULL, bytes);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *memory)
{
    np_emu_lock();
    remove_range(memory, false, __func__);
    return np_emu_leave(cudaSuccess);
}

/* --- copies ---------------------------------------------------------------------------------- */

struct side {
    uint8_t *memory;
    enum { PAGEABLE, PINNED, DEVICE } where;
};
struct copy {
    struct side to, from;
    size_t bytes;
    uint8_t *staged; /* what pageable memory held when it was queued */
};

static void check_side(const struct side *side, size_t bytes)
{
    if (side->where == DEVICE ? !in_block(side->memory, bytes)
                              : side->where == PINNED && !in_range(side->memory, bytes))
        np_emu_die("a copy", "%zu bytes at %p are no longer the device's, or pinned", bytes,
            (void *)side->memory);
}

static void run_copy(void *job)
{
    struct copy *copy = job;

    check_side(&copy->to, copy->bytes);
    check_side(&copy->from, copy->bytes);
    if (copy->to.where == DEVICE && copy->from.where == DEVICE)
        np_emu_traffic_add("copy", copy->bytes, copy->bytes);
    memmove(copy->to.memory, copy->staged ? copy->staged : copy->from.memory, copy->bytes);
}

static bool overlaps(const struct side *side, size_t bytes, const uint8_t *memory, size_t room)
{
    return side->where == PINNED && side->memory < memory + room && memory < side->memory + bytes;
}

static bool copy_uses(const void *job, const void *memory, size_t bytes)
{
    const struct copy *copy = job;

    return overlaps(&copy->to, copy->bytes, memory, bytes) ||
           overlaps(&copy->from, copy->bytes, memory, bytes);
}

static void drop_copy(void *job)
{
    struct copy *copy = job;

    free(copy->staged);
    free(copy);
}

static struct side side_of(const void *memory, size_t bytes, const char *call)
{
    struct side side = {(uint8_t *)(uintptr_t)memory, PAGEABLE};

    if (block_of(memory))
        side.where = DEVICE;
    else if (range_of(memory))
        side.where = PINNED;
    if (side.where == DEVICE ? !in_block(memory, bytes)
                             : side.where == PINNED && !in_range(memory, bytes))
        np_emu_die(call, "%zu bytes at %p run past their allocation", bytes, memory);
    return side;
}

static bool fits(const struct copy *copy, enum cudaMemcpyKind kind)
{
    bool to = copy->to.where == DEVICE, from = copy->from.where == DEVICE;

    return kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && to && !from) ||
           (kind == cudaMemcpyDeviceToHost && !to && from) ||
           (kind == cudaMemcpyDeviceToDevice && to && from) ||
           (kind == cudaMemcpyHostToHost && !to && !from);
}

static cudaError_t queue_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
    cudaStream_t handle, const char *call)
{
    struct CUstream_st *stream = np_emu_stream(handle, call);
    struct copy *copy = np_emu_new(sizeof(*copy));
    struct work *work;
    bool to_pageable;

    copy->to = side_of(to, bytes, call);
    copy->from = side_of(from, bytes, call);
    copy->bytes = bytes;
    if (!fits(copy, kind)) {
        free(copy);
        return cudaErrorInvalidValue;
    }
    if (copy->from.where == PAGEABLE && copy->to.where == DEVICE && !stream->blocking)
        np_emu_check_steady(call, "pageable memory is copied to the device");
    to_pageable = copy->to.where == PAGEABLE;
    if (copy->from.where == PAGEABLE && !stream->capture) {
        copy->staged = np_emu_new(bytes + 1);
        memcpy(copy->staged, from, bytes);
    }
    work = np_emu_work(run_copy, drop_copy, copy);
    work->uses = copy_uses;
    np_emu_queue_work(stream, work);
    if (to_pageable && !stream->capture)
        np_emu_finish_stream(stream, call);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    return np_emu_leave(bytes ? queue_copy(to, from, bytes, kind, stream, __func__) : cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t status = cudaSuccess;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    if (np_emu_capturing())
        return np_emu_leave(cudaErrorStreamCaptureImplicit);
    if (bytes)
        status = queue_copy(to, from, bytes, kind, NULL, __func__);
    np_emu_finish_stream(np_emu_stream(NULL, __func__), __func__);
    return np_emu_leave(status);
}

struct fill {
    struct side to;
    int value;
    size_t bytes;
};

static void run_fill(void *job)
{
    const struct fill *fill = job;

    check_side(&fill->to, fill->bytes);
    np_emu_traffic_add("fill", 0, fill->bytes);
    memset(fill->to.memory, fill->value, fill->bytes);
}

static bool fill_uses(const void *job, const void *memory, size_t bytes)
{
    const struct fill *fill = job;

    return overlaps(&fill->to, fill->bytes, memory, bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    struct fill *fill;
    struct work *work;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    if (bytes == 0)
        return np_emu_leave(cudaSuccess);
    fill = np_emu_new(sizeof(*fill));
    *fill = (struct fill){side_of(to, bytes, __func__), value, bytes};
    if (fill->to.where == PAGEABLE)
        np_emu_die(__func__, "%p is not the device's", to);
    work = np_emu_work(run_fill, free, fill);
    work->uses = fill_uses;
    np_emu_queue_work(np_emu_stream(stream, __func__), work);
    return np_emu_leave(cudaSuccess);
}
