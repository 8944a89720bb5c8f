/* Shared by the routes: a request, its query and body, and its answer, now or later. Called by the
 * service's thread. */
#ifndef NP_ANSWER_H
#define NP_ANSWER_H

#include "daemon/service/book.h"
#include "daemon/service/checker.h"
#include "daemon/service/http/http.h"
#include "daemon/service/log_reader.h"
#include "loader/base/json.h"

struct np_call;
struct np_wait;
/* Called in each turn of the loop until it returns true: the request is answered. If the request
 * names a run, the call has it: for a removed run the loop answers itself. */
typedef bool np_turn_fn(struct np_call *call, struct np_wait *wait);

struct np_wait { /* a request that is answered later */
    np_turn_fn *turn;
    const struct np_http_request *request;
    int64_t id; /* of its run; 0: none */
    uint64_t until_ns;
    unsigned states; /* of a long poll: bits of states that the run must leave before the answer */
    struct np_child child;
    struct np_node *body; /* of a submission: owns check's texts; np_node_free */
    struct np_check check;
    struct np_entry entry; /* of a submission; owned */
    struct np_log_request log;
    struct np_metrics_request metrics;
};

struct np_health {     /* of the queue's disk */
    uint64_t until_ns; /* of problem's validity */
    char problem[256]; /* "": none */
};

struct np_routes {
    struct np_service *service;
    int epoll_fd;                            /* watches the children of waits */
    struct np_json json;                     /* the current answer */
    struct np_wait waits[NP_HTTP_MAX_WAITS]; /* in order of arrival */
    int nr_waits;
    struct np_health health;
    uint64_t answers[6]; /* counted by first digit of status */
};

/* As np_service_stop(). */
typedef int np_change_fn(
    struct np_service *service, struct np_service_run *run, struct np_err *err);

/* A request and the run that its path names. */
struct np_call {
    struct np_routes *routes;
    const struct np_http_request *request;
    int64_t id;
    struct np_service_run *run; /* of id; NULL: no such run, or the route has no ID */
    np_change_fn *change;       /* for np_route_change(); else NULL */
};

/* --- answers: one for each call --------------------------------------------------------------- */

void np_answer_json(struct np_call *call, unsigned status); /* sends routes->json */
void np_answer_text(
    struct np_call *call, const char *type, const char *text, size_t bytes, const char *next);
/* Answers 200 with an ETag that changes with the service's version. */
void np_answer_tagged(struct np_call *call);
/* If the caller has this version already (If-None-Match), answers 304 and returns true. */
bool np_answer_unchanged(struct np_call *call);
void np_answer_nothing(struct np_call *call); /* 204 */
void np_answer_error(struct np_call *call, unsigned status, const char *code, const char *format,
    ...) __attribute__((format(printf, 4, 5)));
/* If code is negative, an -errno of the service's calls, answers with its status and returns
 * true. */
bool np_answer_failed(struct np_call *call, int code, const struct np_err *err);
/* If a limit of service.yaml is exceeded, answer with it and return true. what: the name of text,
 * such as "the config". before: the run's current priority, which stays allowed. */
bool np_answer_too_large(struct np_call *call, const char *what, const char *text);
bool np_answer_high_priority(struct np_call *call, int64_t priority, int64_t before);
/* Keeps the request. NULL: too many wait, and the call was answered with 503. */
struct np_wait *np_answer_later(struct np_call *call, np_turn_fn *turn);

/* Is the caller identified? If not (TCP without a token), names of users and files are hidden. */
bool np_is_known(const struct np_call *call);
void np_write_run(struct np_call *call, const struct np_service_run *run); /* for a list */
void np_answer_run(struct np_call *call, const struct np_service_run *run, unsigned status);

/* --- the query; false: it is invalid, and the call was answered with 400 ---------------------- */

/* A whole number in bounds, or at most 60 seconds; the value is unchanged if it is not given. */
bool np_query_whole(
    struct np_call *call, const char *name, int64_t min, int64_t max, int64_t *ret_value);
bool np_query_seconds(struct np_call *call, const char *name, double *ret_seconds);
/* A comma-separated list of states, one bit each; 0: not given. */
bool np_query_states(struct np_call *call, const char *name, unsigned *ret_states);

/* --- the body --------------------------------------------------------------------------------- */

/* The string under key, or fallback if there is none; NULL: not a string, or above max_bytes. */
const char *np_body_text(
    const struct np_node *body, const char *key, const char *fallback, size_t max_bytes);
/* An integer in bounds, not written as 1e3 or 1000.0; unchanged if the key is missing. */
bool np_body_whole(
    const struct np_node *body, const char *key, int64_t min, int64_t max, int64_t *ret_value);
bool np_body_is_whole(const struct np_node *node, int64_t min, int64_t max, int64_t *ret_value);
/* Seconds above 0; null gives 0, no limit. */
bool np_body_seconds(const struct np_node *body, const char *key, double *ret_seconds);
/* The key is required. */
bool np_body_bool(const struct np_node *body, const char *key, bool *ret_value);
/* Parses the request's body: an object with these keys only (NULL ends the list); np_node_free.
 * NULL: it is invalid, and the call was answered with 400. */
struct np_node *np_body_of(struct np_call *call, const char *const *keys);

/* --- the routes of the table in routes.c: each answers its call, now or later ----------------- */

void np_route_list(struct np_call *call);
void np_route_submit(struct np_call *call);
void np_route_show(struct np_call *call);
void np_route_patch(struct np_call *call);
void np_route_remove(struct np_call *call);
void np_route_change(struct np_call *call); /* stop, pause, resume, hold */
void np_route_retry(struct np_call *call);
void np_route_config(struct np_call *call);
void np_route_log(struct np_call *call);
void np_route_metrics(struct np_call *call);
void np_route_devices(struct np_call *call);
void np_route_drain(struct np_call *call);
void np_route_service(struct np_call *call);
void np_route_hold_all(struct np_call *call);
void np_route_reload(struct np_call *call);
void np_route_new_token(struct np_call *call);
void np_route_drop_token(struct np_call *call);
void np_route_health(struct np_call *call);
void np_route_prometheus(struct np_call *call);
void np_route_page(struct np_call *call);

#endif
