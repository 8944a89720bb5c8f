#include "daemon/service/service_life.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/service/decide.h"
#include "daemon/service/devices.h"
#include "daemon/service/service_errands.h"
#include "daemon/service/service_limits.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

#define LISTEN_S  0.2  /* between two reads of a report */
#define START_S   60.0 /* time for a worker to become its user */
#define MAX_READS 16   /* of a pipe at a time, so that others get their turn */

#define MAX_HOLD_S 5.0  /* max delay of all starts after a failed fork() */
#define KILLED_S   10.0 /* from SIGKILL until the run's reason names the process */
#define UNKILLABLE "does not end though it was killed"

/* The process waits until it is recorded, and ends if that fails: each process that trains is in
 * the file. */
static int start_child(
    struct np_service *service, struct np_service_run *run, struct np_entry *to, struct np_err *err)
{
    char *config = NULL, *environment = NULL;
    struct np_worker worker = NP_NO_WORKER;
    struct np_err why = {0};
    int group_fd = 0, code;
    int begun = np_queue_text(service->queue, to->id, &config, &environment, &why);
    if (begun == 0)
        begun = np_service_enter_group(service, to, &group_fd, &why);
    const struct np_worker_start start = {
        .entry = to, .config = config, .environment = environment, .group_fd = group_fd};

    if (begun == 0)
        begun = np_worker_start(&start, &worker, to->process, sizeof(to->process), &why);
    if (group_fd > 0)
        close(group_fd);
    np_free(config);
    np_free(environment);
    if ((code = np_book_commit(service, run, to, err)) < 0) {
        np_worker_forget(&worker);
        return code;
    }
    if (begun == 0 && np_worker_go(&worker) == 0)
        np_book_take_worker(service, run, &worker);
    else
        np_book_unstarted(run, why.text);
    return 0;
}

int np_service_begin(
    struct np_service *service, struct np_service_run *run, uint64_t devices, struct np_err *err)
{
    int code = np_service_await_room(service, run, err);

    if (code != 0)
        return code < 0 ? code : 0;
    struct np_entry to = run->entry;
    to.state = NP_ENTRY_RUNNING;
    to.attempt++;
    to.started = np_book_now();
    to.exit_code = -1;
    to.lived_s = to.reserves = 0;
    to.reason[0] = to.process[0] = '\0';
    np_devices_text(service, devices, ",", to.assigned, sizeof(to.assigned));
    if (!*to.kind)
        snprintf(to.kind, sizeof(to.kind), "%s", np_dispatch_kind(to.assigned));
    np_book_new_worker(run);
    if (!service->start.units)
        return start_child(service, run, &to, err);
    if ((code = np_book_commit(service, run, &to, err)) < 0)
        return code;
    run->starting = true;
    return 0;
}

/* line: {"doing": "training", "step": 12, ...}; a missing field is unchanged. */
static void take_report(struct np_service *service, struct np_service_run *run, const char *line)
{
    struct np_progress *p = &run->progress;
    struct np_node *node = NULL;
    char doing[sizeof(p->doing)];

    if (np_json_parse(line, strlen(line), &node, NULL) < 0 || node->kind != NP_NODE_MAP) {
        np_node_free(node);
        return;
    }
    memcpy(doing, p->doing, sizeof(doing));
    np_progress_read(node, p);
    p->said = np_book_now();
    const double at = np_node_number(node, "progress", run->at); /* batches of any kind done */
    if (at > run->at || strcmp(doing, p->doing) != 0)
        run->progressed = np_book_ticks();
    run->at = at;
    service->version++;
    np_node_free(node);
}

/* Takes the last whole line only, because each is complete, and a few times a second: a worker that
 * writes a lot costs little. */
static void read_report(struct np_service *service, struct np_service_run *run)
{
    const double now = np_book_ticks();
    char bytes[4096], last[sizeof(run->line)] = "";
    ssize_t nr;

    if (run->worker.report_fd < 0 || now < run->listen_at)
        return;
    run->listen_at = now + LISTEN_S;
    for (int n = 0; n < MAX_READS && (nr = read(run->worker.report_fd, bytes, sizeof(bytes))) > 0;
         n++)
        for (ssize_t i = 0; i < nr; i++) {
            if (bytes[i] == '\n') {
                run->line[run->used] = '\0';
                memcpy(last, run->line, run->used + 1);
                run->used = 0;
            } else if (run->used + 1 < sizeof(run->line)) {
                run->line[run->used++] = bytes[i];
            }
        }
    if (*last)
        take_report(service, run, last);
}

/* The device of the process whose end ended the run; "": it is not known. */
static const char *device_of_end(const struct np_service_run *run)
{
    const char *device = run->left.device;

    if (*device && np_entry_slots_on(&run->entry, device) > 0)
        return device;
    return strchr(run->entry.assigned, ',') ? "" : run->entry.assigned;
}

static void note_end(struct np_service *service, const struct np_service_run *run,
    struct np_slotted *device, const struct np_device_end *end)
{
    if (!run->unstarted && np_device_ended(&device->health, device->name, end, np_book_ticks()))
        fprintf(stderr,
            "nnpipe daemon: %s is suspect: no run is started there for %.0f minutes, because %d "
            "starts died there, the last one: %s\n",
            device->name, NP_SUSPECT_TRIAL_S / 60, device->health.nr_deaths, device->health.why);
}

