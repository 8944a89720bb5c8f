/* See memfd.h. */
#include "loader/share/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1; others refuse it */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif
#define PAGE 4096u

/* At a multiple of NP_MEMFD_BLOCK. MAP_FAILED: errno is set. */
static void *map(int fd, size_t bytes, int prot)
{
    const size_t all = bytes + NP_MEMFD_BLOCK;
    uint8_t *room = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;
    void *memory;

    if (room == MAP_FAILED)
        return MAP_FAILED;
    before = -(uintptr_t)room & (NP_MEMFD_BLOCK - 1);
    memory = mmap(room + before, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        const int code = errno;

        munmap(room, all);
        errno = code;
        return MAP_FAILED;
    }
    if (before > 0)
        munmap(room, before);
    munmap(room + before + (bytes + PAGE - 1) / PAGE * PAGE, NP_MEMFD_BLOCK - before);
    return memory;
}

/* The limit of a file's size (ulimit -f) holds for memfds, too, and a process that passes it gets
 * SIGXFSZ. */
static bool may_have(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) < 0 || bytes <= limit.rlim_cur;
}

static int set_up(int fd, size_t bytes, void **ret_memory, struct np_err *err)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    void *memory;

    if (!may_have(bytes) || ftruncate(fd, (off_t)bytes) < 0)
        return np_err_set(err, -EFBIG, "a memfd of %zu bytes is not allowed", bytes);
    memory = map(fd, bytes, PROT_READ | PROT_WRITE);
    if (memory == MAP_FAILED)
        return np_err_set(err, -EFBIG, "no %zu bytes of address space: %s", bytes, strerror(errno));
    if (fcntl(fd, F_ADD_SEALS, seals) < 0) {
        const int code = -errno;

        munmap(memory, bytes);
        return np_err_set(err, code, "a memfd cannot be sealed: %s", strerror(-code));
    }
    *ret_memory = memory;
    return 0;
}

int np_memfd_new(size_t bytes, int *ret_fd, void **ret_memory, struct np_err *err)
{
    const int fd = memfd_create("nnpipe-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int code;

    if (fd < 0)
        return np_err_set(err, -errno, "memfd_create: %s", strerror(errno));
    code = set_up(fd, bytes, ret_memory, err);
    if (code < 0) {
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return 0;
}

int np_memfd_populate(void *memory, size_t from, size_t bytes)
{
    const size_t first = (from + NP_MEMFD_BLOCK - 1) / NP_MEMFD_BLOCK * NP_MEMFD_BLOCK;
    const size_t page = from % PAGE;
    uint8_t *base = memory;

    /* The kernel makes no huge page of a block without a page. A failure is no error: the pages are
     * small, then. */
    for (size_t at = first; at < from + bytes; at += NP_MEMFD_BLOCK)
        if (madvise(base + at, PAGE, MADV_POPULATE_WRITE) == 0)
            madvise(base + at, NP_MEMFD_BLOCK, MADV_COLLAPSE);
    if (madvise(base + from - page, bytes + page, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
        return 0;
    return -errno;
}

/* A file that could shrink would kill this process at its next read. */
static bool is_sealed(int fd, size_t *ret_bytes)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) < 0 || st.st_size <= 0)
        return false;
    *ret_bytes = (size_t)st.st_size;
    return true;
}

int np_memfd_view(int fd, size_t *ret_bytes, const void **ret_memory, struct np_err *err)
{
    void *memory;

    if (!is_sealed(fd, ret_bytes))
        return np_err_set(err, -EBADMSG, "the memory of another process is not sealed");
    memory = map(fd, *ret_bytes, PROT_READ);
    if (memory == MAP_FAILED)
        return np_err_set(
            err, -ENOMEM, "the memory of another process cannot be mapped: %s", strerror(errno));
    *ret_memory = memory;
    return 0;
}
