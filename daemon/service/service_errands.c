#include "daemon/service/service_errands.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/decide.h"
#include "daemon/service/retention.h"
#include "loader/base/mem.h"

#define MAX_OWN       8   /* errands of one user at a time */
#define PATIENCE_S    0.5 /* for which a run keeps its turn while an errand asks its disk */
#define ROOM_S        2.0 /* validity of an answer about free space */
#define LISTEN_S      0.2 /* between two attempts to open a report */
#define MAX_PUT_OFF_S 60.0
#define MAX_READS     5 /* attempts to read an exit.json */

static const char *why(int code)
{
    return code == -ETIMEDOUT ? "its storage hangs"
           : code == -ENOSPC  ? "its disk has no space for more files"
           : code == -EBUSY   ? "too many of its user's processes hang in storage"
                              : strerror(-code);
}

/* Errors that the worker gets, too, and explains better. */
static bool is_for_the_worker(int code)
{
    return code == -EACCES || code == -EPERM || code == -ELOOP || code == -ENAMETOOLONG;
}

static void take_room(
    struct np_service *service, struct np_service_run *run, int code, double bytes)
{
    const double now = np_book_ticks();
    char text[512];
    const double wait = np_back_off(
        service->options.retry_first_s, service->options.retry_cap_s, run->errand.failures);

    run->wants_room = run->entry.unready = false;
    if (run->entry.state != NP_ENTRY_QUEUED)
        return; /* it was stopped or paused meanwhile */
    if (code == 0 || is_for_the_worker(code)) {
        run->room = code == 0 ? bytes : INFINITY;
        run->room_until = now + ROOM_S;
        return;
    }
    snprintf(text, sizeof(text), "%.300s: %s; the run waits until its disk can be used",
        run->entry.dir, why(code));
    np_book_delay(service, run, wait < MAX_PUT_OFF_S ? wait : MAX_PUT_OFF_S, text, NULL);
}

int np_service_await_room(
    struct np_service *service, struct np_service_run *run, struct np_err *err)
{
    const double now = np_book_ticks(), wanted = (double)service->options.spare_bytes;
    char text[512];

    if (now >= run->room_until) {
        if (!run->wants_room)
            run->asked_at = now;
        run->wants_room = true;
        np_service_run_errands(service, run);
        return run->entry.not_before > np_book_now() ? 1 : 2;
    }
    if (run->room >= wanted)
        return 0;
    snprintf(text, sizeof(text),
        "the disk of %.300s is full: %.1f GiB are free, %.1f are needed; the run continues when "
        "there is enough space",
        run->entry.dir, run->room / (1 << 30), wanted / (1 << 30));
    const int code = np_book_delay(service, run, NP_DISK_WAIT_S, text, err);
    return code < 0 ? code : 1;
}

/* --- workers of an earlier daemon ------------------------------------------------------------- */

static void record_over(struct np_service_run *run)
{
    np_worker_forget(&run->found);
    run->lost = run->starting = false;
    run->over = run->absent = true;
    run->lived_s = run->entry.lived_s;
    run->left = (struct np_worker_exit){.code = -1, .status = -1};
}

/* Opens the recorded process; take_process() confirms it. */
static void find_process(struct np_service_run *run)
{
    if (np_worker_find(run->entry.process, &run->found) == -ESRCH)
        record_over(run);
}

void np_service_adopt(struct np_service_run *run)
{
    if (!np_entry_has_worker(&run->entry))
        return;
    np_book_new_worker(run);
    run->lost = true;
    if (*run->entry.process)
        find_process(run);
}

static void note_process(struct np_service *service, struct np_service_run *run, const char *text)
{
    struct np_entry to = run->entry;

    snprintf(to.process, sizeof(to.process), "%s", text);
    np_book_commit(service, run, &to, NULL);
}

/* If the PID is still the worker's, it was also when the pidfd was opened. False: unknown. */
static bool take_process(
    struct np_service *service, struct np_service_run *run, int code, const char *text)
{
    if (np_pid_fd_has_ended(run->found.pid_fd) ||
        (code == 0 && strcmp(text, run->entry.process) != 0)) {
        record_over(run);
        return true;
    }
    if (code < 0)
        return false;
    const double age = np_book_now() - run->entry.started;
    run->lost = false;
    run->born -= age > run->entry.lived_s ? age : run->entry.lived_s;
    np_book_take_worker(service, run, &run->found);
    run->found = NP_NO_WORKER;
    return true;
}

