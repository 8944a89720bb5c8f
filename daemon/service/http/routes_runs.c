/* Runs: listed, shown, changed. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/http/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "loader/base/clock.h"

#define MAX_PRIORITY 100
#define MAX_VALUES   1000 /* of a body */
#define MAX_SECONDS  1e9
#define MAX_PATTERN  100

/* --- a run as JSON ---------------------------------------------------------------------------- */

bool np_is_known(const struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;

    return caller->socket || caller->token || caller->user;
}

/* A command may hold a secret: it is for those alone who may read what the run says. */
static void write_fields(struct np_call *call, const struct np_entry *entry)
{
    const struct np_service *service = call->routes->service;
    struct np_json *json = &call->routes->json;

    np_service_write_run(service, json, entry, np_is_known(call));
    np_json_text(json, "on_end",
        np_access_may(
            np_service_access(service), &call->request->caller, NP_ACTION_READ, entry->uid)
            ? entry->on_end
            : NULL);
}

void np_write_run(struct np_call *call, const char *key, const struct np_entry *entry)
{
    struct np_json *json = &call->routes->json;

    np_json_open(json, key, '{');
    write_fields(call, entry);
    np_json_close(json, '}');
}

void np_answer_run(struct np_call *call, int64_t id, unsigned status)
{
    np_json_begin(&call->routes->json, NULL);
    write_fields(call, np_service_find(call->routes->service, id));
    np_answer_json(call, status);
}

/* --- listing ---------------------------------------------------------------------------------- */

/* "ann", or "1000". */
static bool is_of(const struct np_service *service, const struct np_entry *entry, const char *owner)
{
    char number[24];

    snprintf(number, sizeof(number), "%u", (unsigned)entry->uid);
    return strcmp(owner, number) == 0 || strcmp(owner, np_service_owner(service, entry)) == 0;
}

struct filter {
    const struct np_service *service;
    unsigned states;          /* a bit each; 0: any */
    const char *owner, *name; /* name: a pattern; NULL: any */
    int64_t after, limit, tail;
};

static bool passes(const struct filter *filter, const struct np_entry *entry)
{
    return entry->id > filter->after &&
           (!filter->states || (filter->states & 1u << entry->state)) &&
           (!filter->owner || is_of(filter->service, entry, filter->owner)) &&
           (!filter->name || fnmatch(filter->name, entry->name, 0) == 0);
}

/* false: it was answered, with 400. */
static bool take_filter(struct np_call *call, struct filter *filter)
{
    *filter = (struct filter){.service = call->routes->service,
        .owner = np_http_query(call->request, "owner"),
        .name = np_http_query(call->request, "name"),
        .limit = INT64_MAX,
        .tail = INT64_MAX};
    if (filter->name && strlen(filter->name) > MAX_PATTERN) {
        np_answer_error(call, 400, "invalid", "name: a pattern has at most %d bytes", MAX_PATTERN);
        return false;
    }
    return np_query_states(call, "state", &filter->states) &&
           np_query_whole(call, "after", 0, INT64_MAX, &filter->after) &&
           np_query_whole(call, "limit", 1, INT64_MAX, &filter->limit) &&
           np_query_whole(call, "tail", 1, INT64_MAX, &filter->tail);
}

void np_route_list(struct np_call *call)
{
    struct filter filter;
    int nr, first = 0;
    const struct np_entry *const *entries = np_service_entries(call->routes->service, &nr);

    if (!take_filter(call, &filter) || np_answer_unchanged(call))
        return;
    if (filter.owner && !np_is_known(call))
        nr = 0; /* it would tell whose each is */
    if (filter.tail < nr)
        for (first = nr; first > 0 && filter.tail > 0; first--)
            filter.tail -= passes(&filter, entries[first - 1]);
    np_json_begin(&call->routes->json, NULL);
    np_json_open(&call->routes->json, "runs", '[');
    for (int i = first; i < nr && filter.limit > 0; i++)
        if (passes(&filter, entries[i])) {
            np_write_run(call, NULL, entries[i]);
            filter.limit--;
        }
    np_json_close(&call->routes->json, ']');
    np_answer_tagged(call);
}

/* --- one run ---------------------------------------------------------------------------------- */

void np_route_show(struct np_call *call)
{
    double seconds = 0;
    unsigned states;
    struct np_wait *wait;

    if (!np_query_states(call, "state", &states) || !np_query_seconds(call, "wait", &seconds))
        return;
    if (seconds == 0 || !(states & 1u << call->entry->state)) {
        np_answer_run(call, call->id, 200);
    } else if ((wait = np_answer_later(call, NP_WAIT_STATE))) {
        wait->until_ns += (uint64_t)(seconds * 1e9);
        wait->states = states;
    }
}

