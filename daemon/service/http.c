/* See http.h. The only user of libmicrohttpd: of it, only its parser and its sockets are used. */
#include "daemon/service/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

#include "loader/base/mem.h"

#define IDLE_S       75         /* a connection that says nothing is closed */
#define MEMORY_BYTES (32 << 10) /* of a connection: heads longer than that are refused (431) */
#define MAX_GROUPS   1024

struct np_http_held {
    struct np_http *http;
    struct MHD_Connection *connection;
    struct np_http_request request;
    char *method, *path, *body; /* np_free */
    size_t room;
    unsigned refused;              /* a status: what follows of the body is dropped */
    struct MHD_Response *response; /* NULL: not yet */
    unsigned status;
    bool suspended;
    struct np_http_held *next, **link; /* suspended ones */
};

struct np_http {
    struct np_http_options options; /* set once */
    struct MHD_Daemon *daemons[2];  /* Unix, TCP */
    struct np_http_held *held;
};

/* --- who asks --------------------------------------------------------------------------------- */

/* The kernel's word at connect(): never the process, whose number may be another's by now. */
static void ask_kernel(const struct np_http *http, int fd, struct np_caller *caller)
{
    struct ucred ucred;
    socklen_t bytes = sizeof(ucred);
    gid_t groups[MAX_GROUPS];

    caller->socket = false;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &bytes) < 0)
        return;
    caller->socket = true;
    caller->uid = ucred.uid;
    caller->gid = ucred.gid;
    caller->member = ucred.gid == http->options.group;
    bytes = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
        return;
    for (size_t i = 0; i < bytes / sizeof(*groups); i++)
        caller->member |= groups[i] == http->options.group;
    caller->member &= http->options.group != (gid_t)-1;
}

/* In a time that does not tell how much of it was right. */
static bool same_token(const char *given, const char *token)
{
    const size_t bytes = strlen(token);
    unsigned char differs = 0;

    if (strlen(given) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(given[i] ^ token[i]);
    return differs == 0;
}

static bool has_token(const struct np_http *http, struct MHD_Connection *connection)
{
    static const char bearer[] = "Bearer ";
    const char *value =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);

    return http->options.token && value && strncmp(value, bearer, strlen(bearer)) == 0 &&
           same_token(value + strlen(bearer), http->options.token);
}

/* "localhost:7411", "http://127.0.0.1:7411": a name that only this box answers to. */
static bool is_local(const char *name)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    if (strncmp(name, "http://", 7) == 0)
        name += 7;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const size_t bytes = strlen(names[i]);
        const char *port = name + bytes;

        if (strncmp(name, names[i], bytes) != 0 || (*port != '\0' && *port != ':'))
            continue;
        return *port == '\0' || strspn(port + 1, "0123456789") == strlen(port + 1);
    }
    return false;
}

/* A page of elsewhere may reach loopback through its reader's browser (DNS rebinding, forged forms). */
static bool comes_from_here(struct MHD_Connection *connection)
{
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const char *origin =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);

    return host && strncmp(host, "http://", 7) != 0 && is_local(host) &&
           (!origin || is_local(origin));
}

/* --- requests --------------------------------------------------------------------------------- */

static void free_held(struct np_http_held *held)
{
    if (held->link) {
        *held->link = held->next;
        if (held->next)
            held->next->link = held->link;
    }
    if (held->response)
        MHD_destroy_response(held->response);
    np_free(held->method);
    np_free(held->path);
    np_free(held->body);
    np_free(held);
}

static struct np_http_held *new_held(
    struct np_http *http, struct MHD_Connection *connection, const char *path, const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const bool on_socket =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON)->daemon == http->daemons[0];
    struct np_http_held *held = np_alloc(sizeof(*held));

    if (!held)
        return NULL;
    held->http = http;
    held->connection = connection;
    held->method = np_strdup(method);
    held->path = np_strdup(path);
    if (!held->method || !held->path) {
        free_held(held);
        return NULL;
    }
    held->request = (struct np_http_request){
        .method = held->method, .path = held->path, .body = "", .held = held};
    if (on_socket)
        ask_kernel(http, info->connect_fd, &held->request.caller);
    else if (!comes_from_here(connection))
        held->refused = MHD_HTTP_FORBIDDEN;
    else
        held->request.caller.token = has_token(http, connection);
    return held;
}

const char *np_http_query(const struct np_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->held->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *np_http_field(const struct np_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->held->connection, MHD_HEADER_KIND, name);
}

/* More of the body; it is kept up to its limit. */
static void take_body(struct np_http_held *held, const char *bytes, size_t nr)
{
    const size_t used = held->request.body_bytes;

    if (held->refused)
        return;
    if (nr > NP_HTTP_MOST_BODY - used) {
        held->refused = MHD_HTTP_CONTENT_TOO_LARGE;
        return;
    }
    if (used + nr + 1 > held->room) {
        const size_t room = 2 * (used + nr) + 256;
        char *body = np_alloc(room);

        if (!body) {
            held->refused = MHD_HTTP_SERVICE_UNAVAILABLE;
            return;
        }
        memcpy(body, held->request.body, used);
        np_free(held->body);
        held->body = body;
        held->room = room;
    }
    memcpy(held->body + used, bytes, nr);
    held->body[used + nr] = '\0';
    held->request.body = held->body;
    held->request.body_bytes = used + nr;
}

