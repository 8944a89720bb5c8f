#include "daemon/service/notify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/service/as_user.h"
#include "daemon/service/hook.h"
#include "daemon/service/run_json.h"
#include "loader/base/mem.h"

#define RETRY_S 5.0 /* delay after a start that failed */

#define MAX_NOTIFIERS 4
#define MAX_HOOKS     2 /* commands of one owner at a time; the others are for other owners */

struct np_notifiers {
    struct np_notifier {
        int64_t id; /* of a run; 0: none */
        pid_t pid;  /* runs the service's on_end and webhook; 0: ended, or none */
        int pid_fd;
        double ended;        /* end of the run, which may have been retried since */
        struct np_child own; /* runs the run's own command */
    } at[MAX_NOTIFIERS];
    double not_before; /* earliest start after a failure, by np_book_ticks() */
};

static int notify_by_unit(
    const struct np_service *service, const struct np_hook *own, int64_t id, struct np_err *err)
{
    struct np_json text = {0};

    np_json_begin(&text, NULL);
    np_json_text(&text, "on_end", service->options.on_end);
    np_json_text(&text, "webhook", service->options.webhook);
    np_json_text(&text, "run", own->run);
    np_json_text(&text, "own", own->command);
    np_json_text(&text, "dir", own->dir);
    np_json_text(&text, "environment", own->environment);
    np_json_int(&text, "umask", own->umask);
    char *line = np_json_take(&text, err);
    const int code =
        line ? service->start.units->notify(service->start.units, id, line, err) : -ENOMEM;
    np_free(line);
    return code;
}

static void be_notifier(const struct np_service_options *options, const char *json)
{
    np_child_signals();
    close_range(
        3, ~0u, 0); /* the sockets: the next daemon may bind them before this process ends */
    setsid();
    if (np_become(geteuid(), getegid(), NULL) == 0) /* without the service's capabilities */
        np_hook_run_service(options->on_end, options->webhook, json);
    _exit(0);
}

static int begin(
    struct np_service *service, struct np_notifier *notifier, const char *json, struct np_err *err)
{
    const pid_t child = fork();

    if (child == 0)
        be_notifier(&service->options, json);
    if (child < 0)
        return np_err_set(err, -errno, "no process can be started: %s", strerror(errno));
    notifier->pid = child;
    notifier->pid_fd = pidfd_open(child, 0);
    if (notifier->pid_fd >= 0) /* else the next tick sees its end */
        np_book_wake_on(service, notifier->pid_fd, NULL);
    return 0;
}

static int do_own(const void *context, int out_fd)
{
    return np_hook_run(context);
}

/* Skips the command if too many of the owner's processes hang: others must not wait. */
static int begin_own(struct np_service *service, const struct np_entry *entry,
    const struct np_hook *own, struct np_child *child, struct np_err *err)
{
    const struct np_child_start start = {.uid = entry->uid,
        .gid = entry->gid,
        .work = do_own,
        .context = own,
        .epoll_fd = service->epoll_fd,
        .max_s = NP_HOOK_S + 5, /* before that it ends itself, with a message */
        .max_bytes = 1};
    const int code = np_child_start(&start, child, err);

    if (code != -EBUSY)
        return code;
    fprintf(stderr, "nnpipe daemon: skipping on_end of run %lld: %s\n", (long long)entry->id,
        err->text);
    return 0;
}

static void record_notified(struct np_service *service, int64_t id, double ended)
{
    struct np_service_run *run = np_book_run(service, id);

    if (!run || !np_entry_is_finished(&run->entry) || run->entry.ended != ended)
        return;
    struct np_entry to = run->entry;
    to.notified = true;
    np_book_commit(service, run, &to, NULL); /* on failure the notification is repeated */
}

static void reap_one(struct np_service *service, struct np_notifier *notifier)
{
    if (notifier->pid > 0 && waitpid(notifier->pid, NULL, WNOHANG) != 0) {
        if (notifier->pid_fd >= 0)
            close(notifier->pid_fd);
        notifier->pid = 0;
    }
    if (notifier->own.pid > 0 && np_child_turn(&notifier->own) != 0)
        np_child_stop(&notifier->own);
    if (notifier->id == 0 || notifier->pid > 0 || notifier->own.pid > 0)
        return;
    record_notified(service, notifier->id, notifier->ended);
    notifier->id = 0;
}

