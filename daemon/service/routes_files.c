/* A run's config, log and metrics: read from its folder, with its owner's rights. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/routes_parts.h"
#include "daemon/service/service_parts.h"
#include "daemon/service/worker.h"
#include "loader/base/mem.h"

#define MOST_LOG     (256u << 10) /* of an answer */
#define MOST_METRICS (1u << 20)
#define NR_SEGMENTS  4 /* that a worker keeps */
#define WAIT_S       60.0

void np_route_config(struct np_call *call)
{
    np_answer_text(
        call, "application/yaml", call->entry->config, strlen(call->entry->config), NULL);
}

/* --- the log: SEG:POS names a byte of it, whatever was rotated away since ------------------------- */

static int open_segment(const struct np_entry *entry, int segment, off_t *ret_bytes)
{
    char *path = entry->dir ? np_format("%s/output/%06d", entry->dir, segment) : NULL;
    const int fd = path ? np_open_as(entry->uid, entry->gid, path, O_RDONLY) : -ENOENT;
    struct stat stat_;

    np_free(path);
    if (fd < 0)
        return fd;
    if (fstat(fd, &stat_) < 0 || !S_ISREG(stat_.st_mode)) {
        close(fd);
        return -ENOENT;
    }
    *ret_bytes = stat_.st_size;
    return fd;
}

/* The newest segment: from `from` on they are without a gap. 0: there is none. */
static int last_segment(const struct np_entry *entry, int from)
{
    off_t bytes;
    int fd, last = 0;

    for (int segment = from > 0 ? from : 1;; segment++) {
        if ((fd = open_segment(entry, segment, &bytes)) < 0) {
            if (last > 0 || segment >= from + 10000)
                return last;
            continue; /* rotated away */
        }
        close(fd);
        last = segment;
    }
}

/* Bytes from the place on, up to MOST_LOG; the place moves. Their number, into text (np_free). */
static size_t read_log(const struct np_entry *entry, int *segment, off_t *position, char *text)
{
    size_t used = 0;
    off_t bytes;
    int fd;

    while (used < MOST_LOG && (fd = open_segment(entry, *segment, &bytes)) >= 0) {
        off_t next;
        const int after = open_segment(entry, *segment + 1, &next); /* then this one is whole */
        const ssize_t nr = pread(fd, text + used, MOST_LOG - used, *position);

        close(fd);
        if (after >= 0)
            close(after);
        if (nr > 0) {
            used += (size_t)nr;
            *position += nr;
        } else if (after >= 0) {
            (*segment)++;
            *position = 0;
        } else {
            break;
        }
    }
    return used;
}

static void answer_log(struct np_call *call, int segment, off_t position)
{
    char *text = np_alloc(MOST_LOG), next[48];
    const size_t bytes = text ? read_log(call->entry, &segment, &position, text) : 0;

    snprintf(next, sizeof(next), "%d:%lld", segment, (long long)position);
    np_answer_text(call, "text/plain; charset=utf-8", text ? text : "", bytes, next);
    np_free(text);
}

static bool has_more(const struct np_entry *entry, int segment, off_t position)
{
    off_t bytes = 0;
    int fd = open_segment(entry, segment, &bytes);

    if (fd >= 0)
        close(fd);
    if (fd >= 0 && bytes > position)
        return true;
    if ((fd = open_segment(entry, segment + 1, &bytes)) >= 0)
        close(fd);
    return fd >= 0;
}

static bool take_place(const char *text, int *ret_segment, long long *ret_position)
{
    return sscanf(text, "%d:%lld", ret_segment, ret_position) == 2 && *ret_segment >= 0 &&
           *ret_segment < 100000000 && *ret_position >= 0;
}

/* The last so many bytes: of the newest segment, or with the one before it. */
static void go_to_tail(const struct np_entry *entry, long long bytes, int *segment, off_t *position)
{
    off_t size = 0;
    const int fd = open_segment(entry, *segment, &size);

    if (fd >= 0)
        close(fd);
    *position = size > bytes ? size - (off_t)bytes : 0;
}

