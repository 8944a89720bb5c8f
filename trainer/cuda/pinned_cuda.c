/* Anonymous huge pages, touched once so that a missing page fails here, and registered with
 * CUDA. */
#include "trainer/cuda/pinned_cuda.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define MAX_NODES 1024

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Only a preference: the kernel takes other nodes when this one is full, and containers may forbid
 * the call. */
static void prefer_node(void *memory, size_t bytes, int node)
{
    unsigned long mask[MAX_NODES / (8 * sizeof(long))] = {0};

    if (node < 0 || node >= MAX_NODES)
        return;
    mask[(size_t)node / (8 * sizeof(long))] = 1ul << ((size_t)node % (8 * sizeof(long)));
    if (syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, MAX_NODES + 1, 0) < 0)
        errno = 0;
}

/* Maps pages of the huge page pool, if it has enough: madvise() returns an error where a plain
 * access would raise SIGBUS. */
static void *map_pool(size_t bytes, int node)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    prefer_node(memory, bytes, node);
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return memory;
    munmap(memory, bytes);
    return NULL;
}

/* Maps ordinary pages, aligned so that the kernel can use transparent huge pages. */
static void *map_pages(size_t bytes, int node)
{
    char *memory = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    char *start = (char *)round_up((size_t)memory, HUGE_PAGE);
    if (start > memory)
        munmap(memory, (size_t)(start - memory));
    munmap(start + bytes, HUGE_PAGE - (size_t)(start - memory));
    if (bytes >= HUGE_PAGE)
        madvise(start, bytes, MADV_HUGEPAGE);
    prefer_node(start, bytes, node);
    if (madvise(start, bytes, MADV_POPULATE_WRITE) < 0 &&
        errno != EINVAL) { /* EINVAL: old kernel */
        munmap(start, bytes);
        return NULL;
    }
    return start;
}

static void note_refused(struct np_device *device, size_t bytes, cudaError_t status)
{
    struct rlimit limit = {0};
    char max[64] = "no limit";

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        snprintf(max, sizeof(max), "%llu KiB", (unsigned long long)limit.rlim_cur >> 10);
    snprintf(device->fault, sizeof(device->fault),
        "CUDA cannot pin %zu MiB: %s: %s; the limit of locked memory is %s (ulimit -l; a "
        "container: --ulimit memlock=-1)",
        bytes >> 20, cudaGetErrorName(status), cudaGetErrorString(status), max);
}

static void hold(struct np_cuda_pinned *pinned, void *memory, size_t bytes)
{
    np_grow(&pinned->blocks, &pinned->blocks_room, (size_t)pinned->nr_blocks + 1,
        sizeof(*pinned->blocks));
    pinned->blocks[pinned->nr_blocks++] = (struct np_cuda_block){memory, bytes};
}

void *np_cuda_pinned_alloc(void *context, size_t bytes)
{
    struct np_cuda_pinned *pinned = context;
    struct np_device *device = pinned->device;
    size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : 4096, all;
    void *memory = NULL;
    cudaError_t status;

    if (bytes > SIZE_MAX - 2 * HUGE_PAGE)
        return NULL;
    all = round_up(bytes ? bytes : 1, page);
    if (page == HUGE_PAGE)
        memory = map_pool(all, pinned->node);
    if (!memory)
        memory = map_pages(all, pinned->node);
    if (!memory) {
        snprintf(device->fault, sizeof(device->fault), "no %zu MiB of memory are free: %s",
            all >> 20, strerror(errno));
        return NULL;
    }
    status = cudaHostRegister(memory, all, cudaHostRegisterDefault);
    if (status == cudaSuccess) {
        hold(pinned, memory, all);
        return memory;
    }
    cudaGetLastError();
    note_refused(device, all, status);
    munmap(memory, all);
    return NULL;
}

static void drop(struct np_cuda_block *block)
{
    cudaHostUnregister(block->memory);
    munmap(block->memory, block->bytes);
}

void np_cuda_pinned_free(void *context, void *memory, size_t bytes)
{
    struct np_cuda_pinned *pinned = context;

    for (int i = 0; memory && i < pinned->nr_blocks; i++)
        if (pinned->blocks[i].memory == memory) {
            drop(&pinned->blocks[i]);
            pinned->blocks[i] = pinned->blocks[--pinned->nr_blocks];
            return;
        }
}

void np_cuda_pinned_fini(struct np_cuda_pinned *pinned)
{
    for (int i = 0; i < pinned->nr_blocks; i++)
        drop(&pinned->blocks[i]);
    np_free(pinned->blocks);
}
