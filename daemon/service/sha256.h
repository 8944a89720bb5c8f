/* SHA-256: FIPS 180-4, section 6.2. Any thread. */
#ifndef NP_SHA256_H
#define NP_SHA256_H

#include <stddef.h>

/* Of so many bytes, as 64 hex digits and a NUL. */
void np_sha256(const void *bytes, size_t nr, char ret_hex[65]);

#endif
