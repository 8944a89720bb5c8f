/* Ranges that go straight into memory, against a server in this process that answers as the path says: the usual
 * answer, refusals, every kind that libcurl must ask for again, and connections that end. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/remote/straight.h"
#include "tests/test.h"

#define BYTES 5000 /* of each answer */

static struct {
    int listener;
    char origin[64];
    int nr_connections, nr_requests; /* atomic */
} server;

static uint8_t byte_at(size_t at)
{
    return (uint8_t)(at * 2654435761u >> 13);
}

/* Sends `bytes` in pieces. */
static bool put(int fd, const void *bytes, size_t nr, size_t piece)
{
    for (size_t at = 0; at < nr; at += piece) {
        const size_t n = nr - at < piece ? nr - at : piece;

        if (send(fd, (const char *)bytes + at, n, MSG_NOSIGNAL) != (ssize_t)n)
            return false;
    }
    return true;
}

static bool put_body(int fd, size_t nr, size_t piece)
{
    uint8_t body[BYTES];

    for (size_t i = 0; i < BYTES; i++)
        body[i] = byte_at(i);
    return put(fd, body, nr, piece);
}

#define RANGE "HTTP/1.1 206 X\r\nContent-Range: bytes 0-4999/9000\r\n"
#define USUAL RANGE "Content-Length: 5000\r\n"

/* Answers a request. False: the connection ends. */
static bool answer(int fd, const char *path, int nr_before)
{
    static const char refusal[] =
        "HTTP/1.1 503 X\r\nContent-Length: 27\r\n\r\n<Error><Code>Slow</Code></>";
    char text[6000];

    if (strcmp(path, "/usual") == 0)
        return put(fd, USUAL "\r\n", strlen(USUAL) + 2, 9999) && put_body(fd, BYTES, 9999);
    if (strcmp(path, "/pieces") == 0)
        return put(fd, USUAL "\r\n", strlen(USUAL) + 2, 1) && put_body(fd, BYTES, 7);
    if (strcmp(path, "/refusal") == 0)
        return put(fd, refusal, strlen(refusal), 9999);
    if (strcmp(path, "/empty") == 0)
        return put(fd, "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", 37, 9999);
    if (strcmp(path, "/last") == 0) {
        put(fd, USUAL "Connection: close\r\n\r\n", strlen(USUAL) + 21, 9999);
        put_body(fd, BYTES, 9999);
        return false;
    }
    if (strcmp(path, "/leaves") == 0) { /* after each answer, and does not say so */
        put(fd, USUAL "\r\n", strlen(USUAL) + 2, 9999);
        put_body(fd, BYTES, 9999);
        return false;
    }
    if (strcmp(path, "/short") == 0) {
        put(fd, USUAL "\r\n", strlen(USUAL) + 2, 9999);
        put_body(fd, 1234, 9999);
        return false;
    }
    if (strcmp(path, "/header") == 0) {
        put(fd, USUAL, strlen(USUAL), 9999);
        return false;
    }
    if (strcmp(path, "/nothing") == 0)
        return false;
    if (strcmp(path, "/hangs") == 0) {
        put(fd, USUAL "\r\n", strlen(USUAL) + 2, 9999);
        return put_body(fd, 10, 9999);
    }
    if (strcmp(path, "/drips") == 0) {
        put(fd, USUAL "\r\n", strlen(USUAL) + 2, 9999);
        for (int i = 0; i < 1000 && put(fd, "x", 1, 1); i++)
            usleep(20000);
        return false;
    }
    /* what follows is asked for again by libcurl, which understands it */
    if (strcmp(path, "/chunks") == 0)
        return put(fd, RANGE "Transfer-Encoding: chunked\r\n\r\n1388\r\n", strlen(RANGE) + 36,
                   9999) &&
               put_body(fd, BYTES, 9999) && put(fd, "\r\n0\r\n\r\n", 7, 9999);
    if (strcmp(path, "/endless") == 0) {
        put(fd, RANGE "\r\n", strlen(RANGE) + 2, 9999);
        put_body(fd, BYTES, 9999);
        return false;
    }
    if (strcmp(path, "/whole") == 0)
        return put(fd, "HTTP/1.1 200 X\r\nContent-Length: 5000\r\n\r\n", 40, 9999) &&
               put_body(fd, BYTES, 9999);
    if (strcmp(path, "/continue") == 0)
        return put(fd, "HTTP/1.1 100 X\r\n\r\n" USUAL "\r\n", strlen(USUAL) + 20, 9999) &&
               put_body(fd, BYTES, 9999);
    if (strcmp(path, "/moved") == 0)
        return put(fd, "HTTP/1.1 302 X\r\nLocation: /usual\r\nContent-Length: 0\r\n\r\n", 55, 9999);
    if (strcmp(path, "/long") == 0) {
        const int nr = snprintf(text, sizeof(text), USUAL "X-Long: %04500d\r\n\r\n", 1);

        return put(fd, text, (size_t)nr, 9999) && put_body(fd, BYTES, 9999);
    }
    return false;
}

