/* Routes of runs: list, show, change; config; log and metrics, which a child with the owner's
 * rights reads from the run's folder. */
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "daemon/service/http/answer.h"
#include "daemon/service/service_queue.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"

#define MAX_PRIORITY 100
#define MAX_PATTERN  100
#define READ_S       10.0 /* time limit of a read */

/* owner: "ann" or "1000". */
static bool is_of(const struct np_service *service, const struct np_entry *entry, const char *owner)
{
    char number[24];

    snprintf(number, sizeof(number), "%u", (unsigned)entry->uid);
    return strcmp(owner, number) == 0 || strcmp(owner, np_book_owner(service, entry)) == 0;
}

struct filter {
    const struct np_service *service;
    unsigned states;                  /* one bit each; 0: any */
    const char *owner, *name, *sweep; /* name: a pattern; NULL: any */
    int64_t after, limit, tail;
};

static bool passes(const struct filter *filter, const struct np_entry *entry)
{
    return entry->id > filter->after &&
           (!filter->states || (filter->states & 1u << entry->state)) &&
           (!filter->owner || is_of(filter->service, entry, filter->owner)) &&
           (!filter->name || fnmatch(filter->name, entry->name, 0) == 0) &&
           (!filter->sweep || strcmp(filter->sweep, entry->sweep) == 0);
}

/* False: answered with 400. */
static bool take_filter(struct np_call *call, struct filter *filter)
{
    *filter = (struct filter){.service = call->routes->service,
        .owner = np_http_query(call->request, "owner"),
        .name = np_http_query(call->request, "name"),
        .sweep = np_http_query(call->request, "sweep"),
        .limit = INT64_MAX,
        .tail = INT64_MAX};
    if (filter->name && strlen(filter->name) > MAX_PATTERN) {
        np_answer_error(call, 400, "invalid", "name: a pattern has at most %d bytes", MAX_PATTERN);
        return false;
    }
    return np_query_states(call, "state", &filter->states) &&
           np_query_whole(call, "after", 0, INT64_MAX, &filter->after) &&
           np_query_whole(call, "limit", 1, INT64_MAX, &filter->limit) &&
           np_query_whole(call, "tail", 1, INT64_MAX, &filter->tail);
}

void np_route_list(struct np_call *call)
{
    struct filter filter;
    const struct np_service *service = call->routes->service;
    int nr = service->nr_runs, first = 0;

    if (!take_filter(call, &filter) || np_answer_unchanged(call))
        return;
    if (filter.owner && !np_is_known(call))
        nr = 0; /* else the caller could find out the owners of runs */
    if (filter.tail < nr)
        for (first = nr; first > 0 && filter.tail > 0; first--)
            filter.tail -= passes(&filter, service->entries[first - 1]);
    np_json_begin(&call->routes->json, NULL);
    np_json_open(&call->routes->json, "runs", '[');
    for (int i = first; i < nr && filter.limit > 0; i++)
        if (passes(&filter, service->entries[i])) {
            np_write_run(call, service->runs[i]);
            filter.limit--;
        }
    np_json_close(&call->routes->json, ']');
    np_answer_tagged(call);
}

static bool turn_state(struct np_call *call, struct np_wait *wait)
{
    if (np_now_ns() < wait->until_ns && (wait->states & 1u << call->run->entry.state))
        return false;
    np_answer_run(call, call->run, 200);
    return true;
}

void np_route_show(struct np_call *call)
{
    double seconds = 0;
    unsigned states;
    struct np_wait *wait;

    if (!np_query_states(call, "state", &states) || !np_query_seconds(call, "wait", &seconds))
        return;
    if (seconds == 0 || !(states & 1u << call->run->entry.state)) {
        np_answer_run(call, call->run, 200);
    } else if ((wait = np_answer_later(call, turn_state))) {
        wait->until_ns += (uint64_t)(seconds * 1e9);
        wait->states = states;
    }
}

static void answer_changed(struct np_call *call, int code, const struct np_err *err)
{
    if (!np_answer_failed(call, code, err))
        np_answer_run(call, call->run, 200);
}

