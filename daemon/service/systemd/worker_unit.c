/* Each errand has a connection of its own, so a restart of systemd needs no special code. */
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
#include <unistd.h>

#include "daemon/service/run_enter.h"
#include "daemon/service/systemd/dropin.h"
#include "daemon/service/systemd/systemd.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define UNIT      NP_SYSTEMD_UNIT
#define SERVICE   NP_SYSTEMD_SERVICE
#define POLL_US   2000 /* between two polls of a unit's state */
#define MAX_POLLS 1000

struct units {
    struct np_units base; /* first: callers have a pointer to it */
    char *runtime;        /* $XDG_RUNTIME_DIR */
    char *cache;          /* the loader's; NULL: no home */
    bool over_private;    /* by systemd's private socket: systemd is not on a bus */
};

struct unit { /* with a connection to systemd */
    const struct units *units;
    int64_t id;
    char name[64];
    struct sd_bus *bus;
    char *path;                          /* its D-Bus object, once loaded */
    const struct np_worker_start *start; /* for start() */
    struct np_worker *worker;            /* for start() */
};

/* of: "worker" or "ended". Always call close_unit() afterwards. */
static int open_unit(
    struct unit *unit, const struct np_units *units, const char *of, int64_t id, struct np_err *err)
{
    *unit = (struct unit){.units = (const struct units *)units, .id = id};
    snprintf(unit->name, sizeof(unit->name), "nnpipe-%s@%lld.service", of, (long long)id);
    return np_systemd_open(
        unit->units->over_private ? unit->units->runtime : NULL, &unit->bus, err);
}

static int load(struct unit *unit, struct np_err *err)
{
    return np_systemd_load(unit->bus, unit->name, &unit->path, err);
}

static void close_unit(struct unit *unit)
{
    np_free(unit->path);
    np_systemd_close(unit->bus);
}

/* --- files ------------------------------------------------------------------------------------ */

/* Mode 0600, because the contents are private. Not synced: a reboot may lose them. */
static int write_file(const char *path, const char *text, struct np_err *err)
{
    const mode_t before = umask(0077);
    const int code = np_make_parent(path, err);

    umask(before);
    return code < 0 ? code : np_write_file(path, text, strlen(text), NP_WRITE_PRIVATE, err);
}

/* The file of the unit's standard input: of is "jobs" or "ended". */
static char *input_path(const struct unit *unit, const char *of)
{
    return np_format("%s/nnpipe/%s/%lld", unit->units->runtime, of, (long long)unit->id);
}

static int write_input(
    const struct unit *unit, const char *of, const char *text, struct np_err *err)
{
    char *path = input_path(unit, of);
    const int code = write_file(path, text, err);

    np_free(path);
    return code;
}

static char *dropin_dir(const struct unit *unit)
{
    return np_format("%s/systemd/user/%s.d", unit->units->runtime, unit->name);
}

static bool is_text(const char *path, const char *text)
{
    char *there = NULL;
    uint64_t bytes;
    const bool same =
        np_read_file(path, 1 << 20, &there, &bytes, NULL) == 0 && strcmp(there, text) == 0;

    np_free(there);
    return same;
}

/* How processes of a run meet, in a network of their own; "": one process. NCCL lists its addresses, and hands
 * memory of GPUs over Unix sockets: those of other programs that would start one outside stay closed. */
static const char *meeting_of(const struct np_entry *entry)
{
    if (np_entry_processes(entry) < 2)
        return "";
    return strncmp(entry->assigned, "cuda", 4) == 0
               ? "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n"
                 "InaccessiblePaths=-/run/dbus -/run/docker.sock -/run/containerd -/run/podman\n"
                 "InaccessiblePaths=-%t/docker.sock -%t/podman -%t/nnpipe/socket\n"
                 "IPAddressAllow=localhost\n"
               : "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK\n"
                 "IPAddressAllow=localhost\n";
}

/* Writes the drop-in with limits (systemd.resource-control(5)), unless it is there already: systemd
 * would have to reload a newer file. */
static int write_dropin(struct unit *unit, struct np_err *err)
{
    const struct np_entry *entry = unit->start->entry;
    char *folder = dropin_dir(unit), *path = np_format("%s/run.conf", folder), *text = NULL;
    char memory[64] = "", cpus[64] = "";

    if (entry->memory_bytes > 0)
        snprintf(memory, sizeof(memory), "MemoryMax=%lld\n", (long long)entry->memory_bytes);
    if (entry->cpus > 0)
        snprintf(cpus, sizeof(cpus), "CPUQuota=%.0f%%\n", entry->cpus * 100);
    int code = np_dropin_text(entry->dir, unit->units->cache, unit->start->config, &text, err);
    char *whole =
        code == 0 ? np_try_format(err, "%s%s%s%s", text, memory, cpus, meeting_of(entry)) : NULL;
    if (code == 0 && !whole)
        code = -ENOMEM;
    if (code == 0 && !is_text(path, whole))
        code = write_file(path, whole, err);
    np_free(whole);
    np_free(text);
    np_free(path);
    np_free(folder);
    return code;
}

