#include "daemon/service/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/child.h"
#include "daemon/service/devices.h"
#include "daemon/service/notify.h"
#include "daemon/service/retention.h"
#include "daemon/service/service_errands.h"
#include "daemon/service/service_life.h"
#include "daemon/service/service_limits.h"
#include "daemon/service/service_queue.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MAX_ORDERS 64
#define TICK_S     1

/* --- open and close --------------------------------------------------------------------------- */

static int watch_signals(struct np_service *service, struct np_err *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD); /* of killed children that have ended */
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    service->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    service->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (service->epoll_fd < 0 || service->signal_fd < 0 ||
        epoll_ctl(service->epoll_fd, EPOLL_CTL_ADD, service->signal_fd, &event) < 0)
        return np_err_set(err, -errno, "the service cannot wait for events: %s", strerror(errno));
    return 0;
}

static int make_dir(const char *dir, struct np_err *err)
{
    const mode_t before = umask(0077);
    int code = np_make_dirs(dir, err);

    umask(before);
    return code;
}

static int open_queue(struct np_service *service, struct np_err *err)
{
    char *path = np_format("%s/queue.db", service->start.dir);
    const int code = np_queue_open(path, NULL, &service->queue, err);

    np_free(path);
    return code < 0 ? code : np_queue_read(service->queue, np_book_add, service, err);
}

static int apply_options(struct np_service *service, struct np_err *err)
{
    const int code = np_devices_begin(service, err);
    char text[NP_LIMITS_TEXT];

    np_devices_mark_missing(service);
    if (code == 0 && np_service_lacks_limits(service, text, sizeof(text)))
        fprintf(stderr, "nnpipe daemon: %s\n", text);
    return code;
}

static int open_all(struct np_service *service, struct np_err *err)
{
    const struct np_service_start *start = &service->start;
    int code = make_dir(start->dir, err);

    if (code == 0)
        code = np_service_options_read(start->config, &service->options, err);
    if (code == 0)
        code = watch_signals(service, err);
    if (code < 0)
        return code;
    service->names = np_names_new(service->epoll_fd, NULL);
    if ((code = open_queue(service, err)) == 0)
        code = np_token_read(start->dir, service->token, err);
    for (int i = 0; i < service->nr_runs && code == 0; i++) {
        np_service_adopt(service->runs[i]);
        np_book_owner(service, &service->runs[i]->entry); /* starts looking up the name */
    }
    return code < 0 ? code : apply_options(service, err);
}

int np_service_open(
    const struct np_service_start *start, struct np_service **ret_service, struct np_err *err)
{
    struct np_service *service = np_alloc(sizeof(*service));

    *service = (struct np_service){.start = *start,
        .access = {.service_uid = geteuid(), .for_box = start->for_box},
        .retention = np_retention_new(),
        .notifiers = np_notify_new(),
        .finder = NP_NO_CHILD,
        .epoll_fd = -1,
        .signal_fd = -1,
        .began = np_book_now()};
    np_cgroup_open(&service->cgroup);
    const int code = open_all(service, err);
    if (code < 0)
        np_service_close(service);
    else
        *ret_service = service;
    return code;
}

void np_service_close(struct np_service *service)
{
    if (!service)
        return;
    np_retention_free(service->retention);
    np_child_stop(&service->finder);
    np_names_free(service->names);
    np_notify_free(service->notifiers);
    while (service->nr_runs > 0)
        np_book_drop(service, service->runs[service->nr_runs - 1]);
    np_free(service->runs);
    np_free(service->entries);
    np_queue_close(service->queue);
    np_cgroup_close(&service->cgroup);
    np_service_options_fini(&service->options);
    if (service->epoll_fd >= 0)
        close(service->epoll_fd);
    if (service->signal_fd >= 0)
        close(service->signal_fd);
    np_free(service);
}

int np_service_reload(struct np_service *service, struct np_err *err)
{
    struct np_service_options options;
    const int code = np_service_options_read(service->start.config, &options, err);

    if (code < 0)
        return code;
    if ((options.listen == NULL) != (service->options.listen == NULL) ||
        (options.listen && strcmp(options.listen, service->options.listen) != 0)) {
        np_service_options_fini(&options);
        return np_err_set(err, -EINVAL, "listen cannot change while the service runs: restart it");
    }
    np_service_options_fini(&service->options);
    service->options = options;
    service->version++;
    return apply_options(service, err);
}

/* --- the loop --------------------------------------------------------------------------------- */

/* If the program file was replaced, queued runs wait for a restart of the daemon. */
static void check_program(struct np_service *service)
{
    static const char gone[] = " (deleted)"; /* the kernel appends it; this reads no storage */
    char path[4096];
    const ssize_t nr = readlink("/proc/self/exe", path, sizeof(path));
    const ssize_t at = nr - (ssize_t)strlen(gone);

    service->replaced = at > 0 && memcmp(path + at, gone, strlen(gone)) == 0;
    for (int i = 0; service->replaced && i < service->nr_runs; i++)
        if (service->runs[i]->entry.state == NP_ENTRY_QUEUED)
            np_book_set_reason(service, service->runs[i], "%s", NP_REPLACED);
}