static void *serve(void *context)
{
    const int fd = (int)(intptr_t)context;
    char request[8192], path[64] = "";
    size_t used = 0;

    for (int nr = 0;; nr++, used = 0) {
        do {
            const ssize_t got = recv(fd, request + used, sizeof(request) - 1 - used, 0);

            if (got <= 0) {
                close(fd);
                return NULL;
            }
            used += (size_t)got;
            request[used] = '\0';
        } while (!strstr(request, "\r\n\r\n"));
        __atomic_fetch_add(&server.nr_requests, 1, __ATOMIC_RELAXED);
        sscanf(request, "GET %63s HTTP/1.1", path);
        if (!answer(fd, path, nr)) {
            close(fd);
            return NULL;
        }
    }
}

static void *accept_all(void *context)
{
    int fd;

    while ((fd = accept(server.listener, NULL, NULL)) >= 0) {
        pthread_t thread;

        __atomic_fetch_add(&server.nr_connections, 1, __ATOMIC_RELAXED);
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd);
        pthread_detach(thread);
    }
    return NULL;
}

static void start_server(void)
{
    static const char *const proxies[] = {
        "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(own);
    pthread_t thread;

    for (int i = 0; i < 5; i++)
        unsetenv(proxies[i]);
    server.nr_connections = server.nr_requests = 0;
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(server.listener, (void *)&own, sizeof(own)), 0);
    cr_assert_eq(listen(server.listener, 64), 0);
    getsockname(server.listener, (void *)&own, &bytes);
    snprintf(server.origin, sizeof(server.origin), "http://127.0.0.1:%d", ntohs(own.sin_port));
    pthread_create(&thread, NULL, accept_all, NULL);
    pthread_detach(thread);
}

static struct {
    uint8_t bytes[BYTES];
    size_t got, in_place; /* in_place: that came into their room */
} body;

static uint8_t *room(struct np_web_call *call, uint64_t at, size_t *ret_bytes)
{
    *ret_bytes = at < 100 ? 100 - at : 3000; /* of two places */
    return body.bytes + at;
}

static int data(struct np_web_call *call, const void *bytes, size_t nr)
{
    cr_assert(nr <= BYTES - body.got);
    if (bytes == body.bytes + body.got)
        body.in_place += nr;
    else
        memcpy(body.bytes + body.got, bytes, nr);
    body.got += nr;
    return 0;
}

static char url[128];

static struct np_web_call call_of(const char *path)
{
    snprintf(url, sizeof(url), "%s%s", server.origin, path);
    memset(&body, 0, sizeof(body));
    return (struct np_web_call){.url = url,
        .fields = "Range: bytes=0-4999\n",
        .follows = true,
        .room = room,
        .data = data,
        .body_bytes = BYTES};
}

static void ask(struct np_straight *straight, struct np_web_call *call)
{
    cr_assert_eq(np_straight_begin(straight, call), 0);
    while (!np_straight_turn(straight))
        np_straight_wait(straight, -1, 100);
}

static bool is_right(const struct np_web_call *call)
{
    if (call->code || body.got != BYTES)
        return false;
    for (size_t i = 0; i < BYTES; i++)
        if (body.bytes[i] != byte_at(i))
            return false;
    return true;
}

Test(straight, a_body_comes_into_its_room, .timeout = 60)
{
    struct np_straight *straight;

    start_server();
    straight = np_straight_new(2, NULL);
    for (int i = 0; i < 20; i++) {
        struct np_web_call call = call_of(i % 2 ? "/pieces" : "/usual");

        ask(straight, &call);
        cr_assert(is_right(&call), "%s", call.error);
        cr_expect_eq(call.answer.status, 206);
        cr_expect_str_eq(call.answer.content_range, "bytes 0-4999/9000");
        cr_expect_eq(body.in_place, BYTES);
    }
    cr_expect_eq(server.nr_connections, 1);
    cr_expect_eq(server.nr_requests, 20);
    np_straight_free(straight);
}

Test(straight, a_refusal_keeps_its_text_and_the_connection, .timeout = 60)
{
    struct np_straight *straight;
    struct np_web_call call;

    start_server();
    straight = np_straight_new(2, NULL);
    call = call_of("/refusal");
    ask(straight, &call);
    cr_expect(call.code == 0 && call.answer.status == 503 && body.got == 0);
    cr_expect_str_eq(call.body, "<Error><Code>Slow</Code></>");
    call = call_of("/empty");
    ask(straight, &call);
    cr_expect(call.code == 0 && call.answer.status == 503 && !*call.body);
    call = call_of("/usual");
    ask(straight, &call);
    cr_expect(is_right(&call));
    cr_expect_eq(server.nr_connections, 1);
    np_straight_free(straight);
}

