/* See worker_unit.h. A connection for each errand: a systemd that was started again is no case of its own. */
#include "daemon/service/systemd/worker_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/service/run_enter.h"
#include "daemon/service/systemd/dropin.h"
#include "daemon/service/job.h"
#include "daemon/service/systemd/systemd.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define UNIT    NP_SYSTEMD_UNIT
#define SERVICE NP_SYSTEMD_SERVICE
#define LOOK_US 2000 /* between two looks at a unit */
#define LOOKS   1000

struct np_units {
    char *runtime;     /* $XDG_RUNTIME_DIR */
    char *cache;       /* the loader's; NULL: there is no home */
    bool over_private; /* systemd's own socket: there is no bus, or systemd is not on it */
};

static int join(const struct np_units *units, struct sd_bus **ret_bus, struct np_err *err)
{
    return np_systemd_open(units->over_private ? units->runtime : NULL, ret_bus, err);
}

/* --- open ------------------------------------------------------------------------------------- */

static void name_unit(char *unit, size_t bytes, const char *of, int64_t id)
{
    snprintf(unit, bytes, "nnpipe-%s@%lld.service", of, (long long)id);
}

static int look_for_template(struct np_units *units, struct np_err *err)
{
    char unit[64], state[32] = "", *path = NULL;
    struct sd_bus *bus = NULL;
    int code = join(units, &bus, err);

    name_unit(unit, sizeof(unit), "worker", 0);
    if (code == 0)
        code = np_systemd_load(bus, unit, &path, err);
    if (code == 0) {
        np_systemd_text(bus, path, UNIT, "LoadState", state, sizeof(state));
        if (strcmp(state, "loaded") != 0)
            code = np_err_set(err, -ENOENT,
                "systemd does not know nnpipe-worker@.service (%s): install it, then `systemctl "
                "--user daemon-reload`",
                *state ? state : "no answer");
    }
    free(path);
    np_systemd_close(bus);
    return code;
}

static char *cache_dir(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (cache && *cache == '/')
        return np_format("%s/nnpipe", cache);
    return home && *home == '/' ? np_format("%s/.cache/nnpipe", home) : NULL;
}

int np_units_open(struct np_units **ret_units, struct np_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct np_units *units = np_alloc(sizeof(*units));
    struct np_err first = {0};
    int code;

    if (!runtime || *runtime != '/') {
        np_free(units);
        return np_err_set(err, -EHOSTDOWN,
            "XDG_RUNTIME_DIR is not set: there is no systemd here "
            "that could start units");
    }
    if (units)
        *units = (struct np_units){.runtime = np_strdup(runtime), .cache = cache_dir()};
    if (!units || !units->runtime) {
        np_units_close(units);
        return np_err_set(err, -ENOMEM, "out of memory");
    }
    code = look_for_template(units, &first);
    if (code < 0 && code != -ENOENT) {
        units->over_private = true;
        code = look_for_template(units, err);
    } else if (code < 0) {
        *err = first;
    }
    if (code < 0)
        np_units_close(units);
    else
        *ret_units = units;
    return code;
}

void np_units_close(struct np_units *units)
{
    if (!units)
        return;
    np_free(units->runtime);
    np_free(units->cache);
    np_free(units);
}

/* --- files ------------------------------------------------------------------------------------ */

/* folder/name, 0600, as a whole or not at all. What it holds is not for others, and lost with a reboot. */
static int write_file(const char *folder, const char *name, const char *text, struct np_err *err)
{
    char *path = np_format("%s/%s", folder, name), *made = np_format("%s/.%s.new", folder, name);
    const mode_t before = umask(0077);
    int code = path && made ? np_make_dirs(folder, err) : np_err_set(err, -ENOMEM, "out of memory");
    const size_t bytes = strlen(text);

    umask(before);
    if (code == 0) {
        const int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes || rename(made, path) < 0)
            code = np_err_set(err, errno ? -errno : -EIO, "%s: cannot be written: %s", path,
                strerror(errno ? errno : EIO));
        if (fd >= 0)
            close(fd);
    }
    np_free(path);
    np_free(made);
    return code;
}

