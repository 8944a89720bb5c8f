/* Tokens for TCP: random ones, and the administrator's, in a file that only the service's user can read. */
#ifndef NP_TOKEN_H
#define NP_TOKEN_H

#include "loader/base/err.h"

#define NP_TOKEN_CHARS 64 /* hex digits */

/* A new one, and a NUL behind it. */
int np_token_make(char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* DIR/token, 0600; made where there is none, or an empty one. -EPERM: others could read it, or it is another user's;
 * -EBADMSG: it is no token. */
int np_token_read(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Replaces DIR/token by a new token. When this fails the old one still holds. */
int np_token_replace(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* The hex digits of its SHA-256, all that is kept of a user's own token. */
void np_token_hash(const char *token, char ret_hex[NP_TOKEN_CHARS + 1]);

#endif
