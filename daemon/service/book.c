#include "daemon/service/book.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"

double np_book_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double np_book_ticks(void)
{
    return (double)np_now_ns() * 1e-9;
}

int np_book_wake_on(struct np_service *service, int fd, struct np_err *err)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (epoll_ctl(service->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return np_err_set(err, -errno, "the service cannot wait for events: %s", strerror(errno));
    return 0;
}

/* --- runs ------------------------------------------------------------------------------------- */

struct np_service_run *np_book_run(const struct np_service *service, int64_t id)
{
    const int i = np_entry_find(service->entries, service->nr_runs, id);

    return i < 0 ? NULL : service->runs[i];
}

int np_book_make_room(struct np_service *service, struct np_err *err)
{
    const size_t nr = (size_t)service->nr_runs + 1;
    int code = np_try_grow(&service->runs, &service->runs_room, nr, sizeof(*service->runs), err);

    if (code == 0)
        code = np_try_grow(
            &service->entries, &service->entries_room, nr, sizeof(*service->entries), err);
    return code;
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
    struct np_err none = {0};

    run->entry = *entry;
    run->worker = run->found = NP_NO_WORKER;
    run->errand.child = NP_NO_CHILD;
    run->spare = -1;
    run->progress = np_progress_unknown;
    run->entry.config = run->entry.environment = NULL; /* the queue's file has them */
    run->entry.path = np_try_strdup(entry->path, &none);
    run->entry.dir = np_try_strdup(entry->dir, &none);
    run->entry.overrides = np_try_strdup(entry->overrides, &none);
    run->entry.on_end = np_try_strdup(entry->on_end, &none);
    if (none.code == 0)
        return run;
    free_run(run);
    np_err_set(err, none.code, "%s", none.text);
    return NULL;
}

int np_book_add(void *context, const struct np_entry *entry, struct np_err *err)
{
    struct np_service *service = context;
    struct np_service_run *run;
    int code = np_book_make_room(service, err);

    if (code < 0)
        return code;
    if (!(run = new_run(entry, err)))
        return -ENOMEM;
    service->runs[service->nr_runs] = run;
    service->entries[service->nr_runs++] = &run->entry;
    service->version++;
    return 0;
}

void np_book_drop(struct np_service *service, struct np_service_run *run)
{
    const int index = np_entry_find(service->entries, service->nr_runs, run->entry.id);
    const size_t after = (size_t)(service->nr_runs - index - 1);

    memmove(&service->runs[index], &service->runs[index + 1], after * sizeof(*service->runs));
    memmove(
        &service->entries[index], &service->entries[index + 1], after * sizeof(*service->entries));
    service->nr_runs--;
    service->version++;
    free_run(run);
}

const char *np_book_owner(const struct np_service *service, const struct np_entry *entry)
{
    return *entry->user ? entry->user : np_names_of(service->names, entry->uid, NULL);
}

void np_book_name_user(const struct np_service *service, struct np_entry *entry)
{
    bool is_name;
    const char *name = np_names_of(service->names, entry->uid, &is_name);

    if (is_name && !*entry->user)
        snprintf(entry->user, sizeof(entry->user), "%s", name);
}

/* --- changes ---------------------------------------------------------------------------------- */

bool np_book_notifies(const struct np_service_options *options, const struct np_entry *entry)
{
    return options->on_end || options->webhook || entry->on_end;
}

int np_book_commit(struct np_service *service, struct np_service_run *run,
    const struct np_entry *to, struct np_err *err)
{
    const bool was_finished = np_entry_is_finished(&run->entry),
               is_finished = np_entry_is_finished(to);
    struct np_entry written = *to;

    if (is_finished != was_finished) /* without on_end and webhook, the run counts as notified */
        written.notified = is_finished && !np_book_notifies(&service->options, to);
    const int code = np_queue_update(service->queue, &written, err);
    if (code < 0)
        return code;
    run->entry = written;
    service->version++;
    return 0;
}

void np_book_set_reason(
    struct np_service *service, struct np_service_run *run, const char *format, ...)
{
    struct np_entry to = run->entry;
    va_list args;

    va_start(args, format);
    vsnprintf(to.reason, sizeof(to.reason), format, args);
    va_end(args);
    if (strcmp(to.reason, run->entry.reason) != 0)
        np_book_commit(service, run, &to, NULL);
}

int np_book_delay(struct np_service *service, struct np_service_run *run, double seconds,
    const char *why, struct np_err *err)
{
    struct np_entry to = run->entry;

    to.not_before = np_book_now() + seconds;
    snprintf(to.reason, sizeof(to.reason), "%s", why);
    return np_book_commit(service, run, &to, err);
}

/* --- their workers ---------------------------------------------------------------------------- */

void np_book_new_worker(struct np_service_run *run)
{
    run->progress = np_progress_unknown;
    run->ended = run->never_began = run->unstarted = run->hung = run->noted = false;
    run->starting = run->lost = run->no_lock = run->over = run->read = run->absent = false;
    run->silent = run->wants_room = false;
    run->room_until = 0; /* an answer is valid for one start */
    run->stop_asked = run->killed = run->listen_at = 0;
    run->used = 0;
    run->at = -1;
    run->progressed = run->born = np_book_ticks();
    run->lived_s = 0;
}

void np_book_unstarted(struct np_service_run *run, const char *why)
{
    run->left = (struct np_worker_exit){.code = -1, .status = -1};
    snprintf(run->left.reason, sizeof(run->left.reason), "%.500s", why);
    run->ended = run->unstarted = true;
}

void np_book_request_stop(struct np_service_run *run)
{
    if (run->worker.pid == 0 || run->stop_asked > 0)
        return;
    run->stop_asked = np_book_ticks();
    np_worker_signal(&run->worker, SIGTERM);
}

void np_book_take_worker(
    struct np_service *service, struct np_service_run *run, const struct np_worker *worker)
{
    run->worker = *worker;
    run->worker.is_parent = np_entry_processes(&run->entry) > 1;
    np_book_wake_on(service, worker->pid_fd, NULL); /* if this fails, the next tick sees its end */
    if (run->entry.state != NP_ENTRY_RUNNING || service->stopping)
        np_book_request_stop(run);
}
