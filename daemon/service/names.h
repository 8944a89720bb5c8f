/* Names of users, for lists of runs. The user database may be a server that does not answer, so a short-lived child
 * asks it, one user at a time; until it has answered a user's number stands for the name. The service's thread. */
#ifndef NP_NAMES_H
#define NP_NAMES_H

#include <stdbool.h>
#include <sys/types.h>

struct np_names;
/* epoll_fd: wakes the service when an answer has come. look_up: asks the database, in the child: 0, and the name, or ""
 * where no user has that number; -errno: not known now. NULL: getpwuid(). */
typedef int np_name_fn(uid_t uid, char *name, size_t bytes);
struct np_names *np_names_new(int epoll_fd, np_name_fn *look_up);
void np_names_free(struct np_names *names);
/* The name, or the number while the name is not known, or nobody has it; lent until the next call. What is not known,
 * or was asked for 10 minutes ago, is asked for. is_name (or NULL): is it the name? */
const char *np_names_of(struct np_names *names, uid_t uid, bool *is_name);
/* Takes an answer, and asks for the next. True: a name has changed. */
bool np_names_turn(struct np_names *names);

#endif
