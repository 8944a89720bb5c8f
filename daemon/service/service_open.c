/* The service comes up: its folder, its settings, its queue, and the runs that have a worker from before. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/devices.h"
#include "daemon/service/service_parts.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

/* Why no device of the service's can take the run; false: one can, or could if it were free. */
static bool is_unplaced(
    const struct np_service *service, const struct np_entry *entry, char *text, size_t bytes)
{
    const struct np_service_options *options = &service->options;
    const struct np_slotted *gone = NULL;

    for (int i = 0; i < options->nr_devices; i++) {
        if (!np_dispatch_suits(options->devices, options->nr_devices, entry, i))
            continue;
        if (options->devices[i].nr_slots > 0)
            return false;
        gone = gone ? gone : &options->devices[i];
    }
    if (gone)
        snprintf(
            text, bytes, "%s cannot be used: %s; the run waits for it", gone->name, gone->gone);
    else if (*entry->kind && strcmp(entry->device, "auto") == 0)
        snprintf(text, bytes,
            "the run began on a %s, and this service has none any more; it waits for one",
            strcmp(entry->kind, "gpu") == 0 ? "GPU" : entry->kind);
    else
        snprintf(text, bytes,
            "the service's settings have no device '%s' any more; it waits for one", entry->device);
    return true;
}

/* Its start clears that. */
void np_service_say_unplaced(struct np_service *service)
{
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];
        struct np_entry to = run->entry;
        struct np_err unwritten = {0};

        if (to.state == NP_ENTRY_QUEUED &&
            is_unplaced(service, &to, to.reason, sizeof(to.reason)) &&
            strcmp(to.reason, run->entry.reason) != 0)
            np_service_commit(service, run, &to, &unwritten);
    }
}

static int watch_signals(struct np_service *service, struct np_err *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD); /* wakes the loop: what could not be ended has ended */
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    service->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    service->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (service->epoll_fd < 0 || service->signal_fd < 0 ||
        epoll_ctl(service->epoll_fd, EPOLL_CTL_ADD, service->signal_fd, &event) < 0)
        return np_err_set(err, -errno, "the service cannot wait for anything: %s", strerror(errno));
    return 0;
}

/* The folder of the queue, for its user alone. */
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
    int code = path ? np_queue_open(path, service->start.vfs, &service->queue, err)
                    : np_err_set(err, -ENOMEM, "out of memory");

    np_free(path);
    if (code == 0)
        code = np_queue_read(service->queue, np_service_add, service, err);
    return code < 0 ? code : np_service_mark_drained(service, err);
}

int np_service_open(
    const struct np_service_start *start, struct np_service **ret_service, struct np_err *err)
{
    struct np_service *service = np_alloc(sizeof(*service));
    int code;

    if (!service)
        return np_err_set(err, -ENOMEM, "out of memory");
    service->start = *start;
    service->epoll_fd = service->signal_fd = -1;
    service->began = np_service_now();
    np_cgroup_open(&service->cgroup);
    service->retention.child = service->finder = NP_NO_CHILD;
    service->access = (struct np_access){.service_uid = geteuid(), .for_box = start->for_box};
    code = make_dir(start->dir, err);
    if (code == 0)
        code = np_service_options_read(start->config, &service->options, err);
    if (code == 0)
        code = watch_signals(service, err);
    if (code == 0 && !(service->names = np_names_new(service->epoll_fd, NULL)))
        code = np_err_set(err, -ENOMEM, "out of memory");
    if (code == 0)
        code = open_queue(service, err);
    if (code == 0)
        code = np_token_read(start->dir, service->token, err);
    if (code < 0) {
        np_service_close(service);
        return code;
    }
    for (int i = 0; i < service->nr_runs; i++)
        np_service_adopt(service, service->runs[i]);
    for (int i = 0; i < service->nr_runs; i++) /* so that they are known when a list is asked for */
        np_service_owner(service, &service->runs[i]->entry);
    np_devices_begin(service);
    code = np_service_mark_drained(service, err);
    np_service_say_unplaced(service);
    if (code < 0) {
        np_service_close(service);
        return code;
    }
    np_service_warn_of_limits(service);
    *ret_service = service;
    return 0;
}

/* Workers go on. */
void np_service_close(struct np_service *service)
{
    if (!service)
        return;
    np_retention_stop(&service->retention);
    np_child_stop(&service->finder);
    np_names_free(service->names);
    np_notify_stop(service);
    while (service->nr_runs > 0)
        np_service_drop(service, service->nr_runs - 1);
    np_free(service->runs);
    np_free(service->entries);
    np_queue_close(service->queue);
    np_cgroup_close(&service->cgroup);
    np_service_options_fini(&service->options);
    np_json_fini(&service->json);
    if (service->epoll_fd >= 0)
        close(service->epoll_fd);
    if (service->signal_fd >= 0)
        close(service->signal_fd);
    np_free(service);
}

int np_service_reload(struct np_service *service, struct np_err *err)
{
    struct np_service_options options;
    int code = np_service_options_read(service->start.config, &options, err);

    if (code < 0)
        return code;
    if ((options.listen == NULL) != (service->options.listen == NULL) ||
        (options.listen && strcmp(options.listen, service->options.listen) != 0)) {
        np_service_options_fini(&options);
        return np_err_set(
            err, -EINVAL, "listen cannot change while the service runs: start it again for that");
    }
    np_service_options_fini(&service->options);
    service->options = options;
    service->version++;
    np_service_warn_of_limits(service);
    np_devices_begin(service);
    code = np_service_mark_drained(service, err);
    np_service_say_unplaced(service);
    return code;
}
