/* Routes of the service itself: devices, settings, tokens, health, metrics for Prometheus, and
 * the page. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/service/devices.h"
#include "daemon/service/http/answer.h"
#include "daemon/service/service.h"
#include "daemon/service/service_limits.h"
#include "daemon/service/service_queue.h"
#include "daemon/ui/page.h"
#include "loader/base/clock.h"

#define KNOWN_NS    2000000000 /* validity of a probe of the disk */
#define PROBE_BYTES 65536      /* more than the queue's next changes need */

static int count_runs(const struct np_service *service, enum np_entry_state state)
{
    int n = 0;

    for (int i = 0; i < service->nr_runs; i++)
        n += service->entries[i]->state == state;
    return n;
}

static bool is_on_device(const struct np_entry *entry, const struct np_slotted *device)
{
    return np_entry_has_worker(entry) && np_entry_slots_on(entry, device->name) > 0;
}

static int nr_busy_of(const struct np_service *service, const struct np_slotted *device)
{
    int n = 0;

    for (int i = 0; i < service->nr_runs; i++)
        if (np_entry_has_worker(service->entries[i]))
            n += np_entry_slots_on(service->entries[i], device->name);
    return n;
}

/* The run of several processes for which slots of the device are kept free; NULL: none. */
static const struct np_service_run *reserver_of(
    const struct np_service *service, const struct np_slotted *device)
{
    const int index = (int)(device - service->options.devices);

    for (int i = 0; i < service->nr_runs; i++)
        if (service->runs[i]->reserved >> index & 1)
            return service->runs[i];
    return NULL;
}

static int nr_reserved_of(const struct np_service *service, const struct np_slotted *device)
{
    const struct np_service_run *run = reserver_of(service, device);

    return !run ? 0 : strcmp(np_dispatch_kind(device->name), "gpu") == 0 ? 1 : run->nr_reserved;
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
    const struct np_service *service = call->routes->service;
    const struct np_service_options *options = &service->options;
    struct np_json *json = &call->routes->json;

    np_json_begin(json, NULL);
    np_json_open(json, "devices", '[');
    for (int d = 0; d < options->nr_devices; d++) {
        const struct np_slotted *device = &options->devices[d];
        const char *why = np_device_is_suspect(&device->health) ? device->health.why : "";
        const struct np_service_run *reserver = reserver_of(service, device);

        np_json_open(json, NULL, '{');
        np_json_text(json, "name", device->name);
        np_json_int(json, "slots", device->nr_slots);
        np_json_text(json, "state", state_of(device));
        np_json_text(json, "reason", *device->gone ? device->gone : why);
        np_json_open(json, "runs", '[');
        for (int i = 0; i < service->nr_runs; i++)
            if (is_on_device(service->entries[i], device))
                np_json_int(json, NULL, service->entries[i]->id);
        np_json_close(json, ']');
        np_json_int(json, "busy", nr_busy_of(service, device));
        np_json_int(json, "reserved", nr_reserved_of(service, device));
        np_json_real(json, "reserved_for", reserver ? (double)reserver->entry.id : NAN);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_answer_json(call, 200);
}

void np_route_drain(struct np_call *call)
{
    static const char *const keys[] = {"device", "drained", NULL};
    struct np_node *body = np_body_of(call, keys);
    const char *device = np_body_text(body, "device", NULL, 31);
    struct np_err err = {0};
    bool drained;

    if (body && (!device || !np_body_bool(body, "drained", &drained)))
        np_answer_error(
            call, 400, "invalid", "expected {\"device\": NAME, \"drained\": true or false}");
    else if (body && !np_answer_failed(call,
                         np_devices_drain(call->routes->service, device, drained, &err), &err))
        np_route_devices(call);
    np_node_free(body);
}

/* The page shows its caller. */
static void write_caller(struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;
    struct np_json *json = &call->routes->json;

    np_json_open(json, "caller", '{');
    np_json_real(json, "uid", caller->socket || caller->user ? (double)caller->uid : NAN);
    np_json_bool(json, "token", caller->token || caller->user);
    np_json_bool(json, "all_runs",
        np_access_may(&call->routes->service->access, caller, NP_ACTION_CONTROL, (uid_t)-1));
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
    np_json_bool(json, "held", service->held);
    np_json_int(json, "queued", count_runs(service, NP_ENTRY_QUEUED));
    np_json_int(json, "running", count_runs(service, NP_ENTRY_RUNNING));
    write_caller(call);
    np_answer_json(call, 200);
}

void np_route_hold_all(struct np_call *call)
{
    static const char *const keys[] = {"held", NULL};
    struct np_node *body = np_body_of(call, keys);
    struct np_err err = {0};
    bool held;

    if (body && !np_body_bool(body, "held", &held))
        np_answer_error(call, 400, "invalid", "expected {\"held\": true or false}");
    else if (body &&
             !np_answer_failed(call, np_devices_hold_all(call->routes->service, held, &err), &err))
        np_route_service(call);
    np_node_free(body);
}

void np_route_reload(struct np_call *call)
{
    struct np_err err = {0};

    if (np_service_reload(call->routes->service, &err) < 0)
        np_answer_error(call, 422, "config", "the settings are unchanged: %s", err.text);
    else
        np_answer_nothing(call);
}

void np_route_new_token(struct np_call *call)
{
    const uid_t uid = call->request->caller.uid;
    char token[NP_TOKEN_CHARS + 1];
    struct np_err err = {0};
    const int code = np_service_new_token(call->routes->service, uid, token, &err);

    if (np_answer_failed(call, code, &err))
        return;
    np_json_begin(&call->routes->json, NULL);
    np_json_int(&call->routes->json, "uid", uid);
    np_json_text(&call->routes->json, "token", token);
    np_answer_json(call, 201);
}

/* Root may revoke any user's token, such as after the user has left the group. */
void np_route_drop_token(struct np_call *call)
{
    const struct np_caller *caller = &call->request->caller;
    const bool is_root =
        caller->uid == 0 || caller->uid == call->routes->service->access.service_uid;
    int64_t uid = caller->uid;
    struct np_err err = {0};

    if (!np_query_whole(call, "uid", 0, UINT32_MAX, &uid))
        return;
    if (uid != caller->uid && !is_root)
        np_answer_error(call, 403, "forbidden", "only its user, or root, can revoke a token");
    else if (!np_answer_failed(
                 call, np_queue_drop_token(call->routes->service->queue, (uid_t)uid, &err), &err))
        np_answer_nothing(call);
}

/* --- health ----------------------------------------------------------------------------------- */

/* Writes to an unnamed file, which disappears at its close. -errno: the queue would fail with this,
 * too. */
static int probe(const char *dir)
{
    static const char nothing[PROBE_BYTES];
    const int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0) /* without O_TMPFILE in the file system, its state is unknown */
        return errno == EOPNOTSUPP || errno == EISDIR ? 0 : -errno;
    const ssize_t nr = write(fd, nothing, PROBE_BYTES);
    const int code = nr < 0 ? -errno : nr < PROBE_BYTES ? -ENOSPC : 0;
    close(fd);
    return code;
}

