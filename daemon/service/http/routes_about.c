/* The service itself: its devices, its settings, its page. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/service/http/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "daemon/ui/page.h"

int np_count_runs(const struct np_service *service, enum np_entry_state state)
{
    int nr, n = 0;
    const struct np_entry *const *entries = np_service_entries(service, &nr);

    for (int i = 0; i < nr; i++)
        n += entries[i]->state == state;
    return n;
}

bool np_is_on_device(const struct np_entry *entry, const struct np_slotted *device)
{
    return np_entry_has_worker(entry) && strcmp(entry->assigned, device->name) == 0;
}

static const char *state_of(const struct np_slotted *device)
{
    return *device->gone                           ? "gone"
           : device->drained                       ? "drained"
           : np_device_is_suspect(&device->health) ? "suspect"
                                                   : "ok";
}

void np_route_devices(struct np_call *call)
{
    const struct np_service_options *options = np_service_options(call->routes->service);
    struct np_json *json = &call->routes->json;
    int nr;
    const struct np_entry *const *entries = np_service_entries(call->routes->service, &nr);

    np_json_begin(json, NULL);
    np_json_open(json, "devices", '[');
    for (int d = 0; d < options->nr_devices; d++) {
        np_json_open(json, NULL, '{');
        np_json_text(json, "name", options->devices[d].name);
        np_json_int(json, "slots", options->devices[d].nr_slots);
        np_json_text(json, "state", state_of(&options->devices[d]));
        np_json_text(json, "reason",
            *options->devices[d].gone                           ? options->devices[d].gone
            : np_device_is_suspect(&options->devices[d].health) ? options->devices[d].health.why
                                                                : "");
        np_json_open(json, "runs", '[');
        for (int i = 0; i < nr; i++)
            if (np_is_on_device(entries[i], &options->devices[d]))
                np_json_item(json, (double)entries[i]->id);
        np_json_close(json, ']');
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_answer_json(call, 200);
}

/* {"device": NAME, "drained": BOOL} */
void np_route_drain(struct np_call *call)
{
    static const char *const keys[] = {"device", "drained", NULL};
    struct np_node *body = np_body_of(call, keys);
    const char *device = body ? np_body_text(body, "device", NULL, 31) : NULL;
    struct np_err err = {0};
    bool drained = false;

    if (!body)
        return;
    if (!device || !np_node_get(body, "drained") || !np_body_bool(body, "drained", &drained)) {
        np_answer_error(
            call, 400, "invalid", "expected {\"device\": NAME, \"drained\": true or false}");
    } else {
        const int code = np_service_drain(call->routes->service, device, drained, &err);

        if (code < 0)
            np_answer_failure(call, code, &err);
        else
            np_route_devices(call);
    }
    np_node_free(body);
}

/* What the page needs to know of who looks at it. */
static void write_caller(struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;
    struct np_json *json = &call->routes->json;

    np_json_open(json, "caller", '{');
    np_json_real(json, "uid", caller->socket || caller->user ? (double)caller->uid : NAN);
    np_json_bool(json, "token", caller->token || caller->user);
    np_json_bool(json, "all_runs",
        np_access_may(
            np_service_access(call->routes->service), caller, NP_ACTION_CONTROL, (uid_t)-1));
    np_json_close(json, '}');
}

void np_route_service(struct np_call *call)
{
    const struct np_service *service = call->routes->service;
    struct np_json *json = &call->routes->json;

    np_json_begin(json, NULL);
    np_json_text(json, "version", NP_COMMIT);
    np_json_int(json, "pid", getpid());
    np_json_real(json, "started", service->began);
    np_json_text(json, "mode", service->access.for_box ? "box" : "user");
    np_json_text(json, "state_dir", np_is_known(call) ? service->start.dir : "");
    np_json_bool(json, "held", np_service_is_held(service));
    np_json_int(json, "queued", np_count_runs(service, NP_ENTRY_QUEUED));
    np_json_int(json, "running", np_count_runs(service, NP_ENTRY_RUNNING));
    write_caller(call);
    np_answer_json(call, 200);
}

/* {"held": BOOL} */
void np_route_hold_all(struct np_call *call)
{
    static const char *const keys[] = {"held", NULL};
    struct np_node *body = np_body_of(call, keys);
    struct np_err err = {0};
    bool held = false;

    if (!body)
        return;
    if (!np_node_get(body, "held") || !np_body_bool(body, "held", &held)) {
        np_answer_error(call, 400, "invalid", "expected {\"held\": true or false}");
    } else {
        const int code = np_service_hold_all(call->routes->service, held, &err);

        if (code < 0)
            np_answer_failure(call, code, &err);
        else
            np_route_service(call);
    }
    np_node_free(body);
}

void np_route_reload(struct np_call *call)
{
    struct np_err err = {0};

    if (np_service_reload(call->routes->service, &err) < 0)
        np_answer_error(call, 422, "config", "nothing is changed: %s", err.text);
    else
        np_answer_nothing(call);
}

/* --- tokens ----------------------------------------------------------------------------------- */

void np_route_new_token(struct np_call *call)
{
    const uid_t uid = call->request->caller.uid;
    char token[NP_SERVICE_TOKEN_BYTES];
    struct np_err err = {0};
    const int code = np_service_new_token(call->routes->service, uid, token, &err);

    if (code < 0) {
        np_answer_failure(call, code, &err);
        return;
    }
    np_json_begin(&call->routes->json, NULL);
    np_json_int(&call->routes->json, "uid", uid);
    np_json_text(&call->routes->json, "token", token);
    np_answer_json(call, 201);
}

/* Root may take back anybody's: of one who is not of the group any more, say. */
void np_route_drop_token(struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;
    const bool is_root =
        caller->uid == 0 || caller->uid == np_service_access(call->routes->service)->service_uid;
    int64_t uid = caller->uid;
    struct np_err err = {0};
    int code;

    if (!np_query_whole(call, "uid", 0, UINT32_MAX, &uid))
        return;
    if (uid != caller->uid && !is_root)
        np_answer_error(call, 403, "forbidden", "a token is taken back by its user, or by root");
    else if ((code = np_service_drop_token(call->routes->service, (uid_t)uid, &err)) < 0)
        np_answer_failure(call, code, &err);
    else
        np_answer_nothing(call);
}

/* --- the page --------------------------------------------------------------------------------- */

void np_route_page(struct np_call *call)
{
    struct np_asset asset;

    if (np_page_asset(call->request->path, &asset))
        np_answer_text(call, asset.type, asset.bytes, asset.nr_bytes, NULL);
    else
        np_answer_error(call, 404, "not_found", "there is no %s", call->request->path);
}
