/* A child of fork() becomes a user. Looking a user up may take long: never in the service's own thread. */
#ifndef NP_AS_USER_H
#define NP_AS_USER_H

#include <sys/types.h>

/* In a child of fork(): the user, with the groups that they have now, their HOME, and no other right, for good; 0 or
 * -errno. gid is their group where they are a member of it, else their primary group is. A user without a name gets
 * the number alone, with the one group gid. name: the user must still have that one; NULL, "": any, or none. -EAGAIN:
 * who they are cannot be found out now. -ESRCH: nobody, or somebody else, has the number now. */
int np_become(uid_t uid, gid_t gid, const char *name);
/* No signal blocked. */
void np_child_signals(void);
/* A text as a descriptor to read from, or -errno. */
int np_text_fd(const char *text);

#endif
