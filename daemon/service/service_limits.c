#include "daemon/service/service_limits.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WRITE_S 60.0 /* between two records of a run's running time */

int np_service_may_queue(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err)
{
    const int64_t max = service->options.limits.queued_per_user,
                  running = service->options.limits.running_per_user;
    const uid_t uid = entry->uid;
    int64_t nr = 0;

    if (service->access.for_box && running > 0 && np_entry_processes(entry) > running)
        return np_err_set(err, -EDQUOT,
            "the run has %d processes, and each user may have %lld at a time "
            "(limits.running_per_user)",
            np_entry_processes(entry), (long long)running);
    if (!np_access_is_limited(&service->access, uid))
        return 0;
    for (int i = 0; i < service->nr_runs; i++)
        nr += service->entries[i]->uid == uid && !np_entry_is_finished(service->entries[i]);
    if (nr < max)
        return 0;
    return np_err_set(err, -EDQUOT,
        "you have %lld unfinished runs, and each user may have %lld "
        "(limits.queued_per_user); stop some, or wait until some are finished",
        (long long)nr, (long long)max);
}

void np_service_mark_full(struct np_service *service)
{
    const int64_t max = service->options.limits.running_per_user;
    const bool counts = service->access.for_box && max > 0;
    struct np_owners running = {0};

    for (int i = 0; counts && i < service->nr_runs; i++)
        if (np_entry_has_worker(service->entries[i]))
            *np_owners_count(&running, service->entries[i]->uid) +=
                np_entry_processes(service->entries[i]);
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];
        const bool full =
            counts && run->entry.state == NP_ENTRY_QUEUED &&
            *np_owners_count(&running, run->entry.uid) + np_entry_processes(&run->entry) > max;

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
    const struct np_limits *limits = &service->options.limits;
    const int nr = np_entry_processes(entry);

    if (!can_limit(service))
        return;
    if (entry->memory_bytes == 0)
        entry->memory_bytes = limits->memory_per_run * nr;
    if (entry->cpus == 0)
        entry->cpus = limits->cpus_per_run * nr;
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
    no_memory = service->start.units ? strcmp(left->reason, NP_WORKER_NO_MEMORY) == 0
                                     : np_cgroup_end(&service->cgroup, entry->id);
    if (no_memory && left->code < 0 && entry->memory_bytes > 0)
        snprintf(left->reason, sizeof(left->reason),
            "its processes needed more than its memory limit of %.1f GiB: smaller batches, fewer "
            "readers or a smaller cache need less",
            (double)entry->memory_bytes / (1 << 30));
}

double np_service_ran(const struct np_service_run *run)
{
    return run->entry.ran_s + (run->worker.pid > 0 ? np_book_ticks() - run->born : 0);
}

/* "8h", "90m", "20s". */
static void write_span(double seconds, char *text, size_t bytes)
{
    const double unit = fmod(seconds, 3600) == 0 ? 3600 : fmod(seconds, 60) == 0 ? 60 : 1;

    snprintf(text, bytes, "%g%s", seconds / unit, unit == 3600 ? "h" : unit == 60 ? "m" : "s");
}

static void explain_timeout(struct np_entry *to)
{
    char span[32];

    write_span(to->time_limit_s, span, sizeof(span));
    snprintf(to->reason, sizeof(to->reason),
        "it reached its time limit of %s; retry resumes from its checkpoint", span);
}

/* The next daemon needs the record. */
void np_service_watch_time(struct np_service *service, struct np_service_run *run)
{
    const double lived_s = np_book_ticks() - run->born;
    struct np_entry to = run->entry;

    run->lived_s = lived_s;
    if (to.time_limit_s == 0)
        return;
    to.lived_s = lived_s;
    if (to.state == NP_ENTRY_RUNNING && to.ran_s + lived_s >= to.time_limit_s) {
        to.state = NP_ENTRY_STOPPING;
        explain_timeout(&to);
        if (np_book_commit(service, run, &to, NULL) == 0)
            np_book_request_stop(run);
    } else if (lived_s - run->entry.lived_s >= WRITE_S) {
        np_book_commit(service, run, &to, NULL);
    }
}

void np_service_count_time(const struct np_service_run *run, struct np_entry *to)
{
    to->ran_s += run->lived_s;
    to->lived_s = 0;
    if (to->time_limit_s == 0 || to->ran_s < to->time_limit_s ||
        (to->state != NP_ENTRY_QUEUED && to->state != NP_ENTRY_STOPPED))
        return;
    to->state = NP_ENTRY_TIMEOUT;
    to->ended = np_book_now();
    explain_timeout(to);
}
