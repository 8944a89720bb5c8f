/* The service itself: its devices, its health, its numbers for Prometheus, its page. */
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

static int count(const struct np_service *service, enum np_entry_state state)
{
    int nr, n = 0;
    const struct np_entry *const *entries = np_service_entries(service, &nr);

    for (int i = 0; i < nr; i++)
        n += entries[i]->state == state;
    return n;
}

static bool is_on(const struct np_entry *entry, const struct np_slotted *device)
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
            if (is_on(entries[i], &options->devices[d]))
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
    np_json_int(json, "queued", count(service, NP_ENTRY_QUEUED));
    np_json_int(json, "running", count(service, NP_ENTRY_RUNNING));
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

void np_route_health(struct np_call *call)
{
    np_json_begin(&call->routes->json, NULL);
    np_json_bool(&call->routes->json, "ok", true);
    np_answer_json(call, 200);
}

/* --- Prometheus' text format, version 0.0.4 ------------------------------------------------------- */

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Names are letters, digits, - _ . : nothing in them needs escaping. */
static void gauge_of_runs(FILE *out, const struct np_service *service, const char *name,
    const char *help, double (*value)(const struct np_said *said))
{
    int nr;
    const struct np_entry *const *entries = np_service_entries(service, &nr);

    head(out, name, "gauge", help);
    for (int i = 0; i < nr; i++) {
        struct np_said said;

        if (!np_entry_has_worker(entries[i]))
            continue;
        np_service_said(service, entries[i]->id, &said);
        if (said.said > 0 && !isnan(value(&said)))
            fprintf(out, "%s{id=\"%lld\",name=\"%s\",device=\"%s\"} %.10g\n", name,
                (long long)entries[i]->id, entries[i]->name, entries[i]->assigned, value(&said));
    }
}

static double step_of(const struct np_said *said)
{
    return said->step;
}
static double loss_of(const struct np_said *said)
{
    return said->loss;
}
static double accuracy_of(const struct np_said *said)
{
    return said->accuracy;
}
static double rate_of(const struct np_said *said)
{
    return said->images_per_second;
}
static double stall_of(const struct np_said *said)
{
    return said->stall_ratio;
}

static void write_devices(FILE *out, const struct np_service *service)
{
    const struct np_service_options *options = np_service_options(service);
    int nr;
    const struct np_entry *const *entries = np_service_entries(service, &nr);

    head(out, "nnpipe_device_slots", "gauge", "Runs that a device is given at a time.");
    for (int d = 0; d < options->nr_devices; d++)
        fprintf(out, "nnpipe_device_slots{device=\"%s\"} %d\n", options->devices[d].name,
            options->devices[d].nr_slots);
    head(out, "nnpipe_device_runs", "gauge", "Runs that a device has.");
    for (int d = 0; d < options->nr_devices; d++) {
        int n = 0;

        for (int i = 0; i < nr; i++)
            n += is_on(entries[i], &options->devices[d]);
        fprintf(out, "nnpipe_device_runs{device=\"%s\"} %d\n", options->devices[d].name, n);
    }
}

void np_route_prometheus(struct np_call *call)
{
    const struct np_service *service = call->routes->service;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out) {
        np_answer_error(call, 500, "internal", "out of memory");
        return;
    }
    head(out, "nnpipe_info", "gauge", "The program.");
    fprintf(out, "nnpipe_info{version=\"%s\"} 1\n", NP_COMMIT);
    head(out, "nnpipe_start_time_seconds", "gauge", "When the service was started.");
    fprintf(out, "nnpipe_start_time_seconds %.3f\n", service->began);
    head(out, "nnpipe_runs", "gauge", "Runs of the queue by state.");
    for (int s = 0; s < NP_NR_ENTRY_STATES; s++)
        fprintf(out, "nnpipe_runs{state=\"%s\"} %d\n", np_entry_states[s],
            count(service, (enum np_entry_state)s));
    write_devices(out, service);
    gauge_of_runs(out, service, "nnpipe_run_step", "Steps done.", step_of);
    gauge_of_runs(out, service, "nnpipe_run_loss", "Training loss, lately.", loss_of);
    gauge_of_runs(
        out, service, "nnpipe_run_accuracy_ratio", "Of the last evaluation.", accuracy_of);
    gauge_of_runs(out, service, "nnpipe_run_images_per_second", "Lately.", rate_of);
    gauge_of_runs(out, service, "nnpipe_run_stall_ratio",
        "Of the time, lately, in which the device had nothing to do for want of a batch.",
        stall_of);
    fclose(out);
    np_answer_text(call, "text/plain; version=0.0.4; charset=utf-8", text, bytes, NULL);
    free(text);
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
