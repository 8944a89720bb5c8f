/* HTTP requests over libcurl: the connections and the calls in flight of one thread, and nothing that
 * knows of objects. TLS is checked; the proxies of the environment are used (http_proxy,
 * https_proxy, no_proxy). Certificates: AWS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE, else the
 * system's. */
#ifndef NP_WEB_H
#define NP_WEB_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/remote/reply.h"

#define NP_WEB_BODY       2048 /* bytes of the text of a refusal */
#define NP_WEB_CONNECT_MS 10000
#define NP_WEB_IDLE_S     20 /* a call has failed if no byte comes for so long */

struct np_web; /* one thread */

/* One request. The caller owns it, and leaves it and its texts unchanged until np_web_turn() returns
 * it or np_web_cancel() took it back. */
struct np_web_call {
    const char *method; /* NULL: GET */
    const char *url;    /* of the wire */
    const char *fields; /* header fields, "Name: value\n" each; NULL: none */
    const char *form;   /* the body of a POST, name=value&...; NULL: not a POST */
    bool follows;       /* redirects; those of an https URL never to http */
    bool direct;        /* past the proxies of the environment */
    bool connects;      /* asks for nothing: ends when it has a connection, for np_web_send() */
    int connect_ms, max_ms, idle_s; /* limits; 0: NP_WEB_CONNECT_MS, none, NP_WEB_IDLE_S */
    /* For an answer of 2xx: called once before its body. Not 0: ends the call with this -errno. */
    int (*begin)(struct np_web_call *call);
    /* The next bytes of its body. */
    int (*data)(struct np_web_call *call, const void *bytes, size_t nr);
    void *owner;
    /* NULL, or where the bytes from `at` on of the body shall go, and how many of them: an answer 206 of
     * body_bytes may be received there (straight.h). data() is told of them afterwards. */
    uint8_t *(*room)(struct np_web_call *call, uint64_t at, size_t *ret_bytes);
    uint64_t body_bytes;

    /* when it has ended */
    int code;        /* 0: there is an answer, all of it; else -errno */
    char error[256]; /* what failed */
    struct np_web_answer answer;
    char body[NP_WEB_BODY]; /* the beginning of an answer that is not 2xx, with a NUL */
    int fd;                 /* of a call that connects */
    /* For web.c and straight.c. */
    size_t text_bytes; /* in body */
    void *curl, *list, *line;
    struct np_web_call *next;
    bool begun, is_secure;
};

/* NULL: out of memory, or libcurl cannot start. */
struct np_web *np_web_new(int max_connections, struct np_err *err);
/* Cancels what is in flight. NULL: nothing. */
void np_web_free(struct np_web *web);
/* -ENOMEM; -EAGAIN: not now. Never blocks. */
int np_web_begin(struct np_web *web, struct np_web_call *call);
void np_web_reset(struct np_web_call *call); /* forgets the answer */
void np_web_cancel(struct np_web *web, struct np_web_call *call);
/* Sends and receives what is possible without waiting. Returns a call that has ended, or NULL. */
struct np_web_call *np_web_turn(struct np_web *web);
/* Waits until something is possible, or timeout_ms have passed. */
void np_web_wait(struct np_web *web, int timeout_ms);
/* For a wait of another's: readable when something is possible, and when it is without that. */
int np_web_fd(const struct np_web *web);
uint64_t np_web_due_ns(const struct np_web *web);

/* On the connection of a call that has ended with code 0; np_web_cancel() closes it. They do not
 * block. Return bytes, 0 at the end of what comes, -EAGAIN: not now, or -errno. */
int64_t np_web_send(struct np_web_call *call, const void *bytes, size_t nr);
int64_t np_web_receive(struct np_web_call *call, void *bytes, size_t nr);

#endif
