/* Who may do what. Pure; docs/SERVICE.md has the table, and a test holds it against this. */
#ifndef NP_ACCESS_H
#define NP_ACCESS_H

#include <stdbool.h>
#include <sys/types.h>

enum np_action {
    NP_ACTION_SUBMIT,
    NP_ACTION_LIST,    /* runs, their states and rates; devices; the page */
    NP_ACTION_READ,    /* a run's config, log and metrics */
    NP_ACTION_CONTROL, /* stop, pause, resume, remove, change its priority */
    NP_ACTION_TOKEN,   /* a token of the caller's own: make it anew, and take it back */
    NP_ACTION_MANAGE,  /* reload the settings, hold the queue, drain a device */
    NP_ACTION_HEALTH,  /* /healthz, /metrics */
    NP_NR_DEEDS
};
extern const char *const np_deed_names[NP_NR_DEEDS];

struct np_caller {
    bool socket; /* on the Unix socket, so that the kernel vouches for uid and group */
    uid_t uid;
    gid_t gid;
    bool member; /* of the service's group */
    bool token;  /* on TCP: it has shown the administrator's token */
    bool user;   /* on TCP: it has shown that of the user uid */
};
struct np_access {
    uid_t service_uid; /* of the daemon */
    bool for_box;      /* a system service: members of its group submit; else its own user alone */
};

/* owner: the run's submitter; (uid_t)-1 where it is about no run. */
bool np_access_may(const struct np_access *access, const struct np_caller *caller,
    enum np_action action, uid_t owner);

/* Is this one of a box's users, for whom its limits are? Not so root, the service's own user, and the one user of
 * a service of their own. */
bool np_access_is_limited(const struct np_access *access, uid_t uid);
/* The same of a caller; the box's token is the administrator's. */
bool np_access_caller_is_limited(const struct np_access *access, const struct np_caller *caller);

#endif
