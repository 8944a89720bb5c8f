/* The environment of the service's children: the few variables of the service that a run may see,
 * and the submitter's that the config names as ${NAME}. */
#ifndef NP_ENVIRONMENT_H
#define NP_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#define NP_ENVIRONMENT_MAX_BYTES 16384 /* of all variables of a submission */

/* In a child of fork(): unsets all other variables, because users must not see a secret that the
 * administrator gave to the service. */
void np_environment_reduce(void);

/* Does the text name the variable, as ${NAME} or ${NAME:-default}? */
bool np_environment_is_named(const char *name, const char *text);
/* Finds the next ${NAME} from *at on, and moves *at behind it. False: there is none. */
bool np_environment_next(const char **at, char *ret_name, size_t bytes);
/* In a child of fork() or a worker: sets each variable of "NAME=VALUE\n"... */
void np_environment_set(const char *lines);

#endif
