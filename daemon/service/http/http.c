/* The only user of libmicrohttpd; uses its parser and sockets only. */
#include "daemon/service/http/http.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/service/http/http_peers.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define IDLE_S       75          /* default idle timeout */
#define MEMORY_BYTES (16 << 10)  /* of a connection; longer headers get status 431 */
#define OTHER_FILES  256         /* descriptors for other use than connections */
#define MAX_BODIES   (64u << 20) /* bytes of all current requests */
#define TURN_NS      10000000    /* time limit of a turn; the next one does the rest */

struct np_http_held {
    struct np_http *http;
    struct MHD_Connection *connection;
    struct np_peer *peer;
    struct np_http_request request;
    char *method, *path, *body; /* np_free */
    size_t room;
    unsigned refused;              /* a status; then the rest of the body is discarded */
    bool disallowed;               /* the body is discarded, and the handler answers */
    bool answered;                 /* then response may be NULL: out of memory */
    struct MHD_Response *response; /* NULL: not yet */
    unsigned status;
    struct np_http_held *next, **link; /* list of suspended requests; link NULL: not in it */
};

struct np_http {
    struct np_http_options options; /* set once */
    struct MHD_Daemon *daemons[2];  /* Unix, TCP */
    struct np_http_held *held;
    struct np_peers peers;
    int max;     /* connections */
    int left_fd; /* readable if the last turn left work */
};

struct fields { /* with this name */
    const char *name, *value;
    int nr;
};

static enum MHD_Result count_field(
    void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct fields *fields = context;

    if (strcasecmp(name, fields->name) == 0) {
        fields->nr++;
        fields->value = value ? value : "";
    }
    return MHD_YES;
}

/* A browser may send requests of a foreign page to loopback (DNS rebinding, forged forms), or of a
 * page of another service on this box: refuse requests with another Host or Origin than ours. */
static bool comes_from_here(struct MHD_Connection *connection, bool socket)
{
    struct fields host = {.name = MHD_HTTP_HEADER_HOST}, origin = {.name = MHD_HTTP_HEADER_ORIGIN};

    MHD_get_connection_values(connection, MHD_HEADER_KIND, count_field, &host);
    MHD_get_connection_values(connection, MHD_HEADER_KIND, count_field, &origin);
    if (socket && origin.nr == 0 && host.nr == 0) /* not a browser */
        return true;
    return host.nr == 1 && origin.nr <= 1 && np_caller_is_local(host.value, origin.value);
}

static void find_caller(
    const struct np_http *http, struct MHD_Connection *connection, struct np_caller *caller)
{
    const struct np_http_options *options = &http->options;
    const char *field =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *token = field ? np_caller_token(field) : NULL;

    caller->uid = 0;
    caller->token = token && options->token && np_caller_has_token(token, options->token);
    caller->user = token && !caller->token && options->user_of &&
                   options->user_of(options->context, token, &caller->uid);
}

/* --- requests --------------------------------------------------------------------------------- */

static void unlink_held(struct np_http_held *held)
{
    if (!held->link)
        return;
    *held->link = held->next;
    if (held->next)
        held->next->link = held->link;
    held->link = NULL;
}

static void free_held(struct np_http_held *held)
{
    unlink_held(held);
    if (held->response)
        MHD_destroy_response(held->response);
    held->peer->body_bytes = 0;
    np_free(held->method);
    np_free(held->path);
    np_free(held->body);
    np_free(held);
}

static struct np_peer *peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static unsigned refusal_of(struct np_http *http, struct np_http_held *held)
{
    struct np_caller *caller = &held->peer->caller;

    /* Also on the Unix socket, to which ssh -L may connect a browser. */
    if (!http->options.any_host && !comes_from_here(held->connection, caller->socket))
        return MHD_HTTP_FORBIDDEN;
    if (!caller->socket)
        find_caller(http, held->connection, caller);
    return held->peer->bad_target ? MHD_HTTP_BAD_REQUEST : 0;
}

/* NULL: the connection is closed. */
static struct np_http_held *new_held(
    struct np_http *http, struct MHD_Connection *connection, const char *path, const char *method)
{
    struct np_peer *peer = peer_of(connection);
    struct np_http_held *held = peer && !peer->shut ? np_alloc(sizeof(*held)) : NULL;

