/* See child.h. */
#include "daemon/service/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/as_user.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define FIRST_ROOM 4096
#define OUT_FD     3

/* --- in the child ----------------------------------------------------------------------------- */

/* 0 to 2 are /dev/null, 3 is the pipe, and there is no other. */
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
    const rlim_t most_s = (rlim_t)start->most_s + 1;
    const struct rlimit seconds = {most_s, most_s}, none = {0, 0};
    int code;

    setsid(); /* a group of its own, without a way to the daemon's terminal */
    np_child_signals();
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &none);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    if ((code = keep_only(out_fd)) < 0)
        return code;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if ((code = np_become(start->uid, start->gid)) < 0)
        return code;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* behind the change of the user, which undoes it */
    return getppid() == parent ? 0 : -ESRCH;
}

int np_child_say(int out_fd, const void *bytes, size_t nr)
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

/* --- in the service --------------------------------------------------------------------------- */

static int fork_it(const struct np_child_start *start, int pipe_fds[2], struct np_child *child)
{
    const pid_t parent = getpid();
    struct epoll_event event = {.events = EPOLLIN};

    if (pipe2(pipe_fds, O_CLOEXEC) < 0 || fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    if (start->epoll_fd >= 0 && epoll_ctl(start->epoll_fd, EPOLL_CTL_ADD, pipe_fds[0], &event) < 0)
        return -errno;
    child->pid = fork();
    if (child->pid == 0) {
        if (prepare(start, pipe_fds[1], parent) < 0)
            _exit(126);
        _exit(start->work(start->context, OUT_FD));
    }
    return child->pid < 0 ? -errno : 0;
}

int np_child_start(
    const struct np_child_start *start, struct np_child *ret_child, struct np_err *err)
{
    struct np_child child = {.epoll_fd = start->epoll_fd,
        .most = start->most,
        .room = FIRST_ROOM,
        .text = np_alloc(FIRST_ROOM),
        .until_ns = np_now_ns() + (uint64_t)(start->most_s * 1e9)};
    int fds[2] = {-1, -1};
    const int code = child.text ? fork_it(start, fds, &child) : -ENOMEM;

    if (fds[1] >= 0)
        close(fds[1]);
    if (code < 0) {
        if (fds[0] >= 0)
            close(fds[0]);
        np_free(child.text);
        return np_err_set(err, code, "no process can be started: %s", strerror(-code));
    }
    child.fd = fds[0];
    *ret_child = child;
    return 0;
}

/* Room for one byte more and a NUL. */
static int grow(struct np_child *child)
{
    const size_t room = 4 * child->room;
    char *text;

    if (child->used + 1 < child->room)
        return 0;
    if (child->used >= child->most)
        return -EFBIG;
    if (!(text = np_alloc(room)))
        return -ENOMEM;
    memcpy(text, child->text, child->used);
    np_free(child->text);
    child->text = text;
    child->room = room;
    return 0;
}

static int take(struct np_child *child)
{
    for (;;) {
        const int code = grow(child);
        if (code < 0)
            return code;
        const ssize_t nr =
            read(child->fd, child->text + child->used, child->room - child->used - 1);

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
    pid_t left = child->pid;

    if (left == 0)
        return 0;
    kill(-left, SIGKILL);
    kill(left, SIGKILL);
    if (child->epoll_fd >= 0)
        epoll_ctl(child->epoll_fd, EPOLL_CTL_DEL, child->fd, NULL);
    close(child->fd);
    np_free(child->text);
    *child = (struct np_child){.fd = -1, .epoll_fd = -1};
    return np_child_reap(left) ? 0 : left;
}

bool np_child_reap(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) != 0;
}
