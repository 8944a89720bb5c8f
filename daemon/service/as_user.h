/* Turns a child of fork() into another user. A look-up of a user may block for long: do not call
 * these in the service's thread. */
#ifndef NP_AS_USER_H
#define NP_AS_USER_H

#include <pwd.h>
#include <sys/types.h>

/* In a child of fork(): takes the user's ID, current groups and HOME, and drops all other rights
 * for good. Keeps gid if the user is a member of that group, else takes the primary group. A user
 * without a name gets only the two numbers. name: the user must still have it; NULL or "": any.
 * Returns 0 or -errno; -EAGAIN: the user cannot be looked up now; -ESRCH: the number belongs to no
 * user, or to a user with another name. */
int np_become(uid_t uid, gid_t gid, const char *name);
/* *ret_user: NULL if no user has this number; valid until the next call. -EAGAIN: the user cannot
 * be looked up now. */
int np_user_find(uid_t uid, const struct passwd **ret_user);
/* In a child of fork(): unblocks all signals and restores SIGPIPE. */
void np_child_signals(void);
/* Returns a descriptor to read the text from (the caller closes it), or -errno. */
int np_text_fd(const char *text);

#endif