    if (!held)
        return NULL;
    held->http = http;
    held->connection = connection;
    held->peer = peer;
    held->method = np_strdup(method);
    held->path = np_strdup(path);
    held->request = (struct np_http_request){
        .method = held->method, .path = held->path, .body = "", .held = held};
    held->refused = refusal_of(http, held);
    held->request.caller = peer->caller;
    if (!held->refused)
        held->disallowed = !http->options.allows(http->options.context, &held->request);
    np_peer_becomes(peer, NP_PEER_TAKEN, np_now_ns());
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

static bool grow_body(struct np_http_held *held, size_t bytes)
{
    const size_t max = held->http->options.max_body;
    const size_t room = bytes > max / 2 ? max + 1 : 2 * bytes + 256;
    char *body;

    if (bytes < held->room)
        return true;
    if (!np_peers_may(
            &held->http->peers, &held->peer->caller, NP_SHARED_BODIES, room - held->room) ||
        !(body = np_try_alloc(room, NULL)))
        return false;
    memcpy(body, held->request.body, held->request.body_bytes);
    np_free(held->body);
    held->peer->body_bytes = room;
    held->body = body;
    held->room = room;
    return true;
}

static void take_body(struct np_http_held *held, const char *bytes, size_t nr)
{
    const size_t used = held->request.body_bytes;

    if (held->refused || held->disallowed)
        return;
    if (nr > held->http->options.max_body - used) {
        held->refused = MHD_HTTP_CONTENT_TOO_LARGE;
    } else if (!grow_body(held, used + nr)) {
        held->refused = MHD_HTTP_SERVICE_UNAVAILABLE;
    } else {
        memcpy(held->body + used, bytes, nr);
        held->body[used + nr] = '\0';
        held->request.body = held->body;
        held->request.body_bytes = used + nr;
    }
}

#define ERROR_OF(code, text) "{\"error\": {\"code\": \"" code "\", \"text\": \"" text "\"}}\n"

static void refuse(struct np_http_held *held, unsigned status)
{
    char too_large[128];
    const char *text = too_large;

    snprintf(too_large, sizeof(too_large),
        ERROR_OF("invalid", "the request is larger than %zu MiB"),
        held->http->options.max_body >> 20);
    if (status == MHD_HTTP_BAD_REQUEST)
        text =
            ERROR_OF("invalid", "the target is not a path: a % must be followed by two hex digits");
    else if (status == MHD_HTTP_FORBIDDEN)
        text = ERROR_OF("forbidden",
            "this service only answers to localhost: Host or Origin is missing or different");
    else if (status != MHD_HTTP_CONTENT_TOO_LARGE)
        text = ERROR_OF("busy", "the service has no memory for this request now; retry later");
    np_http_reply(held, status, "application/json", text, strlen(text), NULL);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *bytes, size_t *nr, void **state)
{
    struct np_http *http = context;
    struct np_http_held *held = *state;

    if (!held) { /* the header has arrived, the body has not */
        *state = held = new_held(http, connection, url, method);
        return held ? MHD_YES : MHD_NO;
    }
    if (*nr > 0) {
        take_body(held, bytes, *nr);
        *nr = 0;
        return MHD_YES;
    }
    if (!held->answered && held->refused)
        refuse(held, held->refused);
    else if (!held->answered)
        http->options.handler(http->options.context, &held->request);
    if (held->response)
        return MHD_queue_response(held->connection, held->status, held->response);
    return held->link ? MHD_YES : MHD_NO;
}

static void completed(void *context, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode why)
{
    struct np_http_held *held = *state;

    if (!held)
        return;
    held->peer->bad_target = false;
    np_peer_becomes(held->peer, NP_PEER_AWAITED, np_now_ns());
    free_held(held);
    *state = NULL;
}

static void connected(void *context, struct MHD_Connection *connection, void **peer,
    enum MHD_ConnectionNotificationCode what)
{
    struct np_http *http = context;
    const union MHD_ConnectionInfo *info;
    struct np_caller caller = {.socket = false};

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        np_peers_drop(*peer);
        *peer = NULL;
        return;
    }
    const int fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    if (info->daemon == http->daemons[0])
        np_caller_of_socket(fd, http->options.group, &caller);
    *peer = np_peers_add(&http->peers, fd, &caller, np_now_ns());
}

static int hex_of(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decodes %41 to A, in place. A bad escape, or a byte that no path has, makes the request
 * invalid. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
    struct np_peer *peer = peer_of(connection);
    char *to = text;
    bool bad = false;

    for (const char *from = text; *from; from++) {
        int byte = (unsigned char)*from;

        if (byte == '%') {
            const int high = hex_of(from[1]), low = high < 0 ? -1 : hex_of(from[2]);

            byte = low < 0 ? 0 : 16 * high + low;
            from += low < 0 ? 0 : 2;
        }
        bad |= byte < 0x20 || byte == 0x7f;
        *to++ = (char)byte;
    }
    *to = '\0';
    if (peer)
        peer->bad_target |= bad;
    return (size_t)(to - text);
}

