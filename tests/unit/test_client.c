/* The client against a socket that sends the same response to each request. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

#define BODY_BYTES 20000

struct server {
    struct sockaddr_un address;
    char dir[32];
    int fd;
    const char *status;
    pthread_t thread;
};

/* Until the socket is shut down. */
static void *serve(void *context)
{
    struct server *server = context;
    char request[4096], answer[BODY_BYTES + 200];

    for (int fd; (fd = accept(server->fd, NULL, NULL)) >= 0; close(fd)) {
        if (read(fd, request, sizeof(request)) <= 0)
            continue;
        int n = sprintf(answer,
            "HTTP/1.1 %s\r\nContent-Length: %d\r\nETag: \"7\"\r\nX-Next: 3:4\r\nConnection: "
            "close\r\n\r\n"
            "{\"error\": {\"text\": \"no\"}, \"name\": \"",
            server->status, BODY_BYTES);
        memset(answer + n, 'x', BODY_BYTES);
        n = (int)(strstr(answer, "\r\n\r\n") + 4 - answer) + BODY_BYTES;
        memcpy(answer + n - 2, "\"}", 2);
        if (send(fd, answer, (size_t)n, MSG_NOSIGNAL) < n)
            abort();
    }
    return NULL;
}

static void open_server(struct server *server, const char *status)
{
    *server = (struct server){
        .address.sun_family = AF_UNIX, .dir = "/tmp/nnpipe-client-XXXXXX", .status = status};
    if (!mkdtemp(server->dir))
        abort();
    snprintf(server->address.sun_path, sizeof(server->address.sun_path), "%s/s", server->dir);
    server->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(server->fd, (struct sockaddr *)&server->address, sizeof(server->address)) < 0 ||
        listen(server->fd, 8) < 0)
        abort();
    pthread_create(&server->thread, NULL, serve, server);
}

static void close_server(struct server *server)
{
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
    unlink(server->address.sun_path);
    rmdir(server->dir);
}

Test(client, a_response_too_large_for_memory_is_an_error_and_the_next_one_is_whole, .timeout = 120)
{
    struct server server;
    struct np_client *client = NULL;
    int n = 1;

    open_server(&server, "200 OK");
    for (bool failed = true; failed; n++) {
        struct np_response answer;
        struct np_err err = {0};

        client = np_client_open(server.address.sun_path);
        made_memory_fail(n);
        const int code = np_client_request(client, "GET", "/", NULL, &answer, &err);
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert_eq(code, failed ? -ENOMEM : 0, "%d: %s", n, err.text);
        cr_assert_eq(np_client_request(client, "GET", "/", NULL, &answer, &err), 0);
        cr_assert(answer.bytes == BODY_BYTES && answer.status == 200);
        cr_assert_str_eq(answer.tag, "\"7\"");
        cr_assert_str_eq(answer.next, "3:4");
        np_client_close(client);
    }
    cr_assert(n > 3, "only %d allocations failed", n - 2);
    close_server(&server);
}

Test(client, a_refusal_is_an_error_with_the_text_of_the_service, .timeout = 120)
{
    struct server server;
    struct np_client *client = NULL;
    struct np_response answer;
    struct np_err err = {0};

    open_server(&server, "409 Conflict");
    client = np_client_open(server.address.sun_path);
    cr_assert_eq(np_client_request(client, "GET", "/", NULL, &answer, &err), -EREMOTEIO);
    cr_assert_str_eq(err.text, "no");
    cr_assert(answer.status == 409 && !np_client_is_away(-EREMOTEIO, &answer));
    close_server(&server);
    cr_assert_eq(np_client_request(client, "GET", "/", NULL, &answer, &err), -ECONNREFUSED);
    cr_assert(np_client_is_away(-ECONNREFUSED, &answer));
    np_client_close(client);
}
