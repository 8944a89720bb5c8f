#include "daemon/service/access.h"

const char *const np_action_names[NP_NR_ACTIONS] = {
    "submit", "list", "read", "control", "token", "manage", "health"};

enum who { ROOT, OWNER, MEMBER, OTHER, NET, NET_TOKEN, NET_OWNER, NET_MEMBER, NR_WHO };

/* Columns: root, owner, member of the group, others; TCP without a token, with the administrator's,
 * the owner's, another user's token. A run has its submitter's rights, so only a known user can
 * submit: nobody over TCP, even with the administrator's token. */
static const bool table[NP_NR_ACTIONS][NR_WHO] = {
    [NP_ACTION_SUBMIT] = {true, true, true, false, false, false, false, false},
    [NP_ACTION_LIST] = {true, true, true, false, true, true, true, true},
    [NP_ACTION_READ] = {true, true, false, false, false, true, true, false},
    [NP_ACTION_CONTROL] = {true, true, false, false, false, true, true, false},
    [NP_ACTION_TOKEN] = {true, true, true, false, false, false, false, false},
    [NP_ACTION_MANAGE] = {true, false, false, false, false, false, false, false},
    [NP_ACTION_HEALTH] = {true, true, true, true, true, true, true, true},
};

/* The daemon's own user has root's rights here. */
static enum who who_is(const struct np_access *access, const struct np_caller *caller, uid_t owner)
{
    const bool is_admin = caller->uid == 0 || caller->uid == access->service_uid;

    if (!caller->socket && !caller->user)
        return caller->token ? NET_TOKEN : NET;
    if (caller->user)
        return is_admin               ? NET_TOKEN
               : !access->for_box     ? NET
               : caller->uid == owner ? NET_OWNER
                                      : NET_MEMBER;
    if (is_admin)
        return ROOT;
    if (!access->for_box)
        return OTHER;
    if (caller->uid == owner)
        return OWNER;
    return caller->member ? MEMBER : OTHER;
}

bool np_access_may(const struct np_access *access, const struct np_caller *caller,
    enum np_action action, uid_t owner)
{
    return table[action][who_is(access, caller, owner)];
}

bool np_access_is_limited(const struct np_access *access, uid_t uid)
{
    return access->for_box && uid != 0 && uid != access->service_uid;
}

bool np_access_caller_is_limited(const struct np_access *access, const struct np_caller *caller)
{
    return (caller->socket || caller->user) && np_access_is_limited(access, caller->uid);
}
