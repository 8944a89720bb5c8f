/* A worker's life as the service sees it: begun, heard, told to stop, ended; and what becomes of its run.
 * What is decided is in the queue's file before it is done. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/json.h"
#include "daemon/service/as_user.h"
#include "daemon/service/decide.h"
#include "daemon/service/service_parts.h"
#include "daemon/service/worker_unit.h"
#include "loader/base/mem.h"

#define LOST_S          15.0 /* between looks for a worker whose disk does not answer */
#define LISTEN_S        0.2  /* between two looks for its pipe */
#define LISTEN_PATIENCE 20   /* times what a look took, where its disk is slow, or hangs */
#define MOST_READS                                                                                 \
    16 /* of a pipe at a time: who says more than a pipe holds waits for the others */

/* --- beginning -------------------------------------------------------------------------------- */

static void say(struct np_entry *entry, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct np_entry *entry, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(entry->reason, sizeof(entry->reason), format, args);
    va_end(args);
}

/* Where that cannot be, its end is seen with the next tick. */
void np_service_watch(struct np_service *service, struct np_kept *run)
{
    struct epoll_event event = {.events = EPOLLIN};

    epoll_ctl(service->epoll_fd, EPOLL_CTL_ADD, run->worker.pid_fd, &event);
}

void np_service_begin_life(struct np_kept *run)
{
    run->progress = (struct np_said){.step = NAN,
        .total_steps = NAN,
        .epoch = NAN,
        .loss = NAN,
        .accuracy = NAN,
        .images_per_second = NAN,
        .stall_ratio = NAN,
        .eta_s = NAN};
    run->ended = run->unbegun = run->unstarted = run->hung = false;
    run->told = run->listen_at = 0;
    run->used = 0;
    run->at = -1;
    run->went_on = run->born = np_service_ticks();
    run->lived_s = 0;
}

int np_service_await_room(struct np_service *service, struct np_kept *run, struct np_err *err)
{
    struct np_entry to = run->entry;
    const double room = np_free_bytes_as(to.uid, to.gid, to.dir);

    if (room < 0 || room >= (double)service->options.spare_bytes)
        return 0;
    to.not_before = np_service_now() + NP_DISK_WAIT_S;
    say(&to,
        "the disk of %s is full: %.1f GiB are free, %.1f are needed; it goes on when there is room",
        to.dir, room / (1 << 30), (double)service->options.spare_bytes / (1 << 30));
    const int code = np_service_commit(service, run, &to, err);
    return code < 0 ? code : 1;
}

int np_service_begin(
    struct np_service *service, struct np_kept *run, const char *device, struct np_err *err)
{
    int code = np_service_await_room(service, run, err);

    if (code != 0)
        return code < 0 ? code : 0;
    struct np_entry to = run->entry;
    to.state = NP_ENTRY_RUNNING;
    to.attempt++;
    to.started = np_service_now();
    to.exit_code = -1;
    to.lived_s = 0;
    to.reason[0] = '\0';
    snprintf(to.assigned, sizeof(to.assigned), "%s", device);
    if ((code = np_service_commit(service, run, &to, err)) < 0)
        return code;
    np_service_begin_life(run);
    char *config = NULL, *environment = NULL;
    code = np_queue_text(service->queue, to.id, &config, &environment, err);
    const struct np_worker_start start = {.uid = to.uid,
        .gid = to.gid,
        .dir = to.dir,
        .config = config,
        .environment = environment,
        .umask = (int)to.umask,
        .device = device,
        .attempt = to.attempt};
    if (code == 0)
        code = service->start.units
                   ? np_units_start(service->start.units, to.id, &start, &run->worker, err)
                   : np_worker_start(&start, &run->worker, err);
    np_free(config);
    np_free(environment);
    if (code == 0) {
        np_service_watch(service, run);
    } else { /* as if it had died at once */
        run->left = (struct np_worker_exit){.code = -1};
        snprintf(run->left.reason, sizeof(run->left.reason), "%s", err->text);
        run->ended = run->unstarted = true;
    }
    return 0;
}

/* --- signs of life ---------------------------------------------------------------------------- */

static void take_text(char *to, size_t bytes, const struct np_node *map, const char *key)
{
    const struct np_node *node = np_node_get(map, key);

    if (node && node->kind == NP_NODE_SCALAR)
        snprintf(to, bytes, "%s", node->text);
}

