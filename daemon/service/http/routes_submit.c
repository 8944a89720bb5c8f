/* The route of submissions: parses the body, has the config checked with the submitter's rights,
 * and queues the run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/environment.h"
#include "daemon/service/hook.h"
#include "daemon/service/http/http_peers.h"
#include "daemon/service/http/answer.h"
#include "daemon/service/service_limits.h"
#include "daemon/service/service_queue.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_PRIORITY  100
#define MAX_RETRIES   1000
#define MAX_PATH      4000
#define MAX_ANSWER    (256u << 10) /* output of a check without the config */
#define MAX_PROBLEMS  100
#define MAX_OVERRIDES 4096
#define MIN_MEMORY    (64 << 20) /* less is not enough to start */

/* --- the body --------------------------------------------------------------------------------- */

static bool is_name(const char *text)
{
    return *text && strlen(text) < 64 && *text != '.' && *text != '-' &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") ==
               strlen(text);
}

static bool is_device(const char *text)
{
    static const char *const names[] = {"auto", "cpu", "sim", "gpu", "cuda"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], text) == 0)
            return true;
    return strncmp(text, "cuda:", 5) == 0 && text[5] &&
           strspn(text + 5, "0123456789") == strlen(text + 5);
}

static bool is_key(const char *text)
{
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static bool is_after(const struct np_entry *entry, int64_t id)
{
    for (int i = 0; i < entry->nr_after; i++)
        if (entry->after[i] == id)
            return true;
    return false;
}

static bool take_after(const struct np_node *body, struct np_entry *entry)
{
    const struct np_node *list = np_node_get(body, "after");

    if (!list)
        return true;
    if (list->kind != NP_NODE_LIST || list->nr_items > NP_MAX_AFTER)
        return false;
    for (int i = 0; i < list->nr_items; i++) {
        int64_t id;

        if (!np_body_is_whole(list->items[i], 1, INT64_MAX, &id))
            return false;
        if (!is_after(entry, id))
            entry->after[entry->nr_after++] = id;
    }
    return true;
}

static bool are_texts(const struct np_node *list)
{
    if (list && (list->kind != NP_NODE_LIST || list->nr_items > 64))
        return false;
    for (int i = 0; list && i < list->nr_items; i++)
        if (list->items[i]->kind != NP_NODE_SCALAR || !list->items[i]->quoted ||
            !strchr(list->items[i]->text, '='))
            return false;
    return true;
}

/* For display: keeps the overrides that fit, one a line. */
static void take_overrides(const struct np_node *list, struct np_entry *entry)
{
    size_t used = 0;

    if (!list || list->nr_items == 0)
        return;
    entry->overrides = np_alloc(MAX_OVERRIDES);
    for (int i = 0; i < list->nr_items; i++) {
        const char *text = list->items[i]->text;
        char *at = entry->overrides + used;

        if (used + strlen(text) + 2 > MAX_OVERRIDES)
            continue;
        sprintf(at, "%s%s", used ? "\n" : "", text);
        np_text_hide(at + (used > 0));
        used += strlen(at);
        for (at += *at == '\n'; *at; at++)
            *at = *at == '\n' ? ' ' : *at;
    }
}

/* Other users' lists and terminals show the path. */
static bool is_path(const char *text)
{
    size_t bytes;

    return *text == '/' && !np_text_control(text, &bytes);
}

static bool is_named(const struct np_check *check, const char *name)
{
    if (np_environment_is_named(name, check->config))
        return true;
    for (int i = 0; check->overrides && i < check->overrides->nr_items; i++)
        if (np_environment_is_named(name, check->overrides->items[i]->text))
            return true;
    return false;
}

/* The variables, one a line (np_free); NULL: invalid, or the config does not name one of them. */
static char *take_environment(const struct np_node *body, const struct np_check *check)
{
    const struct np_node *map = np_node_get(body, "environment");
    char *lines = np_strdup("");
    size_t bytes = 0;
    bool good = !map || map->kind == NP_NODE_MAP;

    for (int i = 0; good && map && i < map->nr_items; i++) {
        const struct np_node *item = map->items[i];

        good = item->kind == NP_NODE_SCALAR && item->quoted && is_named(check, item->key) &&
               !np_text_control(item->text, &bytes) &&
               strlen(lines) + strlen(item->text) + strlen(item->key) < NP_ENVIRONMENT_MAX_BYTES;
        if (good) {
            char *more = np_format("%s%s=%s\n", lines, item->key, item->text);

            np_free(lines);
            lines = more;
        }
    }
    if (good)
        return lines;
    np_free(lines);
    return NULL;
}

static bool take_cpus(const struct np_node *node, double *ret_cpus)
{
    return !node || (node->kind == NP_NODE_SCALAR && !node->quoted &&
                        np_text_real(node->text, 0.1, 10000, ret_cpus));
}

/* Fills entry and check from the body. Returns NULL, or the text of an error. */
static const char *take_body(
    const struct np_node *body, struct np_entry *entry, struct np_check *check)
{
    const char *name = np_body_text(body, "name", "", 63), *key = np_body_text(body, "key", "", 32);
    const char *device = np_body_text(body, "device", "", 31);
    const char *sweep = np_body_text(body, "sweep", "", 63);
    const char *on_end = np_body_text(body, "on_end", "", NP_HOOK_MAX_BYTES);
    size_t bytes;

    check->config = np_body_text(body, "config", NULL, NP_HTTP_MAX_BODY);
    check->path = np_body_text(body, "path", NULL, MAX_PATH);
    check->overrides = np_node_get(body, "overrides");
    check->device = device;
    if (!check->config || !check->path || !is_path(check->path))
        return "\"config\" (a text) and \"path\" (absolute, of at most 4000 bytes) are needed";
    if (!are_texts(check->overrides))
        return "\"overrides\": a list of at most 64 texts, each KEY=VALUE";
    if (!name || (np_node_get(body, "name") && !is_name(name)))
        return "\"name\": letters, digits, - _ . , at most 63";
    if (!sweep || (np_node_get(body, "sweep") && !is_name(sweep)))
        return "\"sweep\": letters, digits, - _ . , at most 63";
    if (np_node_get(body, "check") && !np_body_bool(body, "check", &check->only))
        return "\"check\": true or false";
    if (!key || (np_node_get(body, "key") && !is_key(key)))
        return "\"key\": 32 hex digits";
    if (!device || (np_node_get(body, "device") && !is_device(device)))
        return "\"device\": auto, cpu, sim, gpu, cuda, cuda:N";
    if (!np_body_whole(body, "priority", -MAX_PRIORITY, MAX_PRIORITY, &entry->priority))
        return "\"priority\": a whole number, -100 to 100";
    if (!np_body_whole(body, "max_retries", 0, MAX_RETRIES, &entry->max_retries))
        return "\"max_retries\": a whole number, 0 to 1000";
    if (!np_body_whole(body, "memory", MIN_MEMORY, INT64_MAX, &entry->memory_bytes))
        return "\"memory\": bytes, at least 64 MiB";
    if (!np_body_whole(body, "processes", 1, NP_MAX_GANG, &entry->processes))
        return "\"processes\": a whole number, 1 to 64";
    check->processes = np_entry_processes(entry);
    if (!take_cpus(np_node_get(body, "cpus"), &entry->cpus))
        return "\"cpus\": a number, 0.1 to 10000";
    if (!np_body_seconds(body, "time_limit", &entry->time_limit_s))
        return "\"time_limit\": seconds, above 0, or null";
    if (!np_body_whole(body, "umask", 0, 0777, &entry->umask))
        return "\"umask\": a whole number, 0 to 511";
    if (!(entry->environment = take_environment(body, check)))
        return "\"environment\": an object of texts, of variables that the config names as ${NAME}";
    check->environment = entry->environment;
    if (!on_end || np_text_control(on_end, &bytes))
        return "\"on_end\": a command on one line, of at most 4096 bytes";
    if (*on_end)
        entry->on_end = np_strdup(on_end);
    if (!take_after(body, entry))
        return "\"after\": a list of at most 16 runs";
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    snprintf(entry->sweep, sizeof(entry->sweep), "%s", sweep);
    snprintf(entry->key, sizeof(entry->key), "%s", key);
    snprintf(entry->device, sizeof(entry->device), "%s", device);
    return NULL;
}

/* --- repeated submissions --------------------------------------------------------------------- */

/* Each caller has its own keys. */
static const struct np_service_run *find_key(
    const struct np_service *service, const struct np_entry *wanted)
{
    for (int i = 0; *wanted->key && i < service->nr_runs; i++) {
        const struct np_entry *entry = service->entries[i];

        if (entry->uid == wanted->uid && strcmp(entry->key, wanted->key) == 0)
            return service->runs[i];
    }
    return NULL;
}

static bool has_config(struct np_service *service, const struct np_entry *known, const char *config)
{
    struct np_err err = {0};
    char *text;

    if (np_queue_text(service->queue, known->id, &text, NULL, &err) < 0)
        return false;
    const bool same = strcmp(text, config) == 0;
    np_free(text);
    return same;
}

/* Answers a repeated submission. config: resolved; NULL: its check failed (its files may be gone
 * now). */
static void answer_known(struct np_call *call, const struct np_service_run *run,
    const struct np_entry *wanted, const char *config)
{
    const struct np_entry *known = &run->entry;

    if (strcmp(known->path, wanted->path) != 0 ||
        (*wanted->name && strcmp(known->name, wanted->name) != 0) ||
        (config && !has_config(call->routes->service, known, config)))
        np_answer_error(call, 409, "conflict",
            "this key belongs to another submission: a new submission needs a new key");
    else
        np_answer_run(call, run, 200);
}

/* --- the check -------------------------------------------------------------------------------- */

static const char *text_of(const struct np_node *map, const char *key)
{
    const char *text = np_body_text(map, key, "", 8192);

    return text ? text : "";
}

static void write_problem(struct np_json *json, const struct np_node *problem)
{
    int64_t line = 0, column = 0;

    np_body_whole(problem, "line", 0, 1 << 30, &line);
    np_body_whole(problem, "column", 0, 1 << 30, &column);
    np_problem_write(json, text_of(problem, "file"), (int)line, (int)column,
        text_of(problem, "place"), text_of(problem, "text"));
}

/* Answers with the check's list of problems; NULL: with text, the service's own problem. */
static void answer_problems(
    struct np_call *call, const char *path, const char *text, const struct np_node *list)
{
    struct np_json *json = &call->routes->json;

    np_json_begin(json, NULL);
    np_json_open(json, "error", '{');
    np_json_text(json, "code", "config");
    np_json_text(json, "text", text);
    np_json_open(json, "problems", '[');
    for (int i = 0; list && i < list->nr_items && i < MAX_PROBLEMS; i++)
        write_problem(json, list->items[i]);
    if (!list)
        np_problem_write(json, path, 0, 0, path, text);
    np_json_close(json, ']');
    np_json_close(json, '}');
    np_answer_json(call, 422);
}

/* Other users see the config, so it may not contain control characters. */
static bool is_text(const char *text)
{
    size_t bytes;

    for (const char *at = text; (at = np_text_control(at, &bytes)); at += bytes)
        if (*at != '\n' && *at != '\t')
            return false;
    return true;
}

/* The answer comes from a process of the submitter, so it is untrusted. */
static bool take_answer(const struct np_node *answer, struct np_entry *entry)
{
    const char *config = np_body_text(answer, "config", NULL, SIZE_MAX);
    const char *name = np_body_text(answer, "name", NULL, 63),
               *runs = np_body_text(answer, "runs", NULL, MAX_PATH);
    const char *device = np_body_text(answer, "device", "auto", 31);
    const char *note = np_body_text(answer, "note", "", 1000); /* on data that were not checked */

    if (!config || !is_text(config) || !name || !is_name(name) || !runs || !is_path(runs) ||
        !device || !is_device(device))
        return false;
    if (!*entry->name)
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    /* The check has resolved it: "gpu" becomes "cuda". */
    snprintf(entry->device, sizeof(entry->device), "%s", device);
    snprintf(entry->reason, sizeof(entry->reason), "%s", note ? note : "");
    np_text_clean(entry->reason);
    entry->config = np_try_strdup(config, NULL);
    entry->dir = np_strdup(runs); /* np_service_submit() adds NAME-ID */
    return true;
}

/* A submission with "check": nothing is queued. */
static void answer_checked(struct np_call *call, const struct np_entry *entry)
{
    struct np_json *json = &call->routes->json;
    struct np_err err = {0};

    if (entry->config && np_answer_too_large(call, "the resolved config", entry->config))
        return;
    const int code = np_service_may_submit(call->routes->service, entry, &err);
    if (code == -ENODEV) {
        answer_problems(call, entry->path, err.text, NULL);
    } else if (!np_answer_failed(call, code, &err)) {
        np_json_begin(json, NULL);
        np_json_bool(json, "ok", true);
        np_json_text(json, "name", entry->name);
        np_json_text(json, "device", entry->device);
        np_json_text(json, "reason", entry->reason);
        np_answer_json(call, 200);
    }
}

static void submit(struct np_call *call, const struct np_entry *entry)
{
    struct np_err err = {0};
    int64_t id;
    bool known;

    if (!entry->config) {
        np_answer_error(call, 500, "internal", "out of memory");
        return;
    }
    if (np_answer_too_large(call, "the resolved config", entry->config))
        return;
    const int code = np_service_submit(call->routes->service, entry, &id, &known, &err);

    if (code == -ENODEV)
        answer_problems(call, entry->path, err.text, NULL);
    else if (!np_answer_failed(call, code, &err))
        np_answer_run(call, np_book_run(call->routes->service, id), known ? 200 : 201);
}

static void answer_check(
    struct np_call *call, struct np_wait *wait, int code, const struct np_node *answer)
{
    const bool good = code == 1 && np_node_is(np_node_get(answer, "ok"), "true");
    const struct np_node *problems = good ? NULL : np_node_get(answer, "problems");
    const char *config = good ? np_body_text(answer, "config", "", SIZE_MAX) : NULL;
    const struct np_service_run *known = find_key(call->routes->service, &wait->entry);
    const char *wrong = "it could not be checked: the process of the check died";

    if (known) {
        answer_known(call, known, &wait->entry, config);
        return;
    }
    if (code == -ETIMEDOUT)
        wrong = "it could not be checked within a minute: the storage of its folder, or of a "
                "folder that it names, hangs";
    else if (good && config && !is_text(config))
        wrong = "it has control characters, or characters that change the direction of writing";
    else if (good && take_answer(answer, &wait->entry))
        wrong = NULL;
    else if (problems && problems->kind == NP_NODE_LIST && problems->nr_items > 0)
        wrong = text_of(problems->items[0], "text");
    else
        problems = NULL;
    if (wrong)
        answer_problems(call, wait->entry.path, wrong, problems);
    else if (wait->check.only)
        answer_checked(call, &wait->entry);
    else
        submit(call, &wait->entry);
}

/* May one more check start? A caller gets half of all checks, so that others do not wait for its
 * many submissions. */
static bool may_check(const struct np_routes *routes, const struct np_wait *wanted)
{
    const int64_t max = routes->service->options.limits.checks;
    int64_t all = 0, same = 0;

    for (int i = 0; i < routes->nr_waits; i++) {
        const struct np_wait *wait = &routes->waits[i];

        if (!wait->body || wait->child.pid == 0) /* no submission, or not started */
            continue;
        all++;
        same += np_peer_is_same(&wait->request->caller, &wanted->request->caller);
    }
    return all < max && same < max / 2;
}

static bool turn_check(struct np_call *call, struct np_wait *wait)
{
    struct np_node *answer = NULL;
    struct np_err err = {0};

    if (wait->child.pid == 0) {
        if (!may_check(call->routes, wait))
            return false;
        if (np_checker_start(&wait->check, call->routes->epoll_fd, &wait->child, &err) == 0)
            return false;
        np_answer_error(call, 503, "busy", "cannot check the config now: %s", err.text);
        return true;
    }
    const int code = np_checker_turn(&wait->child, &answer);
    if (code == 0)
        return false;
    answer_check(call, wait, code, answer);
    np_node_free(answer);
    return true;
}

/* --- the route -------------------------------------------------------------------------------- */

/* Limits do not apply to a repeated submission. False: answered with an error. */
static bool is_within_limits(
    struct np_call *call, const struct np_entry *entry, const struct np_check *check)
{
    const struct np_service *service = call->routes->service;
    struct np_err err = {0};

    if (find_key(service, entry))
        return true;
    if (np_service_may_limit(service, entry, &err) < 0)
        return !np_answer_failed(call, -ENODEV, &err);
    if (np_answer_too_large(call, "the config", check->config) ||
        np_answer_high_priority(call, entry->priority, INT64_MIN))
        return false;
    const int code = check->only ? 0 : np_service_may_queue(service, entry, &err);
    return !np_answer_failed(call, code, &err);
}

void np_route_submit(struct np_call *call)
{
    static const char *const keys[] = {"config", "path", "overrides", "key", "name", "priority",
        "after", "device", "max_retries", "time_limit", "memory", "cpus", "environment", "umask",
        "on_end", "sweep", "check", "processes", NULL};
    const struct np_caller *caller = &call->request->caller;
    struct np_node *body = np_body_of(call, keys);
    /* In a user's own service every run belongs to that user, even if root submits it. */
    const bool for_box = call->routes->service->access.for_box;
    const uid_t uid = for_box ? caller->uid : geteuid();
    const gid_t gid = for_box ? caller->gid : getegid();
    const int64_t max = call->routes->service->options.limits.config_bytes;
    struct np_entry entry = {
        .uid = uid, .gid = gid, .umask = -1, .max_retries = 3, .exit_code = -1};
    struct np_check check = {.uid = uid, .gid = gid, .max_bytes = 4 * (size_t)max + MAX_ANSWER};
    struct np_wait *wait;

    if (!body)
        return;
    const char *wrong = take_body(body, &entry, &check);
    if (!wrong)
        np_service_default_limits(call->routes->service, &entry);
    if (wrong) {
        np_answer_error(call, 400, "invalid", "%s", wrong);
    } else if (is_within_limits(call, &entry, &check) &&
               (wait = np_answer_later(call, turn_check))) {
        entry.path = np_strdup(check.path);
        take_overrides(check.overrides, &entry);
        wait->entry = entry;
        wait->body = body;
        wait->check = check;
        return;
    }
    np_entry_fini(&entry);
    np_node_free(body);
}
