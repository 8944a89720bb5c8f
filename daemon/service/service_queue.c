/* What users of a queue ask beside pause and stop: another try, a run or a device held back, and an end to a run's
 * time. The service's thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/service_parts.h"

#define WRITE_S 60.0 /* between two notes of how long a run with a limit has run */

static int find(const struct np_service *service, int64_t id, struct np_service_run **ret_run,
    struct np_err *err)
{
    *ret_run = np_service_run_of(service, id);
    return *ret_run ? 0 : np_err_set(err, -ENOENT, "there is no run %lld", (long long)id);
}

/* --- another try ------------------------------------------------------------------------------ */

static bool may_retry(enum np_entry_state state)
{
    return state == NP_ENTRY_STOPPED || state == NP_ENTRY_FAILED || state == NP_ENTRY_TIMEOUT;
}

int np_service_retry(
    struct np_service *service, int64_t id, double time_limit_s, struct np_err *err)
{
    struct np_service_run *run;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    struct np_entry to = run->entry;
    if (to.state == NP_ENTRY_DONE)
        return np_err_set(err, -EINVAL,
            "run %lld is done: for more epochs submit it again with another train.epochs",
            (long long)id);
    if (!may_retry(to.state))
        return np_err_set(err, -EINVAL, "run %lld is %s: only a run that is over is tried again",
            (long long)id, np_entry_states[to.state]);
    if (!np_dispatch_knows(service->options.devices, service->options.nr_devices, to.device))
        return np_err_set(err, -ENODEV, "this service has no device '%s' any more", to.device);
    if ((code = np_service_may_queue(service, to.uid, err)) < 0)
        return code;
    if (time_limit_s >= 0)
        to.time_limit_s = time_limit_s;
    to.state = NP_ENTRY_QUEUED;
    to.reason[0] = '\0';
    to.ran_s = to.lived_s = to.retries = 0;
    to.not_before = to.ended = 0;
    if ((code = np_service_commit(service, run, &to, err)) < 0)
        return code;
    run->spare = -1; /* its checkpoints are its own again */
    if (np_retention_is_at(&service->retention, id))
        np_retention_stop(&service->retention);
    return 0;
}

/* --- held back -------------------------------------------------------------------------------- */

int np_service_hold(struct np_service *service, int64_t id, struct np_err *err)
{
    struct np_service_run *run;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    struct np_entry to = run->entry;
    if (to.state == NP_ENTRY_PAUSED)
        return -EALREADY;
    if (np_entry_has_worker(&to))
        return np_err_set(err, -EINVAL,
            "run %lld is %s, not queued: pause lets it write a checkpoint and wait", (long long)id,
            np_entry_states[to.state]);
    if (to.state != NP_ENTRY_QUEUED)
        return np_err_set(
            err, -EINVAL, "run %lld is over: it is %s", (long long)id, np_entry_states[to.state]);
    to.state = NP_ENTRY_PAUSED;
    snprintf(to.reason, sizeof(to.reason), "it is held; release lets it start");
    return np_service_commit(service, run, &to, err);
}

/* --- devices ---------------------------------------------------------------------------------- */

#define SUSPECTED "it waits for"

static void mark(void *context, const char *device)
{
    struct np_service *service = context;

    service->held |= strcmp(device, NP_ALL_DEVICES) == 0;
    for (int i = 0; i < service->options.nr_devices; i++)
        if (strcmp(service->options.devices[i].name, device) == 0)
            service->options.devices[i].drained = true;
}

int np_service_mark_drained(struct np_service *service, struct np_err *err)
{
    return np_queue_drained(service->queue, mark, service, err);
}

static struct np_slotted *device_of(const struct np_service *service, const char *name)
{
    for (int i = 0; i < service->options.nr_devices; i++)
        if (strcmp(service->options.devices[i].name, name) == 0)
            return &service->options.devices[i];
    return NULL;
}

int np_service_drain(struct np_service *service, const char *name, bool drained, struct np_err *err)
{
    struct np_slotted *device = device_of(service, name);

    if (!device)
        return np_err_set(err, -ENOENT, "this service has no device '%s'", name);
    const int code = np_queue_drain(service->queue, name, drained, err);
    if (code == 0)
        device->drained = drained;
    if (code == 0 && !drained) /* somebody has looked after it */
        device->health = (struct np_device_health){0};
    service->version++;
    return code;
}

