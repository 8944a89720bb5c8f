/* STATE/devices has a line for each device: its name, and after a space why it is gone. */
#include "daemon/service/devices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MAX_S     30
#define AGAIN_S   60.0 /* between two runs of `nnpipe devices`, if the first gave no answer */
#define MAX_BYTES (256u << 10)
#define SUSPECTED "waiting for"

static int be_finder(const void *context, int out_fd)
{
    const char *const words[] = {"nnpipe", "devices", "--json", NULL};

    if (dup2(out_fd, STDOUT_FILENO) >= 0)
        execv("/proc/self/exe", (char *const *)words);
    return 1;
}

/* --- parsing an answer ------------------------------------------------------------------------ */

static bool is_gpu(const char *name)
{
    return strncmp(name, "cuda:", 5) == 0;
}

static int add(struct np_slotted *devices, int nr, const char *name, int nr_slots, const char *gone)
{
    if (nr == NP_MAX_DEVICES || !*name || strlen(name) >= sizeof(devices->name))
        return nr;
    devices[nr] = (struct np_slotted){.nr_slots = nr_slots};
    snprintf(devices[nr].name, sizeof(devices[nr].name), "%s", name);
    snprintf(devices[nr].gone, sizeof(devices[nr].gone), "%s", gone);
    return nr + 1;
}

static bool has(const struct np_slotted *devices, int nr, const char *name)
{
    for (int i = 0; i < nr; i++)
        if (strcmp(devices[i].name, name) == 0)
            return true;
    return false;
}

/* Logs a GPU that exists but cannot be used: `auto` leaves it out. */
static void take_line(const struct np_node *line, int nr_slots, const struct np_slotted *before,
    int nr_before, struct np_slotted *devices, int *nr)
{
    const char *name = np_node_text(line, "name"), *why = np_node_text(line, "reason");

    if (strcmp(name, "sim") == 0)
        return;
    if (np_node_is(np_node_get(line, "usable"), "true"))
        *nr = add(devices, *nr, name, nr_slots, "");
    else if (is_gpu(name) && has(before, nr_before, name))
        *nr = add(devices, *nr, name, 0, *why ? why : "it cannot be used");
    else if (is_gpu(name) && *np_node_text(line, "seen"))
        fprintf(stderr, "nnpipe daemon: devices: auto leaves out %s: %s\n", name, why);
}

int np_devices_take(const char *text, int nr_slots, struct np_slotted *devices, int nr)
{
    struct np_slotted now[NP_MAX_DEVICES];
    int nr_now = 0;

    for (const char *at = text; *at;) {
        const size_t bytes = strcspn(at, "\n");
        struct np_node *line = NULL;

        if (np_json_parse(at, bytes, &line, NULL) == 0)
            take_line(line, nr_slots, devices, nr, now, &nr_now);
        np_node_free(line);
        at += bytes + (at[bytes] == '\n');
    }
    for (int i = 0; i < nr; i++)
        if (is_gpu(devices[i].name) && !has(now, nr_now, devices[i].name))
            nr_now = add(now, nr_now, devices[i].name, 0, "it is not found");
    for (int i = 0; i < nr_now; i++) /* keep the counts of deaths */
        for (int k = 0; k < nr; k++)
            if (strcmp(now[i].name, devices[k].name) == 0)
                now[i].health = devices[k].health;
    memcpy(devices, now, (size_t)nr_now * sizeof(*now));
    return nr_now;
}

static char *path_of(const struct np_service *service)
{
    return np_format("%s/devices", service->start.dir);
}

/* Loads the last answer; without one, runs wait for GPUs that may exist. */
static void take_known(struct np_service *service)
{
    struct np_service_options *options = &service->options;
    char *path = path_of(service), *text = NULL;
    uint64_t bytes;

    if (np_read_file(path, 4096, &text, &bytes, NULL) == 0)
        for (char *at = text, *gone; (gone = strsep(&at, "\n"));) {
            const char *name = strsep(&gone, " ");

            options->nr_devices = add(options->devices, options->nr_devices, name,
                gone ? 0 : options->auto_slots, gone ? gone : "");
        }
    if (options->nr_devices == 0) {
        options->nr_devices = add(options->devices, 0, "cpu", options->auto_slots, "");
        options->nr_devices =
            add(options->devices, 1, "cuda", 0, "the service is still looking for GPUs");
    }
    np_free(text);
    np_free(path);
}

