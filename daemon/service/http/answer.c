#include "daemon/service/http/answer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/run_json.h"
#include "loader/base/clock.h"
#include "loader/base/text.h"

#define MAX_WAIT_S  60.0
#define MAX_VALUES  1000 /* of a body */
#define MAX_SECONDS 1e9

static void reply(struct np_call *call, unsigned status, const char *type, const char *text,
    size_t bytes, const struct np_http_field *field)
{
    call->routes->answers[status / 100]++;
    np_http_reply(call->request->held, status, type, text, bytes, field);
}

static void reply_json(struct np_call *call, unsigned status, const struct np_http_field *field)
{
    static const char failed[] =
        "{\"error\": {\"code\": \"internal\", \"text\": \"out of memory\"}}\n";
    const char *text = np_json_end(&call->routes->json);

    if (text)
        reply(call, status, "application/json", text, strlen(text), field);
    else
        reply(call, 500, "application/json", failed, strlen(failed), NULL);
}

void np_answer_json(struct np_call *call, unsigned status)
{
    reply_json(call, status, NULL);
}

/* The answer depends on the caller, so the tag does, too. */
static void tag_of(const struct np_call *call, char *tag, size_t bytes)
{
    const struct np_service *service = call->routes->service;
    const struct np_caller *caller = &call->request->caller;

    snprintf(tag, bytes, "\"%.0f-%d-%llu-%d%d%d-%u\"", service->began, (int)getpid(),
        (unsigned long long)service->version, caller->socket, caller->token, caller->user,
        (unsigned)caller->uid);
}

void np_answer_tagged(struct np_call *call)
{
    char tag[96];

    tag_of(call, tag, sizeof(tag));
    reply_json(call, 200, &(struct np_http_field){"ETag", tag});
}

bool np_answer_unchanged(struct np_call *call)
{
    const char *known = np_http_field(call->request, "If-None-Match");
    char tag[96];
    const struct np_http_field field = {"ETag", tag};

    tag_of(call, tag, sizeof(tag));
    if (!known || !strstr(known, tag))
        return false;
    reply(call, 304, "application/json", "", 0, &field);
    return true;
}

void np_answer_text(
    struct np_call *call, const char *type, const char *text, size_t bytes, const char *next)
{
    const struct np_http_field field = {"X-Next", next};

    reply(call, 200, type, text, bytes, next ? &field : NULL);
}

void np_answer_nothing(struct np_call *call)
{
    reply(call, 204, "application/json", "", 0, NULL);
}

void np_answer_error(
    struct np_call *call, unsigned status, const char *code, const char *format, ...)
{
    struct np_json *json = &call->routes->json;
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    np_json_begin(json, NULL);
    np_json_open(json, "error", '{');
    np_json_text(json, "code", code);
    np_json_text(json, "text", text);
    np_json_close(json, '}');
    np_answer_json(call, status);
}

bool np_answer_failed(struct np_call *call, int code, const struct np_err *err)
{
    static const struct {
        int code;
        unsigned status;
        const char *word;
    } rows[] = {{-ENOENT, 404, "not_found"}, {-EINVAL, 409, "conflict"}, {-EBUSY, 409, "conflict"},
        {-EAGAIN, 503, "busy"}, {-ENODEV, 422, "config"}, {-ENOSPC, 507, "disk"},
        {-EDQUOT, 429, "limit"}, {0, 500, "internal"}};
    int i = 0;

    if (code >= 0)
        return false;
    while (rows[i].code && rows[i].code != code)
        i++;
    np_answer_error(call, rows[i].status, rows[i].word, "%s", err->text);
    return true;
}

bool np_answer_too_large(struct np_call *call, const char *what, const char *text)
{
    const int64_t max = call->routes->service->options.limits.config_bytes;

    if (strlen(text) <= (size_t)max)
        return false;
    np_answer_error(call, 413, "limit", "%s is larger than the %lld bytes of limits.config_bytes",
        what, (long long)max);
    return true;
}

bool np_answer_high_priority(struct np_call *call, int64_t priority, int64_t before)
{
    const struct np_service *service = call->routes->service;
    const int64_t max = service->options.limits.priority_max;

    if (!np_access_caller_is_limited(&service->access, &call->request->caller) || priority <= max ||
        priority <= before)
        return false;
    np_answer_error(call, 403, "limit",
        "members of this box may give priorities up to %lld (limits.priority_max)", (long long)max);
    return true;
}

/* --- a run ------------------------------------------------------------------------------------ */

bool np_is_known(const struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;

    return caller->socket || caller->token || caller->user;
}

/* A command may contain a secret, so only callers who may read the run's files see it. */
static void write_fields(struct np_call *call, const struct np_service_run *run)
{
    const struct np_service *service = call->routes->service;
    struct np_json *json = &call->routes->json;
    const struct np_entry *entry = &run->entry;

    np_service_write_run(service, json, run, np_is_known(call));
    np_json_text(json, "on_end",
        np_access_may(&service->access, &call->request->caller, NP_ACTION_READ, entry->uid)
            ? entry->on_end
            : NULL);
}

void np_write_run(struct np_call *call, const struct np_service_run *run)
{
    struct np_json *json = &call->routes->json;

    np_json_open(json, NULL, '{');
    write_fields(call, run);
    np_json_close(json, '}');
}

void np_answer_run(struct np_call *call, const struct np_service_run *run, unsigned status)
{
    np_json_begin(&call->routes->json, NULL);
    write_fields(call, run);
    np_answer_json(call, status);
}

