/* Runs: listed, submitted, shown, changed. */
#include <errno.h>
#include <pwd.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "loader/base/mem.h"

#define MOST_WAIT_S   60.0
#define MOST_PRIORITY 100
#define MOST_RETRIES  1000

/* --- a run as JSON ---------------------------------------------------------------------------- */

void np_write_run(struct np_routes *routes, const char *key, const struct np_entry *entry)
{
    np_json_open(&routes->json, key, '{');
    np_service_write_run(routes->service, &routes->json, entry);
    np_json_close(&routes->json, '}');
}

static void answer_run(struct np_call *call, int64_t id, unsigned status)
{
    np_json_begin(&call->routes->json, NULL);
    np_service_write_run(
        call->routes->service, &call->routes->json, np_service_find(call->routes->service, id));
    np_answer_json(call, status);
}

/* --- listing ---------------------------------------------------------------------------------- */

/* Is the word among words, by commas? */
static bool among(const char *words, const char *word)
{
    const size_t bytes = strlen(word);

    for (const char *at = words; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0'))
            return true;
    return false;
}

void np_route_list(struct np_call *call)
{
    const char *states = np_http_query(call->request, "state");
    const char *owner = np_http_query(call->request, "owner");
    const struct passwd *user = owner ? getpwnam(owner) : NULL;
    const uid_t uid = user ? user->pw_uid : owner ? (uid_t)strtoul(owner, NULL, 10) : 0;
    int nr;
    const struct np_entry *const *entries = np_service_entries(call->routes->service, &nr);

    np_json_begin(&call->routes->json, NULL);
    np_json_open(&call->routes->json, "runs", '[');
    for (int i = 0; i < nr; i++)
        if ((!states || among(states, np_entry_states[entries[i]->state])) &&
            (!owner || entries[i]->uid == uid))
            np_write_run(call->routes, NULL, entries[i]);
    np_json_close(&call->routes->json, ']');
    np_answer_json(call, 200);
}

/* --- one run ---------------------------------------------------------------------------------- */

static double seconds_of(const struct np_http_request *request)
{
    const char *text = np_http_query(request, "wait");
    const double seconds = text ? strtod(text, NULL) : 0;

    return seconds > 0 ? fmin(seconds, MOST_WAIT_S) : 0;
}

void np_route_show(struct np_call *call)
{
    const char *states = np_http_query(call->request, "state");
    const double seconds = seconds_of(call->request);
    struct np_wait *wait;

    if (seconds == 0 || !states || !among(states, np_entry_states[call->entry->state])) {
        answer_run(call, call->id, 200);
    } else if ((wait = np_answer_later(call))) {
        wait->until = np_service_now() + seconds;
        snprintf(wait->states, sizeof(wait->states), "%s", states);
    }
}

static struct np_call call_of(struct np_routes *routes, const struct np_wait *wait)
{
    return (struct np_call){.routes = routes,
        .request = wait->request,
        .held = wait->request->held,
        .id = wait->id,
        .entry = wait->id > 0 ? np_service_find(routes->service, wait->id) : NULL};
}

bool np_turn_show(struct np_routes *routes, struct np_wait *wait)
{
    struct np_call call = call_of(routes, wait);

    if (!call.entry)
        np_answer_error(&call, 404, "not_found", "run %lld has been removed", (long long)wait->id);
    else if (np_service_now() >= wait->until ||
             !among(wait->states, np_entry_states[call.entry->state]))
        answer_run(&call, wait->id, 200);
    else
        return false;
    return true;
}

static void change(
    struct np_call *call, int (*to)(struct np_service *service, int64_t id, struct np_err *err))
{
    struct np_err err = {0};
    const int code = to(call->routes->service, call->id, &err);

    if (code < 0 && code != -EALREADY)
        np_answer_failure(call, code, &err);
    else
        answer_run(call, call->id, 200);
}

void np_route_stop(struct np_call *call)
{
    change(call, np_service_stop);
}
void np_route_pause(struct np_call *call)
{
    change(call, np_service_pause);
}
void np_route_resume(struct np_call *call)
{
    change(call, np_service_resume);
}

void np_route_remove(struct np_call *call)
{
    struct np_err err = {0};
    const int code = np_service_remove(call->routes->service, call->id, &err);

    if (code < 0)
        np_answer_failure(call, code, &err);
    else
        np_answer_nothing(call);
}

/* --- bodies ----------------------------------------------------------------------------------- */

static struct np_node *body_of(struct np_call *call)
{
    struct np_node *body = NULL;
    struct np_err err = {0};

    if (np_json_parse(call->request->body, call->request->body_bytes, &body, &err) < 0) {
        np_answer_error(call, 400, "invalid", "the body is not JSON: %s", err.text);
        return NULL;
    }
    if (body->kind != NP_NODE_MAP) {
        np_answer_error(call, 400, "invalid", "the body is not an object");
        np_node_free(body);
        return NULL;
    }
    return body;
}

/* A text, or the fallback where there is none; NULL: it is something else, or too long, or has what no text has. */
static const char *text_in(
    const struct np_node *body, const char *key, const char *fallback, size_t most)
{
    const struct np_node *node = np_node_get(body, key);

    if (!node)
        return fallback;
    if (node->kind != NP_NODE_SCALAR || !node->quoted || strlen(node->text) > most)
        return NULL;
    return node->text;
}

static bool whole_in(
    const struct np_node *body, const char *key, int64_t least, int64_t most, int64_t *ret_value)
{
    const struct np_node *node = np_node_get(body, key);
    char *end;

    if (!node)
        return true;
    if (node->kind != NP_NODE_SCALAR || node->quoted || !*node->text)
        return false;
    errno = 0;
    const long long value = strtoll(node->text, &end, 10);
    if (errno || *end || value < least || value > most)
        return false;
    *ret_value = value;
    return true;
}

void np_route_patch(struct np_call *call)
{
    struct np_node *body = body_of(call);
    int64_t priority = INT64_MAX;
    struct np_err err = {0};

    if (!body)
        return;
    if (body->nr_items != 1 ||
        !whole_in(body, "priority", -MOST_PRIORITY, MOST_PRIORITY, &priority) ||
        priority == INT64_MAX) {
        np_answer_error(call, 400, "invalid", "expected {\"priority\": -100..100}");
    } else {
        const int code = np_service_set_priority(call->routes->service, call->id, priority, &err);

        if (code < 0)
            np_answer_failure(call, code, &err);
        else
            answer_run(call, call->id, 200);
    }
    np_node_free(body);
}

/* --- submitting ------------------------------------------------------------------------------- */

static bool is_name(const char *text)
{
    return strlen(text) < 64 && *text != '.' && *text != '-' &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") ==
               strlen(text);
}

static bool is_device(const char *text)
{
    static const char *const names[] = {"auto", "cpu", "sim", "cuda"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], text) == 0)
            return true;
    return strncmp(text, "cuda:", 5) == 0 && text[5] &&
           strspn(text + 5, "0123456789") == strlen(text + 5);
}

