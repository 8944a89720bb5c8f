/* See routes.h. The table of paths, who may, and answers; what the routes do is in routes_*.c. */
#include "daemon/service/http/routes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/service/http/http_peers.h"
#include "daemon/service/http/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define MAX_WAIT_S 60.0
#define MAX_OWN    (NP_MAX_WAITS / 2) /* waits of the service's own user and root */
#define MAX_TCP    (NP_MAX_WAITS / 8)
#define MAX_OTHERS (NP_MAX_WAITS / 8) /* of each */

struct route {
    const char *method, *path; /* "#": a run's number; "*" at the end: anything */
    enum np_action action;
    void (*answer)(struct np_call *call);
};

static const struct route routes_table[] = {
    {"GET", "/v1/runs", NP_ACTION_LIST, np_route_list},
    {"POST", "/v1/runs", NP_ACTION_SUBMIT, np_route_submit},
    {"GET", "/v1/runs/#", NP_ACTION_LIST, np_route_show},
    {"PATCH", "/v1/runs/#", NP_ACTION_CONTROL, np_route_patch},
    {"DELETE", "/v1/runs/#", NP_ACTION_CONTROL, np_route_remove},
    {"POST", "/v1/runs/#/stop", NP_ACTION_CONTROL, np_route_stop},
    {"POST", "/v1/runs/#/pause", NP_ACTION_CONTROL, np_route_pause},
    {"POST", "/v1/runs/#/resume", NP_ACTION_CONTROL, np_route_resume},
    {"POST", "/v1/runs/#/retry", NP_ACTION_CONTROL, np_route_retry},
    {"POST", "/v1/runs/#/hold", NP_ACTION_CONTROL, np_route_hold},
    {"GET", "/v1/runs/#/config", NP_ACTION_READ, np_route_config},
    {"GET", "/v1/runs/#/log", NP_ACTION_READ, np_route_log},
    {"GET", "/v1/runs/#/metrics", NP_ACTION_READ, np_route_metrics},
    {"GET", "/v1/devices", NP_ACTION_LIST, np_route_devices},
    {"PATCH", "/v1/devices", NP_ACTION_MANAGE, np_route_drain},
    {"GET", "/v1/service", NP_ACTION_LIST, np_route_service},
    {"PATCH", "/v1/service", NP_ACTION_MANAGE, np_route_hold_all},
    {"POST", "/v1/service/reload", NP_ACTION_MANAGE, np_route_reload},
    {"POST", "/v1/tokens", NP_ACTION_TOKEN, np_route_new_token},
    {"DELETE", "/v1/tokens", NP_ACTION_TOKEN, np_route_drop_token},
    {"GET", "/healthz", NP_ACTION_HEALTH, np_route_health},
    {"GET", "/metrics", NP_ACTION_HEALTH, np_route_prometheus},
    {"GET", "/openapi.json", NP_ACTION_LIST, np_route_page},
    {"GET", "/assets/*", NP_ACTION_LIST, np_route_page},
    {"GET", "/", NP_ACTION_LIST, np_route_page},
};
#define NR_ROUTES (sizeof(routes_table) / sizeof(*routes_table))

/* --- paths ------------------------------------------------------------------------------------ */

/* A run's number: digits without a leading zero; its end, or NULL. */
static const char *take_number(const char *at, int64_t *ret_id)
{
    int64_t id = 0;
    int digits = 0;

    if (*at == '0')
        return NULL;
    for (; *at >= '0' && *at <= '9' && digits < 18; at++, digits++)
        id = 10 * id + (*at - '0');
    if (digits == 0 || (*at >= '0' && *at <= '9'))
        return NULL;
    *ret_id = id;
    return at;
}