static char *work_dir(const struct np_units *units, const char *of)
{
    return np_format("%s/nnpipe/%s", units->runtime, of);
}

static char *dropin_dir(const struct np_units *units, const char *unit)
{
    return np_format("%s/systemd/user/%s.d", units->runtime, unit);
}

static bool is_text(const char *path, const char *text)
{
    struct np_err unread = {0};
    char *there = NULL;
    uint64_t bytes;
    const bool same =
        np_read_file(path, 1 << 20, &there, &bytes, &unread) == 0 && strcmp(there, text) == 0;

    np_free(there);
    return same;
}

/* systemd.resource-control(5); *text becomes another. */
static int add_limits(const struct np_worker_start *start, char **text, struct np_err *err)
{
    char memory[64] = "", cpus[64] = "";

    if (start->memory_bytes > 0)
        snprintf(memory, sizeof(memory), "MemoryMax=%lld\n", (long long)start->memory_bytes);
    if (start->cpus > 0)
        snprintf(cpus, sizeof(cpus), "CPUQuota=%.0f%%\n", start->cpus * 100);
    char *longer = np_format("%s%s%s", *text, memory, cpus);
    if (!longer)
        return np_err_set(err, -ENOMEM, "out of memory");
    np_free(*text);
    *text = longer;
    return 0;
}

/* The drop-in, unless it is there already: a file that is newer than what systemd has read means a reload. */
static int write_dropin(const struct np_units *units, const char *unit,
    const struct np_worker_start *start, struct np_err *err)
{
    char *folder = dropin_dir(units, unit), *text = NULL;
    char *path = folder ? np_format("%s/run.conf", folder) : NULL;
    int code = path ? np_dropin_text(start->dir, units->cache, start->config, &text, err)
                    : np_err_set(err, -ENOMEM, "out of memory");

    if (code == 0)
        code = add_limits(start, &text, err);
    if (code == 0 && !is_text(path, text))
        code = write_file(folder, "run.conf", text, err);
    np_free(text);
    np_free(path);
    np_free(folder);
    return code;
}

static int write_job(const struct np_units *units, int64_t id, const struct np_worker_start *start,
    struct np_err *err)
{
    const struct np_job job = {.dir = start->dir,
        .device = start->device,
        .config = start->config,
        .environment = start->environment,
        .overrides = start->overrides,
        .umask = start->umask,
        .attempt = start->attempt};
    char *folder = work_dir(units, "work"), *text = np_job_text(&job), name[32];
    int code;

    snprintf(name, sizeof(name), "%lld", (long long)id);
    code = folder && text ? write_file(folder, name, text, err)
                          : np_err_set(err, -ENOMEM, "out of memory");
    np_free(text);
    np_free(folder);
    return code;
}

static void remove_files(const struct np_units *units, int64_t id, const char *unit)
{
    char *dropins = dropin_dir(units, unit), *work = work_dir(units, "work");
    char *paths[] = {work ? np_format("%s/%lld", work, (long long)id) : NULL,
        dropins ? np_format("%s/run.conf", dropins) : NULL};

    for (int i = 0; i < 2; i++) {
        if (paths[i])
            unlink(paths[i]);
        np_free(paths[i]);
    }
    if (dropins)
        rmdir(dropins);
    np_free(dropins);
    np_free(work);
}

/* --- starting and finding --------------------------------------------------------------------- */

static void rest(void)
{
    const struct timespec time = {0, LOOK_US * 1000};

    nanosleep(&time, NULL);
}

static bool is_down(const char *state)
{
    return strcmp(state, "inactive") == 0 || strcmp(state, "failed") == 0;
}

