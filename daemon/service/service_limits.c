/* Limits of a run: memory and CPUs (who sets them, and what the service says where nobody can), and runs at a time. The service's thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/owners.h"
#include "daemon/service/service_parts.h"
#include "daemon/service/systemd/worker_unit.h"

/* 0: there is none. */
static int64_t max_running(const struct np_service *service)
{
    return service->access.for_box ? service->options.limits.running_per_user : 0;
}

void np_service_mark_full(struct np_service *service)
{
    const int64_t most = max_running(service);
    struct np_owners running = {0};
    const bool counts = most > 0 && np_owners_init(&running, service->nr_runs) == 0;

    for (int i = 0; counts && i < service->nr_runs; i++)
        if (np_entry_has_worker(service->entries[i]))
            ++*np_owners_count(&running, service->entries[i]->uid);
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];
        const bool full = counts && run->entry.state == NP_ENTRY_QUEUED &&
                          *np_owners_count(&running, run->entry.uid) >= most;

        service->version += full != run->full;
        run->full = full;
    }
    np_owners_fini(&running);
}

static bool is_limited(const struct np_entry *entry)
{
    return entry->memory_bytes > 0 || entry->cpus > 0;
}

static bool can_limit(const struct np_service *service)
{
    return service->start.units || service->cgroup.fd >= 0;
}

int np_service_may_limit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err)
{
    if (!is_limited(entry) || can_limit(service))
        return 0;
    return np_err_set(err, -ENOTSUP, "this service cannot limit memory or CPUs of a run: %s",
        service->cgroup.problem);
}

void np_service_default_limits(const struct np_service *service, struct np_entry *entry)
{
    if (!can_limit(service))
        return;
    if (entry->memory_bytes == 0)
        entry->memory_bytes = service->options.limits.memory_per_run;
    if (entry->cpus == 0)
        entry->cpus = service->options.limits.cpus_per_run;
}

bool np_service_lacks_limits(const struct np_service *service, char *text, size_t bytes)
{
    const struct np_limits *limits = &service->options.limits;
    const char *set = limits->memory_per_run > 0 ? "limits.memory_per_run" : "limits.cpus_per_run";

    if (can_limit(service) || (limits->memory_per_run == 0 && limits->cpus_per_run == 0))
        return false;
    snprintf(text, bytes,
        "runs are started without the default %s%s: this service cannot limit memory or CPUs of a "
        "run: %s",
        set,
        limits->memory_per_run > 0 && limits->cpus_per_run > 0 ? " and limits.cpus_per_run" : "",
        service->cgroup.problem);
    return true;
}

void np_service_warn_of_limits(const struct np_service *service)
{
    char text[NP_LIMITS_TEXT];

    if (np_service_lacks_limits(service, text, sizeof(text)))
        fprintf(stderr, "nnpipe daemon: %s\n", text);
}

int np_service_enter_group(
    const struct np_service *service, const struct np_entry *entry, int *ret_fd, struct np_err *err)
{
    if (!is_limited(entry))
        return 0;
    return np_cgroup_begin(
        &service->cgroup, entry->id, entry->memory_bytes, entry->cpus, ret_fd, err);
}

void np_service_leave_group(const struct np_service *service, struct np_service_run *run)
{
    const struct np_entry *entry = &run->entry;
    struct np_worker_exit *left = &run->left;
    bool no_memory;

    if (!is_limited(entry))
        return;
    no_memory = service->start.units ? strcmp(left->reason, NP_UNITS_NO_MEMORY) == 0
                                     : np_cgroup_end(&service->cgroup, entry->id);
    if (no_memory && left->code < 0 && entry->memory_bytes > 0)
        snprintf(left->reason, sizeof(left->reason),
            "its processes needed more than its memory limit of %.1f GiB: smaller batches, fewer "
            "readers or a smaller cache need less",
            (double)entry->memory_bytes / (1 << 30));
}
