/* Tokens for TCP. The administrator's is in a file that only the service's user can read. */
#ifndef NP_TOKEN_H
#define NP_TOKEN_H

#include "loader/base/err.h"

#define NP_TOKEN_CHARS 64 /* hex digits */

/* Makes a random token. -EIO: no random numbers. */
int np_token_make(char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Reads DIR/token; creates it (0600) if it is missing or empty. -EPERM: others can read it, or it
 * belongs to another user; -EBADMSG: it is not a token. */
int np_token_read(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Replaces DIR/token; on failure the old token stays valid. */
int np_token_replace(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* SHA-256 in hex digits: of a user's token only this is stored. */
void np_token_hash(const char *token, char ret_hex[NP_TOKEN_CHARS + 1]);

#endif
