/* Who asks: the kernel's word on a Unix socket, a token on TCP, and whether a browser was sent by a page of ours. Pure
 * but for the socket. */
#ifndef NP_HTTP_WHO_H
#define NP_HTTP_WHO_H

#include "daemon/service/access.h"

/* The user and the group of who connected, and whether they are of `group` ((gid_t)-1: nobody is). One whom the kernel
 * does not name stays as if on TCP. */
void np_who_is_behind(int fd, gid_t group, struct np_caller *ret_caller);
/* field: an Authorization, "Bearer TOKEN". NULL: it is another. */
const char *np_who_token(const char *field);
/* In a time that does not tell how much of it was right. */
bool np_who_same_token(const char *given, const char *token);
/* Is host ("localhost:7411") a name that only this box answers to, and origin ("http://localhost:7411"; NULL: no page
 * has sent it) the very same? */
bool np_who_is_from_here(const char *host, const char *origin);

#endif
