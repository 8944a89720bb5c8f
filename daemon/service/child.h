/* Short-lived child processes. Work that may block or touches a user's files runs in a child with
 * that user's rights, and the service collects its output: the service's only thread never waits
 * for a hanging disk or a user's own FUSE file system. A child that cannot be killed (it waits for
 * storage in the kernel) is left behind and reaped when it ends; a user with too many of these
 * gets no new ones. */
#ifndef NP_CHILD_H
#define NP_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"

/* Runs in the child, with the user's rights and HOME; only descriptors 0 to 2 (/dev/null) and
 * out_fd are open. Returns the exit code. */
typedef int np_child_fn(const void *context, int out_fd);

struct np_child {
    pid_t pid; /* 0: none */
    int fd;    /* readable: it has written or ended */
    int epoll_fd;
    char *text;
    size_t used, room, max_bytes;
    uint64_t until_ns;
    uid_t uid;
    bool takes_fd;
    int passed_fd; /* received from it, for the caller to take and close; -1: none */
};
#define NP_NO_CHILD ((struct np_child){.fd = -1, .epoll_fd = -1, .passed_fd = -1})
struct np_child_start {
    uid_t uid;
    gid_t gid;
    np_child_fn *work;
    const void *context; /* read by the child only: may be freed after the call */
    int epoll_fd;        /* watches its output while it lives */
    double max_s;        /* time limit */
    size_t max_bytes;    /* of output */
    bool takes_fd;       /* it may pass a descriptor with np_child_pass() */
    bool
        keeps_environment; /* the child works for who started this process: no np_environment_reduce() */
};
/* -EBUSY: too many of the user's processes hang and cannot be killed; -errno of fork() and the
 * like. */
int np_child_start(
    const struct np_child_start *start, struct np_child *ret_child, struct np_err *err);
/* Reads the child's output without blocking. 0: it has not ended; 1: it has: text (used bytes and
 * a NUL) is borrowed until np_child_stop(). -ETIMEDOUT: max_s has passed; -EFBIG: more than
 * max_bytes; -ENOMEM; -errno. */
int np_child_turn(struct np_child *child);
/* Kills the child's process group and frees its output. Returns its PID, for np_child_reap(), if
 * it has not ended yet, else 0. */
pid_t np_child_stop(struct np_child *child);
/* Takes over a child that is about to end, or hangs, and reaps it later. */
void np_child_leave(pid_t pid, uid_t uid);
/* Reaps all stopped children that have ended. Returns false if pid has not. */
bool np_child_reap(pid_t pid);
/* In the child: writes all bytes; blocks. Returns 0 or -errno. */
int np_child_write(int out_fd, const void *bytes, size_t nr);
/* In the child: sends a byte and a descriptor. Returns 0 or -errno. */
int np_child_pass(int out_fd, char byte, int fd);

#endif
