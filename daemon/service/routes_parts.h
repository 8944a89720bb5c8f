/* Between the routes_*.c files. */
#ifndef NP_ROUTES_PARTS_H
#define NP_ROUTES_PARTS_H

#include "daemon/json.h"
#include "daemon/service/checker.h"
#include "daemon/service/routes.h"

#define NP_MOST_WAITS 256

struct np_wait { /* a request that is answered later */
    const struct np_http_request *request;
    int64_t id;
    double until;     /* Unix time */
    char states[128]; /* of a run: answered once it has none of these; "": not asked for */
    int segment;      /* of a log, and what was there of it; -1: not asked for */
    off_t position;
    struct np_checker checker; /* pid 0: none */
    struct np_entry entry;     /* a submission that is being checked; owned */
};

struct np_routes {
    struct np_service *service;
    struct np_json json; /* of the answer under way */
    struct np_wait waits[NP_MOST_WAITS];
    int nr_waits;
};

/* A request and what its path named. */
struct np_call {
    struct np_routes *routes;
    const struct np_http_request *request;
    struct np_http_held *held;
    int64_t id;
    const struct np_entry *entry; /* of id; NULL: the route has none */
};

/* --- answers: once a call ------------------------------------------------------------------------ */

void np_answer_json(struct np_call *call, unsigned status); /* routes->json, ended here */
void np_answer_text(
    struct np_call *call, const char *type, const char *text, size_t bytes, const char *next);
void np_answer_nothing(struct np_call *call); /* 204 */
void np_answer_error(struct np_call *call, unsigned status, const char *code, const char *format,
    ...) __attribute__((format(printf, 4, 5)));
/* -errno of the service's calls as a status. */
void np_answer_failure(struct np_call *call, int code, const struct np_err *err);
/* Keeps the request for later; NULL: too many wait, and it was told so. */
struct np_wait *np_answer_later(struct np_call *call);

/* --- routes -------------------------------------------------------------------------------------- */

void np_write_run(struct np_routes *routes, const char *key, const struct np_entry *entry);
void np_route_list(struct np_call *call);
void np_route_submit(struct np_call *call);
void np_route_show(struct np_call *call);
void np_route_patch(struct np_call *call);
void np_route_remove(struct np_call *call);
void np_route_stop(struct np_call *call);
void np_route_pause(struct np_call *call);
void np_route_resume(struct np_call *call);
void np_route_config(struct np_call *call);
void np_route_log(struct np_call *call);
void np_route_metrics(struct np_call *call);
void np_route_devices(struct np_call *call);
void np_route_service(struct np_call *call);
void np_route_reload(struct np_call *call);
void np_route_health(struct np_call *call);
void np_route_prometheus(struct np_call *call);
void np_route_page(struct np_call *call);
/* Of a wait: true: it was answered. */
bool np_turn_submit(struct np_routes *routes, struct np_wait *wait);
bool np_turn_show(struct np_routes *routes, struct np_wait *wait);
bool np_turn_log(struct np_routes *routes, struct np_wait *wait);

#endif