void np_route_log(struct np_call *call)
{
    const char *from = np_http_query(call->request, "from"),
               *tail = np_http_query(call->request, "tail");
    const char *wait_text = np_http_query(call->request, "wait");
    const double seconds = wait_text ? fmin(strtod(wait_text, NULL), WAIT_S) : 0;
    long long at = 0;
    int segment = 0;
    struct np_wait *wait;

    if (from && !take_place(from, &segment, &at)) {
        np_answer_error(call, 400, "invalid", "from: SEGMENT:POSITION, as X-Next gave it");
        return;
    }
    off_t position = (off_t)at, bytes;
    const int fd = segment > 0 ? open_segment(call->entry, segment, &bytes) : -1;
    if (fd >= 0) {
        close(fd);
    } else { /* the start, or what it was is gone: the oldest that is left */
        const int last = last_segment(call->entry, segment);

        segment = tail && last > 0 ? last : last >= NR_SEGMENTS ? last - NR_SEGMENTS + 1 : 1;
        position = 0;
        if (tail)
            go_to_tail(call->entry, strtoll(tail, NULL, 10), &segment, &position);
    }
    if (!(seconds > 0) || has_more(call->entry, segment, position) ||
        np_entry_is_over(call->entry)) {
        answer_log(call, segment, position);
    } else if ((wait = np_answer_later(call))) {
        wait->until = np_service_now() + seconds;
        wait->segment = segment;
        wait->position = position;
    }
}

bool np_turn_log(struct np_routes *routes, struct np_wait *wait)
{
    struct np_call call = {.routes = routes,
        .request = wait->request,
        .held = wait->request->held,
        .id = wait->id,
        .entry = np_service_find(routes->service, wait->id)};

    if (!call.entry)
        np_answer_error(&call, 404, "not_found", "run %lld has been removed", (long long)wait->id);
    else if (np_service_now() >= wait->until || np_entry_is_over(call.entry) ||
             has_more(call.entry, wait->segment, wait->position))
        answer_log(&call, wait->segment, wait->position);
    else
        return false;
    return true;
}

/* --- metrics: lines of metrics.jsonl from a byte on ------------------------------------------------- */

static void write_points(
    struct np_call *call, const char *text, size_t bytes, long long from, long most)
{
    size_t at = 0;
    char *answer = NULL;
    size_t answer_bytes = 0;
    FILE *out = open_memstream(&answer, &answer_bytes);

    if (!out) {
        np_answer_error(call, 500, "internal", "out of memory");
        return;
    }
    fputs("{\"points\": [", out);
    for (long n = 0; n < most; n++) {
        const char *end = memchr(text + at, '\n', bytes - at);

        if (!end) /* a line under way is left out */
            break;
        fprintf(out, "%s%.*s", n ? ",\n" : "\n", (int)(end - (text + at)), text + at);
        at = (size_t)(end - text) + 1;
    }
    fprintf(out, "], \"next\": %lld}\n", from + (long long)at);
    fclose(out);
    np_answer_text(call, "application/json", answer, answer_bytes, NULL);
    free(answer);
}

/* Behind the first newline from the byte before the place on; 0 where there is none: the file was cut back
 * since (its run went on from a checkpoint), and what was read of it is to be read again. */
static off_t line_at(int fd, off_t from)
{
    char text[8192];

    for (off_t at = from - 1; from > 0;) {
        const ssize_t nr = pread(fd, text, sizeof(text), at);
        const char *end = nr > 0 ? memchr(text, '\n', (size_t)nr) : NULL;

        if (end)
            return at + (end - text) + 1;
        if (nr <= 0)
            break;
        at += nr;
    }
    return 0;
}

/* Where to read: at `from` if a line begins there, else at 0; of a tail, its first whole line. */
static off_t place_of_lines(int fd, long long from, long long tail)
{
    const off_t size = lseek(fd, 0, SEEK_END);

    if (tail > 0)
        return tail < size ? line_at(fd, size - (off_t)tail) : 0;
    return line_at(fd, (off_t)from) == (off_t)from ? (off_t)from : 0;
}

void np_route_metrics(struct np_call *call)
{
    const char *from_text = np_http_query(call->request, "from"),
               *most_text = np_http_query(call->request, "most"),
               *tail_text = np_http_query(call->request, "tail");
    long long from = from_text ? strtoll(from_text, NULL, 10) : 0;
    const long long tail = tail_text ? strtoll(tail_text, NULL, 10) : 0;
    const long most = most_text ? strtol(most_text, NULL, 10) : 5000;
    const struct np_entry *entry = call->entry;
    char *path = entry->dir ? np_format("%s/metrics.jsonl", entry->dir) : NULL;
    const int fd = path ? np_open_as(entry->uid, entry->gid, path, O_RDONLY) : -ENOENT;
    char *text = np_alloc(MOST_METRICS);
    ssize_t nr = 0;

    if (fd >= 0 && text && from >= 0) {
        from = place_of_lines(fd, from, tail);
        nr = pread(fd, text, MOST_METRICS, (off_t)from);
    }

    np_free(path);
    if (fd >= 0)
        close(fd);
    if (from < 0 || most < 1 || tail < 0)
        np_answer_error(
            call, 400, "invalid", "from: a byte, as next gave it; tail: bytes; most: at least 1");
    else
        write_points(call, text ? text : "", nr > 0 ? (size_t)nr : 0, from, most);
    np_free(text);
}
