/* AWS Signature Version 4 (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html),
 * as S3 wants it: the path is encoded once. Pure functions of the request, the keys and the time. */
#ifndef NP_SIGV4_H
#define NP_SIGV4_H

#include <stddef.h>
#include <time.h>

struct np_sigv4_keys {
    const char *id, *secret;
    const char *token; /* of temporary keys; NULL or "": none */
};

struct np_sigv4_request {
    const char *method, *host;
    const char *path;         /* as on the wire: encoded, from '/' on */
    const char *query;        /* as on the wire, without '?'; NULL: none */
    const char *fields;       /* more header fields to sign, "Name: value\n" each; NULL: none */
    const char *payload_hash; /* of the body, SHA-256 in hex; NULL: of no body */
    const char *region, *service;
};

/* Writes the header fields x-amz-date, x-amz-content-sha256, x-amz-security-token and Authorization,
 * "Name: value\n" each, to send beside request->fields. -ENAMETOOLONG: out_bytes, or the 64 header
 * fields and query parameters that a request may have, are too few. */
int np_sigv4_sign(const struct np_sigv4_request *request, const struct np_sigv4_keys *keys,
    time_t now, char *out, size_t out_bytes);

#endif
