/* What servers say in header fields and refusals. Pure functions over hostile bytes. Any thread. */
#ifndef NP_REPLY_H
#define NP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_WEB_FIELD 256 /* bytes of a value that is kept; a longer one counts as missing */

/* Header fields of an answer; empty: missing. */
struct np_web_answer {
    int status;
    char etag[NP_WEB_FIELD], last_modified[NP_WEB_FIELD], content_range[NP_WEB_FIELD];
    char region[NP_WEB_FIELD]; /* x-amz-bucket-region */
    int64_t bytes;             /* Content-Length; -1: missing */
    bool is_coded, is_last;    /* Transfer-Encoding; the connection ends after it */
};

/* Takes one line of a header, without or with its end; a status line begins a new answer. */
void np_answer_take(struct np_web_answer *answer, const char *line, size_t bytes);
/* Reads the header at the beginning of `bytes`, with the empty line. Returns its bytes; 0: it has not
 * all come; -EBADMSG: it is none of HTTP/1. */
int np_answer_read(const char *bytes, size_t nr, struct np_web_answer *ret_answer);

/* "bytes 0-99/1234": the range, both ends included, and the size of the object (-1 for '*'). */
bool np_content_range(
    const char *text, uint64_t *ret_first, uint64_t *ret_last, int64_t *ret_bytes);
/* True if an ETag is a strong one: "..." and not W/"...". */
bool np_etag_is_strong(const char *etag);

struct np_refusal {
    char code[64];     /* "NoSuchKey"; empty: the text has none */
    char message[200]; /* empty: none */
};
/* The text between <name> and </name>, as it stands; empty if there is none or it does not fit. */
void np_xml_element(const char *body, const char *name, char *text, size_t room);
/* Reads <Code> and <Message> of S3's refusals. */
void np_refusal_read(const char *body, struct np_refusal *ret_refusal);

#endif
