/* What servers say in header fields and refusals. Pure functions over hostile bytes. Any thread. */
#ifndef NP_REPLY_H
#define NP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "bytes 0-99/1234": the range, both ends included, and the size of the object (-1 for '*'). */
bool np_content_range(
    const char *text, uint64_t *ret_first, uint64_t *ret_last, int64_t *ret_bytes);
/* True if an ETag is a strong one: "..." and not W/"...". */
bool np_etag_is_strong(const char *etag);

struct np_refusal {
    char code[64];     /* "NoSuchKey"; empty: the text has none */
    char message[200]; /* empty: none */
};
/* Reads <Code> and <Message> of S3's refusals. */
void np_refusal_read(const char *body, struct np_refusal *ret_refusal);

#endif
