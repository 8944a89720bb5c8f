#include "daemon/service/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define READ_BYTES 4096 /* min space for a read() */
#define OUT_FD     3
#define MAX_LEFT   1024 /* killed processes that have not ended, of all users */
#define MAX_OWN    32   /* of one user */

/* --- in the child ----------------------------------------------------------------------------- */

/* Closes all but 0 to 2 (/dev/null) and OUT_FD, the pipe. */
static int keep_only(int out_fd)
{
    const int null_fd = open("/dev/null", O_RDWR);
    const int out = fcntl(out_fd, F_DUPFD_CLOEXEC, OUT_FD + 1);

    if (null_fd < 0 || out < 0)
        return -errno;
    for (int fd = 0; fd < 3; fd++)
        if (null_fd != fd && dup2(null_fd, fd) < 0)
            return -errno;
    if (dup3(out, OUT_FD, O_CLOEXEC) < 0 || close_range(OUT_FD + 1, ~0u, 0) < 0)
        return -errno;
    return 0;
}

static int prepare(const struct np_child_start *start, int out_fd, pid_t parent)
{
    const rlim_t max_s = (rlim_t)start->max_s + 1;
    const struct rlimit seconds = {max_s, max_s}, none = {0, 0};
    int code;

    setsid(); /* own process group, no access to the daemon's terminal */
    np_child_signals();
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &none);
    if ((code = keep_only(out_fd)) < 0)
        return code;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if ((code = np_become(start->uid, start->gid, NULL)) < 0)
        return code;
    if (!start->keeps_environment)
        np_environment_reduce();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of the user, which resets it */
    return getppid() == parent ? 0 : -ESRCH;
}

union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int np_child_pass(int out_fd, char byte, int fd)
{
    union control control = {0};
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    return sendmsg(out_fd, &message, 0) < 0 ? -errno : 0;
}

int np_child_write(int out_fd, const void *bytes, size_t nr)
{
    const char *at = bytes;

    while (nr > 0) {
        const ssize_t n = write(out_fd, at, nr);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        nr -= (size_t)n;
    }
    return 0;
}

/* --- children that have not ended ------------------------------------------------------------- */

/* Global, because children belong to the whole process. */
static struct {
    pid_t pid;
    uid_t uid;
} left[MAX_LEFT];
static int nr_left;

bool np_child_reap(pid_t pid)
{
    bool is_left = false;

    for (int i = 0; i < nr_left;) {
        if (waitpid(left[i].pid, NULL, WNOHANG) != 0) {
            left[i] = left[--nr_left];
            continue;
        }
        is_left |= left[i].pid == pid;
        i++;
    }
    return !is_left;
}

/* np_child_start() keeps space in the list; without it a child stays unreaped. */
void np_child_leave(pid_t pid, uid_t uid)
{
    if (waitpid(pid, NULL, WNOHANG) == 0 && nr_left < MAX_LEFT) {
        left[nr_left].pid = pid;
        left[nr_left++].uid = uid;
    }
}

static bool has_too_many(uid_t uid)
{
    int own = 0;

    np_child_reap(0);
    for (int i = 0; i < nr_left; i++)
        own += left[i].uid == uid;
    return own >= MAX_OWN || nr_left >= MAX_LEFT / 2;
}

/* --- in the service --------------------------------------------------------------------------- */

/* fds: the service's end and the child's. */
static int fork_it(const struct np_child_start *start, int fds[2], struct np_child *child)
{
    const pid_t parent = getpid();
    struct epoll_event event = {.events = EPOLLIN};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
        shutdown(fds[0], SHUT_WR) < 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    if (start->epoll_fd >= 0 && epoll_ctl(start->epoll_fd, EPOLL_CTL_ADD, fds[0], &event) < 0)
        return -errno;
    child->pid = fork();
    if (child->pid == 0) {
        if (prepare(start, fds[1], parent) < 0)
            _exit(126);
        _exit(start->work(start->context, OUT_FD));
    }
    return child->pid < 0 ? -errno : 0;
}

int np_child_start(
    const struct np_child_start *start, struct np_child *ret_child, struct np_err *err)
{
    struct np_child child = {.epoll_fd = start->epoll_fd,
        .max_bytes = start->max_bytes,
        .until_ns = np_now_ns() + (uint64_t)(start->max_s * 1e9),
        .uid = start->uid,
        .takes_fd = start->takes_fd,
        .passed_fd = -1};
    int fds[2] = {-1, -1};
    const int code = has_too_many(start->uid) ? -EBUSY : fork_it(start, fds, &child);

    if (fds[1] >= 0)
        close(fds[1]);
    if (code < 0) {
        if (fds[0] >= 0)
            close(fds[0]);
        if (code == -EBUSY)
            return np_err_set(err, code,
                "cannot start a process: too many of this user's processes hang in storage");
        return np_err_set(err, code, "cannot start a process: %s", strerror(-code));
    }
    child.fd = fds[0];
    *ret_child = child;
    return 0;
}

static int grow(struct np_child *child)
{
    if (child->used + 1 < child->room)
        return 0;
    if (child->used >= child->max_bytes)
        return -EFBIG;
    return np_try_grow(&child->text, &child->room, child->used + READ_BYTES, 1, NULL);
}

/* As read(); also takes the descriptor that comes with the bytes, if child->takes_fd. */
static ssize_t receive(struct np_child *child, char *bytes, size_t room)
{
    union control control = {0};
    struct iovec io = {bytes, room};
    struct msghdr message = {.msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};

    if (!child->takes_fd || child->passed_fd >= 0)
        return read(child->fd, bytes, room);
    const ssize_t nr = recvmsg(child->fd, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = nr > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(&child->passed_fd, CMSG_DATA(head), sizeof(child->passed_fd));
    return nr;
}

static int take(struct np_child *child)
{
    for (;;) {
        const int code = grow(child);
        if (code < 0)
            return code;
        const ssize_t nr = receive(child, child->text + child->used, child->room - child->used - 1);

        if (nr < 0 && errno == EINTR)
            continue;
        if (nr < 0)
            return errno == EAGAIN ? 0 : -errno;
        if (nr == 0)
            return 1;
        child->used += (size_t)nr;
    }
}

int np_child_turn(struct np_child *child)
{
    const int code = take(child);

    if (code == 0 && np_now_ns() >= child->until_ns)
        return -ETIMEDOUT;
    if (code == 1)
        child->text[child->used] = '\0';
    return code;
}

pid_t np_child_stop(struct np_child *child)
{
    const pid_t pid = child->pid;

    if (pid == 0)
        return 0;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    np_child_leave(pid, child->uid);
    if (child->epoll_fd >= 0)
        epoll_ctl(child->epoll_fd, EPOLL_CTL_DEL, child->fd, NULL);
    close(child->fd);
    if (child->passed_fd >= 0)
        close(child->passed_fd);
    np_free(child->text);
    *child = NP_NO_CHILD;
    return np_child_reap(pid) ? 0 : pid;
}