static int write_job(struct unit *unit, struct np_err *err)
{
    char *text = np_job_text(unit->start, 0, err);
    const int code = text ? write_input(unit, "jobs", text, err) : -ENOMEM;

    np_free(text);
    return code;
}

static void remove_files(const struct unit *unit)
{
    char *dropins = dropin_dir(unit), *dropin = np_format("%s/run.conf", dropins);
    char *job = input_path(unit, "jobs");

    unlink(job);
    unlink(dropin);
    rmdir(dropins);
    np_free(job);
    np_free(dropin);
    np_free(dropins);
}

/* --- starting and finding --------------------------------------------------------------------- */

static bool is_down(const char *state)
{
    return strcmp(state, "inactive") == 0 || strcmp(state, "failed") == 0;
}

static void read_state(const struct unit *unit, char state[32])
{
    np_systemd_text(unit->bus, unit->path, UNIT, "ActiveState", state, 32);
}

/* The PID is still the unit's after pidfd_open(), so the pidfd is of the right process. */
static bool take_process(const struct unit *unit, struct np_worker *ret_worker)
{
    const pid_t pid = (pid_t)np_systemd_number(unit->bus, unit->path, SERVICE, "MainPID", 'u');
    const int pid_fd = pid > 1 ? pidfd_open(pid, 0) : -1;

    if (pid_fd < 0)
        return false;
    if (np_systemd_number(unit->bus, unit->path, SERVICE, "MainPID", 'u') != pid) {
        close(pid_fd);
        return false;
    }
    *ret_worker = NP_NO_WORKER;
    ret_worker->pid = pid;
    ret_worker->pid_fd = pid_fd;
    return true;
}

/* The start of its last process; 0: none. systemd may keep this after the process's end. */
static int64_t started_at(const struct unit *unit)
{
    return np_systemd_number(
        unit->bus, unit->path, SERVICE, "ExecMainStartTimestampMonotonic", 't');
}

/* Waits for a process that did not start at `last`: while a job is queued, the state is still that
 * of the former process. A process that has ended already becomes a worker whose descriptor is
 * readable at once. */
static int await_process(
    const struct unit *unit, int64_t last, struct np_worker *ret_worker, struct np_err *err)
{
    char state[32];
    int64_t now;

    for (int i = 0; i < MAX_POLLS; i++, usleep(POLL_US)) {
        if (take_process(unit, ret_worker))
            return 0;
        read_state(unit, state);
        now = started_at(unit);
        if (is_down(state) && now && now != last) {
            const int over = eventfd(1, EFD_CLOEXEC);

            *ret_worker = NP_NO_WORKER;
            ret_worker->pid = INT_MAX;
            ret_worker->pid_fd = over;
            return over < 0 ? np_err_set(err, -errno, "%s: %s", unit->name, strerror(errno)) : 0;
        }
        if (strcmp(state, "failed") == 0)
            return np_err_set(err, -EIO,
                "systemd could not start %s: see `journalctl --user -u %s`", unit->name,
                unit->name);
    }
    return np_err_set(err, -ETIMEDOUT, "systemd: %s has no process yet", unit->name);
}

static int make_folders(struct unit *unit, struct np_err *err)
{
    const int code = np_folder_make(unit->start->entry->dir, unit->start->entry->attempt <= 1, err);

    return code == 0 && unit->units->cache ? np_make_dirs(unit->units->cache, err) : code;
}

static int load_anew(struct unit *unit, struct np_err *err)
{
    char *dropins = dropin_dir(unit);
    int code = load(unit, err);

    if (code == 0 && (!np_systemd_has_dropin(unit->bus, unit->path, dropins) ||
                         np_systemd_number(unit->bus, unit->path, UNIT, "NeedDaemonReload", 'b')))
        code = np_systemd_call(unit->bus, "Reload", NULL, NULL, err);
    np_free(dropins);
    return code;
}

static int start_process(struct unit *unit, struct np_err *err)
{
    char state[32];

    read_state(unit, state);
    if (!is_down(state))
        return np_err_set(err, -EBUSY, "systemd: %s is %s already", unit->name, state);
    np_systemd_call(unit->bus, "ResetFailedUnit", unit->name, NULL, NULL);
    const int64_t last = started_at(unit);
    const int code = np_systemd_call(unit->bus, "StartUnit", unit->name, "replace", err);
    return code < 0 ? code : await_process(unit, last, unit->worker, err);
}

static int start(const struct np_units *units, int64_t id, const struct np_worker_start *how,
    struct np_worker *ret_worker, struct np_err *err)
{
    static int (*const steps[])(struct unit *, struct np_err *) = {
        make_folders, write_dropin, write_job, load_anew, start_process};
    struct unit unit;
    int code = open_unit(&unit, units, "worker", id, err);

    unit.start = how;
    unit.worker = ret_worker;
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && code == 0; i++)
        code = steps[i](&unit, err);
    close_unit(&unit);
    return code;
}

