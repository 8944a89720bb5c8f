/* Temporary keys of a role: for a web identity, from STS; of a container; of an instance (IMDSv2). Each
 * call waits for the network, a few seconds at most, and returns 1: keys; 0: there is no such role;
 * or -errno, and the text names the place. One thread at a time. */
#ifndef NP_ROLE_H
#define NP_ROLE_H

#include "loader/remote/aws_profile.h"

/* A token that a cluster writes into a file, and the role that STS gives for it. */
struct np_web_identity {
    const char *token_file, *role;
    const char *session; /* a name, which AWS's logs have; NULL: one of ours */
    const char *sts;     /* the server's URL */
};
/* -EINVAL: there is no token, or it must not be sent there; -EACCES: STS refuses it. */
int np_role_of_identity(
    const struct np_web_identity *identity, struct np_keys *ret_keys, struct np_err *err);
/* What the environment of a container names, or else the instance's own. */
int np_role_of_machine(struct np_keys *ret_keys, struct np_err *err);

#endif
