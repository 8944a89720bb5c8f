/* See notify.h. */
#include "daemon/service/notify.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"
#include "daemon/service/hook.h"
#include "daemon/service/run_json.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define HOOK_S    60u
#define WEBHOOK_S 30L
#define NR_TRIES  3
#define MAX_BYTES (1u << 20)
#define RETRY_S   5.0 /* before a failed start is retried */

#define MAX_NOTIFIERS 4
#define MAX_HOOKS     2 /* commands of one owner at a time: the rest is for others */

struct np_notifiers {
    struct np_notifier {
        int64_t id; /* of the run; 0: none */
        pid_t pid;  /* for on_end and webhook of the service; 0: ended, or none */
        int pid_fd;
        double ended;        /* of the run; it may have been retried, and ended again, since */
        struct np_child own; /* the run's command; pid 0: ended, or none */
    } at[MAX_NOTIFIERS];
    double not_before;   /* by np_book_ticks(): no start before, because one has failed */
    struct np_json json; /* a finished run */
};

/* Without the address and curl's own message, which contains it: the address is often a secret,
 * and others may read the log. */
static void say_failed(CURLcode code, long status)
{
    if (code == CURLE_HTTP_RETURNED_ERROR)
        fprintf(stderr, "nnpipe daemon: webhook: the server answered with status %ld\n", status);
    else
        fprintf(stderr, "nnpipe daemon: webhook: %s\n", curl_easy_strerror(code));
}

static void post(const char *address, const char *json)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");
    CURLcode code = CURLE_FAILED_INIT;
    long status = 0;

    for (int i = 0; curl && i < NR_TRIES && code != CURLE_OK; i++) {
        if (i > 0)
            sleep(5);
        curl_easy_setopt(curl, CURLOPT_URL, address);
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, WEBHOOK_S);
        curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, stderr);
        code = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    if (code != CURLE_OK)
        say_failed(code, status);
    curl_slist_free_all(fields);
    if (curl)
        curl_easy_cleanup(curl);
}

