/* HTTP over a real socket: bytes in, answers out, and what a connection may not do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/service/http/http.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

#define MAX_ANSWER (2u << 20)

/* A server that says back what it was asked, or keeps what asks for /wait. */
struct server {
    struct np_http *http;
    const struct np_http_request *kept;
    int nr_handled;
    bool deaf; /* refuses every caller at the headers */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char last[256];
    size_t last_body;
    struct np_caller caller;
};

static bool hear(void *context, const struct np_http_request *request)
{
    const struct server *server = context;

    (void)request;
    return !server->deaf;
}

static void handle(void *context, const struct np_http_request *request)
{
    struct server *server = context;
    char text[512];
    const char *q = np_http_query(request, "q");

    server->nr_handled++;
    server->last_body = request->body_bytes;
    server->caller = request->caller;
    snprintf(server->last, sizeof(server->last), "%s %s", request->method, request->path);
    if (strcmp(request->path, "/wait") == 0) {
        server->kept = np_http_hold(request);
        return;
    }
    if (strcmp(request->path, "/large") == 0) {
        char *large = calloc(1, 1 << 20);

        memset(large, 'x', 1 << 20);
        np_http_reply(request->held, 200, "text/plain", large, 1 << 20, NULL);
        free(large);
        return;
    }
    snprintf(text, sizeof(text), "%s q=%s %zu", server->last, q ? q : "", request->body_bytes);
    np_http_reply(request->held, 200, "text/plain", text, strlen(text), NULL);
}

static int listen_at(struct server *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(server->path, sizeof(server->path), "/tmp/nnpipe-http.%d", (int)getpid());
    unlink(server->path);
    memcpy(address.sun_path, server->path, sizeof(server->path));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0)
        abort();
    return fd;
}

/* as_tcp: the same socket, served as TCP's. */
static void start(struct server *server, bool as_tcp, int most, double idle_s)
{
    const int fd = listen_at(server);
    const struct np_http_options options = {.socket_fd = as_tcp ? -1 : fd,
        .tcp_fd = as_tcp ? fd : -1,
        .group = (gid_t)-1,
        .token = "0123456789abcdef",
        .max_connections = most,
        .idle_s = idle_s,
        .allows = hear,
        .handler = handle,
        .context = server};

    if (np_http_open(&options, &server->http, NULL) < 0)
        abort();
}

static void stop(struct server *server)
{
    np_http_close(server->http);
    unlink(server->path);
}

static int dial(const struct server *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, server->path, sizeof(server->path));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        abort();
    return fd;
}

static void say(int fd, const char *text)
{
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
        abort();
}

/* Turns the server until the peer has an answer of so many bytes, or its end (0), or seconds are over (-1). */
static ssize_t await(struct server *server, int fd, char *text, size_t bytes, double seconds)
{
    const uint64_t until = np_now_ns() + (uint64_t)(seconds * 1e9);

    while (np_now_ns() < until) {
        np_http_turn(server->http);
        const ssize_t nr = recv(fd, text, bytes - 1, MSG_DONTWAIT);

        if (nr >= 0) {
            text[nr] = '\0';
            return nr;
        }
        usleep(500);
    }
    return -1;
}

static const char *ask(struct server *server, const char *request)
{
    static char text[8192];
    const int fd = dial(server);

    say(fd, request);
    if (await(server, fd, text, sizeof(text), 5) < 0)
        strcpy(text, "nothing");
    close(fd);
    np_http_turn(server->http);
    return text;
}

static bool says(const char *text, const char *part)
{
    if (strstr(text, part))
        return true;
    fprintf(stderr, "no '%s' in: %s\n", part, text);
    return false;
}

