/* A listening TCP socket from an address in numbers, "127.0.0.1:7411" or "[::1]:7411". Any thread. */
#ifndef NP_LISTEN_H
#define NP_LISTEN_H

#include <stdbool.h>

#include "loader/base/err.h"

#define NP_BACKLOG   4096 /* when it is full, connect() on a Unix socket fails with EAGAIN */
#define NP_LISTEN_AT 64   /* bytes of an address with its port */

struct np_listener {
    int fd;                /* not blocking; the caller closes it */
    bool loopback;         /* only this machine reaches it */
    char at[NP_LISTEN_AT]; /* the address with the port that the kernel chose for port 0 */
};
/* -EINVAL: text is not an address with a port, without "listen: " and such in front; else -errno of
 * the socket, with the address in the error. */
int np_listen_tcp(const char *text, struct np_listener *ret_listener, struct np_err *err);
/* Does text begin with 127.0.0.1: or [::1]:? */
bool np_listen_is_loopback(const char *text);

#endif