static bool take_holder(
    struct np_service *service, struct np_service_run *run, int code, const char *text)
{
    if (code == 0) {
        note_process(service, run, text);
        find_process(run);
    } else if (code == -ESRCH && run->errand.kind == NP_ERRAND_HOLDER && service->start.units) {
        run->no_lock = true;
    } else if (code == -ESRCH || run->errand.kind == NP_ERRAND_UNIT_FIND) {
        record_over(run);
    } else {
        return false;
    }
    return true;
}

static void take_unit(
    struct np_service *service, struct np_service_run *run, int code, const char *text)
{
    struct np_worker worker = NP_NO_WORKER;

    run->starting = false;
    if (code == 0) {
        note_process(service, run, text);
        code = np_worker_find(text, &worker);
    }
    if (code == 0) {
        np_book_take_worker(service, run, &worker);
    } else if (code == -ECHILD || code == -ESRCH) {
        record_over(run);
        run->absent = false;
    } else {
        np_book_unstarted(run, text && *text ? text : "systemd does not answer");
    }
}

/* --- report and end --------------------------------------------------------------------------- */

/* False: the folder's storage hangs. */
static bool take_pipe(
    struct np_service *service, struct np_service_run *run, const struct np_errand_answer *answer)
{
    const double now = np_book_ticks();

    run->listen_at = now + LISTEN_S;
    if (answer->fd >= 0 && run->worker.pid > 0) {
        run->worker.report_fd = answer->fd;
        if (run->silent)
            np_book_set_reason(service, run, "%s", "");
        run->silent = false;
    } else if (answer->fd >= 0) {
        close(answer->fd); /* the worker has ended meanwhile */
    }
    return answer->code != -ETIMEDOUT && answer->code != -EIO;
}

static void finish(struct np_service_run *run)
{
    run->over = run->read = false;
    run->never_began = run->absent && !run->left.begun;
    run->ended = true;
}

/* False: read it again. A run that is stopping becomes stopped in any case. */
static bool take_exit(
    struct np_service *service, struct np_service_run *run, int code, const char *text)
{
    const bool is_read = code == 0 || code == -ENOENT;

    if (!is_read && run->entry.state != NP_ENTRY_STOPPING &&
        (code == -ETIMEDOUT || run->errand.failures < MAX_READS)) {
        struct np_entry to = run->entry;

        to.assigned[0] = '\0'; /* the process has ended: the device is free */
        snprintf(to.reason, sizeof(to.reason),
            "its process has ended; the result is unknown until %.300s can be read: %s", to.dir,
            why(code));
        np_book_commit(service, run, &to, NULL);
        return false;
    }
    if (code == 0)
        np_worker_read_exit(text, run->entry.attempt, &run->left);
    if (!is_read)
        snprintf(run->left.reason, sizeof(run->left.reason), "%.300s cannot be read: %s",
            run->entry.dir, why(code));
    run->read = true;
    if (!service->start.units)
        finish(run);
    return true;
}

static void take_unit_end(struct np_service_run *run, int code, double signal, const char *text)
{
    if (code == 0 && run->left.code < 0 && !run->left.signal)
        run->left.signal = signal > 0 && signal < 65 ? (int)signal : 0;
    if (code == 0 && text && *text && !*run->left.reason)
        snprintf(run->left.reason, sizeof(run->left.reason), "%.500s", text);
    finish(run);
}

/* --- errands, one after the other ------------------------------------------------------------- */

static bool next_errand(const struct np_service_run *run, enum np_errand_kind *ret_kind)
{
    if (run->starting)
        *ret_kind = NP_ERRAND_UNIT_START;
    else if (run->lost)
        *ret_kind = run->found.pid > 0 ? NP_ERRAND_PROCESS
                    : run->no_lock     ? NP_ERRAND_UNIT_FIND
                                       : NP_ERRAND_HOLDER;
    else if (run->over)
        *ret_kind = run->read ? NP_ERRAND_UNIT_END : NP_ERRAND_EXIT;
    else if (run->worker.pid > 0 && run->worker.report_fd < 0 && np_book_ticks() >= run->listen_at)
        *ret_kind = NP_ERRAND_PIPE;
    else if (run->wants_room && run->entry.state == NP_ENTRY_QUEUED)
        *ret_kind = NP_ERRAND_ROOM;
    else
        return false;
    return true;
}

