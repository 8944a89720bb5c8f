#include "daemon/service/service_queue.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/service/devices.h"
#include "daemon/service/retention.h"
#include "daemon/service/service_limits.h"
#include "loader/base/mem.h"

/* -ENODEV: there is no device for the run, or there are never enough. */
static int may_fit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err)
{
    const struct np_service_options *options = &service->options;
    const int room = np_dispatch_room(options->devices, options->nr_devices, entry);
    const int nr = np_entry_processes(entry);

    if (room >= nr)
        return 0;
    if (room == 0)
        return np_err_set(err, -ENODEV, "this service has no device '%s'", entry->device);
    return np_err_set(err, -ENODEV,
        "a run of %d processes needs a GPU for each, or as many slots of the CPU, and for '%s' "
        "this "
        "service has %d (devices and runs_per_device of service.yaml)",
        nr, entry->device, room);
}

int np_service_may_submit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err)
{
    for (int i = 0; i < entry->nr_after; i++)
        if (!np_book_run(service, entry->after[i]))
            return np_err_set(
                err, -ENOENT, "after: there is no run %lld", (long long)entry->after[i]);
    return may_fit(service, entry, err);
}

int np_service_submit(struct np_service *service, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err)
{
    struct np_entry added = *entry;
    int code = np_service_may_submit(service, entry, err);

    if (code < 0)
        return code;
    if ((code = np_service_may_queue(service, entry, err)) < 0)
        return code;
    if ((code = np_book_make_room(service, err)) < 0)
        return code;
    added.submitted = np_book_now();
    added.exit_code = -1;
    np_book_name_user(service, &added);
    code = np_queue_add(service->queue, &added, ret_id, ret_known, err);
    if (code < 0 || *ret_known)
        return code;
    added.id = *ret_id;
    added.dir = np_try_format(err, "%s/%s-%lld", entry->dir, entry->name, (long long)added.id);
    code = added.dir ? np_book_add(service, &added, err) : -ENOMEM;
    np_free(added.dir);
    if (code == 0)
        np_devices_mark_missing(service);
    else /* a run must not be in the file alone */
        np_queue_remove(service->queue, added.id, NULL);
    return code;
}

/* A run without a worker changes its state at once, a run with a worker after the checkpoint. */
static int leave(struct np_service *service, struct np_service_run *run, enum np_entry_state going,
    enum np_entry_state gone, struct np_err *err)
{
    struct np_entry to = run->entry;

    if (to.state == going || to.state == gone)
        return -EALREADY;
    if (np_entry_is_finished(&to))
        return np_err_set(err, -EINVAL, "run %lld has finished: it is %s", (long long)run->entry.id,
            np_entry_states[to.state]);
    if (to.state == NP_ENTRY_STOPPING)
        return np_err_set(err, -EINVAL, "run %lld is being stopped", (long long)run->entry.id);
    to.state = np_entry_has_worker(&to) ? going : gone;
    to.reason[0] = '\0';
    if (np_entry_is_finished(&to))
        to.ended = np_book_now();
    const int code = np_book_commit(service, run, &to, err);
    if (code == 0)
        np_book_request_stop(run);
    return code;
}

int np_service_stop(struct np_service *service, struct np_service_run *run, struct np_err *err)
{
    return leave(service, run, NP_ENTRY_STOPPING, NP_ENTRY_STOPPED, err);
}

int np_service_pause(struct np_service *service, struct np_service_run *run, struct np_err *err)
{
    return leave(service, run, NP_ENTRY_PAUSING, NP_ENTRY_PAUSED, err);
}

int np_service_resume(struct np_service *service, struct np_service_run *run, struct np_err *err)
{
    struct np_entry to = run->entry;

    if (to.state == NP_ENTRY_QUEUED || to.state == NP_ENTRY_RUNNING ||
        to.state == NP_ENTRY_YIELDING)
        return -EALREADY;
    if (np_entry_is_finished(&to) || to.state == NP_ENTRY_STOPPING)
        return np_err_set(err, -EINVAL, "run %lld is %s, not paused", (long long)run->entry.id,
            np_entry_states[to.state]);
    /* A pausing run is queued when its worker has ended. */
    to.state = to.state == NP_ENTRY_PAUSING ? NP_ENTRY_YIELDING : NP_ENTRY_QUEUED;
    to.not_before = 0;
    to.reason[0] = '\0';
    return np_book_commit(service, run, &to, err);
}