Test(straight, libcurl_asks_again_after_an_unusual_answer, .timeout = 60)
{
    static const char *const paths[] = {
        "/chunks", "/endless", "/whole", "/continue", "/moved", "/long"};

    start_server();
    for (int i = 0; i < 6; i++) {
        struct np_straight *straight = np_straight_new(2, NULL);
        struct np_web_call call = call_of(paths[i]);
        const int more = strcmp(paths[i], "/moved") == 0; /* libcurl's second one */

        server.nr_requests = 0;
        ask(straight, &call);
        cr_expect(is_right(&call), "%s: %s, %zu", paths[i], call.error, body.got);
        cr_expect_eq(body.in_place, 0);
        cr_expect_eq(server.nr_requests, 2 + more, "%s", paths[i]);
        /* and from the fourth on at once */
        for (int n = 0; n < 2; n++) {
            call = call_of(paths[i]);
            ask(straight, &call);
        }
        server.nr_requests = 0;
        call = call_of(paths[i]);
        ask(straight, &call);
        cr_expect(is_right(&call));
        cr_expect_eq(server.nr_requests, 1 + more, "%s", paths[i]);
        np_straight_free(straight);
    }
}

Test(straight, a_server_may_end_a_connection_after_an_answer, .timeout = 60)
{
    static const char *const paths[] = {"/last", "/leaves"};

    start_server();
    for (int i = 0; i < 2; i++) {
        struct np_straight *straight = np_straight_new(1, NULL);

        for (int n = 0; n < 8; n++) {
            struct np_web_call call = call_of(paths[i]);

            ask(straight, &call);
            cr_assert(is_right(&call), "%s: %s", paths[i], call.error);
        }
        np_straight_free(straight);
    }
}

Test(straight, a_connection_that_ends_too_early_is_a_failure, .timeout = 60)
{
    static const struct {
        const char *path, *why;
    } cases[] = {{"/short", "after 1234 bytes of the body"}, {"/header", "bytes of the header"},
        {"/nothing", "after 0 bytes of the header"}};
    struct np_straight *straight;

    start_server();
    straight = np_straight_new(1, NULL);
    for (int i = 0; i < 3; i++) {
        struct np_web_call call = call_of(cases[i].path);

        ask(straight, &call);
        cr_expect(call.code == -EIO && strstr(call.error, cases[i].why), "%s", call.error);
        call = call_of("/usual");
        ask(straight, &call);
        cr_expect(is_right(&call) && body.in_place == BYTES);
        np_straight_free(straight);
        straight = np_straight_new(1, NULL);
    }
    np_straight_free(straight);
}

Test(straight, time_limits_end_a_call, .timeout = 60)
{
    struct np_straight *straight;
    struct np_web_call call;

    start_server();
    straight = np_straight_new(1, NULL);
    call = call_of("/hangs");
    call.idle_s = 1;
    ask(straight, &call);
    cr_expect(
        call.code == -ETIMEDOUT && strstr(call.error, "no byte came for 1 s"), "%s", call.error);
    call = call_of("/drips");
    call.max_ms = 300;
    ask(straight, &call);
    cr_expect_eq(call.code, -ETIMEDOUT);
    shutdown(server.listener, SHUT_RDWR); /* connections are refused from now on */
    close(server.listener);
    call = call_of("/usual");
    ask(straight, &call);
    cr_expect(call.code == -ECONNREFUSED && *call.error, "%d", call.code);
    np_straight_free(straight);
}

static int nr_files(void)
{
    int nr = 0;

    for (int fd = 0; fd < 1024; fd++)
        nr += fcntl(fd, F_GETFD) >= 0;
    return nr;
}

Test(straight, a_cancelled_call_leaves_nothing_to_the_next, .timeout = 60)
{
    struct np_straight *straight;
    int before;

    start_server();
    straight = np_straight_new(1, NULL);
    np_straight_free(straight); /* libcurl keeps what it opens at its start */
    before = nr_files();
    straight = np_straight_new(1, NULL);
    for (int i = 0; i < 40; i++) {
        struct np_web_call call = call_of("/pieces");

        cr_assert_eq(np_straight_begin(straight, &call), 0);
        for (int n = 0; n < i && !np_straight_turn(straight); n++)
            np_straight_wait(straight, -1, 1);
        np_straight_cancel(straight, &call); /* also of one that has ended */
        call = call_of("/usual");
        ask(straight, &call);
        cr_assert(is_right(&call), "%s", call.error);
    }
    np_straight_free(straight);
    for (int i = 0; i < 200 && nr_files() > before; i++)
        usleep(10000); /* the server's ends */
    cr_expect_eq(nr_files(), before);
}

Test(straight, many_calls_at_once, .timeout = 60)
{
    static struct np_web_call calls[30];
    struct np_straight *straight;
    int nr_ended = 0;

    start_server();
    straight = np_straight_new(10, NULL); /* the others are libcurl's */
    for (int i = 0; i < 30; i++) {
        calls[i] = call_of("/refusal");
        cr_assert_eq(np_straight_begin(straight, &calls[i]), 0);
    }
    while (nr_ended < 30) {
        const struct np_web_call *ended = np_straight_turn(straight);

        if (ended)
            cr_assert(ended->answer.status == 503 && ++nr_ended);
        else
            np_straight_wait(straight, -1, 100);
    }
    np_straight_free(straight);
}
