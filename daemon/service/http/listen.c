#include "daemon/service/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/base/text.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

bool np_listen_is_loopback(const char *text)
{
    return strncmp(text, "127.0.0.1:", 10) == 0 || strncmp(text, "[::1]:", 6) == 0;
}

/* Returns the bytes of the address; 0: text is none. */
static socklen_t read_address(const char *text, union address *address)
{
    const char *colon = strrchr(text, ':');
    const bool is_v6 = *text == '[' && colon > text + 1 && colon[-1] == ']';
    char host[INET6_ADDRSTRLEN];
    int64_t port;

    memset(address, 0, sizeof(*address));
    if (!colon || !np_text_int(colon + 1, 0, 65535, &port))
        return 0;
    const int bytes =
        snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - 2 * is_v6, text + is_v6);
    if (bytes >= (int)sizeof(host))
        return 0;
    address->any.sa_family = is_v6 ? AF_INET6 : AF_INET;
    if (is_v6)
        address->v6.sin6_port = htons((uint16_t)port);
    else
        address->v4.sin_port = htons((uint16_t)port);
    void *to = is_v6 ? (void *)&address->v6.sin6_addr : (void *)&address->v4.sin_addr;
    if (inet_pton(address->any.sa_family, host, to) != 1)
        return 0;
    return is_v6 ? sizeof(address->v6) : sizeof(address->v4);
}

static void describe(const union address *address, struct np_listener *listener)
{
    const bool is_v6 = address->any.sa_family == AF_INET6;
    char host[INET6_ADDRSTRLEN];

    inet_ntop(address->any.sa_family,
        is_v6 ? (const void *)&address->v6.sin6_addr : (const void *)&address->v4.sin_addr, host,
        sizeof(host));
    snprintf(listener->at, sizeof(listener->at), is_v6 ? "[%s]:%d" : "%s:%d", host,
        ntohs(is_v6 ? address->v6.sin6_port : address->v4.sin_port));
    listener->loopback =
        is_v6 ? IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr)
              : ntohl(address->v4.sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

int np_listen_tcp(const char *text, struct np_listener *ret_listener, struct np_err *err)
{
    union address address;
    socklen_t bytes = read_address(text, &address);
    const int one = 1;

    if (bytes == 0)
        return np_err_set(err, -EINVAL, "'%s' is not an address with a port", text);
    const int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, &address.any, bytes) < 0 || listen(fd, NP_BACKLOG) < 0 ||
        getsockname(fd, &address.any, &bytes) < 0) {
        const int code = -errno;

        if (fd >= 0)
            close(fd);
        return np_err_set(err, code, "%s: cannot listen: %s", text, strerror(-code));
    }
    ret_listener->fd = fd;
    describe(&address, ret_listener);
    return 0;
}
