/* Runs `nnpipe check` on a submission, in a child with the submitter's rights: the service opens
 * no file that a config names. The answer is untrusted, because submitters control their
 * processes. Called by the service's thread. */
#ifndef NP_CHECKER_H
#define NP_CHECKER_H

#include "daemon/service/child.h"
#include "loader/base/json.h"

struct np_check {
    uid_t uid;
    gid_t gid;
    const char *config;      /* the text */
    size_t max_bytes;        /* of its answer */
    const char *path;        /* absolute; messages name it, and the check runs in its folder */
    const char *environment; /* the submitter's, "NAME=VALUE\n"..., or NULL */
    const struct np_node *overrides; /* a list of texts, or NULL */
    const char *device;              /* "": the config's */
    int processes;
    bool only; /* queue nothing afterwards */
};
/* Starts the child; *check may be freed afterwards. Errors as np_child_start(). */
int np_checker_start(
    const struct np_check *check, int epoll_fd, struct np_child *ret_child, struct np_err *err);
/* Returns 1 when the child has ended: *ret_answer is its JSON mapping (np_node_free); 0: not
 * yet; -EBADMSG: no valid answer; -ETIMEDOUT: it took longer than a minute. */
int np_checker_turn(struct np_child *child, struct np_node **ret_answer);

/* Writes a mistake in a config, {"file", "line", "column", "place", "text"}, to the open list
 * `problems` of the check's output or the service's answer. line 0: the whole file. */
void np_problem_write(struct np_json *json, const char *file, int line, int column,
    const char *place, const char *text);

#endif
