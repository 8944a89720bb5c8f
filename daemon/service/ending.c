/* See ending.h. */
#include "daemon/service/ending.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/json.h"
#include "daemon/service/as_user.h"
#include "daemon/service/owners.h"
#include "daemon/service/worker_unit.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define HOOK_S     60u
#define WEBHOOK_S  30L
#define NR_TRIES   3
#define MOST_BYTES (1u << 20)

static void post(const char *address, const char *json)
{
    char error[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");
    CURLcode code = CURLE_FAILED_INIT;

    for (int i = 0; curl && i < NR_TRIES && code != CURLE_OK; i++) {
        if (i > 0)
            sleep(5);
        curl_easy_setopt(curl, CURLOPT_URL, address);
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, WEBHOOK_S);
        curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, stderr);
        code = curl_easy_perform(curl);
    }
    if (code != CURLE_OK)
        fprintf(stderr, "nnpipe daemon: webhook %s: %s\n", address,
            *error ? error : curl_easy_strerror(code));
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

static void tell(const char *on_end, const char *webhook, const char *json)
{
    signal(SIGPIPE, SIG_IGN); /* a command that does not read */
    alarm(HOOK_S + NR_TRIES * (unsigned)WEBHOOK_S);
    if (on_end)
        run_command(on_end, json);
    if (webhook)
        post(webhook, json);
}

static void tell_by_unit(
    const struct np_service_options *options, struct np_units *units, int64_t id, const char *json)
{
    struct np_json text = {0};
    struct np_err err = {0};

    np_json_begin(&text, NULL);
    np_json_text(&text, "on_end", options->on_end);
    np_json_text(&text, "webhook", options->webhook);
    np_json_text(&text, "run", json);
    const char *line = np_json_end(&text);
    if (!line)
        np_err_set(&err, -ENOMEM, "out of memory");
    else
        np_units_tell_ended(units, id, line, &err);
    if (err.code)
        fprintf(stderr, "nnpipe daemon: nobody is told that run %lld is over: %s\n", (long long)id,
            err.text);
    np_json_fini(&text);
}

/* Time is up: a command that goes on goes with it. */
static void end_group(int number)
{
    (void)number;
    kill(0, SIGKILL);
}

/* The child's child is init's: nobody has to wait for it. */
void np_ending_tell(
    const struct np_service_options *options, struct np_units *units, int64_t id, const char *json)
{
    if (!options->on_end && !options->webhook)
        return;
    if (units) {
        tell_by_unit(options, units, id, json);
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        if (fork() != 0)
            _exit(0);
        np_child_signals();
        setsid();
        signal(SIGALRM, end_group);
        if (np_become(geteuid(), getegid()) ==
            0) /* what it may beyond its user is not the command's */
            tell(options->on_end, options->webhook, json);
        _exit(0);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

static const char *text_of(const struct np_node *map, const char *key)
{
    const struct np_node *node = np_node_get(map, key);

    return node && node->kind == NP_NODE_SCALAR && node->quoted ? node->text : NULL;
}

int np_ending_do(int fd, struct np_err *err)
{
    struct np_node *node = NULL;
    char path[32], *text = NULL;
    uint64_t bytes;

    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    int code = np_read_file(path, MOST_BYTES, &text, &bytes, err);
    if (code == 0)
        code = np_json_parse(text, bytes, &node, err);
    if (code == 0 && !text_of(node, "run"))
        code = np_err_set(err, -EBADMSG, "this is not about a run that is over");
    if (code == 0)
        tell(text_of(node, "on_end"), text_of(node, "webhook"), text_of(node, "run"));
    np_node_free(node);
    np_free(text);
    return code;
}

/* The oldest of an owner with more than keep_runs; NULL: nobody has so many. */
static const struct np_entry *beyond_number(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, struct np_owners *over)
{
    const struct np_entry *oldest = NULL;

    for (int i = 0; i < nr; i++)
        if (np_entry_is_over(entries[i]))
            ++*np_owners_count(over, entries[i]->uid);
    for (int i = 0; i < nr; i++)
        if (np_entry_is_over(entries[i]) &&
            *np_owners_count(over, entries[i]->uid) > options->keep_runs &&
            (!oldest || entries[i]->ended < oldest->ended))
            oldest = entries[i];
    return oldest;
}

int64_t np_ending_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now)
{
    const struct np_entry *oldest = NULL, *beyond = NULL;
    struct np_owners over = {0};

    if (options->keep_runs > 0 && np_owners_init(&over, nr) == 0)
        beyond = beyond_number(options, entries, nr, &over);
    np_owners_fini(&over);
    for (int i = 0; i < nr; i++)
        if (np_entry_is_over(entries[i]) && (!oldest || entries[i]->ended < oldest->ended))
            oldest = entries[i];
    if (!beyond && oldest && options->keep_s > 0 && now - oldest->ended > options->keep_s)
        beyond = oldest;
    return beyond ? beyond->id : 0;
}
