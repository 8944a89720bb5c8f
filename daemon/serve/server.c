#include "daemon/serve/server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/serve/answers.h"
#include "daemon/service/http/http.h"
#include "daemon/service/http/listen.h"
#include "daemon/ui/page.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_CONNECTIONS 1024
#define IDLE_S          60
#define FINISH_NS       5000000000
#define SECOND_MS       1000
#define MAX_BODIES      ((size_t)1 << 30) /* bytes of all pictures in memory */

enum { HTTP_FD, END_FD = HTTP_FD + NP_HTTP_FDS, DONE_FD, STOP_FD, NR_FDS };

struct np_server {
    struct np_server_options options;
    struct np_listener listener;
    struct np_http *http;
    struct np_batcher *batcher;
    struct np_answers answers;
    int end_fd, done_fd, stop_fd; /* eventfds; stop: np_server_finish() */
    pthread_t thread;
    bool started;
    struct np_due *dues; /* requests whose pictures the batcher has */
    int nr_dues;
};

struct np_due { /* a request that is answered later */
    struct np_asked asked;
    const struct np_http_request *request;
    int top;
    struct np_due *next, **link;
};

/* --- requests ------------------------------------------------------------------------------- */

static void reply(struct np_server *server, struct np_http_held *held, unsigned status,
    const char *type, const char *text, size_t bytes, const struct np_http_field *field)
{
    np_answers_count(&server->answers, status);
    np_http_reply(held, status, type, text, bytes, field);
}

static void reply_json(struct np_server *server, struct np_http_held *held, unsigned status,
    const char *text, const struct np_http_field *field)
{
    static const char failed[] = "{\"error\": {\"code\": \"busy\", \"text\": \"out of memory\"}}\n";

    if (!text)
        status = 503;
    text = text ? text : failed;
    reply(server, held, status, "application/json", text, strlen(text), field);
}

static void refuse(struct np_server *server, struct np_http_held *held, unsigned status,
    const char *code, const char *text)
{
    static const struct np_http_field later = {"Retry-After", "1"};

    reply_json(server, held, status, np_answers_error(&server->answers, code, text),
        status == 503 ? &later : NULL);
}

static void drop_due(struct np_server *server, struct np_due *due)
{
    server->nr_dues--;
    *due->link = due->next;
    if (due->next)
        due->next->link = due->link;
    np_free(due->asked.odds);
    np_free(due);
}

static struct np_due *add_due(
    struct np_server *server, const struct np_http_request *request, int top)
{
    const int classes = server->options.net->setup.sets.classes->nr_items;
    double *odds = np_try_array((size_t)classes, sizeof(*odds), NULL);
    struct np_due *due = odds ? np_alloc(sizeof(*due)) : NULL;

    if (!due)
        return NULL;
    *due = (struct np_due){.request = request,
        .top = top,
        .asked = {.bytes = request->body,
            .nr_bytes = request->body_bytes,
            .odds = odds,
            .context = due},
        .next = server->dues,
        .link = &server->dues};
    if (due->next)
        due->next->link = &due->next;
    server->dues = due;
    server->nr_dues++;
    return due;
}

static void route_predict(struct np_server *server, const struct np_http_request *request)
{
    const char *top_text = np_http_query(request, "top"),
               *type = np_http_field(request, "Content-Type");
    int64_t top = server->options.top;

    if (top_text && !np_text_int(top_text, 1, INT32_MAX, &top)) {
        refuse(server, request->held, 400, "invalid", "top: expected a number of at least 1");
        return;
    }
    if (type && strncasecmp(type, "multipart/", 10) == 0) {
        refuse(server, request->held, 415, "invalid",
            "the body must be the picture itself, not a form: curl --data-binary @FILE");
        return;
    }
    if (request->body_bytes == 0) {
        refuse(server, request->held, 400, "invalid",
            "the body is empty; send one JPEG or PNG file: curl --data-binary @FILE");
        return;
    }
    const struct np_http_request *kept = np_http_hold(request);
    struct np_due *due = kept ? add_due(server, kept, (int)top) : NULL;
    if (due && np_batcher_give(server->batcher, &due->asked))
        return;
    if (due)
        drop_due(server, due);
    refuse(server, request->held, 503, "busy",
        "too many pictures are waiting, or the server ends; retry later");
}

