/* `nnpipe check` of a submission, with the submitter's rights, in a process of its own: the service itself opens
 * nothing that a config names. What comes back is the submitter's word: they may do with their process what they
 * like. */
#ifndef NP_CHECKER_H
#define NP_CHECKER_H

#include "daemon/service/child.h"
#include "loader/base/node.h"

struct np_check {
    uid_t uid;
    gid_t gid;
    const char *config; /* the text */
    size_t max_bytes;   /* of what it answers */
    const char *path;   /* absolute: messages name it, and its folder is where the check runs */
    const char *environment;         /* of the submitter's, "NAME=VALUE\n"..., or NULL */
    const struct np_node *overrides; /* a list of texts, or NULL */
    const char *device;              /* "": the config's own */
};
int np_checker_start(
    const struct np_check *check, int epoll_fd, struct np_child *ret_child, struct np_err *err);
/* 1: it has ended, and *ret_answer is its JSON, a mapping (np_node_free); 0: not yet; -EBADMSG: it has said nothing
 * that can be read; -ETIMEDOUT: it took longer than a minute. */
int np_checker_turn(struct np_child *child, struct np_node **ret_answer);

#endif
