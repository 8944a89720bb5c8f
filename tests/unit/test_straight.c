/* Ranges that go straight into memory, against a server in this process that answers as the path says: the usual
 * answer, refusals, every kind that libcurl must ask for again, and connections that end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/remote/straight.h"
#include "tests/test.h"
#include "tests/unit/made_server.h"

#define BYTES 5000 /* of each answer */

static struct made_server server;

static uint8_t byte_at(size_t at)
{
    return (uint8_t)(at * 2654435761u >> 13);
}

#define RANGE "HTTP/1.1 206 X\r\nContent-Range: bytes 0-4999/9000\r\n"
#define USUAL RANGE "Content-Length: 5000\r\n"

static char long_header[6000];

static const struct answer {
    const char *path, *header;
    size_t bytes, piece; /* of the body; of each send(), 0: all at once */
    const char *after;   /* the body */
    bool ends;           /* the connection, then */
} answers[] = {
    {"/usual", USUAL "\r\n", BYTES, 0, "", false},
    {"/pieces", USUAL "\r\n", BYTES, 7, "", false},
    {"/refusal", "HTTP/1.1 503 X\r\nContent-Length: 27\r\n\r\n", 0, 0,
        "<Error><Code>Slow</Code></>", false},
    {"/empty", "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", 0, 0, "", false},
    {"/busy", "HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 0,
        "4\r\nSlow\r\n0\r\n\r\n", false},
    {"/denied", "HTTP/1.1 403 X\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 0,
        "2\r\nNo\r\n0\r\n\r\n", false},
    {"/last", USUAL "Connection: close\r\n\r\n", BYTES, 0, "", true},
    {"/leaves", USUAL "\r\n", BYTES, 0, "", true},
    {"/short", USUAL "\r\n", 1234, 0, "", true},
    {"/header", USUAL, 0, 0, "", true},
    {"/nothing", "", 0, 0, "", true},
    {"/hangs", USUAL "\r\n", 10, 0, "", false},
    /* which libcurl understands */
    {"/chunks", RANGE "Transfer-Encoding: chunked\r\n\r\n1388\r\n", BYTES, 0, "\r\n0\r\n\r\n",
        false},
    {"/endless", RANGE "\r\n", BYTES, 0, "", true},
    {"/whole", "HTTP/1.1 200 X\r\nContent-Length: 5000\r\n\r\n", BYTES, 0, "", false},
    {"/continue", "HTTP/1.1 100 X\r\n\r\n" USUAL "\r\n", BYTES, 0, "", false},
    {"/moved", "HTTP/1.1 302 X\r\nLocation: /usual\r\nContent-Length: 0\r\n\r\n", 0, 0, "", false},
    {"/long", long_header, BYTES, 0, "", false},
};

static bool drip(int fd)
{
    for (int i = 0; i < 1000 && made_server_send(fd, "x", 1, 1); i++)
        usleep(20000);
    return false;
}

static bool answer(int fd, const char *request)
{
    uint8_t bytes[BYTES];

    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = byte_at(i);
    if (strncmp(request, "GET /drips ", 11) == 0)
        return made_server_send(fd, USUAL "\r\n", strlen(USUAL) + 2, BYTES) && drip(fd);
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        const struct answer *one = &answers[i];
        const size_t piece = one->piece ? one->piece : 2 * BYTES, path = strlen(one->path);

        if (strncmp(request + 4, one->path, path) == 0 && request[4 + path] == ' ')
            return made_server_send(fd, one->header, strlen(one->header), piece) &&
                   made_server_send(fd, bytes, one->bytes, piece) &&
                   made_server_send(fd, one->after, strlen(one->after), piece) && !one->ends;
    }
    return false;
}

static void start_server(void)
{
    snprintf(long_header, sizeof(long_header), USUAL "X-Long: %04500d\r\n\r\n", 1);
    made_server_start(&server, answer);
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
    snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", server.port, path);
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

Test(straight, refusals_without_a_length_do_not_end_it, .timeout = 60)
{
    struct np_straight *straight;
    struct np_web_call call;

    start_server();
    straight = np_straight_new(2, NULL);
    for (int i = 0; i < 5; i++) {
        call = call_of("/busy"); /* is not asked again at once */
        ask(straight, &call);
        cr_expect(call.code == 0 && call.answer.status == 503 && !*call.body);
    }
    cr_expect_eq(server.nr_requests, 5);
    for (int i = 0; i < 5; i++) {
        call = call_of("/denied"); /* libcurl reads why */
        ask(straight, &call);
        cr_expect(call.code == 0 && call.answer.status == 403);
        cr_expect_str_eq(call.body, "No");
    }
    call = call_of("/usual");
    ask(straight, &call);
    cr_expect(is_right(&call) && body.in_place == BYTES);
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
    made_server_refuse(&server);
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