static void route_asset(struct np_server *server, const struct np_http_request *request)
{
    static const char *const paths[] = {"/", "/assets/serve.js", "/assets/serve.css",
        "/assets/profile.css", "/assets/icon.svg", NULL};
    const char *path = request->path;
    struct np_asset asset;
    int i = 0;

    while (paths[i] && strcmp(paths[i], path) != 0)
        i++;
    if (!paths[i] || !np_page_asset(i == 0 ? "/assets/serve.html" : path, &asset))
        refuse(server, request->held, 404, "unknown",
            "there is no such path; POST /predict takes a picture, GET / is a page");
    else
        reply(server, request->held, 200, asset.type, asset.bytes, asset.nr_bytes, NULL);
}

static void route_get(struct np_server *server, const struct np_http_request *request)
{
    struct np_answers *answers = &server->answers;

    if (strcmp(request->path, "/healthz") == 0) {
        reply_json(server, request->held, 200, "{\"state\": \"ok\"}\n", NULL);
    } else if (strcmp(request->path, "/model") == 0) {
        reply_json(server, request->held, 200,
            np_answers_model(answers, server->options.net, server->options.weights), NULL);
    } else if (strcmp(request->path, "/metrics") == 0) {
        char *text =
            np_answers_prometheus(answers, np_batcher_waiting(server->batcher), server->nr_dues);

        reply(server, request->held, 200, "text/plain; version=0.0.4", text, strlen(text), NULL);
        np_free(text);
    } else {
        route_asset(server, request);
    }
}

static bool is_post(const struct np_http_request *request)
{
    return strcmp(request->path, "/predict") == 0;
}

static void handle(void *context, const struct np_http_request *request)
{
    struct np_server *server = context;
    const bool get = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    const struct np_http_field allow = {"Allow", is_post(request) ? "POST" : "GET, HEAD"};

    if (is_post(request) ? strcmp(request->method, "POST") == 0 : get)
        (is_post(request) ? route_predict : route_get)(server, request);
    else
        reply_json(server, request->held, 405,
            np_answers_error(&server->answers, "invalid",
                is_post(request) ? "/predict takes POST" : "this path takes GET"),
            &allow);
}

/* Bodies of other requests are discarded. */
static bool allows(void *context, const struct np_http_request *request)
{
    return is_post(request) && strcmp(request->method, "POST") == 0;
}

static void answer(struct np_server *server, struct np_due *due)
{
    const struct np_asked *asked = &due->asked;
    struct np_http_held *held = due->request->held;
    const struct np_err *err = &asked->err;

    np_answers_measure(&server->answers, asked);
    if (err->code == 0)
        reply_json(server, held, 200,
            np_answers_prediction(&server->answers, server->options.net, asked->odds, due->top),
            NULL);
    else if (err->code == -ENOMEM)
        refuse(server, held, 503, "busy", err->text);
    else if (err->code == -EDOM || err->code == -EIO)
        refuse(server, held, 500, "failed", err->text);
    else
        refuse(server, held, 400, "picture", err->text);
    drop_due(server, due);
}

/* --- the thread ----------------------------------------------------------------------------- */

static void drain_fd(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof(count)) < 0) /* it was empty */
        return;
}

static void turn(struct np_server *server)
{
    struct np_asked *asked;

    np_http_turn(server->http);
    while ((asked = np_batcher_take(server->batcher)))
        answer(server, asked->context);
    np_http_turn(server->http); /* sends the answers */
}