/* Stores the user's name in runs that were submitted before it was known. */
static void take_names(struct np_service *service)
{
    if (!np_names_turn(service->names))
        return;
    service->version++;
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_entry to = service->runs[i]->entry;

        if (*to.user || np_entry_is_finished(&to))
            continue;
        np_book_name_user(service, &to);
        if (*to.user)
            np_book_commit(service, service->runs[i], &to, NULL);
    }
}

static void forget_old(struct np_service *service)
{
    struct np_service_run *run;

    for (int i = 0; i < MAX_ORDERS && (run = np_retention_next(service)); i++)
        if (np_service_remove(service, run, NULL) < 0)
            return;
}

static void carry_out(struct np_service *service, const struct np_order *order)
{
    struct np_service_run *run = service->runs[order->entry];
    struct np_entry to = run->entry;
    struct np_err err = {0};

    switch (order->kind) {
    case NP_ORDER_START: np_service_begin(service, run, order->devices, &err); break;
    case NP_ORDER_RESERVE: np_devices_reserve(service, run, order); break;
    case NP_ORDER_YIELD:
        if (np_service_await_room(service, np_book_run(service, order->other), &err) != 0)
            break; /* the run for which it would yield cannot start */
        to.state = NP_ENTRY_YIELDING;
        snprintf(to.reason, sizeof(to.reason), "it yields to run %lld, which has a higher priority",
            (long long)order->other);
        if (np_book_commit(service, run, &to, &err) == 0)
            np_book_request_stop(run);
        break;
    case NP_ORDER_FAIL:
        to.state = NP_ENTRY_FAILED;
        to.ended = np_book_now();
        snprintf(to.reason, sizeof(to.reason), "run %lld, which it depends on, was not done",
            (long long)order->other);
        np_book_commit(service, run, &to, &err);
    }
    if (err.code) /* the file cannot be written; the next turn retries */
        fprintf(stderr, "nnpipe daemon: %s\n", err.text);
}

static void dispatch(struct np_service *service)
{
    struct np_order orders[MAX_ORDERS];
    const struct np_dispatch d = {.entries = service->entries,
        .nr_entries = service->nr_runs,
        .devices = service->options.devices,
        .nr_devices = service->options.nr_devices,
        .preempt = service->options.preempt,
        .running_per_user = service->access.for_box ? service->options.limits.running_per_user : 0,
        .now = np_book_now(),
        .ticks = np_book_ticks(),
        .longest_s = service->options.retry_cap_s > NP_DISK_WAIT_S ? service->options.retry_cap_s
                                                                   : NP_DISK_WAIT_S};
    check_program(service);
    if (!service->replaced)
        np_devices_mark_suspect(service);
    const bool waits =
        service->stopping || service->held || service->replaced || d.ticks < service->start_at;
    const int nr = waits ? 0 : np_dispatch(&d, orders, MAX_ORDERS);

    for (int i = 0; i < nr; i++)
        carry_out(service, &orders[i]);
    if (!waits && nr < MAX_ORDERS)
        np_devices_release(service, orders, nr);
    np_service_mark_full(service);
}

/* Ends that cannot be read or recorded do not count: they are left to the next daemon. */
static bool any_worker(const struct np_service *service)
{
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_service_run *run = service->runs[i];

        if (run->worker.pid > 0 || run->starting || (run->over && run->errand.failures == 0))
            return true;
    }
    return false;
}

static void notify_state(const struct np_service *service, const char *state)
{
    if (service->start.notify)
        service->start.notify(service->start.context, state);
}

static void take_signals(struct np_service *service)
{
    struct signalfd_siginfo info;
    struct np_err err = {0};

    while (read(service->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) {
            notify_state(service, "RELOADING");
            if (np_service_reload(service, &err) < 0)
                fprintf(stderr, "nnpipe daemon: the settings are unchanged: %s\n", err.text);
            notify_state(service, "READY");
            continue;
        }
        if (info.ssi_signo == SIGCHLD) {
            np_child_reap(0); /* nobody may ask for this one any more */
            continue;
        }
        service->stopping = true;
        notify_state(service, "STOPPING");
        for (int i = 0; i < service->nr_runs; i++)
            np_book_request_stop(service->runs[i]);
    }
}

int np_service_run(struct np_service *service, struct np_err *err)
{
    uint64_t seen = service->version - 1;

    while (!service->stopping || any_worker(service)) {
        struct epoll_event events[32];
        /* After a change by the last turn's requests a run may be ready to start: do not wait. */
        const int wait_ms = service->version != seen ? 0 : TICK_S * 1000;
        const int nr = epoll_wait(service->epoll_fd, events, 32, wait_ms);

        if (nr < 0 && errno != EINTR)
            return np_err_set(err, -errno, "epoll_wait: %s", strerror(errno));
        seen = service->version;
        take_signals(service);
        for (int i = 0; i < service->nr_runs; i++)
            np_service_watch_worker(service, service->runs[i]);
        dispatch(service);
        forget_old(service);
        np_retention_turn(service);
        np_notify_turn(service);
        np_devices_turn(service);
        take_names(service);
        if (service->start.turn)
            service->start.turn(service->start.context);
    }
    return 0;
}