static const char *problem_of(struct np_routes *routes)
{
    struct np_health *health = &routes->health;
    const char *dir = routes->service->start.dir;

    if (routes->service->replaced)
        return NP_REPLACED ", which starts no runs until then";
    if (np_now_ns() < health->until_ns)
        return health->problem;
    const int code = probe(dir);
    health->until_ns = np_now_ns() + KNOWN_NS;
    health->problem[0] = '\0';
    if (code < 0)
        snprintf(health->problem, sizeof(health->problem), "%s: cannot write the queue: %s", dir,
            strerror(-code));
    return health->problem;
}

/* Lists suspect devices; the service works despite them, so `ok` stays true. */
static void write_suspects(struct np_json *json, const struct np_service_options *options)
{
    char text[400];

    for (int i = 0; i < options->nr_devices; i++)
        if (np_device_is_suspect(&options->devices[i].health)) {
            snprintf(text, sizeof(text), "%s is suspect, starts die there: %s",
                options->devices[i].name, options->devices[i].health.why);
            np_json_text(json, NULL, text);
        }
}

void np_route_health(struct np_call *call)
{
    struct np_json *json = &call->routes->json;
    const char *problem = problem_of(call->routes);
    const struct np_service *service = call->routes->service;
    const bool stops = service->stopping, ok = !*problem && !stops;
    char lacking[NP_LIMITS_TEXT];

    np_json_begin(json, NULL);
    np_json_bool(json, "ok", ok);
    np_json_text(json, "state", stops ? "stopping" : "serving");
    np_json_open(json, "problems", '[');
    if (*problem)
        np_json_text(json, NULL, problem);
    if (*service->problem)
        np_json_text(json, NULL, service->problem);
    if (np_service_lacks_limits(service, lacking, sizeof(lacking)))
        np_json_text(json, NULL, lacking);
    write_suspects(json, &service->options);
    np_json_close(json, ']');
    np_answer_json(call, ok ? 200 : 503);
}

/* --- Prometheus' text format, version 0.0.4 --------------------------------------------------- */

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* key="text" */
static void label(FILE *out, const char *key, const char *text)
{
    fprintf(out, "%s=\"", key);
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    fputc('"', out);
}

struct gauge {
    const char *name, *help;
    size_t offset; /* of a double in struct np_progress */
};
#define AT(member) offsetof(struct np_progress, member)
static const struct gauge gauges[] = {
    {"nnpipe_run_step", "Steps done; decreases when a run resumes from a checkpoint.", AT(step)},
    {"nnpipe_run_planned_steps", "Steps of the whole run.", AT(total_steps)},
    {"nnpipe_run_epoch", "Epochs done, with fractions.", AT(epoch)},
    {"nnpipe_run_loss", "Recent training loss.", AT(loss)},
    {"nnpipe_run_accuracy_ratio", "Accuracy of the last evaluation.", AT(accuracy)},
    {"nnpipe_run_images_per_second", "Recent rate of training.", AT(images_per_second)},
    {"nnpipe_run_stall_ratio", "Fraction of recent time in which the device waited for a batch.",
        AT(stall_ratio)},
    {"nnpipe_run_remaining_seconds", "Predicted time until the end.", AT(eta_seconds)},
    {"nnpipe_run_report_timestamp_seconds", "When its process last reported.", AT(said)},
};