static void *server_main(void *context)
{
    struct np_server *server = context;
    struct pollfd polls[NR_FDS];
    int fds[NP_HTTP_FDS];
    uint64_t until_ns = UINT64_MAX;

    np_http_fds(server->http, fds);
    for (int i = 0; i < NR_FDS; i++)
        polls[i] = (struct pollfd){.events = POLLIN,
            .fd = i < END_FD     ? fds[i]
                  : i == END_FD  ? server->end_fd
                  : i == DONE_FD ? server->done_fd
                                 : server->stop_fd};
    while (np_now_ns() < until_ns && (until_ns == UINT64_MAX || np_http_owes(server->http))) {
        if (poll(polls, NR_FDS, SECOND_MS) < 0 && errno != EINTR)
            break;
        if (polls[END_FD].revents) {
            drain_fd(server->end_fd);
            fprintf(stderr, "nnpipe serve: stopping\n");
            np_batcher_stop(server->batcher);
        }
        if (polls[DONE_FD].revents)
            drain_fd(server->done_fd);
        if (polls[STOP_FD].revents && until_ns == UINT64_MAX) {
            drain_fd(server->stop_fd);
            until_ns = np_now_ns() + FINISH_NS;
        }
        turn(server);
    }
    return NULL;
}

int np_server_start(struct np_server *server, struct np_batcher *batcher, struct np_err *err)
{
    server->batcher = batcher;
    const int code = -pthread_create(&server->thread, NULL, server_main, server);
    server->started = code == 0;
    return code < 0 ? np_err_set(err, code, "the server's thread: %s", strerror(-code)) : 0;
}

void np_server_finish(struct np_server *server)
{
    const uint64_t one = 1;

    if (!server->started)
        return;
    if (write(server->stop_fd, &one, sizeof(one)) == sizeof(one))
        pthread_join(server->thread, NULL);
    server->started = false;
}

/* --- open and close ------------------------------------------------------------------------- */

static int open_fds(struct np_server *server, struct np_err *err)
{
    server->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->end_fd < 0 || server->done_fd < 0 || server->stop_fd < 0)
        return np_err_set(err, -errno, "a descriptor: %s", strerror(errno));
    return 0;
}

int np_server_open(
    const struct np_server_options *options, struct np_server **ret_server, struct np_err *err)
{
    const size_t max_body = (size_t)options->max_body_mib << 20;
    const size_t max_bodies = (size_t)options->max_waiting * max_body;
    struct np_server *server = np_alloc(sizeof(*server));

    *server = (struct np_server){
        .options = *options, .listener.fd = -1, .end_fd = -1, .done_fd = -1, .stop_fd = -1};
    int code = np_listen_tcp(options->listen, &server->listener, err);
    if (code == 0)
        code = open_fds(server, err);
    const struct np_http_options http = {.socket_fd = -1,
        .tcp_fd = server->listener.fd,
        .group = (gid_t)-1,
        .max_connections = MAX_CONNECTIONS,
        .idle_s = IDLE_S,
        .max_body = max_body,
        .max_bodies = max_bodies < MAX_BODIES ? max_bodies : MAX_BODIES,
        .max_waits = options->max_waiting,
        .one_caller = true,
        .any_host = !server->listener.loopback,
        .allows = allows,
        .handler = handle,
        .context = server};
    if (code == 0 && (code = np_http_open(&http, &server->http, err)) == 0)
        server->listener.fd = -1; /* taken */
    if (code < 0)
        np_server_close(server);
    else
        *ret_server = server;
    return code;
}

void np_server_close(struct np_server *server)
{
    if (!server)
        return;
    np_server_finish(server);
    np_http_close(server->http);
    while (server->dues)
        drop_due(server, server->dues);
    np_answers_fini(&server->answers);
    const int fds[] = {server->listener.fd, server->end_fd, server->done_fd, server->stop_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    np_free(server);
}

int np_server_done_fd(const struct np_server *server)
{
    return server->done_fd;
}

int np_server_end_fd(const struct np_server *server)
{
    return server->end_fd;
}

const char *np_server_at(const struct np_server *server)
{
    return server->listener.at;
}

bool np_server_is_loopback(const struct np_server *server)
{
    return server->listener.loopback;
}
