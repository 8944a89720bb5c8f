/* A short-lived process of the service's: it does one thing with somebody's rights, and what it writes is gathered.
 * What may take long, or touches what is another's, is done in one, so that the service's one thread never waits for
 * it: a disk that hangs or a file system that is its owner's own program hangs the child alone. A child that cannot
 * even be killed (it waits for such a disk in the kernel) is left behind and reaped when it ends; a user with too many
 * of those gets no new ones. */
#ifndef NP_CHILD_H
#define NP_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"

/* In the child: the user's rights, their HOME, no descriptor but 0 to 2 (/dev/null) and out_fd. Its exit code. */
typedef int np_child_fn(const void *context, int out_fd);

struct np_child {
    pid_t pid; /* 0: none */
    int fd;    /* readable: it says something, or has ended */
    int epoll_fd;
    char *text;
    size_t used, room, most;
    uint64_t until_ns;
    uid_t uid;
    bool takes_fd;
    int passed_fd; /* that it has passed, the caller's to take and close; -1: none */
};
#define NP_NO_CHILD ((struct np_child){.fd = -1, .epoll_fd = -1, .passed_fd = -1})
/* epoll_fd: where its descriptor is waited for, as long as it lives. It has max_s seconds, and may say `most` bytes. */
struct np_child_start {
    uid_t uid;
    gid_t gid;
    np_child_fn *work;
    const void *context; /* read in the child alone: free at once */
    int epoll_fd;
    double max_s;
    size_t most;
    bool takes_fd; /* it may pass a descriptor: np_child_pass() */
};
/* -EBUSY: too many of the user's processes could not be ended and are still there. */
int np_child_start(
    const struct np_child_start *start, struct np_child *ret_child, struct np_err *err);
/* Takes what it says. 0: more is to come; 1: it has said all it will, or has died: text (used bytes, a NUL behind
 * them) is lent until np_child_stop(). -ETIMEDOUT, -EFBIG: it took too long, said too much; -errno. */
int np_child_turn(struct np_child *child);
/* Ends it, with all of its process group, and frees what it said. Its number where it has not ended yet, for
 * np_child_reap(), else 0. */
pid_t np_child_stop(struct np_child *child);
/* A child of ours that is about to end, or hangs: it is reaped when it has. */
void np_child_leave(pid_t pid, uid_t uid);
/* Reaps what has ended of all that were stopped or left. False: that one has not. */
bool np_child_reap(pid_t pid);
/* In the child: all of it, or -errno. */
int np_child_say(int out_fd, const void *bytes, size_t nr);
/* In the child: a byte, and a descriptor with it; 0 or -errno. */
int np_child_pass(int out_fd, char byte, int fd);

#endif
