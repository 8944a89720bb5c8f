/* A child writes "CODE NUMBER\n" and a text; a descriptor comes with the first byte. */
#include "daemon/service/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_TEXT      4096
#define MAX_BYTES     (MAX_TEXT + 64)
#define MAX_S         10.0 /* time limit of an errand */
#define MAX_UNIT_S    60.0 /* of an errand that asks systemd */
#define MAX_PUT_OFF_S 15.0

/* --- in the child ----------------------------------------------------------------------------- */

struct answer {
    int code;
    double number;
    int fd; /* -1: none */
    char text[MAX_TEXT];
};

/* Opens a file of a run's folder. A folder that is a link, or a file of another user or type,
 * counts as missing: another user may have put it there, and a read could block. */
static int open_item(const char *dir, const char *name, mode_t type)
{
    const int at = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const int code = fd < 0 ? -errno : 0;
    struct stat stat_;

    if (at >= 0)
        close(at);
    if (fd < 0)
        return code == -ELOOP || code == -ENXIO || code == -ENOTDIR ? -ENOENT : code;
    if (fstat(fd, &stat_) < 0 || stat_.st_uid != geteuid() || stat_.st_nlink != 1 ||
        (stat_.st_mode & S_IFMT) != type) {
        close(fd);
        return -ENOENT;
    }
    return fd;
}

static int read_start(int fd, char text[MAX_TEXT])
{
    size_t nr = 0;
    ssize_t got = 0;

    while (nr < MAX_TEXT - 1 && (got = read(fd, text + nr, MAX_TEXT - 1 - nr)) > 0)
        nr += (size_t)got;
    text[nr] = '\0';
    return got < 0 ? -errno : 0;
}

static void find_room(const char *path, struct answer *answer)
{
    char *dir = np_strdup(path), *slash = dir;
    struct statvfs stat_;
    int code = -ENOENT;

    while ((code == -ENOENT || code == -ENOTDIR) && slash) {
        code = statvfs(*dir ? dir : "/", &stat_) < 0 ? -errno : 0;
        slash = strrchr(dir, '/');
        if (slash && code < 0)
            *slash = '\0';
    }
    answer->code = code;
    if (code == 0 && stat_.f_files > 0 && stat_.f_favail == 0)
        answer->code = -ENOSPC; /* bytes are free, but no inode is */
    else if (code == 0)
        answer->number = (double)stat_.f_bavail * (double)stat_.f_frsize;
    np_free(dir);
}

static void open_pipe(const char *dir, struct answer *answer)
{
    const int fd = open_item(dir, "report", S_IFIFO);

    answer->code = fd < 0 ? fd : 0;
    answer->fd = fd; /* the service checks that it is a pipe */
}

static void read_exit(const char *dir, struct answer *answer)
{
    const int fd = open_item(dir, "exit.json", S_IFREG);

    answer->code = fd < 0 ? fd : read_start(fd, answer->text);
}

static void name_process(pid_t pid, struct answer *answer)
{
    answer->code = np_process_text(pid, answer->text, sizeof(answer->text));
}

/* Only a missing or unlocked file proves that there is no process. */
static void find_holder(const char *dir, struct answer *answer)
{
    const int fd = open_item(dir, "lock", S_IFREG);
    char text[MAX_TEXT];
    int64_t pid;

    if (fd < 0) {
        answer->code = fd == -ENOENT ? -ESRCH : fd;
        return;
    }
    if (flock(fd, LOCK_SH | LOCK_NB) == 0)
        answer->code = -ESRCH;
    else if (errno != EWOULDBLOCK || (answer->code = read_start(fd, text)) < 0)
        answer->code = -errno;
    else if (np_text_int_end(text, &pid) && pid > 1)
        name_process((pid_t)pid, answer);
    else
        answer->code = -EAGAIN; /* the holder is about to write its PID */
    if (answer->code == -ESRCH && flock(fd, LOCK_SH | LOCK_NB) < 0)
        answer->code = -EAGAIN; /* held by a process that is hidden or has just started */
}

static void take_process(int code, struct np_worker *worker, struct answer *answer)
{
    answer->code = code;
    if (code == 0)
        answer->code = np_pid_fd_has_ended(worker->pid_fd)
                           ? -ECHILD
                           : np_process_text(worker->pid, answer->text, sizeof(answer->text));
    if (answer->code == -ESRCH && code == 0)
        answer->code = -ECHILD;
}