bool np_turn_state(struct np_routes *routes, struct np_wait *wait)
{
    struct np_call call = np_call_of(routes, wait);

    if (!call.entry)
        np_answer_error(&call, 404, "not_found", "run %lld has been removed", (long long)wait->id);
    else if (np_now_ns() >= wait->until_ns || !(wait->states & 1u << call.entry->state))
        np_answer_run(&call, wait->id, 200);
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
        np_answer_run(call, call->id, 200);
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

void np_route_hold(struct np_call *call)
{
    change(call, np_service_hold);
}

static void answer_changed(struct np_call *call, int code, const struct np_err *err)
{
    if (code < 0)
        np_answer_failure(call, code, err);
    else
        np_answer_run(call, call->id, 200);
}

/* A body, {"time_limit": seconds}, may be left out. */
void np_route_retry(struct np_call *call)
{
    static const char *const keys[] = {"time_limit", NULL};
    const bool bare = call->request->body_bytes == 0;
    struct np_node *body = bare ? NULL : np_body_of(call, keys);
    double time_limit_s = -1;
    struct np_err err = {0};

    if (!bare && !body)
        return;
    if (body && !np_body_seconds(body, "time_limit", &time_limit_s)) {
        np_answer_error(call, 400, "invalid", "\"time_limit\": seconds, above 0, or null");
    } else {
        const int code = np_service_retry(call->routes->service, call->id, time_limit_s, &err);

        answer_changed(call, code, &err);
    }
    np_node_free(body);
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

static bool is_among(const char *const *keys, const char *key)
{
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0)
            return true;
    return false;
}

/* Has it no more values than any request has? A body of half a million would take all others' time. */
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
    struct np_node *body = NULL;
    struct np_err err = {0};

    if (!is_small(call->request->body, call->request->body_bytes)) {
        np_answer_error(call, 400, "invalid", "the body has more than %d values", MAX_VALUES);
        return NULL;
    }
    if (np_json_parse(call->request->body, call->request->body_bytes, &body, &err) < 0) {
        np_answer_error(call, 400, "invalid", "the body is not JSON: %s", err.text);
        return NULL;
    }
    for (int i = 0; body->kind == NP_NODE_MAP && i < body->nr_items; i++)
        if (!is_among(keys, body->items[i]->key)) {
            np_answer_error(call, 400, "invalid", "\"%s\": no such key", body->items[i]->key);
            np_node_free(body);
            return NULL;
        }
    if (body->kind == NP_NODE_MAP)
        return body;
    np_answer_error(call, 400, "invalid", "the body is not an object");
    np_node_free(body);
    return NULL;
}

const char *np_body_text(
    const struct np_node *body, const char *key, const char *fallback, size_t most)
{
    const struct np_node *node = np_node_get(body, key);

    if (!node)
        return fallback;
    if (node->kind != NP_NODE_SCALAR || !node->quoted || strlen(node->text) > most)
        return NULL;
    return node->text;
}

bool np_body_whole(
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

bool np_body_seconds(const struct np_node *body, const char *key, double *ret_seconds)
{
    const struct np_node *node = np_node_get(body, key);
    char *end;

    if (!node)
        return true;
    if (node->kind == NP_NODE_SCALAR && !node->quoted && !*node->text) { /* null */
        *ret_seconds = 0;
        return true;
    }
    if (node->kind != NP_NODE_SCALAR || node->quoted || !strchr("0123456789", *node->text))
        return false;
    const double seconds = strtod(node->text, &end);
    if (*end || !(seconds > 0 && seconds <= MAX_SECONDS))
        return false;
    *ret_seconds = seconds;
    return true;
}

bool np_body_bool(const struct np_node *body, const char *key, bool *ret_value)
{
    const struct np_node *node = np_node_get(body, key);

    if (!node)
        return true;
    if (node->kind != NP_NODE_SCALAR || node->quoted ||
        (strcmp(node->text, "true") != 0 && strcmp(node->text, "false") != 0))
        return false;
    *ret_value = strcmp(node->text, "true") == 0;
    return true;
}

/* For a member: more than the settings allow and than it has. */
static bool is_too_high(const struct np_call *call, int64_t priority)
{
    const struct np_service *service = call->routes->service;

    return np_access_caller_is_limited(np_service_access(service), &call->request->caller) &&
           priority > np_service_options(service)->limits.priority_max &&
           priority > call->entry->priority;
}

void np_route_patch(struct np_call *call)
{
    static const char *const keys[] = {"priority", "time_limit", NULL};
    struct np_node *body = np_body_of(call, keys);
    int64_t priority = INT64_MAX;
    double time_limit_s = -1;
    struct np_err err = {0};
    int code = 0;

    if (!body)
        return;
    if (!np_body_whole(body, "priority", -MAX_PRIORITY, MAX_PRIORITY, &priority) ||
        !np_body_seconds(body, "time_limit", &time_limit_s) ||
        (priority == INT64_MAX && time_limit_s < 0)) {
        np_answer_error(call, 400, "invalid",
            "expected {\"priority\": -100..100, \"time_limit\": seconds or null}");
    } else if (priority != INT64_MAX && is_too_high(call, priority)) {
        np_answer_high_priority(call);
    } else {
        if (priority != INT64_MAX)
            code = np_service_set_priority(call->routes->service, call->id, priority, &err);
        if (code == 0 && time_limit_s >= 0)
            code = np_service_set_time_limit(call->routes->service, call->id, time_limit_s, &err);
        answer_changed(call, code, &err);
    }
    np_node_free(body);
}