static const char *refusal(unsigned status)
{
    switch (status) {
    case MHD_HTTP_FORBIDDEN:
        return "{\"error\": {\"code\": \"forbidden\", \"text\": \"this service answers to "
               "localhost "
               "alone: Host or Origin is another\"}}\n";
    case MHD_HTTP_CONTENT_TOO_LARGE:
        return "{\"error\": {\"code\": \"invalid\", \"text\": \"the request is larger than 1 "
               "MiB\"}}\n";
    default:
        return "{\"error\": {\"code\": \"internal\", \"text\": \"the service has no answer "
               "now\"}}\n";
    }
}

static enum MHD_Result answer(struct np_http_held *held)
{
    return MHD_queue_response(held->connection, held->status, held->response);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *bytes, size_t *nr, void **state)
{
    struct np_http *http = context;
    struct np_http_held *held = *state;

    (void)version;
    if (!held) { /* the head is there, the body is not */
        *state = held = new_held(http, connection, url, method);
        return held ? MHD_YES : MHD_NO;
    }
    if (*nr > 0) {
        take_body(held, bytes, *nr);
        *nr = 0;
        return MHD_YES;
    }
    if (!held->response && held->refused) {
        const char *text = refusal(held->refused);

        np_http_reply(held, held->refused, "application/json", text, strlen(text), NULL);
    } else if (!held->response) {
        http->options.handler(http->options.context, &held->request);
    }
    if (held->response)
        return answer(held);
    return held->suspended ? MHD_YES : MHD_NO;
}

static void completed(void *context, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode why)
{
    (void)context;
    (void)connection;
    (void)why;
    if (*state)
        free_held(*state);
    *state = NULL;
}

const struct np_http_request *np_http_hold(const struct np_http_request *request)
{
    struct np_http_held *held = request->held;
    struct np_http *http = held->http;

    MHD_suspend_connection(held->connection);
    held->suspended = true;
    held->next = http->held;
    held->link = &http->held;
    if (held->next)
        held->next->link = &held->next;
    http->held = held;
    return &held->request;
}

void np_http_reply(struct np_http_held *held, unsigned status, const char *type, const char *body,
    size_t bytes, const struct np_http_field *field)
{
    held->response = MHD_create_response_from_buffer(bytes, (void *)body, MHD_RESPMEM_MUST_COPY);
    held->status = status;
    if (held->response) {
        MHD_add_response_header(held->response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        MHD_add_response_header(held->response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        MHD_add_response_header(held->response, "X-Content-Type-Options", "nosniff");
        MHD_add_response_header(held->response, "Content-Security-Policy",
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        if (field)
            MHD_add_response_header(held->response, field->name, field->value);
    }
    if (!held->suspended)
        return;
    held->suspended = false;
    *held->link = held->next;
    if (held->next)
        held->next->link = held->link;
    held->link = NULL;
    MHD_resume_connection(held->connection);
}

/* --- open and close --------------------------------------------------------------------------- */

static struct MHD_Daemon *start(struct np_http *http, int fd)
{
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, http,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->options.most_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

int np_http_open(
    const struct np_http_options *options, struct np_http **ret_http, struct np_err *err)
{
    const int fds[2] = {options->socket_fd, options->tcp_fd};
    struct np_http *http = np_alloc(sizeof(*http));

    if (!http)
        return np_err_set(err, -ENOMEM, "out of memory");
    http->options = *options;
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0 && !(http->daemons[i] = start(http, fds[i]))) {
            np_http_close(http);
            return np_err_set(
                err, -EIO, "libmicrohttpd cannot listen on the %s socket", i ? "TCP" : "Unix");
        }
    *ret_http = http;
    return 0;
}

void np_http_close(struct np_http *http)
{
    if (!http)
        return;
    while (http->held) {
        const char *text = refusal(MHD_HTTP_SERVICE_UNAVAILABLE);

        np_http_reply(
            http->held, MHD_HTTP_SERVICE_UNAVAILABLE, "application/json", text, strlen(text), NULL);
    }
    for (int i = 0; i < 2; i++)
        if (http->daemons[i]) {
            MHD_run(http->daemons[i]);
            MHD_stop_daemon(http->daemons[i]);
        }
    np_free(http);
}

void np_http_wait(struct np_http *http, int ret_fds[2], int64_t *ret_ms)
{
    *ret_ms = -1;
    for (int i = 0; i < 2; i++) {
        MHD_UNSIGNED_LONG_LONG ms;

        ret_fds[i] = -1;
        if (!http->daemons[i])
            continue;
        ret_fds[i] = MHD_get_daemon_info(http->daemons[i], MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        if (MHD_get_timeout(http->daemons[i], &ms) == MHD_YES &&
            (*ret_ms < 0 || (int64_t)ms < *ret_ms))
            *ret_ms = (int64_t)ms;
    }
}

void np_http_turn(struct np_http *http)
{
    for (int i = 0; i < 2; i++)
        if (http->daemons[i])
            MHD_run(http->daemons[i]);
}
