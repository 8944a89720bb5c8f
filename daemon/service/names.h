/* User names for lists of runs. The user database may be a server that does not answer, so a
 * short-lived child asks it, one user at a time; until it answers, the number stands for the
 * name. Called by the service's thread. */
#ifndef NP_NAMES_H
#define NP_NAMES_H

#include <stdbool.h>
#include <sys/types.h>

struct np_names;
/* epoll_fd: wakes the service when an answer has come. look_up: called in the child; 0 with the
 * name, or with "" if the number has no user; -errno: unknown now. NULL: np_user_find(). */
typedef int np_name_fn(uid_t uid, char *name, size_t bytes);
struct np_names *np_names_new(int epoll_fd, np_name_fn *look_up);
void np_names_free(struct np_names *names);
/* The name, or the number while the name is unknown; borrowed until the next call. Asks the
 * database if the answer is missing or older than 10 minutes. *is_name (or NULL): it is a name. */
const char *np_names_of(struct np_names *names, uid_t uid, bool *is_name);
/* Takes an answer and asks for the next name. Returns true if a name has changed. */
bool np_names_turn(struct np_names *names);

#endif
