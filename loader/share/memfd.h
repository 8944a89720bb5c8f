/* Memory that this process alone writes, that nobody can resize, and that others may map to read.
 * Any thread. */
#ifndef NP_MEMFD_H
#define NP_MEMFD_H

#include <stddef.h>

#include "loader/base/err.h"

/* Zeros; a page takes no memory before it is written. The caller unmaps *ret_memory and closes
 * *ret_fd. -ENOSYS, -EPERM: the kernel has no memfds that others cannot write; -EFBIG: a limit of
 * this process forbids so much. */
int np_memfd_new(size_t bytes, int *ret_fd, void **ret_memory, struct np_err *err);
/* Maps another process's, to read. fd stays the caller's; the caller unmaps *ret_memory, of
 * *ret_bytes bytes. -EBADMSG: it could shrink; -ENOMEM. */
int np_memfd_view(int fd, size_t *ret_bytes, const void **ret_memory, struct np_err *err);

#endif
