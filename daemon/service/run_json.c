#include "daemon/service/run_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/service/devices.h"
#include "daemon/service/service_limits.h"

/* A text of the run's process: other users' terminals show it, so it becomes one line without
 * control characters. */
static void write_word(struct np_json *json, const char *key, const char *text)
{
    char line[512];

    snprintf(line, sizeof(line), "%s", text);
    np_text_clean(line);
    np_json_text(json, key, line);
}

/* Writes what keeps a queued run from starting; "": nothing. */
static void explain_wait(
    const struct np_service *service, const struct np_service_run *run, char *text, size_t bytes)
{
    const struct np_service_options *options = &service->options;
    const int drained = np_dispatch_drained(options->devices, options->nr_devices, &run->entry);
    char names[256];

    *text = '\0';
    if (service->held)
        snprintf(text, bytes, "the whole queue is held; `nnpipe release --all` lets runs start");
    else if (drained >= 0)
        snprintf(text, bytes, "%s is drained; `nnpipe undrain %s` lets runs start there",
            options->devices[drained].name, options->devices[drained].name);
    else if (run->full && np_entry_processes(&run->entry) > 1)
        snprintf(text, bytes,
            "it waits until other runs of its owner end: their processes, and its %d, may be %lld "
            "at a time (limits.running_per_user)",
            np_entry_processes(&run->entry), (long long)options->limits.running_per_user);
    else if (run->full)
        snprintf(text, bytes,
            "it waits until another run of its owner ends: %lld may run at a time "
            "(limits.running_per_user)",
            (long long)options->limits.running_per_user);
    else if (run->nr_reserved > 0) {
        np_devices_text(service, run->reserved, ", ", names, sizeof(names));
        snprintf(text, bytes, "it waits for %d slots, and %d %s kept free for it: %s",
            np_entry_processes(&run->entry), run->nr_reserved, run->nr_reserved > 1 ? "are" : "is",
            names);
    }
}

static void write_reason(
    const struct np_service *service, struct np_json *json, const struct np_service_run *run)
{
    const struct np_entry *entry = &run->entry;
    char text[400] = "";

    if (!*entry->reason && entry->state == NP_ENTRY_QUEUED)
        explain_wait(service, run, text, sizeof(text));
    write_word(json, "reason", *text ? text : entry->reason);
}

static void write_time(struct np_json *json, const char *key, double time)
{
    np_json_real(json, key, time > 0 ? time : NAN);
}

static void write_progress(struct np_json *json, const struct np_progress *progress)
{
    if (isnan(progress->said)) {
        np_json_null(json, "progress");
        return;
    }
    np_json_open(json, "progress", '{');
    np_progress_write(json, progress, false);
    np_json_close(json, '}');
}

/* "cuda:0,cuda:1" */
static void write_devices(struct np_json *json, const char *assigned)
{
    char name[NP_ASSIGNED];

    np_json_open(json, "devices", '[');
    for (size_t bytes; *assigned; assigned += bytes + (assigned[bytes] == ',')) {
        bytes = strcspn(assigned, ",");
        snprintf(name, sizeof(name), "%.*s", (int)bytes, assigned);
        np_json_text(json, NULL, name);
    }
    np_json_close(json, ']');
}

static void write_overrides(struct np_json *json, const char *lines)
{
    char line[512];

    np_json_open(json, "overrides", '[');
    for (size_t bytes; lines && *lines; lines += bytes + (lines[bytes] == '\n')) {
        bytes = strcspn(lines, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)bytes, lines);
        np_text_clean(line);
        np_json_text(json, NULL, line);
    }
    np_json_close(json, ']');
}

void np_service_write_run(const struct np_service *service, struct np_json *json,
    const struct np_service_run *run, bool whole)
{
    const struct np_entry *entry = &run->entry;

    np_json_int(json, "id", entry->id);
    np_json_text(json, "name", entry->name);
    np_json_text(json, "sweep", *entry->sweep ? entry->sweep : NULL);
    np_json_text(json, "state", np_entry_states[entry->state]);
    np_json_text(json, "owner", whole ? np_book_owner(service, entry) : "");
    np_json_real(json, "uid", whole ? (double)entry->uid : NAN);
    np_json_text(json, "path", whole ? entry->path : "");
    np_json_text(json, "device", entry->device);
    np_json_text(json, "assigned", *entry->assigned ? entry->assigned : NULL);
    np_json_int(json, "processes", np_entry_processes(entry));
    write_devices(json, entry->assigned);
    np_json_int(json, "reserved", run->nr_reserved);
    np_json_int(json, "priority", entry->priority);
    np_json_open(json, "after", '[');
    for (int i = 0; i < entry->nr_after; i++)
        np_json_int(json, NULL, entry->after[i]);
    np_json_close(json, ']');
    np_json_int(json, "max_retries", entry->max_retries);
    np_json_int(json, "retries", entry->retries);
    np_json_int(json, "attempts", entry->attempt);
    write_time(json, "time_limit", entry->time_limit_s);
    np_json_real(json, "ran", np_service_ran(run));
    np_json_real(json, "memory", entry->memory_bytes > 0 ? (double)entry->memory_bytes : NAN);
    np_json_real(json, "cpus", entry->cpus > 0 ? entry->cpus : NAN);
    write_overrides(json, whole ? entry->overrides : NULL);
    if (whole)
        write_reason(service, json, run);
    else
        np_json_text(json, "reason", "");
    np_json_text(json, "dir", whole ? entry->dir : NULL);
    np_json_real(json, "exit_code", entry->exit_code >= 0 ? (double)entry->exit_code : NAN);
    write_time(json, "submitted", entry->submitted);
    write_time(json, "started", entry->started);
    write_time(json, "ended", entry->ended);
    write_time(json, "not_before", entry->not_before);
    write_progress(json, &run->progress);
}
