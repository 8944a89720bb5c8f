/* The files of the AWS tools, ~/.aws/credentials and ~/.aws/config, and the answers with a role's keys.
 * Pure functions over hostile bytes. Any thread. */
#ifndef NP_AWS_PROFILE_H
#define NP_AWS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_keys {
    char id[128], secret[256]; /* id empty: no keys, so requests are not signed */
    char token[4096];          /* of temporary keys; empty: none */
    int64_t expires;           /* seconds since 1970; 0: never */
};

/* The value of a key in the section [name], or [profile name] where in_config (there [default] is
 * [default]). False: there is none, or it does not fit. The last of several sections and keys of one
 * name counts. */
bool np_profile_get(const char *text, const char *name, bool in_config, const char *key,
    char *value, size_t value_bytes);
bool np_profile_has(const char *text, const char *name, bool in_config); /* is there the section? */
/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...}. -EBADMSG. */
int np_keys_of_json(const char *text, size_t bytes, struct np_keys *ret_keys, struct np_err *err);
/* <AccessKeyId>, <SecretAccessKey>, <SessionToken> and <Expiration>, as STS answers. -EBADMSG. */
int np_keys_of_xml(const char *text, struct np_keys *ret_keys, struct np_err *err);

#endif
