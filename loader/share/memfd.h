/* Memory that this process alone writes, that nobody can resize, and that others may map to read.
 * Any thread. */
#ifndef NP_MEMFD_H
#define NP_MEMFD_H

#include <stddef.h>

#include "loader/base/err.h"

/* A huge page: mappings begin at a multiple of it, so that it can be mapped as one. */
#define NP_MEMFD_BLOCK ((size_t)2 << 20)

/* Zeros; a page takes no memory before it is written. The caller unmaps *ret_memory and closes
 * *ret_fd. -ENOSYS, -EPERM: the kernel has no memfds that others cannot write; -EFBIG: a limit of
 * this process forbids so much. */
int np_memfd_new(size_t bytes, int *ret_fd, void **ret_memory, struct np_err *err);
/* Gives the bytes from..from + bytes of this process's memory their pages, before they are written:
 * a huge page for each block that begins there, where the kernel has them (Linux 6.1), even if
 * shared memory gets none by itself. It takes a seventh of the time of one fault a page. Does
 * nothing before Linux 5.14. -ENOMEM, or another error: no memory is left, which would be a signal
 * at the first write. */
int np_memfd_populate(void *memory, size_t from, size_t bytes);
/* Maps another process's, to read. fd stays the caller's; the caller unmaps *ret_memory, of
 * *ret_bytes bytes. -EBADMSG: it could shrink; -ENOMEM. */
int np_memfd_view(int fd, size_t *ret_bytes, const void **ret_memory, struct np_err *err);

#endif