static void run_command(const char *command, const char *json)
{
    FILE *input = popen(command, "we");
    int status;

    if (!input) {
        fprintf(stderr, "nnpipe daemon: on_end: %s\n", strerror(errno));
        return;
    }
    fputs(json, input);
    status = pclose(input);
    if (status != 0)
        fprintf(stderr, "nnpipe daemon: on_end ended with %s %d\n",
            WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void notify_service(const char *on_end, const char *webhook, const char *json)
{
    signal(SIGPIPE, SIG_IGN); /* a command that does not read its input */
    alarm(HOOK_S + NR_TRIES * (unsigned)WEBHOOK_S);
    if (on_end)
        run_command(on_end, json);
    if (webhook)
        post(webhook, json);
}

/* Time is up: kills this process and its command. */
static void end_group(int number)
{
    kill(0, SIGKILL);
}

/* --- at most a few at a time ------------------------------------------------------------------ */

static int notify_by_unit(
    const struct np_service *service, const struct np_hook *own, int64_t id, struct np_err *err)
{
    struct np_json text = {0};
    int code;

    np_json_begin(&text, NULL);
    np_json_text(&text, "on_end", service->options.on_end);
    np_json_text(&text, "webhook", service->options.webhook);
    np_json_text(&text, "run", own->run);
    np_json_text(&text, "own", own->command);
    np_json_text(&text, "dir", own->dir);
    np_json_text(&text, "environment", own->environment);
    np_json_int(&text, "umask", own->umask);
    const char *line = np_json_end(&text);
    code = line ? service->start.units->notify(service->start.units, id, line, err)
                : np_err_set(err, -ENOMEM, "out of memory");
    np_json_fini(&text);
    return code;
}

/* In the child. */
static void be_notifier(const struct np_service_options *options, const char *json)
{
    np_child_signals();
    close_range(
        3, ~0u, 0); /* mainly the sockets: the next daemon may bind them before this process ends */
    setsid();
    signal(SIGALRM, end_group);
    if (np_become(geteuid(), getegid(), NULL) == 0) /* without the service's capabilities */
        notify_service(options->on_end, options->webhook, json);
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

/* Runs in a child with the owner's rights. */
static int do_own(const void *context, int out_fd)
{
    return np_hook_run(context);
}

/* If too many of an owner's processes hang, the command is skipped, so that others need not
 * wait. */
static int begin_own(struct np_service *service, const struct np_entry *entry,
    const struct np_hook *own, struct np_child *child, struct np_err *err)
{
    const struct np_child_start start = {.uid = entry->uid,
        .gid = entry->gid,
        .work = do_own,
        .context = own,
        .epoll_fd = service->epoll_fd,
        .max_s = NP_HOOK_S + 5, /* it ends itself, with a message, before that */
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

    if (!run || !np_entry_is_over(&run->entry) || run->entry.ended != ended)
        return;
    struct np_entry to = run->entry;
    to.notified = true;
    np_book_commit(service, run, &to, NULL); /* on failure it is notified again */
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
    np_json_fini(&notifiers->json);
    np_free(notifiers);
}

/* The run as JSON, borrowed until the next call. NULL: out of memory. */
static const char *line_of(struct np_service *service, const struct np_service_run *run)
{
    struct np_json *json = &service->notifiers->json;

    np_json_begin(json, NULL);
    np_service_write_run(service, json, run, true);
    return np_json_end(json);
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
    const char *line = line_of(service, run);
    char *config = NULL, *environment = NULL;
    int code = line ? 0 : np_err_set(err, -ENOMEM, "out of memory");

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
    np_free(config);
    np_free(environment);
    return code;
}

void np_notify_turn(struct np_service *service)
{
    struct np_notifiers *notifiers = service->notifiers;
    int free_one = 0;

    for (int i = 0; i < MAX_NOTIFIERS; i++) /* finished ones make room */
        reap_one(service, &notifiers->at[i]);
    if (np_book_ticks() < notifiers->not_before)
        return;
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_entry *entry = service->entries[i];
        struct np_err err = {0};

        if (!np_entry_is_over(entry) || entry->notified || is_under_way(notifiers, entry->id))
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
            fprintf(stderr,
                "nnpipe daemon: cannot run on_end of run %lld yet, it will be retried: %s\n",
                (long long)entry->id, err.text);
            notifiers->not_before = np_book_ticks() + RETRY_S;
            return;
        }
    }
}

static const char *text_of(const struct np_node *map, const char *key)
{
    const struct np_node *node = np_node_get(map, key);

    return node && node->kind == NP_NODE_SCALAR && node->quoted ? node->text : NULL;
}

/* In its own process group, which is killed when its time is up. */
static void do_own_here(const struct np_node *node)
{
    const char *environment = text_of(node, "environment");
    const struct np_hook own = {.command = text_of(node, "own"),
        .dir = text_of(node, "dir"),
        .environment = environment ? environment : "",
        .run = text_of(node, "run"),
        .umask = (int)np_node_number(node, "umask", -1),
        .max_s = NP_HOOK_S};
    const pid_t pid = own.command && own.dir ? fork() : -1;

    if (pid == 0) {
        setsid();
        np_environment_reduce();
        _exit(np_hook_run(&own));
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

int np_notify_do(int fd, struct np_err *err)
{
    struct np_node *node = NULL;
    char path[32], *text = NULL;
    uint64_t bytes;

    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    int code = np_read_file(path, MAX_BYTES, &text, &bytes, err);
    if (code == 0)
        code = np_json_parse(text, bytes, &node, err);
    if (code == 0 && !text_of(node, "run"))
        code = np_err_set(err, -EBADMSG, "not a message about a finished run");
    if (code == 0)
        do_own_here(node);
    if (code == 0)
        notify_service(text_of(node, "on_end"), text_of(node, "webhook"), text_of(node, "run"));
    np_node_free(node);
    np_free(text);
    return code;
}