/* Only running runs have a series. */
static void write_gauge(FILE *out, const struct np_service *service, const struct gauge *gauge)
{
    head(out, gauge->name, "gauge", gauge->help);
    for (int i = 0; i < service->nr_runs; i++) {
        const struct np_progress *progress = &service->runs[i]->progress;
        double value;

        memcpy(&value, (const char *)progress + gauge->offset, sizeof(value));
        if (!np_entry_has_worker(service->entries[i]) || isnan(progress->said) || isnan(value))
            continue;
        fprintf(out, "%s{id=\"%lld\",", gauge->name, (long long)service->entries[i]->id);
        label(out, "name", service->entries[i]->name);
        fputc(',', out);
        label(out, "device", service->entries[i]->assigned);
        fprintf(out, "} %.15g\n", value);
    }
}

static int nr_slots_of(const struct np_service *service, const struct np_slotted *device)
{
    return device->nr_slots;
}

static int nr_runs_of(const struct np_service *service, const struct np_slotted *device)
{
    int n = 0;

    for (int i = 0; i < service->nr_runs; i++)
        n += is_on_device(service->entries[i], device);
    return n;
}

static int suspect_of(const struct np_service *service, const struct np_slotted *device)
{
    return np_device_is_suspect(&device->health);
}

static void write_devices(FILE *out, const struct np_service *service)
{
    static const struct {
        const char *name, *help;
        int (*value)(const struct np_service *service, const struct np_slotted *device);
    } rows[] = {
        {"nnpipe_device_slots", "Runs at a time on the device.", nr_slots_of},
        {"nnpipe_device_runs", "Runs on the device.", nr_runs_of},
        {"nnpipe_device_busy_slots", "Slots that the processes of these runs take.", nr_busy_of},
        {"nnpipe_device_reserved_slots",
            "Slots kept free, or about to become free, for a waiting run of several processes.",
            nr_reserved_of},
        {"nnpipe_device_suspect",
            "1 if several starts in a row died: no run is started there for a while.", suspect_of},
    };
    const struct np_service_options *options = &service->options;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        head(out, rows[i].name, "gauge", rows[i].help);
        for (int d = 0; d < options->nr_devices; d++) {
            fprintf(out, "%s{", rows[i].name);
            label(out, "device", options->devices[d].name);
            fprintf(out, "} %d\n", rows[i].value(service, &options->devices[d]));
        }
    }
}

static void write_service(FILE *out, struct np_routes *routes)
{
    const struct np_service *service = routes->service;

    head(out, "nnpipe_info", "gauge", "Version of the program.");
    fputs("nnpipe_info{", out);
    label(out, "version", NP_COMMIT);
    fputs("} 1\n", out);
    head(out, "nnpipe_start_time_seconds", "gauge", "When the service was started.");
    fprintf(out, "nnpipe_start_time_seconds %.3f\n", service->began);
    head(out, "nnpipe_healthy", "gauge", "As in /healthz: 0 if something is wrong.");
    fprintf(out, "nnpipe_healthy %d\n", !*problem_of(routes) && !service->stopping);
    head(out, "nnpipe_http_responses_total", "counter", "Responses by class of status.");
    for (int class = 2; class <= 5; class ++)
        fprintf(out, "nnpipe_http_responses_total{class=\"%dxx\"} %llu\n", class,
            (unsigned long long)routes->answers[class]);
    head(out, "nnpipe_runs", "gauge", "Runs in the queue by state.");
    for (int s = 0; s < NP_NR_ENTRY_STATES; s++)
        fprintf(out, "nnpipe_runs{state=\"%s\"} %d\n", np_entry_states[s],
            count_runs(service, (enum np_entry_state)s));
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
    write_service(out, call->routes);
    write_devices(out, service);
    for (size_t i = 0; i < sizeof(gauges) / sizeof(*gauges); i++)
        write_gauge(out, service, &gauges[i]);
    if (fclose(out) == 0)
        np_answer_text(call, "text/plain; version=0.0.4; charset=utf-8", text, bytes, NULL);
    else
        np_answer_error(call, 500, "internal", "out of memory");
    free(text);
}

void np_route_page(struct np_call *call)
{
    struct np_asset asset;

    if (np_page_asset(call->request->path, &asset))
        np_answer_text(call, asset.type, asset.bytes, asset.nr_bytes, NULL);
    else
        np_answer_error(call, 404, "not_found", "there is no %s", call->request->path);
}