static void ask_systemd(const struct np_errand_request *request, struct answer *answer)
{
    struct np_worker worker = NP_NO_WORKER;
    struct np_err err = {0};

    if (request->kind == NP_ERRAND_UNIT_END) {
        struct np_worker_exit left = *request->exit;

        request->units->end(request->units, request->id, &left);
        answer->number = left.signal;
        snprintf(answer->text, sizeof(answer->text), "%s", left.reason);
        return;
    }
    take_process(
        request->kind == NP_ERRAND_UNIT_START
            ? request->units->start(request->units, request->id, request->start, &worker, &err)
            : request->units->find(request->units, request->id, &worker, &err),
        &worker, answer);
    if (err.code)
        snprintf(answer->text, sizeof(answer->text), "%s", err.text);
}

static int go(const void *context, int out_fd)
{
    const struct np_errand_request *request = context;
    struct answer answer = {.fd = -1};
    char all[MAX_BYTES];

    switch (request->kind) {
    case NP_ERRAND_ROOM: find_room(request->dir, &answer); break;
    case NP_ERRAND_PIPE: open_pipe(request->dir, &answer); break;
    case NP_ERRAND_EXIT: read_exit(request->dir, &answer); break;
    case NP_ERRAND_HOLDER: find_holder(request->dir, &answer); break;
    case NP_ERRAND_PROCESS: name_process(request->pid, &answer); break;
    default: ask_systemd(request, &answer);
    }
    if (answer.fd >= 0 && np_child_pass(out_fd, ' ', answer.fd) < 0)
        return 1;
    snprintf(all, sizeof(all), "%d %.0f\n%s", answer.code, answer.number, answer.text);
    return np_child_write(out_fd, all, strlen(all)) < 0;
}

/* --- in the service --------------------------------------------------------------------------- */

int np_errand_begin(struct np_errand *errand, const struct np_errand_request *request, int epoll_fd,
    struct np_err *err)
{
    const bool of_unit = request->kind >= NP_ERRAND_UNIT_START;
    const struct np_child_start start = {.uid = of_unit ? geteuid() : request->uid,
        .gid = of_unit ? getegid() : request->gid,
        .work = go,
        .context = request,
        .epoll_fd = epoll_fd,
        .max_s = of_unit ? MAX_UNIT_S : MAX_S,
        .max_bytes = MAX_BYTES,
        .takes_fd = request->kind == NP_ERRAND_PIPE};

    errand->kind = request->kind;
    return np_child_start(&start, &errand->child, err);
}

/* The child is untrusted. Asks the descriptor only: an open() could block. */
static bool is_pipe(int fd)
{
    return fcntl(fd, F_GETPIPE_SZ) > 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK);
}

bool np_errand_turn(struct np_errand *errand, struct np_errand_answer *ret_answer)
{
    struct np_child *child = &errand->child;
    const int code = np_child_turn(child);
    struct np_errand_answer answer = {.fd = -1};
    int used = 0;

    *ret_answer = (struct np_errand_answer){.code = code == -ETIMEDOUT ? code : -EIO, .fd = -1};
    if (code == 0)
        return false;
    if (code < 0 || sscanf(child->text, "%d %lf%n", &answer.code, &answer.number, &used) != 2 ||
        child->text[used] != '\n' || answer.code > 0)
        return true;
    answer.text = child->text + used + 1;
    if (child->passed_fd >= 0 && is_pipe(child->passed_fd)) {
        answer.fd = child->passed_fd;
        child->passed_fd = -1;
    }
    if (errand->kind == NP_ERRAND_PIPE && answer.code == 0 && answer.fd < 0)
        answer.code = -EINVAL;
    *ret_answer = answer;
    return true;
}

void np_errand_end(struct np_errand *errand, bool failed, double now)
{
    double wait = 1;

    errand->left = np_child_stop(&errand->child);
    errand->failures = failed ? errand->failures + 1 : 0;
    for (int i = 1; i < errand->failures && wait < MAX_PUT_OFF_S; i++)
        wait *= 2;
    errand->next = failed ? now + (wait < MAX_PUT_OFF_S ? wait : MAX_PUT_OFF_S) : 0;
}

bool np_errand_may(struct np_errand *errand, double now)
{
    if (errand->child.pid > 0)
        return false;
    if (errand->left > 0) {
        if (!np_child_reap(errand->left))
            return false;
        errand->left = 0;
        errand->next = 0; /* the storage has answered */
    }
    return now >= errand->next;
}
