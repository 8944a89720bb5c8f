#include "tests/unit/made_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/test.h"

struct connection {
    struct made_server *server;
    int fd;
};

/* False: it has ended. */
static bool receive(int fd, char *request, size_t room)
{
    size_t used = 0;

    do {
        const ssize_t got = recv(fd, request + used, room - 1 - used, 0);

        if (got <= 0)
            return false;
        used += (size_t)got;
        request[used] = '\0';
    } while (!strstr(request, "\r\n\r\n"));
    return true;
}

static void *serve(void *context)
{
    struct connection *connection = context;
    char request[8192];

    while (receive(connection->fd, request, sizeof(request))) {
        __atomic_fetch_add(&connection->server->nr_requests, 1, __ATOMIC_RELAXED);
        if (!connection->server->answer(connection->fd, request))
            break;
    }
    close(connection->fd);
    free(connection);
    return NULL;
}

static void *accept_all(void *context)
{
    struct made_server *server = context;
    const int listener = server->listener;
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        struct connection *connection = malloc(sizeof(*connection));
        pthread_t thread;

        *connection = (struct connection){server, fd};
        __atomic_fetch_add(&server->nr_connections, 1, __ATOMIC_RELAXED);
        pthread_create(&thread, NULL, serve, connection);
        pthread_detach(thread);
    }
    return NULL;
}

void made_server_start(struct made_server *server, bool (*answer)(int fd, const char *request))
{
    static const char *const proxies[] = {
        "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(own);
    sigset_t all, before;
    pthread_t thread;

    for (int i = 0; i < 5; i++)
        unsetenv(proxies[i]);
    *server = (struct made_server){.answer = answer, .listener = socket(AF_INET, SOCK_STREAM, 0)};
    cr_assert_eq(bind(server->listener, (void *)&own, sizeof(own)), 0);
    cr_assert_eq(listen(server->listener, 64), 0);
    getsockname(server->listener, (void *)&own, &bytes);
    server->port = ntohs(own.sin_port);
    /* Signals are for other tests of this process: the threads take none. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&thread, NULL, accept_all, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
}

void made_server_refuse(struct made_server *server)
{
    shutdown(server->listener, SHUT_RDWR);
    close(server->listener);
}

bool made_server_send(int fd, const void *bytes, size_t nr, size_t piece)
{
    for (size_t at = 0; at < nr; at += piece) {
        const size_t n = nr - at < piece ? nr - at : piece;

        if (send(fd, (const char *)bytes + at, n, MSG_NOSIGNAL) != (ssize_t)n)
            return false;
    }
    return true;
}
