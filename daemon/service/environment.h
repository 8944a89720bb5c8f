/* The environment of the service's children: the few variables of its own that a run may see,
 * and those of the submitter that the config names as ${NAME}. */
#ifndef NP_ENVIRONMENT_H
#define NP_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#define NP_ENVIRONMENT_MAX_BYTES 16384 /* of all variables of a submission */

/* In a child of fork(): unsets all variables that are not on the list, so that users do not see
 * a secret that the administrator gave to the service. */
void np_environment_reduce(void);

/* Does this config text name the variable, as ${NAME} or ${NAME:-default}? */
bool np_environment_is_named(const char *name, const char *text);
/* Finds the next ${NAME} from *at on and moves *at behind it. Returns false if there are no
 * more. For a loop, *at starts at the text. */
bool np_environment_next(const char **at, char *ret_name, size_t bytes);
/* Sets each variable of "NAME=VALUE\n"...; in a child of fork(), or in a worker. */
void np_environment_set(const char *lines);

#endif
