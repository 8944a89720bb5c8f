/* A server of HTTP in this process, a thread for each connection; it ends with the process. */
#ifndef MADE_SERVER_H
#define MADE_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct made_server {
    /* Answers one request, a text, on its connection. False: the connection ends. */
    bool (*answer)(int fd, const char *request);
    int listener, port;
    int nr_connections, nr_requests; /* atomic */
};

/* Listens on a port of the loopback, and forgets the environment's proxies. */
void made_server_start(struct made_server *server, bool (*answer)(int fd, const char *request));
void made_server_refuse(struct made_server *server); /* connections, from now on */
/* Sends bytes, in pieces of so many. */
bool made_server_send(int fd, const void *bytes, size_t nr, size_t piece);

#endif