static bool is_key(const char *text)
{
    return *text == '\0' || (strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32);
}

static bool take_after(const struct np_node *body, struct np_entry *entry)
{
    const struct np_node *list = np_node_get(body, "after");

    if (!list)
        return true;
    if (list->kind != NP_NODE_LIST || list->nr_items > NP_MAX_AFTER)
        return false;
    for (int i = 0; i < list->nr_items; i++) {
        const struct np_node *item = list->items[i];
        char *end;

        if (item->kind != NP_NODE_SCALAR || item->quoted)
            return false;
        entry->after[entry->nr_after++] = strtoll(item->text, &end, 10);
        if (*end || end == item->text)
            return false;
    }
    return true;
}

static bool are_texts(const struct np_node *list)
{
    if (list && (list->kind != NP_NODE_LIST || list->nr_items > 64))
        return false;
    for (int i = 0; list && i < list->nr_items; i++)
        if (list->items[i]->kind != NP_NODE_SCALAR || !list->items[i]->quoted)
            return false;
    return true;
}

/* What is wrong with the body, or NULL: then entry and check are of it. */
static const char *take_body(
    const struct np_node *body, struct np_entry *entry, struct np_check *check)
{
    const char *name = text_in(body, "name", "", 63), *key = text_in(body, "key", "", 32);
    const char *device = text_in(body, "device", "", 31);

    check->config = text_in(body, "config", NULL, NP_HTTP_MOST_BODY);
    check->path = text_in(body, "path", NULL, 4000);
    check->overrides = np_node_get(body, "overrides");
    check->device = device;
    if (!check->config || !check->path || check->path[0] != '/')
        return "\"config\" (a text) and \"path\" (absolute) are needed";
    if (!are_texts(check->overrides))
        return "\"overrides\": a list of at most 64 texts";
    if (!name || (*name && !is_name(name)))
        return "\"name\": letters, digits, - _ . , at most 63";
    if (!key || !is_key(key))
        return "\"key\": 32 hex digits";
    if (!device || (*device && !is_device(device)))
        return "\"device\": auto, cpu, sim, cuda, cuda:N";
    if (!whole_in(body, "priority", -MOST_PRIORITY, MOST_PRIORITY, &entry->priority))
        return "\"priority\": a whole number, -100 to 100";
    if (!whole_in(body, "max_retries", 0, MOST_RETRIES, &entry->max_retries))
        return "\"max_retries\": a whole number, 0 to 1000";
    if (!take_after(body, entry))
        return "\"after\": a list of at most 16 runs";
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    snprintf(entry->key, sizeof(entry->key), "%s", key);
    snprintf(entry->device, sizeof(entry->device), "%s", device);
    return NULL;
}

