/* User names for lists of runs. The user database may be a server that hangs, so a short-lived
 * child looks names up, one at a time; until it answers, the number stands for the name. Called by
 * the service's thread. */
#ifndef NP_NAMES_H
#define NP_NAMES_H

#include <stdbool.h>
#include <sys/types.h>

struct np_names;
/* Called in the child. Returns 0 with the name, "" if the number has no user; -errno: unknown now.
 * Optional: NULL means np_user_find(). */
typedef int np_name_fn(uid_t uid, char *name, size_t bytes);
/* epoll_fd: watches the child's output. */
struct np_names *np_names_new(int epoll_fd, np_name_fn *look_up);
void np_names_free(struct np_names *names);
/* The name, or the number while the name is unknown; borrowed until the next call. Starts a
 * look-up if the name is missing or older than 10 minutes. *is_name (or NULL): it is a name. */
const char *np_names_of(struct np_names *names, uid_t uid, bool *is_name);
/* Takes an answer and looks up the next name. Returns true if a name has changed. */
bool np_names_turn(struct np_names *names);

#endif
