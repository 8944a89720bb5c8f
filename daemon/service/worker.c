/* The daemon has one thread, so a child of fork() may call any function. */
#include "daemon/service/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/service/as_user.h"
#include "daemon/service/child.h"
#include "daemon/service/environment.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MAX_JOB (8u << 20) /* bytes; a config has at most 1 MiB, before it is quoted */

/* --- starting --------------------------------------------------------------------------------- */

char *np_job_text(const struct np_worker_start *start, pid_t parent, struct np_err *err)
{
    const struct np_entry *entry = start->entry;
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_text(&json, "dir", entry->dir);
    np_json_text(&json, "device", entry->assigned);
    np_json_int(&json, "processes", np_entry_processes(entry));
    np_json_int(&json, "attempt", entry->attempt);
    np_json_int(&json, "parent", parent);
    np_json_int(&json, "umask", entry->umask);
    np_json_text(&json, "environment", start->environment);
    np_json_text(&json, "overrides", entry->overrides);
    np_json_text(&json, "config", start->config);
    return np_json_take(&json, err);
}

int np_job_read(const char *path, struct np_job *ret_job, struct np_err *err)
{
    struct np_job job = {0};
    char *text = NULL;
    uint64_t bytes;
    int code = np_read_file(path, MAX_JOB, &text, &bytes, err);

    if (code == 0)
        code = np_json_parse(text, bytes, &job.node, err);
    np_free(text);
    job.dir = np_node_text(job.node, "dir");
    job.device = np_node_text(job.node, "device");
    job.config = np_node_text(job.node, "config");
    job.environment = np_node_text(job.node, "environment");
    job.overrides = np_node_text(job.node, "overrides");
    job.processes = (int)np_node_number(job.node, "processes", 1);
    job.umask = (int)np_node_number(job.node, "umask", -1);
    job.attempt = (int64_t)np_node_number(job.node, "attempt", -1);
    job.parent = (pid_t)np_node_number(job.node, "parent", 0);
    *ret_job = job;
    if (code == 0 && (job.dir[0] != '/' || !*job.device || !*job.config || job.attempt < 0 ||
                         job.processes < 1 || job.processes > NP_MAX_GANG))
        code = np_err_set(err, -EBADMSG,
            "not a job: expected an object of dir (absolute), device, attempt and config");
    return code;
}

/* The job as a descriptor to read from, or -errno. */
static int job_fd(const struct np_worker_start *start)
{
    char *text = np_job_text(start, getpid(), NULL);
    const int fd = text ? np_text_fd(text) : -ENOMEM;

    np_free(text);
    return fd;
}

#define START_FD 3
#define GO       'g'

/* In the child; returns only on an error. Waits for GO, and ends if the daemon dies first. Looks up
 * the user here, because that may block. */
