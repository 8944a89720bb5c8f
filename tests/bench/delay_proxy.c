/* A TCP proxy that makes a near HTTP server far, and at times a bad one: each request waits for DELAY ms; shares of
 * them are answered with 503, end with a reset, or wait for 2 s. For clients that send the next request after the
 * answer to the last one. One thread; ends with SIGTERM.
 *   delay_proxy PORTFILE UPSTREAM_PORT DELAY_MS ERRORS RESETS TAILS */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_PAIRS 512
#define TAIL_MS   2000

struct pair {
    int client, server; /* -1: free */
    uint64_t due_ms;    /* 0: no request waits */
    int nr, nr_out;     /* bytes of the request; of the answer that the client has not taken yet */
    char request[16384], out[1 << 16];
};
static struct pair pairs[MAX_PAIRS];
static double shares[3]; /* errors, resets, tails */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int connect_to(int port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (const void *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void end(struct pair *pair, int reset)
{
    const struct linger now = {1, 0};

    if (reset)
        setsockopt(pair->client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(pair->client);
    close(pair->server);
    pair->client = pair->server = -1;
}

static void take_client(int listener, int upstream)
{
    const int client = accept(listener, NULL, NULL), on = 1;

    for (int i = 0; client >= 0 && i < MAX_PAIRS; i++)
        if (pairs[i].client < 0) {
            setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            pairs[i].client = client;
            pairs[i].server = connect_to(upstream);
            pairs[i].nr = pairs[i].nr_out = 0;
            pairs[i].due_ms = 0;
            return;
        }
    close(client);
}

/* A request, or a part of one, has come. */
static void take_request(struct pair *pair, uint64_t delay_ms)
{
    static const char refusal[] = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";
    const ssize_t got = recv(
        pair->client, pair->request + pair->nr, sizeof(pair->request) - 1 - (size_t)pair->nr, 0);
    const double draw = (double)random() / ((double)RAND_MAX + 1);

    if (got <= 0) {
        end(pair, 0);
        return;
    }
    pair->nr += (int)got;
    pair->request[pair->nr] = '\0';
    if (!strstr(pair->request, "\r\n\r\n"))
        return;
    if (draw < shares[0]) {
        if (send(pair->client, refusal, sizeof(refusal) - 1, MSG_NOSIGNAL) < 0)
            end(pair, 0);
        pair->nr = 0;
    } else if (draw < shares[0] + shares[1])
        end(pair, 1);
    else
        pair->due_ms = now_ms() + (draw < shares[0] + shares[1] + shares[2] ? TAIL_MS : delay_ms);
}

/* Sends what a client has not taken yet. */
static void put_answer(struct pair *pair)
{
    const ssize_t sent =
        send(pair->client, pair->out, (size_t)pair->nr_out, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && errno != EAGAIN) {
        end(pair, 0);
        return;
    }
    if (sent > 0) {
        memmove(pair->out, pair->out + sent, (size_t)(pair->nr_out - sent));
        pair->nr_out -= (int)sent;
    }
}

static void take_answer(struct pair *pair)
{
    const ssize_t got = recv(pair->server, pair->out, sizeof(pair->out), 0);

    if (got <= 0) {
        end(pair, 0);
        return;
    }
    pair->nr_out = (int)got;
    put_answer(pair);
}

static int wait_ms(void)
{
    const uint64_t now = now_ms();
    uint64_t next = now + 1000;

    for (int i = 0; i < MAX_PAIRS; i++)
        if (pairs[i].client >= 0 && pairs[i].due_ms && pairs[i].due_ms < next)
            next = pairs[i].due_ms > now ? pairs[i].due_ms : now;
    return (int)(next - now);
}

int main(int argc, char **argv)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t own_bytes = sizeof(own);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    FILE *out;

    if (argc != 7 || bind(listener, (void *)&own, sizeof(own)) || listen(listener, 512) ||
        getsockname(listener, (void *)&own, &own_bytes) || !(out = fopen(argv[1], "w")))
        return 1;
    fprintf(out, "%d\n", ntohs(own.sin_port));
    fclose(out);
    for (int i = 0; i < 3; i++)
        shares[i] = atof(argv[4 + i]);
    for (int i = 0; i < MAX_PAIRS; i++)
        pairs[i].client = pairs[i].server = -1;
    for (;;) {
        static struct pollfd fds[1 + 2 * MAX_PAIRS];

        fds[0] = (struct pollfd){listener, POLLIN, 0};
        for (int i = 0; i < MAX_PAIRS; i++) {
            const struct pair *pair = &pairs[i];

            fds[1 + 2 * i] = (struct pollfd){pair->client,
                pair->nr_out   ? POLLOUT
                : pair->due_ms ? 0
                               : POLLIN,
                0};
            fds[2 + 2 * i] = (struct pollfd){pair->nr_out ? -1 : pair->server, POLLIN, 0};
        }
        poll(fds, 1 + 2 * MAX_PAIRS, wait_ms());
        if (fds[0].revents)
            take_client(listener, atoi(argv[2]));
        for (int i = 0; i < MAX_PAIRS; i++) {
            struct pair *pair = &pairs[i];

            if (fds[1 + 2 * i].fd >= 0 && pair->client == fds[1 + 2 * i].fd &&
                fds[1 + 2 * i].revents) {
                if (pair->nr_out)
                    put_answer(pair);
                else if (fds[1 + 2 * i].revents & POLLIN)
                    take_request(pair, (uint64_t)atoi(argv[3]));
                else
                    end(pair, 0);
            }
            if (fds[2 + 2 * i].fd >= 0 && pair->server == fds[2 + 2 * i].fd &&
                fds[2 + 2 * i].revents)
                take_answer(pair);
            if (pair->client >= 0 && pair->due_ms && pair->due_ms <= now_ms()) {
                pair->due_ms = 0;
                if (send(pair->server, pair->request, (size_t)pair->nr, MSG_NOSIGNAL) < 0)
                    end(pair, 0);
                pair->nr = 0;
            }
        }
    }
}
