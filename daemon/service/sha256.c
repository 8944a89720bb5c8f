/* SHA-256 by libcrypto. Its one-call function needs no memory and does not fail for this digest. */
#include "daemon/service/sha256.h"

#include <stdio.h>

#include <openssl/sha.h>

void np_sha256(const void *bytes, size_t nr, char ret_hex[65])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    SHA256(bytes, nr, digest);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
}