/* The process as a worker. The number is the unit's still when the descriptor is there, so it is no other's. */
static bool take_process(struct sd_bus *bus, const char *path, struct np_worker *ret_worker)
{
    const pid_t pid = (pid_t)np_systemd_number(bus, path, SERVICE, "MainPID", 'u');
    const int pid_fd = pid > 1 ? pidfd_open(pid, 0) : -1;

    if (pid_fd < 0)
        return false;
    if (np_systemd_number(bus, path, SERVICE, "MainPID", 'u') != pid) {
        close(pid_fd);
        return false;
    }
    *ret_worker = (struct np_worker){.pid = pid, .pid_fd = pid_fd, .report_fd = -1, .start_fd = -1};
    return true;
}

/* When its last process began; 0: it had none. Systemd remembers that after its end, for as long as it likes. */
static int64_t began(struct sd_bus *bus, const char *path)
{
    return np_systemd_number(bus, path, SERVICE, "ExecMainStartTimestampMonotonic", 't');
}

/* Waits for its process, one that did not begin at `last`: a job that is queued leaves what was before to be read.
 * One that is gone already is a worker whose descriptor says at once that it is over. */
static int await_process(struct sd_bus *bus, const char *path, const char *unit, int64_t last,
    struct np_worker *ret_worker, struct np_err *err)
{
    char state[32];
    int64_t now;

    for (int i = 0; i < LOOKS; i++, rest()) {
        if (take_process(bus, path, ret_worker))
            return 0;
        np_systemd_text(bus, path, UNIT, "ActiveState", state, sizeof(state));
        now = began(bus, path);
        if (is_down(state) && now && now != last) {
            const int over = eventfd(1, EFD_CLOEXEC);

            *ret_worker =
                (struct np_worker){.pid = INT_MAX, .pid_fd = over, .report_fd = -1, .start_fd = -1};
            return over < 0 ? np_err_set(err, -errno, "%s: %s", unit, strerror(errno)) : 0;
        }
        if (strcmp(state, "failed") == 0)
            return np_err_set(
                err, -EIO, "systemd could not start %s: see `journalctl --user -u %s`", unit, unit);
    }
    return np_err_set(err, -ETIMEDOUT, "systemd: %s has no process yet", unit);
}

/* Loaded as its files are now. free() *ret_path. */
static int load_anew(const struct np_units *units, struct sd_bus *bus, const char *unit,
    char **ret_path, struct np_err *err)
{
    char *dropins = dropin_dir(units, unit);
    int code = dropins ? np_systemd_load(bus, unit, ret_path, err)
                       : np_err_set(err, -ENOMEM, "out of memory");

    if (code == 0 && (!np_systemd_has_dropin(bus, *ret_path, dropins) ||
                         np_systemd_number(bus, *ret_path, UNIT, "NeedDaemonReload", 'b')))
        code = np_systemd_reload(bus, err);
    np_free(dropins);
    return code;
}

int np_units_start(struct np_units *units, int64_t id, const struct np_worker_start *start,
    struct np_worker *ret_worker, struct np_err *err)
{
    char unit[64], state[32], *path = NULL;
    struct np_err none = {0};
    struct sd_bus *bus = NULL;
    int64_t last = 0;
    int code = join(units, &bus, err);

    name_unit(unit, sizeof(unit), "worker", id);
    if (code == 0)
        code = np_folder_make(start->dir, start->attempt <= 1, err);
    if (code == 0 && units->cache)
        code = np_make_dirs(units->cache, err);
    if (code == 0)
        code = write_dropin(units, unit, start, err);
    if (code == 0)
        code = write_job(units, id, start, err);
    if (code == 0)
        code = load_anew(units, bus, unit, &path, err);
    if (code == 0) {
        np_systemd_text(bus, path, UNIT, "ActiveState", state, sizeof(state));
        if (!is_down(state))
            code = np_err_set(err, -EBUSY, "systemd: %s is %s already", unit, state);
    }
    if (code == 0) {
        np_systemd_call(bus, "ResetFailedUnit", unit, NULL, &none);
        last = began(bus, path);
        code = np_systemd_call(bus, "StartUnit", unit, "replace", err);
    }
    if (code == 0)
        code = await_process(bus, path, unit, last, ret_worker, err);
    if (code == -ETIMEDOUT) /* it must not begin once the run is another try's */
        np_systemd_call(bus, "StopUnit", unit, "replace", &none);
    free(path);
    np_systemd_close(bus);
    return code;
}

