/* Tokens for TCP: random ones, and the administrator's, in a file that only the service's user
 * can read. */
#ifndef NP_TOKEN_H
#define NP_TOKEN_H

#include "loader/base/err.h"

#define NP_TOKEN_CHARS 64 /* hex digits */

/* Makes a random token, NUL-terminated. -EIO: no random numbers. */
int np_token_make(char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Reads DIR/token; creates it (0600) if it is missing or empty. -EPERM: others can read it, or
 * it is another user's; -EBADMSG: it is not a token. */
int np_token_read(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Replaces DIR/token by a new token; if this fails, the old one is still valid. */
int np_token_replace(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Hashes a token: hex digits of its SHA-256. Only the hash of a user's own token is stored. */
void np_token_hash(const char *token, char ret_hex[NP_TOKEN_CHARS + 1]);

#endif
