/* `nnpipe check` of a submission, with the submitter's rights, in a process of its own: the service itself opens
 * nothing that a config names. */
#ifndef NP_CHECKER_H
#define NP_CHECKER_H

#include <stdbool.h>
#include <sys/types.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

struct np_check {
    uid_t uid;
    gid_t gid;
    const char *config; /* the text */
    const char *path;   /* absolute: messages name it, and its folder is where the check runs */
    const struct np_node *overrides; /* a list of texts, or NULL */
    const char *device;              /* "": the config's own */
};
struct np_checker {
    pid_t pid;
    int fd; /* readable: it says something, or has ended */
    char *text;
    size_t used, room;
    double began; /* Unix time */
};
int np_checker_start(
    const struct np_check *check, struct np_checker *ret_checker, struct np_err *err);
/* Takes what it has said. 1: it has ended, and *ret_answer is its JSON (np_node_free; NULL: it has said
 * nothing that is JSON, or took longer than a minute and was ended); 0: not yet. */
int np_checker_turn(struct np_checker *checker, struct np_node **ret_answer);
void np_checker_stop(struct np_checker *checker);

#endif