/* {"doing": "training", "step": 12, ...}: a field that is not there is as it was. */
static void hear(struct np_service *service, struct np_kept *run, const char *line)
{
    struct np_said *p = &run->progress;
    struct np_node *node = NULL;
    struct np_err unread = {0};
    char doing[sizeof(p->doing)];

    if (np_json_parse(line, strlen(line), &node, &unread) < 0 || node->kind != NP_NODE_MAP) {
        np_node_free(node);
        return;
    }
    memcpy(doing, p->doing, sizeof(doing));
    take_text(p->doing, sizeof(p->doing), node, "doing");
    take_text(p->cause, sizeof(p->cause), node, "cause");
    p->step = np_node_number(node, "step", p->step);
    p->total_steps = np_node_number(node, "total_steps", p->total_steps);
    p->epoch = np_node_number(node, "epoch", p->epoch);
    p->loss = np_node_number(node, "loss", p->loss);
    p->accuracy = np_node_number(node, "accuracy", p->accuracy);
    p->images_per_second = np_node_number(node, "images_per_second", p->images_per_second);
    p->stall_ratio = np_node_number(node, "stall_ratio", p->stall_ratio);
    p->eta_s = np_node_number(node, "eta_seconds", p->eta_s);
    p->said = np_service_now();
    const double at = np_node_number(node, "progress", run->at); /* batches done, of any kind */
    if (at > run->at || strcmp(doing, p->doing) != 0)
        run->went_on = np_service_ticks();
    run->at = at;
    service->version++;
    np_node_free(node);
}

static void listen_to(struct np_service *service, struct np_kept *run)
{
    const struct np_entry *entry = &run->entry;
    const double now = np_service_ticks();
    char bytes[4096];
    ssize_t nr;

    if (run->worker.report_fd < 0 && now < run->listen_at)
        return;
    if (np_worker_listen(&run->worker, entry->uid, entry->gid, entry->dir) < 0) {
        const double took_s = np_service_ticks() - now;

        run->listen_at = now + LISTEN_S + LISTEN_PATIENCE * took_s;
        return;
    }
    for (int n = 0; n < MOST_READS && (nr = read(run->worker.report_fd, bytes, sizeof(bytes))) > 0;
         n++)
        for (ssize_t i = 0; i < nr; i++) {
            if (bytes[i] == '\n') {
                run->line[run->used] = '\0';
                hear(service, run, run->line);
                run->used = 0;
            } else if (run->used + 1 < sizeof(run->line)) {
                run->line[run->used++] = bytes[i];
            }
        }
}

/* --- ending ----------------------------------------------------------------------------------- */

void np_service_tell(struct np_service *service, struct np_kept *run)
{
    (void)service;
    if (run->worker.pid == 0 || run->told > 0)
        return;
    run->told = np_service_ticks();
    np_worker_signal(&run->worker, SIGTERM);
}

static void decide(struct np_service *service, struct np_kept *run, struct np_entry *to)
{
    const struct np_end end = {.left = &run->left,
        .told = run->told > 0,
        .hung = run->hung,
        .unbegun = run->unbegun,
        .unstarted = run->unstarted,
        .now = np_service_now(),
        .retry_first_s = service->options.retry_first_s,
        .retry_cap_s = service->options.retry_cap_s};

    np_decide(&end, to, &run->waits);
    np_service_count_time(run, to);
}

static bool has_ended(const struct np_worker *worker)
{
    return np_pid_fd_is_over(worker->pid_fd);
}

void np_service_look_after(struct np_service *service, struct np_kept *run)
{
    struct np_entry *entry = &run->entry;
    const double now = np_service_ticks();
    struct np_err unwritten = {0};

    if (run->lost && now - run->went_on > LOST_S)
        np_service_adopt(service, run);
    if (run->worker.pid > 0) {
        listen_to(service, run);
        np_service_watch_time(service, run);
        if (has_ended(&run->worker)) {
            epoll_ctl(service->epoll_fd, EPOLL_CTL_DEL, run->worker.pid_fd, NULL);
            np_worker_end(
                &run->worker, entry->uid, entry->gid, entry->dir, entry->attempt, &run->left);
            if (service->start.units)
                np_units_end(service->start.units, entry->id, &run->left);
            run->ended = true;
        } else if (run->told > 0 ? now - run->told > service->options.stop_s
                                 : now - run->went_on > service->options.hang_s) {
            run->hung = run->told == 0;
            np_worker_signal(&run->worker, SIGKILL);
        }
    }
    if (run->ended) { /* until it is written, it is tried again with each turn */
        struct np_entry to = *entry;
        const int waits = run->waits;

        decide(service, run, &to);
        if (np_service_commit(service, run, &to, &unwritten) == 0)
            run->ended = false;
        else
            run->waits = waits;
    }
}
