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
#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"
#include "daemon/service/job.h"
#include "loader/base/mem.h"

/* --- starting --------------------------------------------------------------------------------- */

/* The job as a descriptor to read from, or -errno. */
static int job_fd(const struct np_worker_start *start)
{
    const struct np_job job = {.dir = start->dir,
        .device = start->device,
        .config = start->config,
        .environment = start->environment,
        .umask = start->umask,
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

    setsid(); /* without a way to the daemon's terminal */
    np_child_signals();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if ((code = np_become(start->uid, start->gid)) < 0)
        return code;
    np_environment_reduce();
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
        const int pid_fd = pidfd_open(child, 0);

        if (pid_fd < 0) {
            code = -errno;
            kill(-child, SIGKILL);
            waitpid(child, NULL, 0);
        } else {
            *ret_worker = (struct np_worker){
                .pid = child, .pid_fd = pid_fd, .report_fd = -1, .is_child = true};
        }
    }
    return code < 0 ? np_err_set(err, code, "a worker cannot be started: %s", strerror(-code)) : 0;
}

/* --- finding ---------------------------------------------------------------------------------- */

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
    const pid_t pid = path ? np_holder_as(uid, gid, path) : -ENOMEM;
    const int pid_fd = pid > 1 ? pidfd_open(pid, 0) : -1;
    int code = pid < 0 ? pid : -EAGAIN;

    /* It still holds its lock, so the number was its own when the descriptor was made. */
    if (pid_fd >= 0 && np_holder_as(uid, gid, path) == pid && is_of(pid, uid)) {
        *ret_worker = (struct np_worker){.pid = pid, .pid_fd = pid_fd, .report_fd = -1};
        code = 0;
    } else if (pid_fd >= 0) {
        close(pid_fd);
    }
    np_free(path);
    return code < 0 ? np_err_set(err, code, "%s: no process is found that has this run", dir) : 0;
}

int np_worker_listen(struct np_worker *worker, uid_t uid, gid_t gid, const char *dir)
{
    if (worker->report_fd >= 0)
        return 0;
    char *path = np_format("%s/report", dir);
    const int fd = path ? np_open_fifo_as(uid, gid, path) : -ENOMEM;

    np_free(path);
    if (fd < 0)
        return -EAGAIN;
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
    char *path = np_format("%s/exit.json", dir), text[NP_AS_MOST_BYTES];
    const int bytes = path ? np_read_as(uid, gid, path, text) : -ENOMEM;
    struct np_node *node = NULL;
    struct np_err err = {0};

    np_free(path);
    if (bytes <= 0 || np_json_parse(text, (size_t)bytes, &node, &err) < 0)
        return;
    if (np_node_number(node, "attempt", -1) == (double)attempt) {
        const struct np_node *reason = np_node_get(node, "reason");

        ret_exit->begun = true;
        ret_exit->code = (int)np_node_number(node, "code", -1);
        ret_exit->saved = np_node_is(np_node_get(node, "saved"), "true");
        ret_exit->disk_full = np_node_is(np_node_get(node, "disk_full"), "true");
        ret_exit->no_device = np_node_is(np_node_get(node, "no_device"), "true");
        ret_exit->device_failed = np_node_is(np_node_get(node, "device_failed"), "true");
        if (reason && reason->kind == NP_NODE_SCALAR)
            snprintf(ret_exit->reason, sizeof(ret_exit->reason), "%s", reason->text);
    }
    np_node_free(node);
}

void np_worker_end(struct np_worker *worker, uid_t uid, gid_t gid, const char *dir, int64_t attempt,
    struct np_worker_exit *ret_exit)
{
    int status = 0;

    *ret_exit = (struct np_worker_exit){.code = -1, .status = -1};
    if (worker->is_child) {
        kill(-worker->pid, SIGKILL); /* what it has left behind of its group */
        if (waitpid(worker->pid, &status, 0) == worker->pid) {
            ret_exit->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            ret_exit->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
    }
    if (ret_exit->status != NP_WORKER_TAKEN && ret_exit->status != NP_WORKER_UNSAFE)
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