static void write_known(const struct np_service *service)
{
    const struct np_service_options *options = &service->options;
    char *path = path_of(service), text[NP_MAX_DEVICES * sizeof(*options->devices)];
    int bytes = 0;

    for (int i = 0; i < options->nr_devices; i++)
        bytes += sprintf(text + bytes, *options->devices[i].gone ? "%s %s\n" : "%s\n",
            options->devices[i].name, options->devices[i].gone);
    np_write_file(path, text, (uint64_t)bytes, 0, NULL); /* on failure the next start asks again */
    np_free(path);
}

/* --- reasons to wait -------------------------------------------------------------------------- */

/* Writes why no device can take the run; false: a device can, or could if it were free. */
static bool is_missing(
    const struct np_service *service, const struct np_entry *entry, char *text, size_t bytes)
{
    const struct np_service_options *options = &service->options;
    const struct np_slotted *gone = NULL;
    const int nr = np_entry_processes(entry);
    int slots = 0;

    for (int i = 0; i < options->nr_devices; i++) {
        if (!np_dispatch_suits(options->devices, options->nr_devices, entry, i))
            continue;
        if (options->devices[i].nr_slots > 0)
            slots += is_gpu(options->devices[i].name) ? 1 : options->devices[i].nr_slots;
        else
            gone = gone ? gone : &options->devices[i];
    }
    if (slots >= nr)
        return false;
    if (gone)
        snprintf(
            text, bytes, "%s cannot be used: %s; the run waits for it", gone->name, gone->gone);
    else if (slots > 0)
        snprintf(text, bytes,
            "the service's settings now have room for %d of its %d processes; the run waits for "
            "more",
            slots, nr);
    else if (*entry->kind && strcmp(entry->device, "auto") == 0)
        snprintf(text, bytes,
            "the run started on a %s, and this service no longer has one; it waits for one",
            strcmp(entry->kind, "gpu") == 0 ? "GPU" : entry->kind);
    else
        snprintf(text, bytes,
            "the service's settings now list no device '%s'; the run waits for it", entry->device);
    return true;
}

void np_devices_mark_missing(struct np_service *service)
{
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];
        char why[sizeof(run->entry.reason)];

        if (run->entry.state == NP_ENTRY_QUEUED &&
            is_missing(service, &run->entry, why, sizeof(why)))
            np_book_set_reason(service, run, "%s", why);
    }
}

static struct np_slotted *find(const struct np_service *service, const char *name)
{
    for (int i = 0; i < service->options.nr_devices; i++)
        if (strcmp(service->options.devices[i].name, name) == 0)
            return &service->options.devices[i];
    return NULL;
}

/* --- devices of a run ------------------------------------------------------------------------- */

void np_devices_text(const struct np_service *service, uint64_t devices, const char *between,
    char *text, size_t room)
{
    size_t used = 0;

    *text = '\0';
    for (int i = 0; i < service->options.nr_devices && used < room; i++)
        if (devices >> i & 1)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? between : "",
                service->options.devices[i].name);
}

/* Sets since when devices are kept free for a run; a restart of the service keeps its turn. */
static void set_reserves(struct np_service *service, struct np_service_run *run, double since)
{
    struct np_entry to = run->entry;

    to.reserves = since;
    np_book_commit(service, run, &to, NULL); /* on failure the next turn repeats it */
}

void np_devices_reserve(
    struct np_service *service, struct np_service_run *run, const struct np_order *order)
{
    if (run->entry.reserves == 0)
        set_reserves(service, run, np_book_now());
    service->version += run->reserved != order->devices || run->nr_reserved != order->nr_slots;
    run->reserved = order->devices;
    run->nr_reserved = order->nr_slots;
}

void np_devices_release(struct np_service *service, const struct np_order *orders, int nr)
{
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];
        bool kept = false;

        if (run->entry.reserves == 0 && run->nr_reserved == 0)
            continue;
        for (int o = 0; o < nr; o++)
            kept |= orders[o].entry == i &&
                    (orders[o].kind == NP_ORDER_RESERVE ||
                        (orders[o].kind == NP_ORDER_START && run->entry.state == NP_ENTRY_QUEUED));
        if (kept)
            continue;
        run->reserved = 0;
        run->nr_reserved = 0;
        service->version++;
        if (run->entry.reserves > 0)
            set_reserves(service, run, 0);
    }
}