int np_units_find(
    struct np_units *units, int64_t id, struct np_worker *ret_worker, struct np_err *err)
{
    char unit[64], state[32], *path = NULL;
    struct sd_bus *bus = NULL;
    int code = join(units, &bus, err);

    name_unit(unit, sizeof(unit), "worker", id);
    if (code == 0)
        code = np_systemd_load(bus, unit, &path, err);
    if (code == 0) {
        np_systemd_text(bus, path, UNIT, "ActiveState", state, sizeof(state));
        code = is_down(state) || !*state ? np_err_set(err, -ESRCH, "%s has no process", unit)
                                         : await_process(bus, path, unit, 0, ret_worker, err);
    }
    free(path);
    np_systemd_close(bus);
    return code;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Where a process that never came to nnpipe's own code was stopped: systemd.exec(5), "process exit codes". */
static const char *step_of(int64_t status)
{
    return status == 203   ? "nnpipe cannot be run"
           : status == 208 ? "the job cannot be read"
           : status == 218 ? "its rights cannot be dropped"
           : status == 226
               ? "its view of the file system cannot be made: does this machine let users "
                 "have namespaces?"
           : status == 228 ? "its system calls cannot be filtered"
           : status == 217
               ? "it cannot have a user namespace: does this machine let users have them?"
               : "its sandbox cannot be made";
}

static void read_result(
    struct sd_bus *bus, const char *path, const char *unit, struct np_worker_exit *exit)
{
    const int64_t how = np_systemd_number(bus, path, SERVICE, "ExecMainCode", 'i');
    const int64_t status = np_systemd_number(bus, path, SERVICE, "ExecMainStatus", 'i');
    char result[32];

    np_systemd_text(bus, path, SERVICE, "Result", result, sizeof(result));
    if (how == CLD_KILLED || how == CLD_DUMPED)
        exit->signal = (int)status;
    if (strcmp(result, "oom-kill") == 0)
        snprintf(exit->reason, sizeof(exit->reason), NP_UNITS_NO_MEMORY);
    else if (how == CLD_EXITED && status >= 200 && status < 250)
        snprintf(exit->reason, sizeof(exit->reason),
            "systemd could not start it: %s (status %lld; `journalctl --user -u %s`)",
            step_of(status), (long long)status, unit);
}

void np_units_end(struct np_units *units, int64_t id, struct np_worker_exit *exit)
{
    char unit[64], state[32], *path = NULL;
    struct np_err none = {0};
    struct sd_bus *bus = NULL;

    name_unit(unit, sizeof(unit), "worker", id);
    if (join(units, &bus, &none) == 0 && np_systemd_load(bus, unit, &path, &none) == 0) {
        for (int i = 0; i < LOOKS; i++, rest()) { /* systemd sees its end when we do, or soon */
            np_systemd_text(bus, path, UNIT, "ActiveState", state, sizeof(state));
            if (is_down(state) || !*state)
                break;
        }
        if (exit->code < 0 && !exit->signal)
            read_result(bus, path, unit, exit);
        np_systemd_call(bus, "ResetFailedUnit", unit, NULL, &none);
    }
    remove_files(units, id, unit);
    free(path);
    np_systemd_close(bus);
}

int np_units_tell_ended(struct np_units *units, int64_t id, const char *text, struct np_err *err)
{
    char unit[64], name[32], *folder = work_dir(units, "ended");
    struct sd_bus *bus = NULL;
    int code = join(units, &bus, err);

    snprintf(name, sizeof(name), "%lld", (long long)id);
    name_unit(unit, sizeof(unit), "ended", id);
    if (code == 0)
        code = folder ? write_file(folder, name, text, err)
                      : np_err_set(err, -ENOMEM, "out of memory");
    if (code == 0)
        code = np_systemd_call(bus, "StartUnit", unit, "replace", err);
    np_free(folder);
    np_systemd_close(bus);
    return code;
}