static int find(
    const struct np_units *units, int64_t id, struct np_worker *ret_worker, struct np_err *err)
{
    char state[32];
    struct unit unit;
    int code = open_unit(&unit, units, "worker", id, err);

    if (code == 0)
        code = load(&unit, err);
    if (code == 0) {
        read_state(&unit, state);
        code = is_down(state) || !*state ? np_err_set(err, -ESRCH, "%s has no process", unit.name)
                                         : await_process(&unit, 0, ret_worker, err);
    }
    close_unit(&unit);
    return code;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* The step at which the start of a process failed: systemd.exec(5), "process exit codes". */
static const char *step_of(int64_t status)
{
    static const struct {
        int status;
        const char *text;
    } steps[] = {
        {203, "cannot run nnpipe"},
        {208, "cannot read the job"},
        {217, "cannot create a user namespace: does this machine allow users to have them?"},
        {218, "cannot drop its rights"},
        {226, "cannot create its view of the file system: does this machine allow users to have "
              "namespaces?"},
        {228, "cannot filter its system calls"},
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
        if (steps[i].status == status)
            return steps[i].text;
    return "cannot create its sandbox";
}

static void read_result(const struct unit *unit, struct np_worker_exit *exit)
{
    const int64_t how = np_systemd_number(unit->bus, unit->path, SERVICE, "ExecMainCode", 'i');
    const int64_t status = np_systemd_number(unit->bus, unit->path, SERVICE, "ExecMainStatus", 'i');
    char result[32];

    np_systemd_text(unit->bus, unit->path, SERVICE, "Result", result, sizeof(result));
    if (how == CLD_KILLED || how == CLD_DUMPED)
        exit->signal = (int)status;
    if (strcmp(result, "oom-kill") == 0)
        snprintf(exit->reason, sizeof(exit->reason), NP_WORKER_NO_MEMORY);
    else if (how == CLD_EXITED && status >= 200 && status < 250)
        snprintf(exit->reason, sizeof(exit->reason),
            "systemd could not start it: %s (status %lld; `journalctl --user -u %s`)",
            step_of(status), (long long)status, unit->name);
}

static void end(const struct np_units *units, int64_t id, struct np_worker_exit *exit)
{
    char state[32];
    struct unit unit;

    if (open_unit(&unit, units, "worker", id, NULL) == 0 && load(&unit, NULL) == 0) {
        /* systemd notices the end a little later than the service */
        for (int i = 0; i < MAX_POLLS; i++, usleep(POLL_US)) {
            read_state(&unit, state);
            if (is_down(state) || !*state)
                break;
        }
        if (exit->code < 0 && !exit->signal)
            read_result(&unit, exit);
        np_systemd_call(unit.bus, "ResetFailedUnit", unit.name, NULL, NULL);
    }
    remove_files(&unit);
    close_unit(&unit);
}

static int notify(const struct np_units *units, int64_t id, const char *text, struct np_err *err)
{
    struct unit unit;
    int code = open_unit(&unit, units, "ended", id, err);

    if (code == 0)
        code = write_input(&unit, "ended", text, err);
    if (code == 0)
        code = np_systemd_call(unit.bus, "StartUnit", unit.name, "replace", err);
    close_unit(&unit);
    return code;
}

/* --- open ------------------------------------------------------------------------------------- */

static int check_template(const struct units *units, struct np_err *err)
{
    char state[32] = "";
    struct unit unit;
    int code = open_unit(&unit, &units->base, "worker", 0, err);

    if (code == 0)
        code = load(&unit, err);
    if (code == 0) {
        np_systemd_text(unit.bus, unit.path, UNIT, "LoadState", state, sizeof(state));
        if (strcmp(state, "loaded") != 0)
            code = np_err_set(err, -ENOENT,
                "systemd does not know nnpipe-worker@.service (%s): install it, then `systemctl "
                "--user daemon-reload`",
                *state ? state : "no answer");
    }
    close_unit(&unit);
    return code;
}

int np_units_open(struct np_units **ret_units, struct np_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct np_err first = {0};

    if (!runtime || *runtime != '/')
        return np_err_set(err, -EHOSTDOWN,
            "XDG_RUNTIME_DIR is not set, so there is no user's systemd to start units");
    struct units *units = np_alloc(sizeof(*units));
    *units = (struct units){.base = {.start = start, .find = find, .end = end, .notify = notify},
        .runtime = np_strdup(runtime),
        .cache = np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe")};
    int code = check_template(units, &first);
    if (code < 0 && code != -ENOENT) {
        units->over_private = true;
        code = check_template(units, err);
    } else if (code < 0) {
        *err = first;
    }
    if (code < 0)
        np_units_close(&units->base);
    else
        *ret_units = &units->base;
    return code;
}

void np_units_close(struct np_units *base)
{
    struct units *units = (struct units *)base;

    if (!units)
        return;
    np_free(units->runtime);
    np_free(units->cache);
    np_free(units);
}