/* Sets `drained` of a device, or `held`. */
static void mark(void *context, const char *device)
{
    struct np_service *service = context;
    struct np_slotted *drained = find(service, device);

    service->held |= strcmp(device, NP_ALL_DEVICES) == 0;
    if (drained)
        drained->drained = true;
}

int np_devices_drain(struct np_service *service, const char *name, bool drained, struct np_err *err)
{
    struct np_slotted *device = find(service, name);

    if (!device)
        return np_err_set(err, -ENOENT, "this service has no device '%s'", name);
    const int code = np_queue_drain(service->queue, name, drained, err);
    if (code == 0)
        device->drained = drained;
    if (code == 0 && !drained) /* the administrator trusts it: forget its deaths */
        device->health = (struct np_device_health){0};
    service->version++;
    return code;
}

void np_devices_mark_suspect(struct np_service *service)
{
    const struct np_service_options *options = &service->options;

    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];
        const struct np_entry *entry = &run->entry;
        const int d = entry->state == NP_ENTRY_QUEUED
                          ? np_dispatch_suspect(options->devices, options->nr_devices, entry)
                          : -1;

        if (d < 0 || strncmp(entry->reason, SUSPECTED, strlen(SUSPECTED)) == 0)
            continue;
        np_book_set_reason(service, run,
            SUSPECTED
            " %s, which is suspect: %d starts in a row died there, the last one: %.200s; the "
            "service tries it again within %.0f minutes, or after `nnpipe undrain %s`",
            options->devices[d].name, options->devices[d].health.nr_deaths,
            options->devices[d].health.why, NP_SUSPECT_TRIAL_S / 60, options->devices[d].name);
    }
}

int np_devices_hold_all(struct np_service *service, bool held, struct np_err *err)
{
    const int code = np_queue_drain(service->queue, NP_ALL_DEVICES, held, err);

    if (code == 0)
        service->held = held;
    service->version++;
    return code;
}

/* --- running `nnpipe devices` ----------------------------------------------------------------- */

static void start_finder(struct np_service *service)
{
    const struct np_child_start start = {.uid = geteuid(),
        .gid = getegid(),
        .work = be_finder,
        .epoll_fd = service->epoll_fd,
        .max_s = MAX_S,
        .max_bytes = MAX_BYTES};
    struct np_err err = {0};

    service->find_at = np_book_ticks() + AGAIN_S;
    if (np_child_start(&start, &service->finder, &err) < 0)
        fprintf(stderr, "nnpipe daemon: devices: auto: %s\n", err.text);
}

int np_devices_begin(struct np_service *service, struct np_err *err)
{
    np_child_stop(&service->finder);
    service->find_at = 0;
    if (service->options.auto_slots > 0) {
        take_known(service);
        start_finder(service);
    } else { /* with a list, runs do not wait for GPUs that are gone */
        char *path = path_of(service);

        unlink(path);
        np_free(path);
    }
    return np_queue_drained(service->queue, mark, service, err);
}

static void take_answer(struct np_service *service)
{
    struct np_service_options *options = &service->options;

    options->nr_devices = np_devices_take(
        service->finder.text, options->auto_slots, options->devices, options->nr_devices);
    write_known(service);
    np_queue_drained(service->queue, mark, service, NULL);
    service->find_at = 0;
    service->version++;
    np_devices_mark_missing(service);
}

void np_devices_turn(struct np_service *service)
{
    const int code = service->finder.pid > 0 ? np_child_turn(&service->finder) : 0;

    if (code == 1 && service->finder.used > 0)
        take_answer(service);
    else if (code != 0)
        fprintf(stderr,
            "nnpipe daemon: devices: auto: `nnpipe devices` %s; its last answer stays valid\n",
            code == -ETIMEDOUT ? "did not answer within 30 s" : "gave no answer");
    if (code != 0)
        np_child_stop(&service->finder);
    if (service->finder.pid == 0 && service->find_at > 0 && np_book_ticks() >= service->find_at)
        start_finder(service);
}