struct np_wait *np_answer_later(struct np_call *call, np_turn_fn *turn)
{
    const struct np_http_request *request = np_http_hold(call->request);
    struct np_routes *routes = call->routes;

    if (!request) {
        np_answer_error(
            call, 503, "busy", "too many of your requests are waiting already; retry later");
        return NULL;
    }
    struct np_wait *wait = &routes->waits[routes->nr_waits++];
    *wait = (struct np_wait){.turn = turn,
        .request = request,
        .id = call->id,
        .until_ns = np_now_ns(),
        .child = {.fd = -1, .epoll_fd = -1}};
    return wait;
}

/* --- the query -------------------------------------------------------------------------------- */

bool np_query_whole(
    struct np_call *call, const char *name, int64_t min, int64_t max, int64_t *ret_value)
{
    const char *text = np_http_query(call->request, name);

    if (!text)
        return true;
    if (*text == '+' || !np_text_int(text, min, max, ret_value)) {
        np_answer_error(call, 400, "invalid", "%s: expected a whole number, %lld to %lld", name,
            (long long)min, (long long)max);
        return false;
    }
    return true;
}

bool np_query_seconds(struct np_call *call, const char *name, double *ret_seconds)
{
    const char *text = np_http_query(call->request, name);
    double seconds;

    if (!text)
        return true;
    if (!np_text_real(text, 0, 1e9 - 1, &seconds)) {
        np_answer_error(call, 400, "invalid", "%s: expected seconds, as 2.5", name);
        return false;
    }
    *ret_seconds = seconds < MAX_WAIT_S ? seconds : MAX_WAIT_S;
    return true;
}

static unsigned state_of(const char *word, size_t bytes)
{
    for (int i = 0; i < NP_NR_ENTRY_STATES; i++)
        if (strlen(np_entry_states[i]) == bytes && memcmp(np_entry_states[i], word, bytes) == 0)
            return 1u << i;
    return 0;
}

bool np_query_states(struct np_call *call, const char *name, unsigned *ret_states)
{
    const char *text = np_http_query(call->request, name);
    unsigned states = 0;

    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const unsigned state = state_of(at, strcspn(at, ","));

        if (!state) {
            np_answer_error(call, 400, "invalid",
                "%s: '%.*s' is not a state; docs/SERVICE.md lists them", name,
                (int)strcspn(at, ","), at);
            return false;
        }
        states |= state;
    }
    *ret_states = states;
    return true;
}

/* --- bodies ----------------------------------------------------------------------------------- */

static bool is_among(const char *const *keys, const char *key)
{
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0)
            return true;
    return false;
}

/* Has the text no more values than a valid request? To parse half a million would delay all other
 * callers. */
static bool is_small(const char *text, size_t bytes)
{
    bool in_text = false;
    int nr = 0;

    for (size_t i = 0; i < bytes && nr <= MAX_VALUES; i++)
        if (in_text && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_text = !in_text;
        else if (!in_text)
            nr += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return nr <= MAX_VALUES;
}

struct np_node *np_body_of(struct np_call *call, const char *const *keys)
{
    const struct np_http_request *request = call->request;
    struct np_node *body = NULL;
    struct np_err err = {0};

    if (!is_small(request->body, request->body_bytes))
        np_err_set(&err, -E2BIG, "the body has more than %d values", MAX_VALUES);
    else if (np_json_parse(request->body, request->body_bytes, &body, &err) < 0)
        np_err_context(&err, "the body is not JSON");
    else if (body->kind != NP_NODE_MAP)
        np_err_set(&err, -EBADMSG, "the body is not an object");
    else
        for (int i = 0; i < body->nr_items && !err.code; i++)
            if (!is_among(keys, body->items[i]->key))
                np_err_set(&err, -EBADMSG, "\"%s\": unknown key", body->items[i]->key);
    if (!err.code)
        return body;
    np_answer_error(call, 400, "invalid", "%s", err.text);
    np_node_free(body);
    return NULL;
}

const char *np_body_text(
    const struct np_node *body, const char *key, const char *fallback, size_t max_bytes)
{
    const struct np_node *node = np_node_get(body, key);

    if (!node)
        return fallback;
    if (node->kind != NP_NODE_SCALAR || !node->quoted || strlen(node->text) > max_bytes)
        return NULL;
    return node->text;
}

bool np_body_is_whole(const struct np_node *node, int64_t min, int64_t max, int64_t *ret_value)
{
    return node->kind == NP_NODE_SCALAR && !node->quoted && !node->real &&
           np_text_int(node->text, min, max, ret_value);
}

bool np_body_whole(
    const struct np_node *body, const char *key, int64_t min, int64_t max, int64_t *ret_value)
{
    const struct np_node *node = np_node_get(body, key);

    return !node || np_body_is_whole(node, min, max, ret_value);
}

bool np_body_seconds(const struct np_node *body, const char *key, double *ret_seconds)
{
    const struct np_node *node = np_node_get(body, key);
    double seconds = 0;

    if (!node)
        return true;
    if (node->kind != NP_NODE_SCALAR || node->quoted)
        return false;
    if (*node->text && (!np_text_real(node->text, 0, MAX_SECONDS, &seconds) || seconds <= 0))
        return false;
    *ret_seconds = seconds; /* 0: null */
    return true;
}

bool np_body_bool(const struct np_node *body, const char *key, bool *ret_value)
{
    const struct np_node *node = np_node_get(body, key);

    *ret_value = np_node_is(node, "true");
    return node && !node->quoted && (*ret_value || np_node_is(node, "false"));
}
