/* See service.h. */
#include "daemon/service/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/service/devices.h"
#include "daemon/service/notify.h"
#include "daemon/service/service_parts.h"
#include "daemon/service/sha256.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define MAX_ORDERS 64
#define TICK_S     1

double np_service_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double np_service_ticks(void)
{
    return (double)np_now_ns() * 1e-9;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int index_of(const struct np_service *service, int64_t id)
{
    int low = 0, high = service->nr_runs;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (service->runs[middle]->entry.id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < service->nr_runs && service->runs[low]->entry.id == id ? low : -1;
}

struct np_service_run *np_service_run_of(const struct np_service *service, int64_t id)
{
    const int i = index_of(service, id);

    return i < 0 ? NULL : service->runs[i];
}

/* Room for one more, so that what is in the file finds its place. */
static int make_room(struct np_service *service, struct np_err *err)
{
    if (service->nr_runs < service->room)
        return 0;
    const int room = 2 * service->room + 64;
    struct np_service_run **runs = np_alloc_array((size_t)room, sizeof(*runs));
    const struct np_entry **entries = np_alloc_array((size_t)room, sizeof(*entries));

    if (!runs || !entries) {
        np_free(runs);
        np_free(entries);
        return np_err_set(err, -ENOMEM, "out of memory");
    }
    for (int i = 0; i < service->nr_runs; i++) {
        runs[i] = service->runs[i];
        entries[i] = service->entries[i];
    }
    np_free(service->runs);
    np_free(service->entries);
    service->runs = runs;
    service->entries = entries;
    service->room = room;
    return 0;
}

static void free_run(struct np_service_run *run)
{
    np_errand_end(&run->errand, false, 0);
    np_worker_forget(&run->found);
    np_worker_forget(&run->worker);
    np_entry_fini(&run->entry);
    np_free(run);
}

static struct np_service_run *new_run(const struct np_entry *entry, struct np_err *err)
{
    struct np_service_run *run = np_alloc(sizeof(*run));

    if (!run) {
        np_err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    run->entry = *entry;
    run->worker = run->found = NP_NO_WORKER;
    run->errand.child = (struct np_child){.fd = -1, .epoll_fd = -1, .passed_fd = -1};
    run->spare = -1;
    run->progress = np_progress_unknown;
    run->entry.path = np_strdup(entry->path);
    run->entry.config = run->entry.environment = NULL; /* the queue's file has them */
    run->entry.dir = entry->dir ? np_strdup(entry->dir) : NULL;
    run->entry.overrides = entry->overrides ? np_strdup(entry->overrides) : NULL;
    run->entry.on_end = entry->on_end ? np_strdup(entry->on_end) : NULL;
    if (!run->entry.path || (entry->dir && !run->entry.dir) ||
        (entry->overrides && !run->entry.overrides) || (entry->on_end && !run->entry.on_end)) {
        free_run(run);
        np_err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    return run;
}

int np_service_add(void *context, const struct np_entry *entry, struct np_err *err)
{
    struct np_service *service = context;
    struct np_service_run *run;
    int code = make_room(service, err);

    if (code < 0)
        return code;
    if (!(run = new_run(entry, err)))
        return -ENOMEM;
    service->runs[service->nr_runs] = run;
    service->entries[service->nr_runs++] = &run->entry;
    service->version++;
    return 0;
}

void np_service_drop(struct np_service *service, int index)
{
    free_run(service->runs[index]);
    service->nr_runs--;
    for (int i = index; i < service->nr_runs; i++) {
        service->runs[i] = service->runs[i + 1];
        service->entries[i] = service->entries[i + 1];
    }
    service->version++;
}

int np_service_commit(struct np_service *service, struct np_service_run *run,
    const struct np_entry *to, struct np_err *err)
{
    const bool was_over = np_entry_is_over(&run->entry), is_over = np_entry_is_over(to);
    struct np_entry written = *to;

    if (is_over != was_over) /* where nobody is to be told, everybody has been */
        written.told = is_over && !np_notify_is_wanted(&service->options, to);
    const int code = np_queue_update(service->queue, &written, err);
    if (code < 0)
        return code;
    run->entry = written;
    service->version++;
    return 0;
}

/* --- what is asked of it ---------------------------------------------------------------------- */

const struct np_access *np_service_access(const struct np_service *service)
{
    return &service->access;
}

const struct np_service_options *np_service_options(const struct np_service *service)
{
    return &service->options;
}

uint64_t np_service_version(const struct np_service *service)
{
    return service->version;
}

const struct np_entry *const *np_service_entries(const struct np_service *service, int *ret_nr)
{
    *ret_nr = service->nr_runs;
    return service->entries;
}

const struct np_entry *np_service_find(const struct np_service *service, int64_t id)
{
    const struct np_service_run *run = np_service_run_of(service, id);

    return run ? &run->entry : NULL;
}

const struct np_progress *np_service_progress(const struct np_service *service, int64_t id)
{
    const struct np_service_run *run = np_service_run_of(service, id);

    return run ? &run->progress : &np_progress_unknown;
}

int np_service_config(struct np_service *service, int64_t id, char **ret_text, struct np_err *err)
{
    char *environment;
    const int code = np_queue_text(service->queue, id, ret_text, &environment, err);

    if (code == 0)
        np_free(environment);
    return code;
}

int np_service_may_queue(const struct np_service *service, uid_t uid, struct np_err *err)
{
    const int64_t most = service->options.limits.queued_per_user;
    int64_t nr = 0;

    if (!np_access_is_limited(&service->access, uid))
        return 0;
    for (int i = 0; i < service->nr_runs; i++)
        nr += service->entries[i]->uid == uid && !np_entry_is_over(service->entries[i]);
    if (nr < most)
        return 0;
    return np_err_set(err, -EDQUOT,
        "you have %lld runs that are not over, and each user may have %lld here "
        "(limits.queued_per_user); stop some, or wait until some are done",
        (long long)nr, (long long)most);
}

/* The name that its user has; later it may be another's. */
static void take_user(const struct np_service *service, struct np_entry *entry)
{
    bool is_name;
    const char *name = np_names_of(service->names, entry->uid, &is_name);

    if (is_name && !*entry->user)
        snprintf(entry->user, sizeof(entry->user), "%s", name);
}

/* A run that was submitted before its user's name was known has it from now on. */
static void take_names(struct np_service *service)
{
    struct np_err unwritten = {0};

    if (!np_names_turn(service->names))
        return;
    service->version++;
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_entry to = service->runs[i]->entry;

        if (*to.user || np_entry_is_over(&to))
            continue;
        take_user(service, &to);
        if (*to.user)
            np_service_commit(service, service->runs[i], &to, &unwritten);
    }
}

int np_service_submit(struct np_service *service, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err)
{
    struct np_entry added = *entry;
    int code;

    for (int i = 0; i < entry->nr_after; i++)
        if (!np_service_run_of(service, entry->after[i]))
            return np_err_set(err, -ENOENT, "there is no run %lld that it could come after",
                (long long)entry->after[i]);
    if (!np_dispatch_knows(service->options.devices, service->options.nr_devices, entry->device))
        return np_err_set(err, -ENODEV, "this service has no device '%s'", entry->device);
    if ((code = np_service_may_queue(service, entry->uid, err)) < 0)
        return code;
    if ((code = make_room(service, err)) < 0)
        return code;
    added.submitted = np_service_now();
    added.exit_code = -1;
    take_user(service, &added);
    code = np_queue_add(service->queue, &added, ret_id, ret_known, err);
    if (code < 0 || *ret_known)
        return code;
    added.id = *ret_id;
    added.dir = np_format("%s/%s-%lld", entry->dir, entry->name, (long long)added.id);
    code = added.dir ? np_service_add(service, &added, err)
                     : np_err_set(err, -ENOMEM, "out of memory");
    np_free(added.dir);
    if (code == 0)
        np_service_say_unplaced(service);
    return code;
}

static int find(const struct np_service *service, int64_t id, struct np_service_run **ret_run,
    struct np_err *err)
{
    *ret_run = np_service_run_of(service, id);
    return *ret_run ? 0 : np_err_set(err, -ENOENT, "there is no run %lld", (long long)id);
}

/* A run without a worker goes there at once, one with a worker by way of its last checkpoint. */
static int leave(struct np_service *service, int64_t id, enum np_entry_state going,
    enum np_entry_state gone, struct np_err *err)
{
    struct np_service_run *run;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    struct np_entry to = run->entry;
    if (to.state == going || to.state == gone)
        return -EALREADY;
    if (np_entry_is_over(&to))
        return np_err_set(
            err, -EINVAL, "run %lld is over: it is %s", (long long)id, np_entry_states[to.state]);
    if (to.state == NP_ENTRY_STOPPING)
        return np_err_set(err, -EINVAL, "run %lld is being stopped", (long long)id);
    to.state = np_entry_has_worker(&to) ? going : gone;
    to.reason[0] = '\0';
    if (np_entry_is_over(&to))
        to.ended = np_service_now();
    if ((code = np_service_commit(service, run, &to, err)) < 0)
        return code;
    np_service_tell(service, run);
    return 0;
}

int np_service_stop(struct np_service *service, int64_t id, struct np_err *err)
{
    return leave(service, id, NP_ENTRY_STOPPING, NP_ENTRY_STOPPED, err);
}

int np_service_pause(struct np_service *service, int64_t id, struct np_err *err)
{
    return leave(service, id, NP_ENTRY_PAUSING, NP_ENTRY_PAUSED, err);
}

int np_service_resume(struct np_service *service, int64_t id, struct np_err *err)
{
    struct np_service_run *run;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    struct np_entry to = run->entry;
    if (to.state == NP_ENTRY_QUEUED || to.state == NP_ENTRY_RUNNING ||
        to.state == NP_ENTRY_YIELDING)
        return -EALREADY;
    if (np_entry_is_over(&to) || to.state == NP_ENTRY_STOPPING)
        return np_err_set(
            err, -EINVAL, "run %lld is %s, not paused", (long long)id, np_entry_states[to.state]);
    /* One that is still on its way to being paused ends, and is queued then. */
    to.state = to.state == NP_ENTRY_PAUSING ? NP_ENTRY_YIELDING : NP_ENTRY_QUEUED;
    to.not_before = 0;
    to.reason[0] = '\0';
    return np_service_commit(service, run, &to, err);
}

int np_service_set_priority(
    struct np_service *service, int64_t id, int64_t priority, struct np_err *err)
{
    struct np_service_run *run;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    struct np_entry to = run->entry;
    to.priority = priority;
    return np_service_commit(service, run, &to, err);
}

/* A queued run that comes after this one; 0: none. */
static int64_t waiting_for(const struct np_service *service, int64_t id)
{
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_entry *entry = service->entries[i];

        for (int k = 0; k < entry->nr_after && !np_entry_is_over(entry); k++)
            if (entry->after[k] == id)
                return entry->id;
    }
    return 0;
}

int np_service_remove(struct np_service *service, int64_t id, struct np_err *err)
{
    struct np_service_run *run;
    int64_t next;
    int code = find(service, id, &run, err);

    if (code < 0)
        return code;
    if (!np_entry_is_over(&run->entry))
        return np_err_set(err, -EBUSY, "run %lld is %s: stop it first", (long long)id,
            np_entry_states[run->entry.state]);
    if (run->entry.state != NP_ENTRY_DONE && (next = waiting_for(service, id)) > 0)
        return np_err_set(err, -EBUSY, "run %lld still comes after it", (long long)next);
    if ((code = np_queue_remove(service->queue, id, err)) < 0)
        return code;
    np_service_drop(service, index_of(service, id));
    return 0;
}

/* Runs that are over, and are more or older than service.yaml keeps; a few at a time. */
static void forget_old(struct np_service *service)
{
    const bool steady = np_notify_is_steady(&service->clock, np_service_now(), np_service_ticks());
    const double now = steady ? np_service_now() : 0; /* 0: nothing is old */

    for (int i = 0; i < MAX_ORDERS; i++) {
        struct np_err unwritten = {0};
        const int64_t id =
            np_notify_oldest(&service->options, service->entries, service->nr_runs, now);

        if (id == 0 || np_service_remove(service, id, &unwritten) < 0)
            return;
    }
}

/* --- tokens ----------------------------------------------------------------------------------- */

void np_service_set_problem(struct np_service *service, const char *text)
{
    snprintf(service->problem, sizeof(service->problem), "%s", text);
}

const char *np_service_problem(const struct np_service *service)
{
    return service->problem;
}

const char *np_service_token(const struct np_service *service)
{
    return service->token;
}

int np_service_new_token(struct np_service *service, uid_t uid,
    char ret_token[NP_SERVICE_TOKEN_BYTES], struct np_err *err)
{
    char token[NP_TOKEN_CHARS + 1], hash[65];
    int code;

    if (uid == 0 || uid == service->access.service_uid) {
        code = np_token_replace(service->start.dir, service->token, err);
        memcpy(token, service->token, sizeof(token));
    } else if ((code = np_token_make(token, err)) == 0) {
        np_sha256(token, strlen(token), hash);
        code = np_queue_set_token(service->queue, uid, hash, np_service_now(), err);
    }
    if (code == 0)
        memcpy(ret_token, token, sizeof(token));
    return code;
}

int np_service_drop_token(struct np_service *service, uid_t uid, struct np_err *err)
{
    return np_queue_drop_token(service->queue, uid, err);
}

bool np_service_find_token(struct np_service *service, const char *token, uid_t *ret_uid)
{
    struct np_err unread = {0};
    bool found = false;
    char hash[65];

    if (strlen(token) != NP_TOKEN_CHARS)
        return false;
    np_sha256(token, NP_TOKEN_CHARS, hash);
    return np_queue_find_token(service->queue, hash, ret_uid, &found, &unread) == 0 && found;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void carry_out(struct np_service *service, const struct np_order *order)
{
    struct np_service_run *run = service->runs[order->entry];
    struct np_entry to = run->entry;
    struct np_err err = {0};

    switch (order->kind) {
    case NP_ORDER_START:
        np_service_begin(service, run, service->options.devices[order->device].name, &err);
        break;
    case NP_ORDER_YIELD:
        if (np_service_await_room(service, np_service_run_of(service, order->other), &err) != 0)
            break; /* it could not be started, and the other would go and come for nothing */
        to.state = NP_ENTRY_YIELDING;
        snprintf(to.reason, sizeof(to.reason), "it makes room for run %lld, of higher priority",
            (long long)order->other);
        if (np_service_commit(service, run, &to, &err) == 0)
            np_service_tell(service, run);
        break;
    case NP_ORDER_FAIL:
        to.state = NP_ENTRY_FAILED;
        to.ended = np_service_now();
        snprintf(to.reason, sizeof(to.reason), "run %lld, which it comes after, was not done",
            (long long)order->other);
        np_service_commit(service, run, &to, &err);
    }
    if (err.code) /* the file cannot be written: with the next turn again */
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
        .now = np_service_now(),
        .ticks = np_service_ticks(),
        .longest_s = service->options.retry_cap_s > NP_DISK_WAIT_S ? service->options.retry_cap_s
                                                                   : NP_DISK_WAIT_S};
    np_service_look_at_program(service);
    if (!service->replaced)
        np_service_say_suspects(service);
    const bool waits =
        service->stopping || service->held || service->replaced || d.ticks < service->start_at;
    const int nr = waits ? 0 : np_dispatch(&d, orders, MAX_ORDERS);

    for (int i = 0; i < nr; i++)
        carry_out(service, &orders[i]);
    np_service_mark_full(service);
}

int np_service_wake_on(struct np_service *service, int fd, struct np_err *err)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (epoll_ctl(service->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return np_err_set(err, -errno, "the service cannot wait: %s", strerror(errno));
    return 0;
}

void np_service_each_turn(struct np_service *service, void (*turn)(void *context), void *context)
{
    service->turn = turn;
    service->turn_context = context;
}

/* An end that could not be read or written down is found in the run's folder by the next daemon. */
static bool any_worker(const struct np_service *service)
{
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_service_run *run = service->runs[i];

        if (run->worker.pid > 0 || run->starting || (run->over && run->errand.failures == 0))
            return true;
    }
    return false;
}

static void say(const struct np_service *service, const char *state)
{
    if (service->start.say)
        service->start.say(service->start.context, state);
}

static void take_signals(struct np_service *service)
{
    struct signalfd_siginfo info;
    struct np_err err = {0};

    while (read(service->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) {
            say(service, "RELOADING");
            if (np_service_reload(service, &err) < 0)
                fprintf(stderr, "nnpipe daemon: nothing is changed: %s\n", err.text);
            say(service, "READY");
            continue;
        }
        if (info.ssi_signo == SIGCHLD)
            continue;
        service->stopping = true;
        say(service, "STOPPING");
        for (int i = 0; i < service->nr_runs; i++)
            np_service_tell(service, service->runs[i]);
    }
}

int np_service_run(struct np_service *service, struct np_err *err)
{
    uint64_t seen = service->version - 1;

    while (!service->stopping || any_worker(service)) {
        struct epoll_event events[32];
        /* What was asked of it in the last turn may be ready to be started. */
        const int wait_ms = service->version != seen ? 0 : TICK_S * 1000;
        const int nr = epoll_wait(service->epoll_fd, events, 32, wait_ms);

        if (nr < 0 && errno != EINTR)
            return np_err_set(err, -errno, "epoll_wait: %s", strerror(errno));
        seen = service->version;
        take_signals(service);
        for (int i = 0; i < service->nr_runs; i++)
            np_service_look_after(service, service->runs[i]);
        dispatch(service);
        forget_old(service);
        np_retention_turn(service);
        np_notify_turn(service);
        np_devices_turn(service);
        take_names(service);
        if (service->turn)
            service->turn(service->turn_context);
    }
    return 0;
}
