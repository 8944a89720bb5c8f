/* See routes.h. The table of paths, who may, and answers; what the routes do is in routes_*.c. */
#include "daemon/service/routes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "loader/base/mem.h"

struct route {
    const char *method, *path; /* "#": a run's number; "*" at the end: anything */
    enum np_deed deed;
    void (*answer)(struct np_call *call);
};

static const struct route routes_table[] = {
    {"GET", "/v1/runs", NP_DEED_LIST, np_route_list},
    {"POST", "/v1/runs", NP_DEED_SUBMIT, np_route_submit},
    {"GET", "/v1/runs/#", NP_DEED_LIST, np_route_show},
    {"PATCH", "/v1/runs/#", NP_DEED_CONTROL, np_route_patch},
    {"DELETE", "/v1/runs/#", NP_DEED_CONTROL, np_route_remove},
    {"POST", "/v1/runs/#/stop", NP_DEED_CONTROL, np_route_stop},
    {"POST", "/v1/runs/#/pause", NP_DEED_CONTROL, np_route_pause},
    {"POST", "/v1/runs/#/resume", NP_DEED_CONTROL, np_route_resume},
    {"GET", "/v1/runs/#/config", NP_DEED_READ, np_route_config},
    {"GET", "/v1/runs/#/log", NP_DEED_READ, np_route_log},
    {"GET", "/v1/runs/#/metrics", NP_DEED_READ, np_route_metrics},
    {"GET", "/v1/devices", NP_DEED_LIST, np_route_devices},
    {"GET", "/v1/service", NP_DEED_LIST, np_route_service},
    {"POST", "/v1/service/reload", NP_DEED_RELOAD, np_route_reload},
    {"GET", "/healthz", NP_DEED_HEALTH, np_route_health},
    {"GET", "/metrics", NP_DEED_HEALTH, np_route_prometheus},
    {"GET", "/openapi.json", NP_DEED_LIST, np_route_page},
    {"GET", "/assets/*", NP_DEED_LIST, np_route_page},
    {"GET", "/", NP_DEED_LIST, np_route_page},
};
#define NR_ROUTES (sizeof(routes_table) / sizeof(*routes_table))

/* --- paths ------------------------------------------------------------------------------------ */

/* A run's number: digits without a leading zero; its end, or NULL. */
static const char *take_number(const char *at, int64_t *ret_id)
{
    int64_t id = 0;
    int digits = 0;

    for (; *at >= '0' && *at <= '9' && digits < 18; at++, digits++)
        id = 10 * id + (*at - '0');
    if (digits == 0 || id == 0 || (*at >= '0' && *at <= '9'))
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
    np_http_reply(call->held, status, "application/json", text, strlen(text), NULL);
}

void np_answer_text(
    struct np_call *call, const char *type, const char *text, size_t bytes, const char *next)
{
    const struct np_http_field field = {"X-Next", next};

    np_http_reply(call->held, 200, type, text, bytes, next ? &field : NULL);
}

void np_answer_nothing(struct np_call *call)
{
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
    case -ENODEV: np_answer_error(call, 422, "config", "%s", err->text); break;
    case -ENOSPC: np_answer_error(call, 507, "disk", "%s", err->text); break;
    default: np_answer_error(call, 500, "internal", "%s", err->text);
    }
}

struct np_wait *np_answer_later(struct np_call *call)
{
    struct np_routes *routes = call->routes;

    if (routes->nr_waits == NP_MOST_WAITS) {
        np_answer_error(call, 503, "internal", "too many requests wait already; ask again later");
        return NULL;
    }
    struct np_wait *wait = &routes->waits[routes->nr_waits++];
    *wait = (struct np_wait){.request = np_http_hold(call->request),
        .id = call->id,
        .segment = -1,
        .checker = {.fd = -1}};
    return wait;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool may(const struct np_call *call, enum np_deed deed)
{
    const struct np_service *service = call->routes->service;

    return np_access_may(np_service_access(service), &call->request->caller, deed,
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
    if (call->id > 0 && !call->entry && may(call, NP_DEED_LIST))
        np_answer_error(call, 404, "not_found", "there is no run %lld", (long long)call->id);
    else if (!may(call, route->deed))
        np_answer_error(call, 403, "forbidden", "you may not %s here: docs/SERVICE.md says who may",
            np_deed_names[route->deed]);
    else if (!has_right_type(call->request))
        np_answer_error(call, 415, "invalid", "a request's body is application/json");
    else
        route->answer(call);
}

void np_routes_handle(void *context, const struct np_http_request *request)
{
    struct np_call call = {.routes = context, .request = request, .held = request->held};
    bool known = false;

    for (size_t i = 0; i < NR_ROUTES; i++) {
        int64_t id = 0;

        if (!fits(routes_table[i].path, request->path, &id))
            continue;
        known = true;
        if (strcmp(routes_table[i].method, request->method) != 0)
            continue;
        call.id = id;
        answer(&call, &routes_table[i]);
        return;
    }
    if (known)
        np_answer_error(&call, 405, "method", "%s is not for %s", request->method, request->path);
    else
        np_answer_error(&call, 404, "not_found", "there is no %s", request->path);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static bool turn(struct np_routes *routes, struct np_wait *wait)
{
    if (wait->checker.pid > 0)
        return np_turn_submit(routes, wait);
    return wait->segment >= 0 ? np_turn_log(routes, wait) : np_turn_show(routes, wait);
}

void np_routes_turn(struct np_routes *routes)
{
    for (int i = 0; i < routes->nr_waits;)
        if (turn(routes, &routes->waits[i])) {
            np_entry_fini(&routes->waits[i].entry);
            routes->waits[i] = routes->waits[--routes->nr_waits];
        } else {
            i++;
        }
}

int np_routes_fds(const struct np_routes *routes, int *ret_fds, int most)
{
    int n = 0;

    for (int i = 0; i < routes->nr_waits && n < most; i++)
        if (routes->waits[i].checker.pid > 0)
            ret_fds[n++] = routes->waits[i].checker.fd;
    return n;
}

int np_routes_new(struct np_service *service, struct np_routes **ret_routes, struct np_err *err)
{
    struct np_routes *routes = np_alloc(sizeof(*routes));

    if (!routes)
        return np_err_set(err, -ENOMEM, "out of memory");
    routes->service = service;
    *ret_routes = routes;
    return 0;
}

void np_routes_free(struct np_routes *routes)
{
    if (!routes)
        return;
    for (int i = 0; i < routes->nr_waits; i++) {
        np_checker_stop(&routes->waits[i].checker);
        np_entry_fini(&routes->waits[i].entry);
    }
    np_json_fini(&routes->json);
    np_free(routes);
}
