/* Does it live, and can it do its duty? For everybody, and for Prometheus. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "daemon/service/http/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "loader/base/clock.h"

#define KNOWN_NS    2000000000 /* that an answer of the disk's holds for */
#define PROBE_BYTES 65536      /* more than the queue's next changes take */

/* --- health ----------------------------------------------------------------------------------- */

/* Some bytes without a name, and gone when they are closed. -errno: what the queue would meet, too. */
static int probe(const char *dir)
{
    static const char nothing[PROBE_BYTES];
    const int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    int code = 0;

    if (fd < 0)
        return errno == EOPNOTSUPP || errno == EISDIR ? 0
                                                      : -errno; /* such a file system: no word */
    for (size_t used = 0; used < PROBE_BYTES && code == 0;) {
        const ssize_t nr = write(fd, nothing + used, PROBE_BYTES - used);

        if (nr <= 0)
            code = nr < 0 ? -errno : -ENOSPC;
        else
            used += (size_t)nr;
    }
    close(fd);
    return code;
}

const char *np_health_problem(struct np_routes *routes)
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
        snprintf(health->problem, sizeof(health->problem), "%s: the queue cannot be written: %s",
            dir, strerror(-code));
    return health->problem;
}

/* The service itself is well with them: they are listed, and `ok` stays. */
static void write_suspects(struct np_json *json, const struct np_service_options *options)
{
    char text[400];

    for (int i = 0; i < options->nr_devices; i++)
        if (np_device_is_suspect(&options->devices[i].health)) {
            snprintf(text, sizeof(text), "%s is set aside, starts die there: %s",
                options->devices[i].name, options->devices[i].health.why);
            np_json_text(json, NULL, text);
        }
}

static void write_limits(struct np_json *json, const struct np_service *service)
{
    char text[NP_LIMITS_TEXT];

    if (np_service_lacks_limits(service, text, sizeof(text)))
        np_json_text(json, NULL, text);
}

void np_route_health(struct np_call *call)
{
    struct np_json *json = &call->routes->json;
    const char *problem = np_health_problem(call->routes);
    const bool stops = call->routes->service->stopping, ok = !*problem && !stops;

    np_json_begin(json, NULL);
    np_json_bool(json, "ok", ok);
    np_json_text(json, "state", stops ? "stopping" : "serving");
    np_json_open(json, "problems", '[');
    if (*problem)
        np_json_text(json, NULL, problem);
    if (*np_service_problem(call->routes->service))
        np_json_text(json, NULL, np_service_problem(call->routes->service));
    write_limits(json, call->routes->service);
    write_suspects(json, np_service_options(call->routes->service));
    np_json_close(json, ']');
    np_answer_json(call, ok ? 200 : 503);
}

/* --- Prometheus' text format, version 0.0.4 ------------------------------------------------------- */

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
    {"nnpipe_run_step", "Steps done; fewer where a run went back to a checkpoint.", AT(step)},
    {"nnpipe_run_planned_steps", "Steps that it will have done when it ends.", AT(total_steps)},
    {"nnpipe_run_epoch", "Epochs done, with their fraction.", AT(epoch)},
    {"nnpipe_run_loss", "Training loss, lately.", AT(loss)},
    {"nnpipe_run_accuracy_ratio", "Of the last evaluation.", AT(accuracy)},
    {"nnpipe_run_images_per_second", "Lately.", AT(images_per_second)},
    {"nnpipe_run_stall_ratio",
        "Of the time, lately, in which the device had nothing to do for want of a batch.",
        AT(stall_ratio)},
    {"nnpipe_run_remaining_seconds", "Until it ends, as it goes now.", AT(eta_seconds)},
    {"nnpipe_run_report_timestamp_seconds", "When its process last said something.", AT(said)},
};

/* Of runs that have a process: those that wait or are over leave no series behind. */
static void write_gauge(FILE *out, const struct np_service *service, const struct gauge *gauge)
{
    int nr;
    const struct np_entry *const *entries = np_service_entries(service, &nr);

    head(out, gauge->name, "gauge", gauge->help);
    for (int i = 0; i < nr; i++) {
        const struct np_progress *progress;
        double value;

        if (!np_entry_has_worker(entries[i]))
            continue;
        progress = np_service_progress(service, entries[i]->id);
        memcpy(&value, (const char *)progress + gauge->offset, sizeof(value));
        if (isnan(progress->said) || isnan(value))
            continue;
        fprintf(out, "%s{id=\"%lld\",", gauge->name, (long long)entries[i]->id);
        label(out, "name", entries[i]->name);
        fputc(',', out);
        label(out, "device", entries[i]->assigned);
        fprintf(out, "} %.15g\n", value);
    }
}

static void write_devices(FILE *out, const struct np_service *service)
{
    const struct np_service_options *options = np_service_options(service);
    int nr;
    const struct np_entry *const *entries = np_service_entries(service, &nr);

    for (int what = 0; what < 2; what++) {
        const char *name = what ? "nnpipe_device_runs" : "nnpipe_device_slots";

        head(out, name, "gauge",
            what ? "Runs that a device has." : "Runs that a device is given at a time.");
        for (int d = 0; d < options->nr_devices; d++) {
            int n = what ? 0 : options->devices[d].nr_slots;

            for (int i = 0; what && i < nr; i++)
                n += np_is_on_device(entries[i], &options->devices[d]);
            fprintf(out, "%s{", name);
            label(out, "device", options->devices[d].name);
            fprintf(out, "} %d\n", n);
        }
    }
}

static void write_suspect_gauge(FILE *out, const struct np_service_options *options)
{
    head(out, "nnpipe_device_suspect", "gauge",
        "1 where start after start died: no run is started there for a while.");
    for (int d = 0; d < options->nr_devices; d++) {
        fputs("nnpipe_device_suspect{", out);
        label(out, "device", options->devices[d].name);
        fprintf(out, "} %d\n", np_device_is_suspect(&options->devices[d].health));
    }
}

static void write_service(FILE *out, struct np_routes *routes)
{
    const struct np_service *service = routes->service;

    head(out, "nnpipe_info", "gauge", "The program.");
    fputs("nnpipe_info{", out);
    label(out, "version", NP_COMMIT);
    fputs("} 1\n", out);
    head(out, "nnpipe_start_time_seconds", "gauge", "When the service was started.");
    fprintf(out, "nnpipe_start_time_seconds %.3f\n", service->began);
    head(out, "nnpipe_healthy", "gauge", "As /healthz says: 0 where something is wrong.");
    fprintf(out, "nnpipe_healthy %d\n", !*np_health_problem(routes) && !service->stopping);
    head(out, "nnpipe_http_responses_total", "counter", "Answers by the class of their status.");
    for (int class = 2; class <= 5; class ++)
        fprintf(out, "nnpipe_http_responses_total{class=\"%dxx\"} %llu\n", class,
            (unsigned long long)routes->answers[class]);
    head(out, "nnpipe_runs", "gauge", "Runs of the queue by state.");
    for (int s = 0; s < NP_NR_ENTRY_STATES; s++)
        fprintf(out, "nnpipe_runs{state=\"%s\"} %d\n", np_entry_states[s],
            np_count_runs(service, (enum np_entry_state)s));
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
    write_suspect_gauge(out, np_service_options(service));
    for (size_t i = 0; i < sizeof(gauges) / sizeof(*gauges); i++)
        write_gauge(out, service, &gauges[i]);
    if (fclose(out) == 0)
        np_answer_text(call, "text/plain; version=0.0.4; charset=utf-8", text, bytes, NULL);
    else
        np_answer_error(call, 500, "internal", "out of memory");
    free(text);
}