void np_route_submit(struct np_call *call)
{
    struct np_node *body = body_of(call);
    struct np_entry entry = {.uid = call->request->caller.uid,
        .gid = call->request->caller.gid,
        .max_retries = 3,
        .exit_code = -1};
    struct np_check check = {.uid = entry.uid, .gid = entry.gid};
    struct np_checker checker;
    struct np_err err = {0};
    struct np_wait *wait;

    if (!body)
        return;
    const char *wrong = take_body(body, &entry, &check);
    if (wrong) {
        np_answer_error(call, 400, "invalid", "%s", wrong);
    } else if (!(entry.path = np_strdup(check.path))) {
        np_answer_error(call, 500, "internal", "out of memory");
    } else if (np_checker_start(&check, &checker, &err) < 0) {
        np_answer_failure(call, -EIO, &err);
        np_entry_fini(&entry);
    } else if ((wait = np_answer_later(call))) {
        wait->checker = checker;
        wait->entry = entry;
    } else {
        np_checker_stop(&checker);
        np_entry_fini(&entry);
    }
    np_node_free(body);
}

static void answer_problems(struct np_call *call, const struct np_node *problems)
{
    struct np_json *json = &call->routes->json;
    const struct np_node *first = problems && problems->kind == NP_NODE_LIST && problems->nr_items
                                      ? problems->items[0]
                                      : NULL;
    const struct np_node *text = first ? np_node_get(first, "text") : NULL;

    np_json_begin(json, NULL);
    np_json_open(json, "error", '{');
    np_json_text(json, "code", "config");
    np_json_text(json, "text",
        text && text->kind == NP_NODE_SCALAR ? text->text
                                             : "the config could not be checked within a minute");
    if (first)
        np_json_node(json, "problems", problems);
    np_json_close(json, '}');
    np_answer_json(call, 422);
}

/* What the check found out goes into the entry: its normal form, its own name and device, its folder. */
static bool take_answer(const struct np_node *answer, struct np_entry *entry)
{
    const char *config = text_in(answer, "config", NULL, 4u << 20);
    const char *name = text_in(answer, "name", NULL, 63),
               *runs = text_in(answer, "runs", NULL, 4000);
    const char *device = text_in(answer, "device", "auto", 31);

    if (!config || !name || !runs || !device)
        return false;
    if (!*entry->name)
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    if (!*entry->device)
        snprintf(entry->device, sizeof(entry->device), "%s", device);
    entry->config = np_strdup(config);
    entry->dir = np_strdup(runs); /* np_service_submit() adds NAME-ID */
    return entry->config && entry->dir;
}

bool np_turn_submit(struct np_routes *routes, struct np_wait *wait)
{
    struct np_call call = call_of(routes, wait);
    struct np_node *answer;
    struct np_err err = {0};
    int64_t id;
    bool known;

    if (!np_checker_turn(&wait->checker, &answer))
        return false;
    if (!answer || !np_node_is(np_node_get(answer, "ok"), "true")) {
        answer_problems(&call, answer ? np_node_get(answer, "problems") : NULL);
    } else if (!take_answer(answer, &wait->entry)) {
        np_answer_error(&call, 500, "internal", "the check's answer cannot be read");
    } else {
        const int code = np_service_submit(routes->service, &wait->entry, &id, &known, &err);

        if (code < 0)
            np_answer_failure(&call, code, &err);
        else
            answer_run(&call, id, known ? 200 : 201);
    }
    np_node_free(answer);
    return true;
}
