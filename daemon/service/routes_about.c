/* The service itself: its devices, its settings, its page. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/service/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "daemon/service/page.h"

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

/* What the page needs to know of who looks at it. */
static void write_caller(struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;
    struct np_json *json = &call->routes->json;

    np_json_open(json, "caller", '{');
    np_json_real(json, "uid", caller->socket ? (double)caller->uid : NAN);
    np_json_bool(json, "token", caller->token);
    np_json_bool(json, "all_runs",
        np_access_may(
            np_service_access(call->routes->service), caller, NP_DEED_CONTROL, (uid_t)-1));
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
    np_json_text(json, "state_dir", service->start.dir);
    np_json_int(json, "queued", np_count_runs(service, NP_ENTRY_QUEUED));
    np_json_int(json, "running", np_count_runs(service, NP_ENTRY_RUNNING));
    write_caller(call);
    np_answer_json(call, 200);
}

void np_route_reload(struct np_call *call)
{
    struct np_err err = {0};

    if (np_service_reload(call->routes->service, &err) < 0)
        np_answer_error(call, 422, "config", "nothing is changed: %s", err.text);
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