static bool has_place(const struct np_service *service, uid_t uid)
{
    int n = 0;

    for (int i = 0; i < service->nr_runs; i++)
        n += service->runs[i]->errand.child.pid > 0 && service->runs[i]->entry.uid == uid;
    return n < MAX_OWN;
}

/* False: repeat the errand. */
static bool take_answer(
    struct np_service *service, struct np_service_run *run, const struct np_errand_answer *answer)
{
    switch (run->errand.kind) {
    case NP_ERRAND_ROOM: take_room(service, run, answer->code, answer->number); break;
    case NP_ERRAND_PIPE:
        if (take_pipe(service, run, answer))
            break;
        run->silent = true;
        np_book_set_reason(service, run,
            "the storage of %.300s hangs: no reports of the run can be read", run->entry.dir);
        return false;
    case NP_ERRAND_EXIT: return take_exit(service, run, answer->code, answer->text);
    case NP_ERRAND_HOLDER:
    case NP_ERRAND_UNIT_FIND: return take_holder(service, run, answer->code, answer->text);
    case NP_ERRAND_PROCESS: return take_process(service, run, answer->code, answer->text);
    case NP_ERRAND_UNIT_START: take_unit(service, run, answer->code, answer->text); break;
    case NP_ERRAND_UNIT_END: take_unit_end(run, answer->code, answer->number, answer->text); break;
    }
    return true;
}

static void take(
    struct np_service *service, struct np_service_run *run, const struct np_errand_answer *answer)
{
    const bool was_lost = run->lost;

    run->errand.failures++; /* the handlers of the answer count this failure, too */
    const bool done = take_answer(service, run, answer);
    run->errand.failures--;
    if (!done && run->lost)
        np_book_set_reason(service, run,
            "whether its process still runs is not known yet: %.300s: %s", run->entry.dir,
            why(answer->code));
    else if (done && was_lost && !run->lost && strstr(run->entry.reason, "not known yet"))
        np_book_set_reason(service, run, "%s", "");
    const bool no_room =
        run->errand.kind == NP_ERRAND_ROOM && answer->code < 0 && !is_for_the_worker(answer->code);
    np_errand_end(&run->errand, !done || no_room, np_book_ticks());
}

static void begin(struct np_service *service, struct np_service_run *run, enum np_errand_kind kind)
{
    const struct np_entry *entry = &run->entry;
    char *config = NULL, *environment = NULL;
    struct np_err err = {0};
    const bool starts = kind == NP_ERRAND_UNIT_START;
    int code = starts ? np_queue_text(service->queue, entry->id, &config, &environment, &err) : 0;
    const struct np_worker_start start = {
        .entry = entry, .config = config, .environment = environment};
    const struct np_errand_request request = {.kind = kind,
        .uid = entry->uid,
        .gid = entry->gid,
        .dir = entry->dir,
        .pid = run->found.pid,
        .units = service->start.units,
        .id = entry->id,
        .start = &start,
        .exit = &run->left};

    if (code == 0)
        code = np_errand_begin(&run->errand, &request, service->epoll_fd, &err);
    np_free(config);
    np_free(environment);
    if (code < 0) {
        run->errand.kind = kind;
        take(service, run, &(struct np_errand_answer){.code = code, .fd = -1});
    }
}

void np_service_run_errands(struct np_service *service, struct np_service_run *run)
{
    const double now = np_book_ticks();
    struct np_errand_answer answer;
    enum np_errand_kind kind;

    if (run->errand.child.pid > 0 && np_errand_turn(&run->errand, &answer))
        take(service, run, &answer);
    if (next_errand(run, &kind) && np_errand_may(&run->errand, now) &&
        has_place(service, run->entry.uid))
        begin(service, run, kind);
    if (run->entry.state != NP_ENTRY_QUEUED)
        run->wants_room = false;
    run->entry.unready = (run->wants_room && now - run->asked_at > PATIENCE_S) ||
                         np_retention_is_at(service->retention, run->entry.id);
}