const struct np_http_request *np_http_hold(const struct np_http_request *request)
{
    struct np_http_held *held = request->held;
    struct np_http *http = held->http;

    if (!np_peers_may(&http->peers, &held->peer->caller, NP_SHARED_WAITS, 1))
        return NULL;
    MHD_suspend_connection(held->connection);
    np_peer_becomes(held->peer, NP_PEER_SERVED, np_now_ns());
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
    held->answered = true;
    np_peer_becomes(held->peer, NP_PEER_ANSWERED, np_now_ns());
    if (held->response) {
        MHD_add_response_header(held->response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        MHD_add_response_header(held->response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        MHD_add_response_header(held->response, "X-Content-Type-Options", "nosniff");
        MHD_add_response_header(held->response, "Cross-Origin-Resource-Policy", "same-origin");
        MHD_add_response_header(held->response, "Content-Security-Policy",
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        if (field)
            MHD_add_response_header(held->response, field->name, field->value);
    }
    if (!held->link)
        return;
    unlink_held(held);
    MHD_resume_connection(held->connection);
}

/* --- open and close --------------------------------------------------------------------------- */

static struct MHD_Daemon *start(struct np_http *http, int fd, int max)
{
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, http,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
        MHD_OPTION_NOTIFY_CONNECTION, connected, http, MHD_OPTION_UNESCAPE_CALLBACK, unescape, http,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)max, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

/* wanted, or fewer if the limit of open files is low: the process needs descriptors for files. */
static int max_connections(int wanted)
{
    const rlim_t files = (rlim_t)wanted + OTHER_FILES;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wanted;
    if (limit.rlim_cur < files) {
        limit.rlim_cur = limit.rlim_max < files ? limit.rlim_max : files;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= files)
        return wanted;
    return limit.rlim_cur > 2 * OTHER_FILES ? (int)limit.rlim_cur - OTHER_FILES
                                            : (int)limit.rlim_cur / 2;
}

/* which: 0: Unix, 1: TCP. fd -1: no such socket. */
static int listen_on(struct np_http *http, int which, int fd, struct np_err *err)
{
    const int max_tcp = http->options.one_caller ? http->max : http->max / 8;
    const int max = which ? max_tcp : http->max - max_tcp;

    if (fd < 0 || (http->daemons[which] = start(http, fd, max)))
        return 0;
    return np_err_set(
        err, -EIO, "libmicrohttpd cannot listen on the %s socket", which ? "TCP" : "Unix");
}

int np_http_add_tcp(struct np_http *http, int fd, struct np_err *err)
{
    return listen_on(http, 1, fd, err);
}

int np_http_open(
    const struct np_http_options *options, struct np_http **ret_http, struct np_err *err)
{
    const int max = max_connections(options->max_connections);
    /* A quarter is for connections that were shut down and stay for a moment. */
    const size_t shared[] = {[NP_SHARED_CONNECTIONS] = (size_t)max * 3 / 4,
        [NP_SHARED_WAITS] = options->max_waits > 0 ? (size_t)options->max_waits : NP_HTTP_MAX_WAITS,
        [NP_SHARED_BODIES] = options->max_bodies > 0 ? options->max_bodies : MAX_BODIES};
    const int left_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (left_fd < 0)
        return np_err_set(err, -errno, "an eventfd: %s", strerror(errno));
    struct np_http *http = np_alloc(sizeof(*http));
    *http = (struct np_http){.options = *options, .left_fd = left_fd, .max = max};
    if (http->options.max_body == 0)
        http->options.max_body = NP_HTTP_MAX_BODY;
    np_peers_init(&http->peers, shared, options->idle_s > 0 ? options->idle_s : IDLE_S, geteuid());
    http->peers.one_caller = options->one_caller;
    int code = listen_on(http, 0, options->socket_fd, err);
    if (code == 0)
        code = listen_on(http, 1, options->tcp_fd, err);
    if (code < 0) {
        np_http_close(http);
        return code;
    }
    *ret_http = http;
    return 0;
}

void np_http_close(struct np_http *http)
{
    if (!http)
        return;
    while (http->held)
        refuse(http->held, MHD_HTTP_SERVICE_UNAVAILABLE);
    np_http_turn(http);
    for (int i = 0; i < 2; i++)
        if (http->daemons[i])
            MHD_stop_daemon(http->daemons[i]);
    close(http->left_fd);
    np_free(http);
}

bool np_http_owes(const struct np_http *http)
{
    for (const struct np_peer *peer = http->peers.first; peer; peer = peer->next)
        if (!peer->shut && (peer->state == NP_PEER_SERVED || peer->state == NP_PEER_ANSWERED))
            return true;
    return false;
}

void np_http_fds(const struct np_http *http, int ret_fds[NP_HTTP_FDS])
{
    ret_fds[0] = http->left_fd;
    for (int i = 0; i < 2; i++)
        ret_fds[1 + i] =
            http->daemons[i]
                ? MHD_get_daemon_info(http->daemons[i], MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd
                : -1;
}

/* Runs libmicrohttpd. Returns true if it has no more work, false at the time limit: no event will
 * announce the remaining work. */
static bool turn(struct MHD_Daemon *daemon, uint64_t until_ns)
{
    MHD_UNSIGNED_LONG_LONG ms;

    do {
        MHD_run(daemon);
        if (MHD_get_timeout(daemon, &ms) != MHD_YES || ms > 0)
            return true;
    } while (np_now_ns() < until_ns);
    return false;
}

void np_http_turn(struct np_http *http)
{
    const uint64_t until_ns = np_now_ns() + TURN_NS;
    uint64_t count = 1;
    bool all = true;

    for (int i = 0; i < 2; i++)
        all &= !http->daemons[i] || turn(http->daemons[i], until_ns);
    if (all ? read(http->left_fd, &count, sizeof(count)) < 0 && errno != EAGAIN
            : write(http->left_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        assert(!"an eventfd takes and gives its count");
    np_peers_turn(&http->peers, np_now_ns());
}