Test(http, answers_each_request_with_its_own_response, .timeout = 120)
{
    struct server server = {0};

    start(&server, false, 64, 5);
    cr_assert(says(ask(&server, "GET /a%20b?q=%41+1 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "GET /a b q=A 1 0"));
    cr_assert(
        says(ask(&server, "POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
            "POST /p q= 3"));
    cr_assert(server.caller.socket && server.caller.uid == getuid() && !server.caller.member);
    stop(&server);
}

Test(http, refuses_a_target_that_is_not_a_path, .timeout = 120)
{
    static const char *const targets[] = {"/%", "/%4", "/%zz", "/a%00b", "/?q=%00", "/%0a", "/%7f"};
    struct server server = {0};
    char request[128];

    start(&server, false, 64, 5);
    for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
        snprintf(
            request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", targets[i]);
        cr_expect(says(ask(&server, request), "400 "));
    }
    cr_assert_eq(server.nr_handled, 0);
    cr_assert(says(ask(&server, "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200 "));
    stop(&server);
}

Test(http, keeps_a_body_up_to_its_limit, .timeout = 120)
{
    struct server server = {0};
    const size_t most = NP_HTTP_MAX_BODY;
    char head[128], text[4096], *body = calloc(1, most + 1);

    start(&server, false, 64, 10);
    for (int more = 0; more < 2; more++) {
        const int fd = dial(&server);
        size_t sent = 0;

        snprintf(head, sizeof(head),
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
            most + (size_t)more);
        say(fd, head);
        while (sent < most + (size_t)more) {
            const ssize_t nr = send(fd, body + sent, most + (size_t)more - sent, MSG_DONTWAIT);

            sent += nr > 0 ? (size_t)nr : 0;
            np_http_turn(server.http);
        }
        cr_assert(await(&server, fd, text, sizeof(text), 5) > 0);
        cr_expect(says(text, more ? "413 " : "200 "));
        close(fd);
    }
    cr_assert(server.nr_handled == 1 && server.last_body == most);
    free(body);
    stop(&server);
}

Test(http, refuses_a_body_without_memory_for_it, .timeout = 120)
{
    static const char request[] =
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody";
    struct server server = {0};

    start(&server, false, 64, 20);
    made_memory_fail(1);
    cr_assert(says(ask(&server, request), "503 "));
    cr_assert(made_memory_failed() && server.nr_handled == 0);
    made_memory_fail(0);
    cr_assert(says(ask(&server, request), "200 "));
    stop(&server);
}

Test(http, discards_the_body_of_a_refused_caller, .timeout = 120)
{
    struct server server = {.deaf = true};

    start(&server, false, 64, 5);
    cr_assert(
        says(ask(&server, "POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
            "POST /p q= 0"));
    stop(&server);
}

Test(http, sends_a_large_answer_without_being_woken, .timeout = 120)
{
    struct server server = {0};
    static char text[65536];
    uint64_t bytes = 0, began;
    ssize_t nr;

    start(&server, false, 64, 60);
    const int fd = dial(&server);
    say(fd, "GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    began = np_now_ns();
    while ((nr = await(&server, fd, text, sizeof(text), 50)) > 0)
        bytes += (uint64_t)nr;
    cr_assert(nr == 0 && bytes > 1 << 20);
    cr_assert_lt(np_now_ns() - began, 30000000000u); /* not when the connection is idle */
    close(fd);
    stop(&server);
}

Test(http, answers_delayed_requests_also_when_it_closes, .timeout = 120)
{
    struct server server = {0};
    char text[4096];

    start(&server, false, 64, 5);
    const int first = dial(&server), second = dial(&server);
    say(first, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    cr_assert_eq(await(&server, first, text, sizeof(text), 0.2), -1);
    cr_assert(server.kept && strcmp(server.kept->path, "/wait") == 0);
    np_http_reply(server.kept->held, 200, "text/plain", "now", 3, NULL);
    cr_assert(await(&server, first, text, sizeof(text), 5) > 0 && says(text, "now"));
    say(second, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    cr_assert_eq(await(&server, second, text, sizeof(text), 0.2), -1);
    stop(&server);
    cr_assert(recv(second, text, sizeof(text) - 1, 0) > 0 && says(text, "503 "));
    close(first);
    close(second);
}

Test(http, outlives_a_client_that_leaves_before_its_response, .timeout = 120)
{
    struct server server = {0};
    char text[4096];

    start(&server, false, 64, 5);
    const int fd = dial(&server);
    say(fd, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    cr_assert_eq(await(&server, fd, text, sizeof(text), 0.2), -1);
    close(fd);
    for (int i = 0; i < 20; i++)
        np_http_turn(server.http);
    np_http_reply(server.kept->held, 200, "text/plain", "late", 4, NULL);
    for (int i = 0; i < 20; i++)
        np_http_turn(server.http);
    cr_assert(says(ask(&server, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200 "));
    stop(&server);
}

/* A silent connection, one that sends a few bytes now and then, one whose body does not come. */
Test(http, ends_connections_that_take_too_long, .timeout = 120)
{
    struct server server = {0};
    char text[4096];
    int fds[3];
    bool ended[3] = {false};

    start(&server, false, 64, 0.6);
    for (int i = 0; i < 3; i++)
        fds[i] = dial(&server);
    say(fds[2], "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n");
    for (int n = 0; n < 15; n++) {
        if (!ended[1])
            send(fds[1], n ? "X" : "GET / HTTP/1.1\r\nX", n ? 1 : 17, MSG_NOSIGNAL);
        for (int i = 0; i < 3; i++)
            ended[i] |= await(&server, fds[i], text, sizeof(text), 0.03) == 0;
    }
    cr_assert(ended[0] && ended[1] && ended[2]);
    cr_assert_eq(server.nr_handled, 0);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    stop(&server);
}

Test(http, closes_the_oldest_idle_connection_for_a_new_one, .timeout = 120)
{
    struct server server = {0};
    char text[4096];
    int fds[40], waiting;

    start(&server, false, 64, 20); /* 24 are its own user's */
    waiting = dial(&server);
    say(waiting, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    cr_assert_eq(await(&server, waiting, text, sizeof(text), 0.1), -1);
    for (int i = 0; i < 40; i++) {
        fds[i] = dial(&server);
        np_http_turn(server.http);
        usleep(1000);
    }
    cr_assert(says(ask(&server, "GET /new HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200 "));
    cr_assert_eq(await(&server, fds[0], text, sizeof(text), 1), 0);
    cr_assert_eq(await(&server, fds[39], text, sizeof(text), 0.05), -1);
    np_http_reply(server.kept->held, 200, "text/plain", "still", 5, NULL);
    cr_assert(await(&server, waiting, text, sizeof(text), 5) > 0 && says(text, "still"));
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    close(waiting);
    stop(&server);
}

Test(http, accepts_no_more_connections_than_its_limit_of_files, .timeout = 120)
{
    struct server server = {0};
    struct rlimit before, few = {200, 200};
    int fds[150];

    getrlimit(RLIMIT_NOFILE, &before);
    few.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &few);
    start(&server, false, 4096, 20);
    getrlimit(RLIMIT_NOFILE, &few);
    cr_assert(few.rlim_cur >= 4096 || few.rlim_cur == few.rlim_max); /* as far as it may */
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < 150; i++) {
        fds[i] = dial(&server);
        np_http_turn(server.http);
    }
    cr_assert(says(ask(&server, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200 "));
    for (int i = 0; i < 150; i++)
        close(fds[i]);
    stop(&server);
}

/* ssh -L may lead a browser there, and a page of elsewhere with it. */
Test(http, on_its_socket_accepts_only_the_host_localhost, .timeout = 120)
{
    struct server server = {0};

    start(&server, false, 64, 0);
    cr_expect(says(ask(&server, "GET / HTTP/1.1\r\nHost: evil.example:7411\r\n\r\n"), "403 "));
    cr_expect(says(ask(&server, "GET / HTTP/1.1\r\nHost: localhost:7411\r\n\r\n"), "200 "));
    cr_expect(says(ask(&server, "GET / HTTP/1.0\r\n\r\n"), "200 "));
    stop(&server);
}

Test(http, on_tcp_requires_a_local_host_and_a_token, .timeout = 120)
{
    static const struct {
        const char *fields, *status;
        bool token;
    } cases[] = {
        {"Host: localhost:1\r\n", "200 ", false},
        {"Host: LOCALHOST\r\n", "200 ", false},
        {"Host: [::1]:7411\r\n", "200 ", false},
        {"Host: evil.example\r\n", "403 ", false},
        {"Host: localhost.evil.example\r\n", "403 ", false},
        {"Host: localhost:1\r\nHost: localhost:1\r\n", "403 ", false},
        {"Host: localhost:1\r\nOrigin: http://localhost:1\r\n", "200 ", false},
        {"Host: localhost:1\r\nOrigin: http://localhost:2\r\n", "403 ", false},
        {"Host: localhost:1\r\nOrigin: null\r\n", "403 ", false},
        {"Host: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n", "200 ", true},
        {"Host: localhost\r\nAuthorization: bearer 0123456789abcdef\r\n", "200 ", true},
        {"Host: localhost\r\nAuthorization: Bearer 0123456789abcdeX\r\n", "200 ", false},
        {"Host: localhost\r\nAuthorization: Bearer 0123456789abcde\r\n", "200 ", false},
        {"Host: localhost\r\nAuthorization: Bearer \r\n", "200 ", false},
    };
    struct server server = {0};
    char request[512];

    start(&server, true, 64, 5);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        snprintf(request, sizeof(request), "GET / HTTP/1.1\r\n%s\r\n", cases[i].fields);
        server.caller.token = !cases[i].token;
        cr_expect(says(ask(&server, request), cases[i].status), "%s", cases[i].fields);
        if (cases[i].status[0] == '2')
            cr_expect(server.caller.token == cases[i].token && !server.caller.socket);
    }
    stop(&server);
}