void np_route_change(struct np_call *call)
{
    struct np_err err = {0};
    const int code = call->change(call->routes->service, call->run, &err);

    answer_changed(call, code == -EALREADY ? 0 : code, &err);
}

/* The body, {"time_limit": seconds}, is optional. */
void np_route_retry(struct np_call *call)
{
    static const char *const keys[] = {"time_limit", NULL};
    const bool bare = call->request->body_bytes == 0;
    struct np_node *body = bare ? NULL : np_body_of(call, keys);
    double time_limit_s = -1;
    struct np_err err = {0};

    if (body && !np_body_seconds(body, "time_limit", &time_limit_s))
        np_answer_error(call, 400, "invalid", "\"time_limit\": seconds, above 0, or null");
    else if (body || bare)
        answer_changed(
            call, np_service_retry(call->routes->service, call->run, time_limit_s, &err), &err);
    np_node_free(body);
}

void np_route_remove(struct np_call *call)
{
    struct np_err err = {0};
    const int code = np_service_remove(call->routes->service, call->run, &err);

    if (!np_answer_failed(call, code, &err))
        np_answer_nothing(call);
}

void np_route_patch(struct np_call *call)
{
    static const char *const keys[] = {"priority", "time_limit", NULL};
    struct np_node *body = np_body_of(call, keys);
    int64_t priority = INT64_MAX;
    double time_limit_s = -1;
    struct np_err err = {0};

    if (!body)
        return;
    if (!np_body_whole(body, "priority", -MAX_PRIORITY, MAX_PRIORITY, &priority) ||
        !np_body_seconds(body, "time_limit", &time_limit_s) ||
        (priority == INT64_MAX && time_limit_s < 0)) {
        np_answer_error(call, 400, "invalid",
            "expected {\"priority\": -100..100, \"time_limit\": seconds or null}");
    } else if (priority == INT64_MAX ||
               !np_answer_high_priority(call, priority, call->run->entry.priority)) {
        answer_changed(call,
            np_service_change(call->routes->service, call->run, priority, time_limit_s, &err),
            &err);
    }
    np_node_free(body);
}

static void write_leaf(void *json, const char *path, const char *text)
{
    np_json_text(json, path, text);
}

/* {"keys": {"optimizer.sgd.lr": "0.1", ...}} */
static void answer_keys(struct np_call *call, const char *text)
{
    struct np_json *json = &call->routes->json;
    struct np_node *config = NULL;
    struct np_report report;

    np_report_init(&report, "config");
    if (np_yaml_parse(text, strlen(text), &config, &report) < 0) {
        np_answer_error(call, 500, "internal", "the config cannot be read: %s",
            report.nr_errs ? report.errs[0].text : "out of memory");
    } else {
        np_json_begin(json, NULL);
        np_json_open(json, "keys", '{');
        np_node_leaves(config, write_leaf, json);
        np_json_close(json, '}');
        np_answer_json(call, 200);
    }
    np_report_fini(&report);
    np_node_free(config);
}

void np_route_config(struct np_call *call)
{
    struct np_err err = {0};
    int64_t flat = 0;
    char *text;

    if (!np_query_whole(call, "flat", 0, 1, &flat))
        return;
    const int code = np_queue_text(call->routes->service->queue, call->id, &text, NULL, &err);

    if (np_answer_failed(call, code, &err))
        return;
    if (flat)
        answer_keys(call, text);
    else
        np_answer_text(call, "application/yaml", text, strlen(text), NULL);
    np_free(text);
}

static void answer_unread(struct np_call *call, int code)
{
    if (code == -ETIMEDOUT)
        np_answer_error(call, 500, "internal", "the storage of the run's folder hangs");
    else
        np_answer_error(call, 503, "busy", "the run's folder cannot be read now; retry later");
}