static bool fits(const char *pattern, const char *path, int64_t *ret_id)
{
    while (*pattern) {
        if (*pattern == '*')
            return true;
        if (*pattern == '#') {
            path = take_number(path, ret_id);
            if (!path)
                return false;
            pattern++;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

/* --- answers ---------------------------------------------------------------------------------- */

void np_answer_json(struct np_call *call, unsigned status)
{
    const char *text = np_json_end(&call->routes->json);

    if (!text) {
        status = 500;
        text = "{\"error\": {\"code\": \"internal\", \"text\": \"out of memory\"}}\n";
    }
    call->routes->answers[status / 100]++;
    np_http_reply(call->held, status, "application/json", text, strlen(text), NULL);
}

/* What a caller sees of it depends on who that is. */
static void tag_of(const struct np_call *call, char *tag, size_t bytes)
{
    const struct np_service *service = call->routes->service;
    const struct np_caller *caller = &call->request->caller;

    snprintf(tag, bytes, "\"%.0f-%d-%llu-%d%d%d-%u\"", service->began, (int)getpid(),
        (unsigned long long)np_service_version(service), caller->socket, caller->token,
        caller->user, (unsigned)caller->uid);
}

void np_answer_tagged(struct np_call *call)
{
    const char *text = np_json_end(&call->routes->json);
    char tag[96];
    const struct np_http_field field = {"ETag", tag};

    if (!text) {
        np_answer_json(call, 500);
        return;
    }
    tag_of(call, tag, sizeof(tag));
    call->routes->answers[2]++;
    np_http_reply(call->held, 200, "application/json", text, strlen(text), &field);
}

bool np_answer_unchanged(struct np_call *call)
{
    const char *known = np_http_field(call->request, "If-None-Match");
    char tag[96];
    const struct np_http_field field = {"ETag", tag};

    tag_of(call, tag, sizeof(tag));
    if (!known || !strstr(known, tag))
        return false;
    call->routes->answers[3]++;
    np_http_reply(call->held, 304, "application/json", "", 0, &field);
    return true;
}

void np_answer_text(
    struct np_call *call, const char *type, const char *text, size_t bytes, const char *next)
{
    const struct np_http_field field = {"X-Next", next};

    call->routes->answers[2]++;
    np_http_reply(call->held, 200, type, text, bytes, next ? &field : NULL);
}

void np_answer_nothing(struct np_call *call)
{
    call->routes->answers[2]++;
    np_http_reply(call->held, 204, "application/json", "", 0, NULL);
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

void np_answer_failure(struct np_call *call, int code, const struct np_err *err)
{
    switch (code) {
    case -ENOENT: np_answer_error(call, 404, "not_found", "%s", err->text); break;
    case -EINVAL:
    case -EBUSY: np_answer_error(call, 409, "conflict", "%s", err->text); break;
    case -EAGAIN: np_answer_error(call, 503, "busy", "%s", err->text); break;
    case -ENODEV: np_answer_error(call, 422, "config", "%s", err->text); break;
    case -ENOSPC: np_answer_error(call, 507, "disk", "%s", err->text); break;
    case -EDQUOT: np_answer_error(call, 429, "limit", "%s", err->text); break;
    default: np_answer_error(call, 500, "internal", "%s", err->text);
    }
}

void np_answer_too_large(struct np_call *call, const char *what)
{
    np_answer_error(call, 413, "limit", "%s is larger than the %lld bytes of limits.config_bytes",
        what, (long long)np_service_options(call->routes->service)->limits.config_bytes);
}

void np_answer_high_priority(struct np_call *call)
{
    np_answer_error(call, 403, "limit",
        "members of this box may give priorities up to %lld (limits.priority_max)",
        (long long)np_service_options(call->routes->service)->limits.priority_max);
}

static bool is_own(const struct np_routes *routes, const struct np_caller *caller)
{
    return caller->socket &&
           (caller->uid == 0 || caller->uid == np_service_access(routes->service)->service_uid);
}

/* Nobody can take all the places: the service's own user and root have some that are theirs alone. */
static bool may_wait(const struct np_routes *routes, const struct np_caller *caller)
{
    const bool own = is_own(routes, caller);
    const int most = own ? MAX_OWN : caller->socket ? MAX_OTHERS : MAX_TCP;
    int same = 0, others = 0;

    for (int i = 0; i < routes->nr_waits; i++) {
        const struct np_caller *waits = &routes->waits[i].request->caller;
        const bool waits_own = is_own(routes, waits);

        others += !waits_own;
        same += own ? waits_own : np_peer_is_same(waits, caller) && waits->token == caller->token;
    }
    return same < most && (own || others < NP_MAX_WAITS - MAX_OWN);
}

struct np_wait *np_answer_later(struct np_call *call, enum np_wait_for what)
{
    struct np_routes *routes = call->routes;

    if (!may_wait(routes, &call->request->caller)) {
        np_answer_error(
            call, 503, "busy", "too many of your requests wait already; ask again later");
        return NULL;
    }
    struct np_wait *wait = &routes->waits[routes->nr_waits++];
    *wait = (struct np_wait){.what = what,
        .request = np_http_hold(call->request),
        .id = call->id,
        .until_ns = np_now_ns(),
        .child = {.fd = -1, .epoll_fd = -1}};
    return wait;
}

struct np_call np_call_of(struct np_routes *routes, const struct np_wait *wait)
{
    return (struct np_call){.routes = routes,
        .request = wait->request,
        .held = wait->request->held,
        .id = wait->id,
        .entry = wait->id > 0 ? np_service_find(routes->service, wait->id) : NULL};
}

/* --- the query -------------------------------------------------------------------------------- */

bool np_query_whole(
    struct np_call *call, const char *name, int64_t least, int64_t most, int64_t *ret_value)
{
    const char *text = np_http_query(call->request, name);
    char *end;

    if (!text)
        return true;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (strspn(text, "0123456789") != strlen(text) || end == text || errno || value < least ||
        value > most) {
        np_answer_error(call, 400, "invalid", "%s: expected a whole number, %lld to %lld", name,
            (long long)least, (long long)most);
        return false;
    }
    *ret_value = value;
    return true;
}

bool np_query_seconds(struct np_call *call, const char *name, double *ret_seconds)
{
    const char *text = np_http_query(call->request, name);

    if (!text)
        return true;
    const size_t digits = strspn(text, "0123456789"),
                 more = text[digits] == '.' ? strspn(text + digits + 1, "0123456789") : 0;
    const double seconds = strtod(text, NULL);
    if (digits == 0 || digits > 9 || text[digits + (more ? more + 1 : 0)]) {
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
                "%s: '%.*s' is no state: docs/SERVICE.md names them", name, (int)strcspn(at, ","),
                at);
            return false;
        }
        states |= state;
    }
    *ret_states = states;
    return true;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool may(const struct np_call *call, enum np_action action)
{
    const struct np_service *service = call->routes->service;

    return np_access_may(np_service_access(service), &call->request->caller, action,
        call->entry ? call->entry->uid : (uid_t)-1);
}

/* Bodies are JSON: a form of a page of elsewhere is not (it could be sent without asking). */
static bool has_right_type(const struct np_http_request *request)
{
    const char *type = np_http_field(request, "Content-Type");

    return request->body_bytes == 0 ||
           (type && strncasecmp(type, "application/json", 16) == 0 &&
               (type[16] == '\0' || type[16] == ';' || type[16] == ' '));
}

/* What is not there is told only to those who might see it. */
static void answer(struct np_call *call, const struct route *route)
{
    if (call->id > 0)
        call->entry = np_service_find(call->routes->service, call->id);
    if (call->id > 0 && !call->entry && may(call, NP_ACTION_LIST))
        np_answer_error(call, 404, "not_found", "there is no run %lld", (long long)call->id);
    else if (!may(call, route->action))
        np_answer_error(call, 403, "forbidden", "you may not %s here: docs/SERVICE.md says who may",
            np_deed_names[route->action]);
    else if (!has_right_type(call->request))
        np_answer_error(call, 415, "invalid", "a request's body is application/json");
    else
        route->answer(call);
}

/* What GET answers, HEAD answers without the body, which libmicrohttpd leaves out. */
static bool is_method(const char *method, const char *asked)
{
    return strcmp(method, strcmp(asked, "HEAD") == 0 ? "GET" : asked) == 0;
}

/* NULL: there is none of that path, or of that method: then allowed (of so many bytes) names those that there are. */
static const struct route *find_route(
    const struct np_http_request *request, int64_t *ret_id, char *allowed, size_t bytes)
{
    *allowed = '\0';
    for (size_t i = 0; i < NR_ROUTES; i++) {
        const struct route *route = &routes_table[i];
        const size_t used = strlen(allowed);

        *ret_id = 0;
        if (!fits(route->path, request->path, ret_id))
            continue;
        if (is_method(route->method, request->method))
            return route;
        snprintf(allowed + used, bytes - used, "%s%s%s", used ? ", " : "", route->method,
            strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
    }
    return NULL;
}

bool np_routes_hear(void *context, const struct np_http_request *request)
{
    struct np_call call = {.routes = context, .request = request};
    char allowed[64];
    const struct route *route = find_route(request, &call.id, allowed, sizeof(allowed));

    if (call.id > 0)
        call.entry = np_service_find(call.routes->service, call.id);
    return route && may(&call, route->action);
}

/* As np_answer_error(), and with what RFC 9110 wants beside it. */
static void answer_wrong_method(struct np_call *call, const char *allowed)
{
    static const char text[] =
        "{\"error\": {\"code\": \"method\", \"text\": \"this path has other methods; "
        "Allow names them\"}}\n";
    const struct np_http_field field = {"Allow", allowed};

    call->routes->answers[4]++;
    np_http_reply(call->held, 405, "application/json", text, strlen(text), &field);
}

bool np_routes_user_of(void *context, const char *token, uid_t *ret_uid)
{
    struct np_routes *routes = context;

    return np_service_find_token(routes->service, token, ret_uid);
}

void np_routes_handle(void *context, const struct np_http_request *request)
{
    struct np_call call = {.routes = context, .request = request, .held = request->held};
    char allowed[64];
    const struct route *route = find_route(request, &call.id, allowed, sizeof(allowed));

    if (route)
        answer(&call, route);
    else if (*allowed)
        answer_wrong_method(&call, allowed);
    else
        np_answer_error(&call, 404, "not_found", "there is no %s", request->path);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void forget(struct np_wait *wait)
{
    np_child_stop(&wait->child);
    np_entry_fini(&wait->entry);
    np_node_free(wait->body);
}

static bool turn(struct np_routes *routes, struct np_wait *wait)
{
    switch (wait->what) {
    case NP_WAIT_CHECK: return np_turn_check(routes, wait);
    case NP_WAIT_LOG: return np_turn_log(routes, wait);
    case NP_WAIT_METRICS: return np_turn_metrics(routes, wait);
    default: return np_turn_state(routes, wait);
    }
}

/* In the order in which they came. */
bool np_routes_turn(struct np_routes *routes)
{
    const int nr = routes->nr_waits;
    int left = 0;
    bool begun = false;

    for (int i = 0; i < nr; i++) {
        struct np_wait *wait = &routes->waits[i];
        const pid_t child = wait->child.pid;
        const bool answered = turn(routes, wait);

        begun |= !answered && wait->child.pid != child;
        if (answered)
            forget(wait);
        else if (left++ != i)
            routes->waits[left - 1] = *wait;
    }
    routes->nr_waits = left;
    return begun || left != nr;
}

int np_routes_fd(const struct np_routes *routes)
{
    return routes->epoll_fd;
}

int np_routes_new(struct np_service *service, struct np_routes **ret_routes, struct np_err *err)
{
    struct np_routes *routes = np_alloc(sizeof(*routes));

    if (!routes || (routes->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        np_free(routes);
        return np_err_set(err, -ENOMEM, "out of memory, or of descriptors");
    }
    routes->service = service;
    *ret_routes = routes;
    return 0;
}

void np_routes_free(struct np_routes *routes)
{
    if (!routes)
        return;
    for (int i = 0; i < routes->nr_waits; i++)
        forget(&routes->waits[i]);
    close(routes->epoll_fd);
    np_json_fini(&routes->json);
    np_free(routes);
}
