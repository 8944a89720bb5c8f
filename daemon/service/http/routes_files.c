/* A run's config, and its log and metrics: read from its folder by a child with its owner's rights. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/http/routes_parts.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define READ_S 10.0 /* a read that takes longer hangs */

void np_route_config(struct np_call *call)
{
    struct np_err err = {0};
    char *text;
    const int code = np_service_config(call->routes->service, call->id, &text, &err);

    if (code < 0) {
        np_answer_failure(call, code, &err);
        return;
    }
    np_answer_text(call, "application/yaml", text, strlen(text), NULL);
    np_free(text);
}

/* The child has ended without a word, or cannot be started. */
static void answer_unread(struct np_call *call, int code)
{
    if (code == -ETIMEDOUT)
        np_answer_error(call, 500, "internal", "the run's folder does not answer: its disk hangs");
    else
        np_answer_error(call, 503, "busy", "the run's folder cannot be read now; ask again later");
}

static bool start_read(struct np_call *call, struct np_wait *wait, np_child_fn *work,
    const void *wish, double max_s, size_t most)
{
    const struct np_child_start start = {.uid = call->entry->uid,
        .gid = call->entry->gid,
        .work = work,
        .context = wish,
        .epoll_fd = call->routes->epoll_fd,
        .max_s = max_s,
        .most = most};
    struct np_err err = {0};

    if (np_child_start(&start, &wait->child, &err) == 0)
        return true;
    answer_unread(call, err.code);
    return false;
}

/* --- the log ---------------------------------------------------------------------------------- */

/* "SEGMENT:POSITION", as X-Next gave it. */
static bool take_place(const char *text, int *ret_segment, int64_t *ret_position)
{
    const size_t digits = strspn(text, "0123456789"),
                 more = text[digits] == ':' ? strspn(text + digits + 1, "0123456789") : 0;

    if (digits == 0 || digits > 8 || more == 0 || more > 18 || text[digits + 1 + more])
        return false;
    *ret_segment = atoi(text);
    *ret_position = strtoll(text + digits + 1, NULL, 10);
    return true;
}

void np_route_log(struct np_call *call)
{
    const char *from = np_http_query(call->request, "from");
    struct np_log_wish wish = {.tail = -1};
    struct np_wait *wait;

    if (from && !take_place(from, &wish.segment, &wish.position)) {
        np_answer_error(call, 400, "invalid", "from: SEGMENT:POSITION, as X-Next gave it");
        return;
    }
    if (!np_query_whole(call, "tail", 0, INT64_MAX, &wish.tail) ||
        !np_query_whole(call, "lines", 1, INT64_MAX, &wish.lines) ||
        !np_query_seconds(call, "wait", &wish.wait_s))
        return;
    if (!call->entry->dir)
        np_answer_text(call, "text/plain; charset=utf-8", "", 0, "0:0");
    else if ((wait = np_answer_later(call, NP_WAIT_LOG)))
        wait->log = wish; /* the next turn starts its read */
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

/* A run that is over says nothing more: what there is is read at once. */
static bool start_log(struct np_call *call, struct np_wait *wait)
{
    if (np_entry_is_over(call->entry))
        wait->log.wait_s = 0;
    wait->log.dir = call->entry->dir;
    return start_read(
        call, wait, np_reader_log, &wait->log, wait->log.wait_s + READ_S, NP_MAX_LOG + 64);
}

bool np_turn_log(struct np_routes *routes, struct np_wait *wait)
{
    struct np_call call = np_call_of(routes, wait);

    if (!call.entry) {
        np_answer_error(&call, 404, "not_found", "run %lld has been removed", (long long)wait->id);
        return true;
    }
    if (wait->child.pid > 0 && wait->log.wait_s > 0 && np_entry_is_over(call.entry))
        np_child_stop(&wait->child);
    if (wait->child.pid == 0)
        return !start_log(&call, wait);
    const int code = np_child_turn(&wait->child);
    if (code == 1)
        answer_log(&call, &wait->child);
    else if (code < 0)
        answer_unread(&call, code);
    return code != 0;
}

/* --- metrics ---------------------------------------------------------------------------------- */

void np_route_metrics(struct np_call *call)
{
    static const char none[] = "{\"points\": [], \"next\": 0}\n";
    struct np_metrics_wish wish = {.dir = call->entry->dir, .most = 5000};
    struct np_wait *wait;

    if (!np_query_whole(call, "from", 0, INT64_MAX, &wish.from) ||
        !np_query_whole(call, "tail", 0, INT64_MAX, &wish.tail) ||
        !np_query_whole(call, "most", 1, 1000000, &wish.most))
        return;
    if (!wish.dir)
        np_answer_text(call, "application/json", none, strlen(none), NULL);
    else if ((wait = np_answer_later(call, NP_WAIT_METRICS)))
        wait->metrics = wish;
}

bool np_turn_metrics(struct np_routes *routes, struct np_wait *wait)
{
    struct np_call call = np_call_of(routes, wait);

    if (!call.entry) {
        np_answer_error(&call, 404, "not_found", "run %lld has been removed", (long long)wait->id);
        return true;
    }
    wait->metrics.dir = call.entry->dir;
    if (wait->child.pid == 0)
        return !start_read(
            &call, wait, np_reader_metrics, &wait->metrics, READ_S, 2 * NP_MAX_METRICS);
    const int code = np_child_turn(&wait->child);
    if (code == 1 && wait->child.used > 0)
        np_answer_text(&call, "application/json", wait->child.text, wait->child.used, NULL);
    else if (code != 0)
        answer_unread(&call, code == 1 ? -ECHILD : code);
    return code != 0;
}
