/* The permissions of callers. Pure. docs/SERVICE.md has the same table; a test compares them. */
#ifndef NP_ACCESS_H
#define NP_ACCESS_H

#include <stdbool.h>
#include <sys/types.h>

enum np_action {
    NP_ACTION_SUBMIT,
    NP_ACTION_LIST,    /* runs with states and rates, devices, the page */
    NP_ACTION_READ,    /* a run's config, log and metrics */
    NP_ACTION_CONTROL, /* stop, pause, resume, remove, set the priority */
    NP_ACTION_TOKEN,   /* make or revoke the caller's own token */
    NP_ACTION_MANAGE,  /* reload the settings, hold the queue, drain a device */
    NP_ACTION_HEALTH,  /* /healthz, /metrics */
    NP_NR_ACTIONS
};
extern const char *const np_action_names[NP_NR_ACTIONS];

struct np_caller {
    bool socket; /* on the Unix socket: the kernel gave uid and gid */
    uid_t uid;
    gid_t gid;
    bool member; /* of the service's group */
    bool token;  /* over TCP with the administrator's token */
    bool user;   /* over TCP with the token of user uid */
};
struct np_access {
    uid_t service_uid; /* the daemon's user */
    bool for_box;      /* a system service: members of its group submit; else its own user alone */
};

/* May the caller do this? owner: the run's submitter; (uid_t)-1 when no run is concerned. */
bool np_access_may(const struct np_access *access, const struct np_caller *caller,
    enum np_action action, uid_t owner);

/* Do the limits of a box apply to this user? Not to root, not to the service's own user, and not
 * in a user's own service. */
bool np_access_is_limited(const struct np_access *access, uid_t uid);
/* The same for a caller; they do not apply with the administrator's token either. */
bool np_access_caller_is_limited(const struct np_access *access, const struct np_caller *caller);

#endif
