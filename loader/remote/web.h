/* HTTP requests over libcurl: the connections and the calls in flight of one thread, and nothing that
 * knows of objects. TLS is checked; the proxies of the environment are used (http_proxy,
 * https_proxy, no_proxy). Certificates: AWS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE, else the
 * system's. */
#ifndef NP_WEB_H
#define NP_WEB_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_WEB_FIELD 256  /* bytes of a value that is kept; a longer one counts as missing */
#define NP_WEB_BODY  2048 /* of the text of a refusal */

struct np_web; /* one thread */

/* Header fields of an answer; empty: missing. */
struct np_web_answer {
    int status;
    char etag[NP_WEB_FIELD], last_modified[NP_WEB_FIELD], content_range[NP_WEB_FIELD];
    char region[NP_WEB_FIELD]; /* x-amz-bucket-region */
    int64_t bytes;             /* Content-Length; -1: missing */
};

/* One request. The caller owns it, and leaves it and its texts unchanged until np_web_turn() returns
 * it or np_web_cancel() took it back. */
struct np_web_call {
    const char *method;             /* NULL: GET */
    const char *url;                /* of the wire */
    const char *fields;             /* header fields, "Name: value\n" each; NULL: none */
    bool follows;                   /* redirects; those of an https URL never to http */
    bool direct;                    /* past the proxies of the environment */
    int connect_ms, max_ms, idle_s; /* limits; 0: 10 s, none, 20 s without a byte */
    /* For an answer of 2xx: called once before its body. Not 0: ends the call with this -errno. */
    int (*begin)(struct np_web_call *call);
    /* The next bytes of its body. */
    int (*data)(struct np_web_call *call, const void *bytes, size_t nr);
    void *owner;

    /* when it has ended */
    int code;        /* 0: there is an answer, all of it; else -errno */
    char error[256]; /* what failed */
    struct np_web_answer answer;
    char body[NP_WEB_BODY]; /* the beginning of an answer that is not 2xx, with a NUL */
    /* For http.c. */
    size_t body_bytes;
    void *curl, *list;
    struct np_web_call *next;
    bool begun;
};

/* NULL: out of memory, or libcurl cannot start. */
struct np_web *np_web_new(int max_connections, struct np_err *err);
/* Cancels what is in flight. NULL: nothing. */
void np_web_free(struct np_web *web);
/* -ENOMEM; -EAGAIN: not now. Never blocks. */
int np_web_begin(struct np_web *web, struct np_web_call *call);
void np_web_cancel(struct np_web *web, struct np_web_call *call);
/* Sends and receives what is possible without waiting. Returns a call that has ended, or NULL. */
struct np_web_call *np_web_turn(struct np_web *web);
/* Waits until something is possible, extra_fd (-1: none) is readable, or timeout_ms have passed. */
void np_web_wait(struct np_web *web, int extra_fd, int timeout_ms);

#endif