void np_service_say_suspects(struct np_service *service)
{
    const struct np_service_options *options = &service->options;

    for (int i = 0; i < service->nr_runs; i++) {
        struct np_entry to = service->runs[i]->entry;
        const int d = to.state == NP_ENTRY_QUEUED
                          ? np_dispatch_suspect(options->devices, options->nr_devices, to.device)
                          : -1;
        struct np_err unwritten = {0};

        if (d < 0 || strncmp(to.reason, SUSPECTED, strlen(SUSPECTED)) == 0)
            continue;
        snprintf(to.reason, sizeof(to.reason),
            SUSPECTED
            " %s, which is set aside: %d starts in a row died there, the last: %.200s; the "
            "service tries it again within %.0f minutes, or after `nnpipe undrain %s`",
            options->devices[d].name, options->devices[d].health.nr_deaths,
            options->devices[d].health.why, NP_SUSPECT_TRIAL_S / 60, options->devices[d].name);
        np_service_commit(service, service->runs[i], &to, &unwritten);
    }
}

void np_service_look_at_program(struct np_service *service)
{
    static const char gone[] = " (deleted)"; /* the kernel's word; no storage is asked for it */
    struct np_err unwritten = {0};
    char path[4096];
    const ssize_t nr = readlink("/proc/self/exe", path, sizeof(path));
    const ssize_t at = nr - (ssize_t)strlen(gone);

    service->replaced = at > 0 && memcmp(path + at, gone, strlen(gone)) == 0;
    for (int i = 0; service->replaced && i < service->nr_runs; i++) {
        struct np_entry to = service->runs[i]->entry;

        if (to.state != NP_ENTRY_QUEUED || strcmp(to.reason, NP_REPLACED) == 0)
            continue;
        snprintf(to.reason, sizeof(to.reason), "%s", NP_REPLACED);
        np_service_commit(service, service->runs[i], &to, &unwritten);
    }
}

int np_service_hold_all(struct np_service *service, bool held, struct np_err *err)
{
    const int code = np_queue_drain(service->queue, NP_ALL_DEVICES, held, err);

    if (code == 0)
        service->held = held;
    service->version++;
    return code;
}

bool np_service_is_held(const struct np_service *service)
{
    return service->held;
}

/* --- time ------------------------------------------------------------------------------------- */

int np_service_set_time_limit(
    struct np_service *service, int64_t id, double seconds, struct np_err *err)
{
    struct np_service_run *run;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    struct np_entry to = run->entry;
    to.time_limit_s = seconds;
    return np_service_commit(service, run, &to, err);
}

double np_service_ran(const struct np_service *service, const struct np_entry *entry)
{
    const struct np_service_run *run = np_service_run_of(service, entry->id);

    return entry->ran_s + (run && run->worker.pid > 0 ? np_service_ticks() - run->born : 0);
}

/* "8h", "90m", "20s". */
static void write_span(double seconds, char *text, size_t bytes)
{
    const double unit = fmod(seconds, 3600) == 0 ? 3600 : fmod(seconds, 60) == 0 ? 60 : 1;

    snprintf(text, bytes, "%g%s", seconds / unit, unit == 3600 ? "h" : unit == 60 ? "m" : "s");
}

static void say_over(struct np_entry *to)
{
    char span[32];

    write_span(to->time_limit_s, span, sizeof(span));
    snprintf(to->reason, sizeof(to->reason),
        "its time limit of %s is over; retry continues from its checkpoint", span);
}

/* The note of how long it has run is for a daemon that comes after this one. */
void np_service_watch_time(struct np_service *service, struct np_service_run *run)
{
    const double lived_s = np_service_ticks() - run->born;
    struct np_entry to = run->entry;
    struct np_err unwritten = {0};

    run->lived_s = lived_s;
    if (to.time_limit_s == 0)
        return;
    to.lived_s = lived_s;
    if (to.state == NP_ENTRY_RUNNING && to.ran_s + lived_s >= to.time_limit_s) {
        to.state = NP_ENTRY_STOPPING;
        say_over(&to);
        if (np_service_commit(service, run, &to, &unwritten) == 0)
            np_service_tell(service, run);
    } else if (lived_s - run->entry.lived_s >= WRITE_S) {
        np_service_commit(service, run, &to, &unwritten);
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
    to->ended = np_service_now();
    say_over(to);
}
