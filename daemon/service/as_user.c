/* See as_user.h. The daemon has one thread, so a child of fork() may do as it likes. */
#include "daemon/service/as_user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/environment.h"

/* --- becoming the user ------------------------------------------------------------------------ */

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
    np_environment_reduce();
    setenv("SHELL", user ? user->pw_shell : "/bin/sh", 1);
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

/* --- what is done as the user ----------------------------------------------------------------- */

struct answer {
    int code; /* a number, or -errno */
    char text[NP_AS_MOST_BYTES];
};
/* *ret_fd: to be passed on, or -1. */
typedef void deed(const char *path, struct answer *ret_answer, int *ret_fd);

/* A file of a run's folder. What is not the user's own, or is reached by a link at the folder's name, is as if it
 * were not there: somebody else has put it in the folder's place. */
static int open_plain(const char *path)
{
    char dir[NP_AS_MOST_BYTES];
    const char *slash = strrchr(path, '/');
    struct stat stat_;

    if (!slash ||
        (size_t)snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path) >= sizeof(dir))
        return -ENAMETOOLONG;
    dir[slash > path ? slash - path : 1] = '\0';
    const int at = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int fd =
        at < 0 ? -1 : openat(at, slash + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const int code = fd < 0 ? -errno : fd;

    if (at >= 0)
        close(at);
    if (fd >= 0 && (fstat(fd, &stat_) < 0 || stat_.st_uid != geteuid() || stat_.st_nlink != 1)) {
        close(fd);
        return -ENOENT;
    }
    return code == -ELOOP || (at < 0 && code == -ENOTDIR) ? -ENOENT : code;
}

static int read_start(int fd, char text[NP_AS_MOST_BYTES])
{
    size_t nr = 0;
    ssize_t got = 0;

    while (nr < NP_AS_MOST_BYTES - 1 && (got = read(fd, text + nr, NP_AS_MOST_BYTES - 1 - nr)) > 0)
        nr += (size_t)got;
    text[nr] = '\0';
    return got < 0 ? -errno : (int)nr;
}

static void read_text(const char *path, struct answer *ret_answer, int *ret_fd)
{
    const int fd = open_plain(path);

    (void)ret_fd;
    ret_answer->code = fd < 0 ? fd : read_start(fd, ret_answer->text);
    if (fd >= 0)
        close(fd);
}

static bool is_held(int lock_fd)
{
    if (flock(lock_fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK;
    flock(lock_fd, LOCK_UN);
    return false;
}

static void find_holder(const char *path, struct answer *ret_answer, int *ret_fd)
{
    const int fd = open_plain(path);

    (void)ret_fd;
    ret_answer->code = fd == -EIO || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM ? fd : -ESRCH;
    if (fd >= 0 && is_held(fd) && read_start(fd, ret_answer->text) > 0) {
        const long pid = strtol(ret_answer->text, NULL, 10);

        ret_answer->code = pid > 1 && pid < (1 << 30) ? (int)pid : -ESRCH;
    }
    if (fd >= 0)
        close(fd);
}

static void find_room(const char *path, struct answer *ret_answer, int *ret_fd)
{
    char dir[NP_AS_MOST_BYTES], *slash;
    struct statvfs stat_;
    int code = strlen(path) < sizeof(dir) ? 0 : -ENAMETOOLONG;

    (void)ret_fd;
    strcpy(dir, code < 0 ? "" : path);
    while (code == 0 && statvfs(*dir ? dir : "/", &stat_) < 0) {
        slash = strrchr(dir, '/');
        code = slash ? 0 : -errno;
        if (slash)
            *slash = '\0';
    }
    ret_answer->code = code;
    if (code == 0)
        snprintf(ret_answer->text, sizeof(ret_answer->text), "%.0f",
            (double)stat_.f_bavail * (double)stat_.f_frsize);
}

static void open_fifo(const char *path, struct answer *ret_answer, int *ret_fd)
{
    const int fd = open_plain(path);
    struct stat stat_;

    ret_answer->code = fd < 0 ? fd : 0;
    if (fd >= 0 &&
        (fstat(fd, &stat_) < 0 || !S_ISFIFO(stat_.st_mode) || stat_.st_uid != geteuid())) {
        ret_answer->code = -EINVAL;
        close(fd);
        return;
    }
    *ret_fd = fd;
}

/* --- in another process ----------------------------------------------------------------------- */

union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int send_answer(int socket, const struct answer *answer, int fd)
{
    union control control = {0};
    struct iovec io = {(void *)answer, sizeof(*answer)};
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

static void receive_answer(int socket, struct answer *ret_answer, int *ret_fd)
{
    struct pollfd ready = {socket, POLLIN, 0};
    union control control;
    struct iovec io = {ret_answer, sizeof(*ret_answer)};
    struct msghdr message = {.msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};

    if (poll(&ready, 1, NP_AS_MOST_S * 1000) <= 0) {
        ret_answer->code = -ETIMEDOUT;
        return;
    }
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof(*ret_answer)) {
        ret_answer->code = -EIO;
        return;
    }
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(head), sizeof(*ret_fd));
    ret_answer->text[NP_AS_MOST_BYTES - 1] = '\0';
}

/* In the child's child, which is init's: it hangs, where it does, without anybody. */
static void do_it(uid_t uid, gid_t gid, deed *what, const char *path, int socket)
{
    struct answer answer = {0};
    int fd = -1;

    np_child_signals();
    alarm(2 * NP_AS_MOST_S);
    if (dup2(socket, 0) < 0 || close_range(1, ~0u, 0) < 0)
        _exit(1);
    answer.code = np_become(uid, gid);
    if (answer.code == 0)
        what(path, &answer, &fd);
    _exit(send_answer(0, &answer, fd) < 0);
}

static void ask_as(
    uid_t uid, gid_t gid, deed *what, const char *path, struct answer *ret_answer, int *ret_fd)
{
    int pair[2];

    *ret_fd = -1;
    *ret_answer = (struct answer){0};
    if (uid == geteuid()) {
        what(path, ret_answer, ret_fd);
        return;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        ret_answer->code = -errno;
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        if (fork() == 0)
            do_it(uid, gid, what, path, pair[1]);
        _exit(0);
    }
    ret_answer->code = child < 0 ? -errno : 0;
    close(pair[1]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    if (child > 0)
        receive_answer(pair[0], ret_answer, ret_fd);
    close(pair[0]);
}

int np_read_as(uid_t uid, gid_t gid, const char *path, char ret_text[NP_AS_MOST_BYTES])
{
    struct answer answer;
    int none;

    ask_as(uid, gid, read_text, path, &answer, &none);
    memcpy(ret_text, answer.text, NP_AS_MOST_BYTES);
    return answer.code;
}

pid_t np_holder_as(uid_t uid, gid_t gid, const char *path)
{
    struct answer answer;
    int none;

    ask_as(uid, gid, find_holder, path, &answer, &none);
    return answer.code;
}

double np_free_bytes_as(uid_t uid, gid_t gid, const char *dir)
{
    struct answer answer;
    int none;

    ask_as(uid, gid, find_room, dir, &answer, &none);
    return answer.code < 0 ? answer.code : strtod(answer.text, NULL);
}

int np_open_fifo_as(uid_t uid, gid_t gid, const char *path)
{
    struct answer answer;
    int fd;

    ask_as(uid, gid, open_fifo, path, &answer, &fd);
    return answer.code < 0 ? answer.code : fd;
}
