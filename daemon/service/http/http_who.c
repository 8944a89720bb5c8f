/* See http_who.h. */
#include "daemon/service/http/http_who.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_GROUPS 1024 /* of a caller; with more, only the first group counts */

/* As of connect(). The process is not asked: its PID may belong to another by now. */
void np_who_is_behind(int fd, gid_t group, struct np_caller *ret_caller)
{
    struct ucred ucred;
    socklen_t bytes = sizeof(ucred);
    gid_t groups[MAX_GROUPS];

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &bytes) < 0 || bytes != sizeof(ucred) ||
        ucred.uid == (uid_t)-1)
        return;
    *ret_caller = (struct np_caller){.socket = true, .uid = ucred.uid, .gid = ucred.gid};
    if (group == (gid_t)-1)
        return;
    ret_caller->member = ucred.gid == group;
    bytes = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
        return;
    for (size_t i = 0; i < bytes / sizeof(*groups); i++)
        ret_caller->member |= groups[i] == group;
}

bool np_who_same_token(const char *given, const char *token)
{
    const size_t bytes = strlen(token);
    unsigned char differs = 0;

    if (bytes == 0 || strlen(given) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(given[i] ^ token[i]);
    return differs == 0;
}

const char *np_who_token(const char *field)
{
    static const char bearer[] = "Bearer ";

    return strncasecmp(field, bearer, strlen(bearer)) == 0 ? field + strlen(bearer) : NULL;
}

static bool is_local(const char *name)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const size_t bytes = strlen(names[i]);
        const char *port = name + bytes;

        if (strncasecmp(name, names[i], bytes) != 0 || (*port != '\0' && *port != ':'))
            continue;
        return *port == '\0' || strspn(port + 1, "0123456789") == strlen(port + 1);
    }
    return false;
}

/* See comes_from_here() in http.c. */
bool np_who_is_from_here(const char *host, const char *origin)
{
    return is_local(host) && (!origin || (strncasecmp(origin, "http://", 7) == 0 &&
                                             strcasecmp(origin + 7, host) == 0));
}