static bool start_read(struct np_call *call, struct np_wait *wait, np_child_fn *work,
    const void *query, double max_s, size_t max_bytes)
{
    const struct np_child_start start = {.uid = call->run->entry.uid,
        .gid = call->run->entry.gid,
        .work = work,
        .context = query,
        .epoll_fd = call->routes->epoll_fd,
        .max_s = max_s,
        .max_bytes = max_bytes};
    struct np_err err = {0};

    if (np_child_start(&start, &wait->child, &err) == 0)
        return true;
    answer_unread(call, err.code);
    return false;
}

/* text: "SEGMENT:POSITION", as in X-Next. */
static bool take_place(const char *text, int *ret_segment, int64_t *ret_position)
{
    int64_t segment;
    const char *end = np_text_int_end(text, &segment);

    if (!end || *end != ':' || segment < 0 || segment > 99999999 ||
        !np_text_int(end + 1, 0, INT64_MAX, ret_position))
        return false;
    *ret_segment = (int)segment;
    return true;
}

static void answer_log(struct np_call *call, const struct np_child *child)
{
    char *text = memchr(child->text, '\n', child->used);

    if (!text) {
        answer_unread(call, -ECHILD);
        return;
    }
    *text++ = '\0';
    np_answer_text(call, "text/plain; charset=utf-8", text,
        child->used - (size_t)(text - child->text), child->text);
}

/* The log of a finished run does not grow, so its reader does not wait. */
static bool turn_log(struct np_call *call, struct np_wait *wait)
{
    struct np_log_request *query = &wait->log;

    if (query->wait_s > 0 && np_entry_is_finished(&call->run->entry)) {
        np_child_stop(&wait->child);
        query->wait_s = 0;
    }
    query->dir = call->run->entry.dir;
    if (wait->child.pid == 0)
        return !start_read(
            call, wait, np_reader_log, query, query->wait_s + READ_S, NP_MAX_LOG + 64);
    const int code = np_child_turn(&wait->child);
    if (code == 1)
        answer_log(call, &wait->child);
    else if (code < 0)
        answer_unread(call, code);
    return code != 0;
}

void np_route_log(struct np_call *call)
{
    const char *from = np_http_query(call->request, "from");
    struct np_log_request query = {.tail = -1};
    struct np_wait *wait;

    if (from && !take_place(from, &query.segment, &query.position)) {
        np_answer_error(call, 400, "invalid", "from: expected SEGMENT:POSITION, as in X-Next");
        return;
    }
    if (!np_query_whole(call, "tail", 0, INT64_MAX, &query.tail) ||
        !np_query_whole(call, "lines", 1, INT64_MAX, &query.lines) ||
        !np_query_seconds(call, "wait", &query.wait_s))
        return;
    if (!call->run->entry.dir)
        np_answer_text(call, "text/plain; charset=utf-8", "", 0, "0:0");
    else if ((wait = np_answer_later(call, turn_log)))
        wait->log = query; /* the next turn starts the read */
}

static bool turn_metrics(struct np_call *call, struct np_wait *wait)
{
    wait->metrics.dir = call->run->entry.dir;
    if (wait->child.pid == 0)
        return !start_read(
            call, wait, np_reader_metrics, &wait->metrics, READ_S, 2 * NP_MAX_METRICS);
    const int code = np_child_turn(&wait->child);
    if (code == 1 && wait->child.used > 0)
        np_answer_text(call, "application/json", wait->child.text, wait->child.used, NULL);
    else if (code != 0)
        answer_unread(call, code == 1 ? -ECHILD : code);
    return code != 0;
}

void np_route_metrics(struct np_call *call)
{
    static const char none[] = "{\"points\": [], \"next\": 0}\n";
    struct np_metrics_request query = {.dir = call->run->entry.dir, .max_points = 5000};
    struct np_wait *wait;

    if (!np_query_whole(call, "from", 0, INT64_MAX, &query.from) ||
        !np_query_whole(call, "tail", 0, INT64_MAX, &query.tail) ||
        !np_query_whole(call, "most", 1, 1000000, &query.max_points))
        return;
    if (!query.dir)
        np_answer_text(call, "application/json", none, strlen(none), NULL);
    else if ((wait = np_answer_later(call, turn_metrics)))
        wait->metrics = query;
}
