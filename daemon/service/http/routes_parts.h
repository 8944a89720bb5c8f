/* The routes, for the table in routes.c. Each answers its call, or holds it for later. */
#ifndef NP_ROUTES_PARTS_H
#define NP_ROUTES_PARTS_H

#include "daemon/service/http/answer.h"

void np_route_list(struct np_call *call);
void np_route_submit(struct np_call *call);
void np_route_show(struct np_call *call);
void np_route_patch(struct np_call *call);
void np_route_remove(struct np_call *call);
void np_route_stop(struct np_call *call);
void np_route_pause(struct np_call *call);
void np_route_resume(struct np_call *call);
void np_route_retry(struct np_call *call);
void np_route_hold(struct np_call *call);
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
/* Continues a held request; returns true once it is answered. */
bool np_turn_check(struct np_routes *routes, struct np_wait *wait);
bool np_turn_state(struct np_routes *routes, struct np_wait *wait);
bool np_turn_log(struct np_routes *routes, struct np_wait *wait);
bool np_turn_metrics(struct np_routes *routes, struct np_wait *wait);

#endif
