/* The environment of what the service starts: of its own, the few names that a run may know; of the submitter's, what
 * their config names as ${NAME}. */
#ifndef NP_ENVIRONMENT_H
#define NP_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#define NP_ENVIRONMENT_MAX_BYTES 16384 /* of all that a submission brings */

/* Unsets all variables of this process that are not on the list: users must not see a secret that the administrator
 * gave to the service. In a child of fork(). */
void np_environment_reduce(void);

/* Does this text of a config name the variable, as ${NAME} or ${NAME:-default}? */
bool np_environment_is_named(const char *name, const char *text);
/* Names of `text`, one after the other: *at is the text at first, and behind the name then. false: there are no more. */
bool np_environment_next(const char **at, char *ret_name, size_t bytes);
/* "NAME=VALUE\n"...: sets each, in a child of fork(), or in a worker. */
void np_environment_set(const char *lines);

#endif