static int be_worker(const struct np_worker_start *start, int input_fd, int start_fd)
{
    const char *name = strrchr(start->entry->dir, '/');
    const char *words[] = {"nnpipe", "worker", name ? name + 1 : start->entry->dir, NULL};
    const int kept = fcntl(start_fd, F_DUPFD_CLOEXEC, START_FD + 1);
    char byte = 0;
    int code;

    setsid(); /* no access to the daemon's terminal */
    np_child_signals();
    const int outside = start->group_fd > 0 && write(start->group_fd, "0", 1) != 1 ? -errno : 0;
    if (kept < 0 || dup2(input_fd, STDIN_FILENO) < 0 || dup3(kept, START_FD, O_CLOEXEC) < 0 ||
        close_range(START_FD + 1, ~0u, 0) < 0)
        return -errno;
    if (read(START_FD, &byte, 1) != 1 || byte != GO)
        _exit(0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (outside)
        return outside;
    if ((code = np_become(start->entry->uid, start->entry->gid, start->entry->user)) < 0)
        return code;
    np_environment_reduce();
    if (chdir("/") < 0)
        return -errno;
    execv("/proc/self/exe", (char *const *)words);
    return -errno;
}

static int fork_worker(const struct np_worker_start *start, int input_fd, struct np_worker *worker)
{
    int fds[2], code;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return -errno;
    worker->pid = fork();
    if (worker->pid == 0) {
        fcntl(fds[1], F_SETFL, 0); /* the child may block, the service may not */
        code = be_worker(start, input_fd, fds[1]);
        _exit(send(START_FD, &code, sizeof(code), MSG_NOSIGNAL) < 0 ? 126 : 127);
    }
    code = worker->pid < 0 ? -errno : 0;
    close(fds[1]);
    worker->start_fd = fds[0];
    worker->is_child = true;
    if (code == 0 && (worker->pid_fd = pidfd_open(worker->pid, 0)) < 0)
        code = -errno;
    return code;
}

int np_worker_start(const struct np_worker_start *start, struct np_worker *ret_worker, char *text,
    size_t bytes, struct np_err *err)
{
    const int input_fd = job_fd(start);
    struct np_worker worker = NP_NO_WORKER;
    int code = input_fd < 0 ? input_fd : 0;

    if (code == 0)
        code = fork_worker(start, input_fd, &worker);
    if (input_fd >= 0)
        close(input_fd);
    if (code < 0) {
        np_worker_forget(&worker);
        return np_err_set(err, code, "cannot start a worker: %s", strerror(-code));
    }
    if (np_process_text(worker.pid, text, bytes) < 0)
        text[0] = '\0';
    *ret_worker = worker;
    return 0;
}

int np_worker_go(struct np_worker *worker)
{
    const char byte = GO;

    return send(worker->start_fd, &byte, 1, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

int np_worker_begun(struct np_worker *worker)
{
    int code = 0;

    if (worker->start_fd < 0)
        return 1;
    const ssize_t nr = recv(worker->start_fd, &code, sizeof(code), MSG_DONTWAIT);
    if (nr < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    close(worker->start_fd);
    worker->start_fd = -1;
    return nr == (ssize_t)sizeof(code) && code < 0 ? code : 1;
}

/* --- finding ---------------------------------------------------------------------------------- */

/* The 22nd field of /proc/PID/stat, after a name that may contain anything. */
static unsigned long long start_of(pid_t pid)
{
    char path[32], stat_[1024], *end = NULL;
    unsigned long long start = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    const size_t nr = file ? fread(stat_, 1, sizeof(stat_) - 1, file) : 0;
    if (file)
        fclose(file);
    stat_[nr] = '\0';
    end = strrchr(stat_, ')');
    if (!end || sscanf(end + 1,
                    " %*c" /* state */ " %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u"
                    " %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                    &start) != 1)
        return 0;
    return start;
}

static void read_boot(char boot[64])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (!file || fscanf(file, "%63s", boot) != 1)
        boot[0] = '\0';
    if (file)
        fclose(file);
}

int np_process_text(pid_t pid, char *text, size_t bytes)
{
    const unsigned long long start = start_of(pid);
    char boot[64];

    read_boot(boot);
    if (start == 0 || !*boot)
        return -ESRCH;
    snprintf(text, bytes, "%d %llu %s", (int)pid, start, boot);
    return 0;
}

int np_worker_find(const char *text, struct np_worker *ret_worker)
{
    char of[64], boot[64];
    int pid;

    read_boot(boot);
    if (sscanf(text, "%d %*u %63s", &pid, of) != 2 || pid < 2 || strcmp(of, boot) != 0)
        return -ESRCH;
    const int pid_fd = pidfd_open(pid, 0);
    if (pid_fd < 0)
        return -errno;
    *ret_worker = NP_NO_WORKER;
    ret_worker->pid = pid;
    ret_worker->pid_fd = pid_fd;
    return 0;
}

bool np_pid_fd_has_ended(int pid_fd)
{
    struct pollfd poll_ = {pid_fd, POLLIN, 0};

    return poll(&poll_, 1, 0) > 0;
}

/* --- ending ----------------------------------------------------------------------------------- */

void np_worker_signal(const struct np_worker *worker, int number)
{
    /* Checks the descriptor first: the PID may be another process's. */
    if (pidfd_send_signal(worker->pid_fd, 0, NULL, 0) < 0)
        return;
    if (number == SIGKILL && worker->is_parent) {
        pidfd_send_signal(worker->pid_fd, SIGQUIT, NULL, 0);
        pidfd_send_signal(worker->pid_fd, SIGCONT, NULL, 0);
        return;
    }
    if (number == SIGKILL && worker->is_child) /* not reaped, so the group is its own */
        kill(-worker->pid, number);
    pidfd_send_signal(worker->pid_fd, number, NULL, 0);
}

void np_worker_read_exit(const char *text, int64_t attempt, struct np_worker_exit *ret_exit)
{
    struct np_node *node = NULL;
    struct np_err err = {0};

    if (np_json_parse(text, strlen(text), &node, &err) < 0)
        return;
    if (np_node_number(node, "attempt", -1) == (double)attempt) {
        const struct np_node *reason = np_node_get(node, "reason");

        ret_exit->begun = true;
        ret_exit->code = (int)np_node_number(node, "code", -1);
        ret_exit->saved = np_node_is(np_node_get(node, "saved"), "true");
        ret_exit->disk_full = np_node_is(np_node_get(node, "disk_full"), "true");
        ret_exit->no_device = np_node_is(np_node_get(node, "no_device"), "true");
        ret_exit->device_failed = np_node_is(np_node_get(node, "device_failed"), "true");
        snprintf(ret_exit->device, sizeof(ret_exit->device), "%s", np_node_text(node, "device"));
        if (reason && reason->kind == NP_NODE_SCALAR)
            snprintf(ret_exit->reason, sizeof(ret_exit->reason), "%s", reason->text);
    }
    np_node_free(node);
}

void np_worker_reap(struct np_worker *worker, struct np_worker_exit *ret_exit)
{
    int status = 0;

    *ret_exit = (struct np_worker_exit){.code = -1, .status = -1};
    if (worker->is_child) {
        kill(-worker->pid, SIGKILL); /* the rest of its process group */
        if (waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
            ret_exit->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            ret_exit->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        worker->is_child = false;
    }
    np_worker_forget(worker);
}

void np_worker_forget(struct np_worker *worker)
{
    const bool is_waiting = worker->is_child && worker->start_fd >= 0 && worker->pid > 0;

    if (worker->pid_fd >= 0)
        close(worker->pid_fd);
    if (worker->report_fd >= 0)
        close(worker->report_fd);
    if (worker->start_fd >= 0)
        close(worker->start_fd);
    if (is_waiting)
        np_child_leave(worker->pid, geteuid());
    *worker = NP_NO_WORKER;
}
