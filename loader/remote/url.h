/* URLs of objects as a config has them, and as a server gets them. Pure functions over text from
 * configs and environments. Any thread. */
#ifndef NP_URL_H
#define NP_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "loader/base/err.h"

#define NP_URL_MAX       4096 /* bytes of a URL, NUL included */
#define NP_URL_MAX_NAMES 200000

enum np_url_kind { NP_URL_HTTP, NP_URL_S3, NP_URL_GS };

/* Checks a URL and finds its kind. s3://BUCKET/KEY and gs://BUCKET/KEY: the key is taken as it stands
 * (spaces, %, + and UTF-8 are themselves); http:// and https://: as on the wire, already encoded, with
 * or without a query. -EINVAL: what is wrong with it. */
int np_url_check(const char *url, enum np_url_kind *ret_kind, struct np_err *err);

/* Expands {000..999} (numbers of the width of the first, if that begins with 0 or both have one
 * width) and {a,b,c}, several of them in one pattern, in order; at most NP_URL_MAX_NAMES. The caller
 * frees each and the list. -EINVAL, -ENOMEM. */
int np_braces_expand(const char *pattern, char ***ret_texts, int *ret_nr, struct np_err *err);

/* The URL without what may be secret, as np_text_hide() has it. */
void np_url_shown(const char *url, char *text, size_t text_bytes);

/* Percent-encodes all but letters, digits, and - . _ ~ / (RFC 3986). False: no room. */
bool np_url_encode(const char *text, char *out, size_t out_bytes);

/* What is sent to a server. */
struct np_url_wire {
    char origin[300];          /* "https://host:port" */
    char host[300];            /* of the header field Host: without a default port */
    char path[3 * 1024 + 300]; /* encoded, from '/' on */
};

/* Where a bucket lies. */
struct np_url_place {
    const char *endpoint; /* "http://127.0.0.1:9000"; NULL: AWS, in `region` */
    const char *region;
};
/* s3:// and gs:// URLs, checked. An endpoint is path style, as are buckets with dots, whose names do
 * not fit a certificate; AWS is host style. -EINVAL: the endpoint is no URL of a server. */
int np_url_wire(const char *url, const struct np_url_place *place, struct np_url_wire *ret_wire,
    struct np_err *err);

#endif
