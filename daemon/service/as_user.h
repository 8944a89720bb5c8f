/* What the service does with a user's rights: in a process of its own where it is not that user, and never for longer
 * than NP_AS_MOST_S, whatever file system the path leads to. The service's thread. */
#ifndef NP_AS_USER_H
#define NP_AS_USER_H

#include <sys/types.h>

#define NP_AS_MOST_S     3
#define NP_AS_MOST_BYTES 4096

/* In a child of fork(): the user, with all groups of theirs, their HOME, and no other right, for good; 0 or -errno.
 * No signal blocked. */
int np_become(uid_t uid, gid_t gid);
void np_child_signals(void);
/* A text as a descriptor to read from, or -errno. */
int np_text_fd(const char *text);

/* Of a file that is no link; -ETIMEDOUT: its file system does not answer. */
/* Its beginning, with a NUL; the number of bytes, or -errno. */
int np_read_as(uid_t uid, gid_t gid, const char *path, char ret_text[NP_AS_MOST_BYTES]);
/* The process that holds the lock of that file, as its text says; -ESRCH: nobody does, or there is no file that
 * anybody could; else it is not known. */
pid_t np_holder_as(uid_t uid, gid_t gid, const char *path);
/* Free bytes where that folder is, or will be, as far as they may look; below 0: not known. */
double np_free_bytes_as(uid_t uid, gid_t gid, const char *dir);
/* A FIFO of theirs, to read from without waiting; a descriptor, or -errno. */
int np_open_fifo_as(uid_t uid, gid_t gid, const char *path);

#endif