static bool is_under_way(const struct np_notifiers *notifiers, int64_t id)
{
    for (int i = 0; i < MAX_NOTIFIERS; i++)
        if (notifiers->at[i].id == id)
            return true;
    return false;
}

static bool has_max_hooks(const struct np_notifiers *notifiers, uid_t uid)
{
    int nr = 0;

    for (int i = 0; i < MAX_NOTIFIERS; i++)
        nr += notifiers->at[i].own.pid > 0 && notifiers->at[i].own.uid == uid;
    return nr >= MAX_HOOKS;
}

struct np_notifiers *np_notify_new(void)
{
    return np_alloc(sizeof(struct np_notifiers));
}

void np_notify_free(struct np_notifiers *notifiers)
{
    if (!notifiers)
        return;
    for (int i = 0; i < MAX_NOTIFIERS; i++)
        np_child_stop(&notifiers->at[i].own);
    np_free(notifiers);
}

static int begin_all(struct np_service *service, struct np_notifier *notifier,
    const struct np_entry *entry, const struct np_hook *own, struct np_err *err)
{
    const bool notifies = service->options.on_end || service->options.webhook;
    int code = own->command ? begin_own(service, entry, own, &notifier->own, err) : 0;

    if (code == 0 && notifies)
        code = begin(service, notifier, own->run, err);
    if (code < 0) {
        np_child_stop(&notifier->own);
        return code;
    }
    notifier->id = entry->id;
    notifier->ended = entry->ended;
    return 0;
}

static int notify_of(struct np_service *service, struct np_notifier *notifier,
    const struct np_service_run *run, struct np_err *err)
{
    const struct np_entry *entry = &run->entry;
    const int64_t id = entry->id;
    char *line, *config = NULL, *environment = NULL;
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_service_write_run(service, &json, run, true);
    line = np_json_take(&json, err);
    int code = line ? 0 : -ENOMEM;
    if (code == 0 && entry->on_end)
        code = np_queue_text(service->queue, id, &config, &environment, err);
    const struct np_hook own = {.command = entry->on_end,
        .dir = entry->dir,
        .environment = environment ? environment : "",
        .run = line,
        .umask = (int)entry->umask,
        .max_s = NP_HOOK_S};
    if (code == 0 && !service->start.units)
        code = begin_all(service, notifier, entry, &own, err);
    else if (code == 0 && (code = notify_by_unit(service, &own, id, err)) == 0)
        record_notified(service, id, entry->ended);
    np_free(line);
    np_free(config);
    np_free(environment);
    return code;
}

void np_notify_turn(struct np_service *service)
{
    struct np_notifiers *notifiers = service->notifiers;
    int free_one = 0;

    for (int i = 0; i < MAX_NOTIFIERS; i++) /* first those that have ended */
        reap_one(service, &notifiers->at[i]);
    if (np_book_ticks() < notifiers->not_before)
        return;
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_entry *entry = service->entries[i];
        struct np_err err = {0};

        if (!np_entry_is_finished(entry) || entry->notified || is_under_way(notifiers, entry->id))
            continue;
        if (!np_book_notifies(&service->options, entry)) { /* the settings have changed */
            record_notified(service, entry->id, entry->ended);
            continue;
        }
        if (entry->on_end && has_max_hooks(notifiers, entry->uid))
            continue;
        while (free_one < MAX_NOTIFIERS && notifiers->at[free_one].id > 0)
            free_one++;
        if (free_one == MAX_NOTIFIERS)
            return;
        if (notify_of(service, &notifiers->at[free_one], service->runs[i], &err) < 0) {
            fprintf(stderr, "nnpipe daemon: cannot run on_end of run %lld now; it is retried: %s\n",
                (long long)entry->id, err.text);
            notifiers->not_before = np_book_ticks() + RETRY_S;
            return;
        }
    }
}
