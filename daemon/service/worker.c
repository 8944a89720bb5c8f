/* See worker.h. The daemon has one thread, so a child of fork() may do as it likes. */
#include "daemon/service/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/json.h"
#include "daemon/service/job.h"
#include "loader/base/mem.h"

#define MAX_EXIT_BYTES 4096

/* --- rights ----------------------------------------------------------------------------------- */

/* What the daemon may beyond a user is not passed on: from one user to another the kernel would keep it. */
static int lay_down_rights(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct had[2] = {0}, none[2] = {0};

    if (syscall(SYS_capget, &head, had) < 0)
        return -errno;
    if (memcmp(had, none, sizeof(had)) == 0)
        return 0;
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
                   syscall(SYS_capset, &head, none) < 0
               ? -errno
               : 0;
}

/* Theirs, not the daemon's: what lies below a home is looked for there. */
static void take_environment(const struct passwd *user)
{
    static const char *const own[] = {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "STATE_DIRECTORY", "NNPIPE_SOCKET"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        unsetenv(own[i]);
    setenv("HOME", user ? user->pw_dir : "/", 1);
    setenv("USER", user ? user->pw_name : "", 1);
    setenv("LOGNAME", user ? user->pw_name : "", 1);
}

/* Becomes the user, for good. Groups are the user's own; without a name, the one group. */
int np_become(uid_t uid, gid_t gid)
{
    const struct passwd *user;

    if (uid == geteuid())
        return uid == 0 ? 0 : lay_down_rights();
    user = getpwuid(uid);
    if ((user ? initgroups(user->pw_name, gid) : setgroups(1, &gid)) < 0 ||
        setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    take_environment(user);
    return uid == 0 ? 0 : lay_down_rights();
}

void np_child_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
}

static int send_fd(int socket, int fd, int code)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec io = {&code, sizeof(code)};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int receive_fd(int socket)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    int code = -EIO, fd;
    struct iovec io = {&code, sizeof(code)};
    struct msghdr message = {.msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    ssize_t nr;

    while ((nr = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    const struct cmsghdr *head = nr == (ssize_t)sizeof(code) ? CMSG_FIRSTHDR(&message) : NULL;
    if (!head || head->cmsg_type != SCM_RIGHTS)
        return code < 0 ? code : -EIO;
    memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    return fd;
}

int np_open_as(uid_t uid, gid_t gid, const char *path, int flags)
{
    int pair[2], fd;

    flags |= O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    if (uid == geteuid()) {
        fd = open(path, flags);
        return fd < 0 ? -errno : fd;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    const pid_t child = fork();
    if (child == 0) {
        int code = np_become(uid, gid);

        fd = code == 0 ? open(path, flags) : -1;
        if (code == 0 && fd < 0)
            code = -errno;
        _exit(send_fd(pair[1], fd, code) < 0);
    }
    const int failed = child < 0 ? -errno : 0;
    close(pair[1]);
    fd = child > 0 ? receive_fd(pair[0]) : failed;
    close(pair[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return fd;
}

/* --- starting --------------------------------------------------------------------------------- */

/* A text as a descriptor to read from. */
int np_text_fd(const char *text)
{
    const size_t bytes = strlen(text);
    const int fd = memfd_create("config", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (write(fd, text, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) < 0) {
        const int code = -errno;

        close(fd);
        return code;
    }
    return fd;
}

/* The job as a descriptor to read from, or -errno. */
static int job_fd(const struct np_worker_start *start)
{
    const struct np_job job = {.dir = start->dir,
        .device = start->device,
        .config = start->config,
        .attempt = start->attempt,
        .parent = getpid()};
    char *text = np_job_text(&job);
    const int fd = text ? np_text_fd(text) : -ENOMEM;

    np_free(text);
    return fd;
}

/* In the child; comes back only with an error. */
static int be_worker(const struct np_worker_start *start, int input_fd)
{
    const char *name = strrchr(start->dir, '/');
    const char *words[] = {"nnpipe", "worker", name ? name + 1 : start->dir, NULL};
    int code;

    setpgid(0, 0);
    np_child_signals();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if ((code = np_become(start->uid, start->gid)) < 0)
        return code;
    if (chdir("/") < 0 || dup2(input_fd, STDIN_FILENO) < 0)
        return -errno;
    execv("/proc/self/exe", (char *const *)words);
    return -errno;
}

int np_worker_start(
    const struct np_worker_start *start, struct np_worker *ret_worker, struct np_err *err)
{
    const int input_fd = job_fd(start);
    int failure[2], code = input_fd < 0 ? input_fd : 0;
    pid_t child = -1;

    if (code == 0 && pipe2(failure, O_CLOEXEC) < 0)
        code = -errno;
    if (code < 0) {
        if (input_fd >= 0)
            close(input_fd);
        return np_err_set(err, code, "a worker cannot be started: %s", strerror(-code));
    }
    child = fork();
    if (child == 0) {
        code = be_worker(start, input_fd);
        if (write(failure[1], &code, sizeof(code)) < 0)
            _exit(126);
        _exit(127);
    }
    code = child < 0 ? -errno : 0;
    close(failure[1]);
    close(input_fd);
    if (child > 0 && read(failure[0], &code, sizeof(code)) == (ssize_t)sizeof(code))
        waitpid(child, NULL, 0); /* exec failed */
    close(failure[0]);
    if (code == 0) {
        *ret_worker = (struct np_worker){
            .pid = child, .pid_fd = pidfd_open(child, 0), .report_fd = -1, .is_child = true};
        if (ret_worker->pid_fd < 0)
            code = -errno;
        if (code < 0)
            kill(-child, SIGKILL);
    }
    return code < 0 ? np_err_set(err, code, "a worker cannot be started: %s", strerror(-code)) : 0;
}

/* --- finding ---------------------------------------------------------------------------------- */

static int read_start(int fd, char *text, size_t bytes)
{
    size_t nr = 0;

    for (ssize_t got; nr < bytes - 1 && (got = read(fd, text + nr, bytes - 1 - nr)) > 0;)
        nr += (size_t)got;
    text[nr] = '\0';
    return (int)nr;
}

static bool is_held(int lock_fd)
{
    if (flock(lock_fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK;
    flock(lock_fd, LOCK_UN);
    return false;
}

static bool is_of(pid_t pid, uid_t uid)
{
    struct stat stat_;
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &stat_) == 0 && stat_.st_uid == uid;
}

int np_worker_find(
    uid_t uid, gid_t gid, const char *dir, struct np_worker *ret_worker, struct np_err *err)
{
    char *path = np_format("%s/lock", dir);
    const int lock_fd = path ? np_open_as(uid, gid, path, O_RDONLY) : -ENOMEM;
    char text[32] = "";
    int code = -ESRCH;

    np_free(path);
    if (lock_fd >= 0 && is_held(lock_fd) && read_start(lock_fd, text, sizeof(text)) > 0) {
        const pid_t pid = (pid_t)strtol(text, NULL, 10);
        const int pid_fd = pid > 1 ? pidfd_open(pid, 0) : -1;

        /* It still holds its lock, so the number was its own when the descriptor was made. */
        if (pid_fd >= 0 && is_held(lock_fd) && is_of(pid, uid)) {
            *ret_worker = (struct np_worker){.pid = pid, .pid_fd = pid_fd, .report_fd = -1};
            code = 0;
        } else if (pid_fd >= 0) {
            close(pid_fd);
        }
    }
    if (lock_fd >= 0)
        close(lock_fd);
    return code < 0 ? np_err_set(err, code, "%s: no process has this run", dir) : 0;
}

int np_worker_listen(struct np_worker *worker, uid_t uid, gid_t gid, const char *dir)
{
    struct stat stat_;
    char *path;

    if (worker->report_fd >= 0)
        return 0;
    path = np_format("%s/report", dir);
    const int fd = path ? np_open_as(uid, gid, path, O_RDONLY) : -ENOMEM;
    np_free(path);
    if (fd < 0)
        return -EAGAIN;
    if (fstat(fd, &stat_) < 0 || !S_ISFIFO(stat_.st_mode) || stat_.st_uid != uid) {
        close(fd);
        return -EAGAIN;
    }
    worker->report_fd = fd;
    return 0;
}

bool np_pid_fd_is_over(int pid_fd)
{
    struct pollfd poll_ = {pid_fd, POLLIN, 0};

    return poll(&poll_, 1, 0) > 0;
}

/* --- ending ----------------------------------------------------------------------------------- */

void np_worker_signal(const struct np_worker *worker, int number)
{
    /* Through the descriptor first: the number alone may be another's. */
    if (pidfd_send_signal(worker->pid_fd, 0, NULL, 0) < 0)
        return;
    if (number == SIGKILL)
        kill(-worker->pid, number);
    pidfd_send_signal(worker->pid_fd, number, NULL, 0);
}

static void read_exit(
    uid_t uid, gid_t gid, const char *dir, int64_t attempt, struct np_worker_exit *ret_exit)
{
    char *path = np_format("%s/exit.json", dir), text[MAX_EXIT_BYTES];
    const int fd = path ? np_open_as(uid, gid, path, O_RDONLY) : -1;
    const int bytes = fd >= 0 ? read_start(fd, text, sizeof(text)) : 0;
    struct np_node *node = NULL;
    struct np_err err = {0};

    np_free(path);
    if (fd >= 0)
        close(fd);
    if (bytes == 0 || np_json_parse(text, (size_t)bytes, &node, &err) < 0)
        return;
    if (np_node_number(node, "attempt", -1) == (double)attempt) {
        const struct np_node *reason = np_node_get(node, "reason");

        ret_exit->begun = true;
        ret_exit->code = (int)np_node_number(node, "code", -1);
        ret_exit->saved = np_node_is(np_node_get(node, "saved"), "true");
        ret_exit->disk_full = np_node_is(np_node_get(node, "disk_full"), "true");
        if (reason && reason->kind == NP_NODE_SCALAR)
            snprintf(ret_exit->reason, sizeof(ret_exit->reason), "%s", reason->text);
    }
    np_node_free(node);
}

void np_worker_end(struct np_worker *worker, uid_t uid, gid_t gid, const char *dir, int64_t attempt,
    struct np_worker_exit *ret_exit)
{
    int status = 0;

    *ret_exit = (struct np_worker_exit){.code = -1};
    if (worker->is_child) {
        kill(-worker->pid, SIGKILL); /* what it has left behind of its group */
        if (waitpid(worker->pid, &status, 0) == worker->pid && WIFSIGNALED(status))
            ret_exit->signal = WTERMSIG(status);
    }
    read_exit(uid, gid, dir, attempt, ret_exit);
    np_worker_forget(worker);
}

void np_worker_forget(struct np_worker *worker)
{
    if (worker->pid_fd >= 0)
        close(worker->pid_fd);
    if (worker->report_fd >= 0)
        close(worker->report_fd);
    *worker = (struct np_worker){.pid_fd = -1, .report_fd = -1};
}
