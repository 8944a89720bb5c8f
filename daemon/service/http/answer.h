/* What the routes share: a request and its answer, now or later; what its query and its body say. The service's
 * thread. */
#ifndef NP_ANSWER_H
#define NP_ANSWER_H

#include "daemon/service/book.h"
#include "daemon/service/checker.h"
#include "daemon/service/http/http.h"
#include "daemon/service/log_reader.h"
#include "loader/base/json.h"

enum np_wait_for { NP_WAIT_STATE, NP_WAIT_CHECK, NP_WAIT_LOG, NP_WAIT_METRICS };

struct np_wait { /* a request that is answered later */
    enum np_wait_for what;
    const struct np_http_request *request;
    int64_t id;
    uint64_t until_ns;
    unsigned states;       /* NP_WAIT_STATE: a bit each; answered once it has none of these */
    struct np_child child; /* pid 0: none, or not yet */
    struct np_node *body;  /* NP_WAIT_CHECK: what check is made of; np_node_free */
    struct np_check check;
    struct np_entry entry;  /* the submission; owned */
    struct np_log_wish log; /* NP_WAIT_LOG */
    struct np_metrics_wish metrics;
};

struct np_health {     /* of the disk that the queue is on */
    uint64_t until_ns; /* what is known of it holds until then */
    char problem[256]; /* "": none */
};

struct np_routes {
    struct np_service *service;
    int epoll_fd;                            /* of the waits' children */
    struct np_json json;                     /* of the answer under way */
    struct np_wait waits[NP_HTTP_MAX_WAITS]; /* in the order in which they came */
    int nr_waits;
    struct np_health health;
    uint64_t answers[6]; /* by the first digit of their status */
};

/* A request and what its path named. */
struct np_call {
    struct np_routes *routes;
    const struct np_http_request *request;
    struct np_http_held *held;
    int64_t id;
    struct np_service_run *run; /* of id; NULL: there is none, or the route has no id */
};

/* --- answers: once a call ------------------------------------------------------------------------ */

void np_answer_json(struct np_call *call, unsigned status); /* routes->json, ended here */
void np_answer_text(
    struct np_call *call, const char *type, const char *text, size_t bytes, const char *next);
/* 200, with an ETag that changes with the service's version: what is asked of it is a picture of that. */
void np_answer_tagged(struct np_call *call);
/* Has the caller that picture already (If-None-Match)? Then it was told so, 304. */
bool np_answer_unchanged(struct np_call *call);
void np_answer_nothing(struct np_call *call); /* 204 */
void np_answer_error(struct np_call *call, unsigned status, const char *code, const char *format,
    ...) __attribute__((format(printf, 4, 5)));
/* -errno of the service's calls as a status. */
void np_answer_failure(struct np_call *call, int code, const struct np_err *err);
/* What is more than service.yaml's limits allow. */
void np_answer_too_large(struct np_call *call, const char *what);
void np_answer_high_priority(struct np_call *call);
/* Keeps the request for later; NULL: too many wait, and it was told so. */
struct np_wait *np_answer_later(struct np_call *call, enum np_wait_for what);
/* Of a request that is kept. */
struct np_call np_call_of(struct np_routes *routes, const struct np_wait *wait);

/* Is the caller somebody? Over TCP without a token nobody is told of users and files. */
bool np_is_known(const struct np_call *call);
void np_write_run(struct np_call *call, const char *key, const struct np_service_run *run);
void np_answer_run(struct np_call *call, const struct np_service_run *run, unsigned status);

/* --- the query: false: it was answered, with 400 --------------------------------------------------- */

/* Where the parameter is there: a whole number in bounds; seconds, 60 at most. */
bool np_query_whole(
    struct np_call *call, const char *name, int64_t least, int64_t most, int64_t *ret_value);
bool np_query_seconds(struct np_call *call, const char *name, double *ret_seconds);
/* States by commas, a bit each; 0: it is not there. */
bool np_query_states(struct np_call *call, const char *name, unsigned *ret_states);

/* --- the body ------------------------------------------------------------------------------------ */

/* A text of JSON's body under key, or fallback; NULL: it is something else, or longer. */
const char *np_body_text(
    const struct np_node *body, const char *key, const char *fallback, size_t most);
bool np_body_whole(
    const struct np_node *body, const char *key, int64_t least, int64_t most, int64_t *ret_value);
/* Seconds, above 0; null: 0, which means no limit. */
bool np_body_seconds(const struct np_node *body, const char *key, double *ret_seconds);
/* true or false; where it is not there *ret_value stays. */
bool np_body_bool(const struct np_node *body, const char *key, bool *ret_value);
/* NULL: it is no object of these keys (the last NULL), and it was told so. np_node_free. */
struct np_node *np_body_of(struct np_call *call, const char *const *keys);

#endif