int np_service_change(struct np_service *service, struct np_service_run *run, int64_t priority,
    double time_limit_s, struct np_err *err)
{
    struct np_entry to = run->entry;

    if (priority != INT64_MAX)
        to.priority = priority;
    if (time_limit_s >= 0)
        to.time_limit_s = time_limit_s;
    return np_book_commit(service, run, &to, err);
}

/* The ID of an unfinished run that depends on this one, or 0. */
static int64_t waiting_for(const struct np_service *service, int64_t id)
{
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_entry *entry = service->entries[i];

        for (int k = 0; k < entry->nr_after && !np_entry_is_finished(entry); k++)
            if (entry->after[k] == id)
                return entry->id;
    }
    return 0;
}

int np_service_remove(struct np_service *service, struct np_service_run *run, struct np_err *err)
{
    const int64_t id = run->entry.id;
    int64_t next;
    int code;

    if (!np_entry_is_finished(&run->entry))
        return np_err_set(err, -EBUSY, "run %lld is %s: stop it first", (long long)run->entry.id,
            np_entry_states[run->entry.state]);
    if (run->entry.state != NP_ENTRY_DONE && (next = waiting_for(service, id)) > 0)
        return np_err_set(
            err, -EBUSY, "run %lld depends on it and has not finished", (long long)next);
    if ((code = np_queue_remove(service->queue, id, err)) < 0)
        return code;
    np_book_drop(service, run);
    return 0;
}

static bool may_retry(enum np_entry_state state)
{
    return state == NP_ENTRY_STOPPED || state == NP_ENTRY_FAILED || state == NP_ENTRY_TIMEOUT;
}

int np_service_retry(
    struct np_service *service, struct np_service_run *run, double time_limit_s, struct np_err *err)
{
    struct np_entry to = run->entry;

    if (to.state == NP_ENTRY_DONE)
        return np_err_set(err, -EINVAL,
            "run %lld is done: for more epochs, submit it again with a larger train.epochs",
            (long long)run->entry.id);
    if (!may_retry(to.state))
        return np_err_set(err, -EINVAL, "run %lld is %s: only a finished run can be retried",
            (long long)run->entry.id, np_entry_states[to.state]);
    int code = may_fit(service, &to, err);
    if (code == 0)
        code = np_service_may_queue(service, &to, err);
    if (code < 0)
        return code;
    if (time_limit_s >= 0)
        to.time_limit_s = time_limit_s;
    to.state = NP_ENTRY_QUEUED;
    to.reason[0] = '\0';
    to.ran_s = to.lived_s = to.retries = 0;
    to.not_before = to.ended = 0;
    if ((code = np_book_commit(service, run, &to, err)) < 0)
        return code;
    run->spare = -1; /* retention measures it again after its end */
    np_retention_leave(service->retention, to.id);
    return 0;
}

int np_service_hold(struct np_service *service, struct np_service_run *run, struct np_err *err)
{
    struct np_entry to = run->entry;

    if (to.state == NP_ENTRY_PAUSED)
        return -EALREADY;
    if (np_entry_has_worker(&to))
        return np_err_set(err, -EINVAL,
            "run %lld is %s, not queued: pause lets it write a checkpoint and wait",
            (long long)run->entry.id, np_entry_states[to.state]);
    if (to.state != NP_ENTRY_QUEUED)
        return np_err_set(err, -EINVAL, "run %lld has finished: it is %s", (long long)run->entry.id,
            np_entry_states[to.state]);
    to.state = NP_ENTRY_PAUSED;
    snprintf(to.reason, sizeof(to.reason), "it is held; release lets it start");
    return np_book_commit(service, run, &to, err);
}

int np_service_new_token(
    struct np_service *service, uid_t uid, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err)
{
    char token[NP_TOKEN_CHARS + 1], hash[NP_TOKEN_CHARS + 1];
    int code;

    if (uid == 0 || uid == service->access.service_uid) {
        code = np_token_replace(service->start.dir, service->token, err);
        memcpy(token, service->token, sizeof(token));
    } else if ((code = np_token_make(token, err)) == 0) {
        np_token_hash(token, hash);
        code = np_queue_set_token(service->queue, uid, hash, np_book_now(), err);
    }
    if (code == 0)
        memcpy(ret_token, token, sizeof(token));
    return code;
}

bool np_service_find_token(struct np_service *service, const char *token, uid_t *ret_uid)
{
    bool found = false;
    char hash[NP_TOKEN_CHARS + 1];

    if (strlen(token) != NP_TOKEN_CHARS)
        return false;
    np_token_hash(token, hash);
    return np_queue_find_token(service->queue, hash, ret_uid, &found, NULL) == 0 && found;
}
