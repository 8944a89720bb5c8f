/* The table of paths and permissions; routes_*.c implement the routes. */
#include "daemon/service/http/routes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/service/http/answer.h"
#include "daemon/service/service_queue.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

struct route {
    const char *method, *path; /* "#": a run's ID; "*" at the end: anything */
    enum np_action action;
    void (*answer)(struct np_call *call);
    np_change_fn *change; /* for np_route_change() */
};

static const struct route routes_table[] = {
    {"GET", "/v1/runs", NP_ACTION_LIST, np_route_list, NULL},
    {"POST", "/v1/runs", NP_ACTION_SUBMIT, np_route_submit, NULL},
    {"GET", "/v1/runs/#", NP_ACTION_LIST, np_route_show, NULL},
    {"PATCH", "/v1/runs/#", NP_ACTION_CONTROL, np_route_patch, NULL},
    {"DELETE", "/v1/runs/#", NP_ACTION_CONTROL, np_route_remove, NULL},
    {"POST", "/v1/runs/#/stop", NP_ACTION_CONTROL, np_route_change, np_service_stop},
    {"POST", "/v1/runs/#/pause", NP_ACTION_CONTROL, np_route_change, np_service_pause},
    {"POST", "/v1/runs/#/resume", NP_ACTION_CONTROL, np_route_change, np_service_resume},
    {"POST", "/v1/runs/#/retry", NP_ACTION_CONTROL, np_route_retry, NULL},
    {"POST", "/v1/runs/#/hold", NP_ACTION_CONTROL, np_route_change, np_service_hold},
    {"GET", "/v1/runs/#/config", NP_ACTION_READ, np_route_config, NULL},
    {"GET", "/v1/runs/#/log", NP_ACTION_READ, np_route_log, NULL},
    {"GET", "/v1/runs/#/metrics", NP_ACTION_READ, np_route_metrics, NULL},
    {"GET", "/v1/devices", NP_ACTION_LIST, np_route_devices, NULL},
    {"PATCH", "/v1/devices", NP_ACTION_MANAGE, np_route_drain, NULL},
    {"GET", "/v1/service", NP_ACTION_LIST, np_route_service, NULL},
    {"PATCH", "/v1/service", NP_ACTION_MANAGE, np_route_hold_all, NULL},
    {"POST", "/v1/service/reload", NP_ACTION_MANAGE, np_route_reload, NULL},
    {"POST", "/v1/tokens", NP_ACTION_TOKEN, np_route_new_token, NULL},
    {"DELETE", "/v1/tokens", NP_ACTION_TOKEN, np_route_drop_token, NULL},
    {"GET", "/healthz", NP_ACTION_HEALTH, np_route_health, NULL},
    {"GET", "/metrics", NP_ACTION_HEALTH, np_route_prometheus, NULL},
    {"GET", "/openapi.json", NP_ACTION_LIST, np_route_page, NULL},
    {"GET", "/assets/*", NP_ACTION_LIST, np_route_page, NULL},
    {"GET", "/", NP_ACTION_LIST, np_route_page, NULL},
};
#define NR_ROUTES (sizeof(routes_table) / sizeof(*routes_table))

/* A run's ID has no leading zero. Returns its end, or NULL. */
static const char *take_number(const char *at, int64_t *ret_id)
{
    return *at >= '1' && *at <= '9' ? np_text_int_end(at, ret_id) : NULL;
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

/* --- requests --------------------------------------------------------------------------------- */

static bool may(const struct np_call *call, enum np_action action)
{
    const struct np_service *service = call->routes->service;

    return np_access_may(&service->access, &call->request->caller, action,
        call->run ? call->run->entry.uid : (uid_t)-1);
}

/* A browser sends forms of a foreign page without a preflight request, but not JSON. */
static bool has_right_type(const struct np_http_request *request)
{
    const char *type = np_http_field(request, "Content-Type");

    return request->body_bytes == 0 ||
           (type && strncasecmp(type, "application/json", 16) == 0 &&
               (type[16] == '\0' || type[16] == ';' || type[16] == ' '));
}

/* Only callers who may list runs learn that a run does not exist. */
static void answer(struct np_call *call, const struct route *route)
{
    if (call->id > 0 && !call->run && may(call, NP_ACTION_LIST))
        np_answer_error(call, 404, "not_found", "there is no run %lld", (long long)call->id);
    else if (!may(call, route->action))
        np_answer_error(call, 403, "forbidden",
            "permission to %s denied; docs/SERVICE.md lists the callers who have it",
            np_action_names[route->action]);
    else if (!has_right_type(call->request))
        np_answer_error(
            call, 415, "invalid", "the type of a request's body must be application/json");
    else
        route->answer(call);
}

/* HEAD answers as GET; libmicrohttpd leaves the body out. */
static bool is_method(const char *method, const char *asked)
{
    return strcmp(method, strcmp(asked, "HEAD") == 0 ? "GET" : asked) == 0;
}

/* Fills the call from its path. NULL: no such path (allowed is empty), or no such method (allowed
 * has the path's methods). */
static const struct route *find_route(struct np_call *call, char *allowed, size_t bytes)
{
    *allowed = '\0';
    for (size_t i = 0; i < NR_ROUTES; i++) {
        const struct route *route = &routes_table[i];
        const size_t used = strlen(allowed);

        call->id = 0;
        if (!fits(route->path, call->request->path, &call->id))
            continue;
        if (is_method(route->method, call->request->method)) {
            call->run = call->id > 0 ? np_book_run(call->routes->service, call->id) : NULL;
            call->change = route->change;
            return route;
        }
        snprintf(allowed + used, bytes - used, "%s%s%s", used ? ", " : "", route->method,
            strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
    }
    return NULL;
}

bool np_routes_allow(void *context, const struct np_http_request *request)
{
    struct np_call call = {.routes = context, .request = request};
    char allowed[64];
    const struct route *route = find_route(&call, allowed, sizeof(allowed));

    return route && may(&call, route->action);
}

/* As np_answer_error(), with the Allow field of RFC 9110. */
static void answer_wrong_method(struct np_call *call, const char *allowed)
{
    static const char text[] =
        "{\"error\": {\"code\": \"method\", \"text\": \"method not allowed; see Allow\"}}\n";
    const struct np_http_field field = {"Allow", allowed};

    call->routes->answers[4]++;
    np_http_reply(call->request->held, 405, "application/json", text, strlen(text), &field);
}

bool np_routes_user_of(void *context, const char *token, uid_t *ret_uid)
{
    struct np_routes *routes = context;

    return np_service_find_token(routes->service, token, ret_uid);
}

void np_routes_handle(void *context, const struct np_http_request *request)
{
    struct np_call call = {.routes = context, .request = request};
    char allowed[64];
    const struct route *route = find_route(&call, allowed, sizeof(allowed));

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
    struct np_call call = {.routes = routes, .request = wait->request, .id = wait->id};

    if (wait->id > 0 && !(call.run = np_book_run(routes->service, wait->id))) {
        np_answer_error(&call, 404, "not_found", "run %lld has been removed", (long long)wait->id);
        return true;
    }
    return wait->turn(&call, wait);
}

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
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    if (epoll_fd < 0)
        return np_err_set(err, -errno, "an epoll descriptor: %s", strerror(errno));
    struct np_routes *routes = np_alloc(sizeof(*routes));
    *routes = (struct np_routes){.service = service, .epoll_fd = epoll_fd};
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
