/* Identifies callers: by the kernel on a Unix socket, by a token on TCP; and checks that a
 * browser's request comes from our own page. Pure but for the socket. */
#ifndef NP_HTTP_WHO_H
#define NP_HTTP_WHO_H

#include "daemon/service/access.h"

/* Gets user and group of the connected process, and whether it belongs to `group` ((gid_t)-1:
 * no). *ret_caller is unchanged if the kernel does not know. */
void np_who_is_behind(int fd, gid_t group, struct np_caller *ret_caller);
/* The token of an Authorization field, "Bearer TOKEN"; NULL: it is of another kind. */
const char *np_who_token(const char *field);
/* Compares tokens in constant time. */
bool np_who_same_token(const char *given, const char *token);
/* Is host ("localhost:7411") a name of loopback, and origin ("http://localhost:7411"; NULL: no
 * page sent it) the same? */
bool np_who_is_from_here(const char *host, const char *origin);

#endif