/* A good end is one of all its devices, a bad one of the device of the process that failed. */
static void note_device(struct np_service *service, struct np_service_run *run)
{
    struct np_service_options *options = &service->options;
    const char *failed = device_of_end(run);
    const struct np_worker_exit *left = &run->left;
    const bool well = left->code == NP_EXIT_DONE || (left->code == NP_EXIT_STOPPED && left->saved);
    const struct np_device_end end = {.run = run->entry.id,
        .device_failed = left->no_device || left->device_failed,
        .died = left->code < 0 && left->begun && !run->hung && run->stop_asked == 0,
        .well = well,
        .lived_s = run->lived_s,
        .why = *left->reason ? left->reason : "its process was killed or crashed"};

    snprintf(run->died_on, sizeof(run->died_on), "%s", end.device_failed || end.died ? failed : "");
    for (int d = 0; d < options->nr_devices; d++) {
        const char *name = options->devices[d].name;

        if (strcmp(name, failed) == 0 || (well && np_entry_slots_on(&run->entry, name) > 0))
            note_end(service, run, &options->devices[d], &end);
    }
}

/* A run that trains on suspect devices clears them. */
static void trust_devices(struct np_service *service, const struct np_service_run *run, double now)
{
    struct np_service_options *options = &service->options;

    if (now - run->born < NP_QUICK_DEATH_S || !(run->progress.step > 0))
        return;
    for (int d = 0; d < options->nr_devices; d++)
        if (np_entry_slots_on(&run->entry, options->devices[d].name) > 0)
            options->devices[d].health = (struct np_device_health){0};
}

/* If fork() fails for one run, it probably fails for all; the delay is short, because the cause may
 * be that run's user. */
static void hold_starts(struct np_service *service, const struct np_service_run *run)
{
    service->nr_unstarted = run->unstarted ? service->nr_unstarted + 1 : 0;
    service->start_at = !run->unstarted
                            ? 0
                            : np_book_ticks() + np_back_off(service->options.retry_first_s,
                                                    MAX_HOLD_S, service->nr_unstarted);
}

static void decide(struct np_service *service, struct np_service_run *run, struct np_entry *to)
{
    np_service_leave_group(service, run);
    const struct np_end end = {.left = &run->left,
        .stop_asked = run->stop_asked > 0,
        .hung = run->hung,
        .never_began = run->never_began,
        .unstarted = run->unstarted,
        .now = np_book_now(),
        .retry_first_s = service->options.retry_first_s,
        .retry_cap_s = service->options.retry_cap_s};

    if (!run->noted) {
        note_device(service, run);
        hold_starts(service, run);
        run->noted = true;
    }
    np_decide(&end, to, &run->waits);
    memcpy(to->died_on, run->died_on, sizeof(to->died_on));
    np_service_count_time(run, to);
}

/* A process that waits in the kernel for storage or a device survives SIGKILL for a while, and
 * keeps its slot. */
static void report_unkillable(struct np_service *service, struct np_service_run *run, double now)
{
    if (run->killed == 0)
        run->killed = now;
    if (now - run->killed >= KILLED_S && !strstr(run->entry.reason, UNKILLABLE))
        np_book_set_reason(service, run,
            "process %d " UNKILLABLE
            ": it waits in the kernel for storage or its device, and keeps %s",
            (int)run->worker.pid, run->entry.assigned);
}

static void describe_start(struct np_service_run *run, int code)
{
    if (code == -ESRCH)
        snprintf(run->left.reason, sizeof(run->left.reason),
            "its submitter, user %s (%u), no longer exists", run->entry.user,
            (unsigned)run->entry.uid);
    else
        snprintf(run->left.reason, sizeof(run->left.reason), "cannot start a worker: %s",
            code == -EAGAIN ? "cannot look up its user now" : strerror(-code));
}

/* Before the worker runs nnpipe. */
static void watch_start(struct np_service_run *run, double now)
{
    const int code = np_worker_begun(&run->worker);

    if (code < 0) {
        describe_start(run, code);
        run->unstarted = true;
    } else if (code == 0 && now - run->progressed > START_S && !run->unstarted) {
        snprintf(run->left.reason, sizeof(run->left.reason),
            "cannot start a worker: its user was not looked up within %.0f s", START_S);
        run->unstarted = true;
        np_worker_signal(&run->worker, SIGKILL);
    }
}

static void watch_process(struct np_service *service, struct np_service_run *run)
{
    const double now = np_book_ticks();
    const bool is_over = np_pid_fd_has_ended(run->worker.pid_fd);

    watch_start(run, now);
    if (is_over)
        run->listen_at = 0; /* to read its last report now */
    read_report(service, run);
    np_service_watch_time(service, run);
    trust_devices(service, run, now);
    if (is_over) {
        struct np_worker_exit left;

        epoll_ctl(service->epoll_fd, EPOLL_CTL_DEL, run->worker.pid_fd, NULL);
        np_worker_reap(&run->worker, &left);
        if (run->unstarted)
            memcpy(left.reason, run->left.reason, sizeof(left.reason));
        run->left = left;
        /* Then exit.json, if there is one, is of another run. */
        run->ended =
            run->unstarted || left.status == NP_WORKER_TAKEN || left.status == NP_WORKER_UNSAFE;
        run->over = !run->ended;
    } else if (run->stop_asked > 0 ? now - run->stop_asked > service->options.stop_s
                                   : now - run->progressed > service->options.hang_s) {
        run->hung = run->stop_asked == 0;
        np_worker_signal(&run->worker, SIGKILL);
        report_unkillable(service, run, now);
    }
}

void np_service_watch_worker(struct np_service *service, struct np_service_run *run)
{
    if (run->worker.pid > 0)
        watch_process(service, run);
    np_service_run_errands(service, run);
    if (run->ended) { /* on failure the next turn retries it */
        struct np_entry to = run->entry;
        const int waits = run->waits;

        decide(service, run, &to);
        to.process[0] = '\0';
        if (np_book_commit(service, run, &to, NULL) == 0)
            run->ended = false;
        else
            run->waits = waits;
    }
}
