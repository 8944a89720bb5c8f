#include "daemon/service/log_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/service/child.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define PAUSE_NS    200000000 /* between two checks for new output */
#define MAX_ITEMS   10000     /* of a folder: its owner may put more there */
#define BLOCK_BYTES 4096
#define MAX_SEGMENT 99999999

/* --- the log ---------------------------------------------------------------------------------- */

struct log {
    int folder; /* output/ */
    int segment;
    int64_t position;
};

/* Opens a regular file only: other types could block. */
static int open_file(int folder, const char *name, int64_t *ret_bytes)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat stat_;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &stat_) < 0 || !S_ISREG(stat_.st_mode)) {
        close(fd);
        return -ENOENT;
    }
    *ret_bytes = stat_.st_size;
    return fd;
}

static int open_segment(const struct log *log, int segment, int64_t *ret_bytes)
{
    char name[16];

    snprintf(name, sizeof(name), "%06d", segment);
    return open_file(log->folder, name, ret_bytes);
}

static void find_segments(int folder, int *ret_first, int *ret_last)
{
    const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *items = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *item;

    *ret_first = *ret_last = 0;
    for (int n = 0; items && n < MAX_ITEMS && (item = readdir(items)); n++) {
        const size_t digits = strspn(item->d_name, "0123456789");
        const int segment =
            digits >= 6 && digits <= 8 && !item->d_name[digits] ? atoi(item->d_name) : 0;

        if (segment == 0)
            continue;
        if (*ret_first == 0 || segment < *ret_first)
            *ret_first = segment;
        if (segment > *ret_last)
            *ret_last = segment;
    }
    if (items)
        closedir(items);
}

/* Searches a segment backwards for the newline that makes *left zero, and moves log behind it;
 * false: not in this segment. */
static bool find_line(struct log *log, int segment, int64_t *left)
{
    char block[BLOCK_BYTES];
    int64_t bytes = 0;
    const int fd = open_segment(log, segment, &bytes);
    bool found = false;

    for (int64_t end = fd < 0 ? 0 : bytes; end > 0 && !found;) {
        const int64_t begin = end > BLOCK_BYTES ? end - BLOCK_BYTES : 0;
        ssize_t i = pread(fd, block, (size_t)(end - begin), (off_t)begin);

        if (i < end - begin)
            break; /* the file was cut meanwhile */
        while (!found && i-- > 0)
            found = block[i] == '\n' && (*left)-- == 0;
        log->segment = segment;
        log->position = begin + i + 1;
        end = begin;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* Moves to the last lines, across segments. The newline at the very end does not begin a line. */
static void go_to_lines(struct log *log, int first, int last, int64_t lines)
{
    int64_t left = lines, bytes = 0;
    char end = '\n';
    const int fd = open_segment(log, last, &bytes);

    log->segment = last;
    log->position = bytes;
    if (fd >= 0 && bytes > 0 && pread(fd, &end, 1, (off_t)bytes - 1) != 1)
        end = '\n';
    if (fd >= 0)
        close(fd);
    left -= end != '\n';
    for (int segment = last; segment >= first; segment--)
        if (find_line(log, segment, &left))
            return;
}

/* Moves to the requested position; if it is gone, to the oldest one. */
static void go_to(struct log *log, const struct np_log_request *request)
{
    int64_t bytes = 0;
    int first, last, fd;

    find_segments(log->folder, &first, &last);
    log->segment = request->segment;
    log->position = request->position;
    if (request->segment == 0 && request->lines > 0 && last > 0) {
        go_to_lines(log, first, last, request->lines);
    } else if (request->segment == 0 && request->tail >= 0 && last > 0) {
        log->segment = last;
        if ((fd = open_segment(log, last, &bytes)) >= 0)
            close(fd);
        log->position = bytes > request->tail ? bytes - request->tail : 0;
    } else if (request->segment < first || request->segment == 0) {
        log->segment = first > 0 ? first : 1;
        log->position = 0;
    }
}

/* Reads up to NP_MAX_LOG bytes and moves the position. Returns the number of bytes. */
static size_t take(struct log *log, char *text)
{
    size_t used = 0;

    while (used < NP_MAX_LOG) {
        int64_t bytes;
        const int fd = open_segment(log, log->segment, &bytes);
        const int after =
            log->segment < MAX_SEGMENT
                ? open_segment(log, log->segment + 1, &bytes) /* then this segment is complete */
                : -ENOENT;
        const ssize_t nr =
            fd < 0 ? 0 : pread(fd, text + used, NP_MAX_LOG - used, (off_t)log->position);

        if (fd >= 0)
            close(fd);
        if (after >= 0)
            close(after);
        if (nr <= 0 && after < 0)
            break;
        used += nr > 0 ? (size_t)nr : 0;
        log->position = nr > 0 ? log->position + nr : 0;
        log->segment += nr > 0 ? 0 : 1;
    }
    return used;
}

static int open_folder(const char *dir)
{
    char *path = np_format("%s/output", dir);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    np_free(path);
    return fd;
}

static size_t await(struct log *log, const struct np_log_request *request, char *text)
{
    const uint64_t until_ns = np_now_ns() + (uint64_t)(request->wait_s * 1e9);
    size_t used;

    for (;;) {
        if (log->folder < 0)
            log->folder = open_folder(request->dir);
        if (log->segment == 0)
            go_to(log, request);
        used = take(log, text);
        if (used > 0 || np_now_ns() >= until_ns)
            return used;
        np_sleep_until_ns(np_now_ns() + PAUSE_NS);
    }
}

int np_reader_log(const void *context, int out_fd)
{
    const struct np_log_request *request = context;
    struct log log = {.folder = -1};
    char *text = np_try_alloc(NP_MAX_LOG, NULL), place[48];
    const size_t used = text ? await(&log, request, text) : 0;

    snprintf(place, sizeof(place), "%d:%lld\n", log.segment, (long long)log.position);
    const bool failed = !text || np_child_write(out_fd, place, strlen(place)) < 0 ||
                        np_child_write(out_fd, text, used) < 0;
    if (log.folder >= 0)
        close(log.folder);
    np_free(text);
    return failed;
}

/* --- metrics ---------------------------------------------------------------------------------- */

static bool is_object(const char *text, size_t bytes)
{
    struct np_node *node = NULL;
    const bool is = np_json_parse(text, bytes, &node, NULL) == 0 && node->kind == NP_NODE_MAP;

    np_node_free(node);
    return is;
}

/* Writes at most max whole lines and returns their bytes. An incomplete line is left for the next
 * call. */
static size_t write_points(FILE *out, const char *text, size_t bytes, int64_t max)
{
    size_t at = 0;

    for (int64_t n = 0; n < max;) {
        const char *end = at < bytes ? memchr(text + at, '\n', bytes - at) : NULL;
        const size_t nr = end ? (size_t)(end - (text + at)) : 0;

        if (!end)
            break;
        if (is_object(text + at, nr))
            fprintf(out, "%s%.*s", n++ ? ",\n" : "\n", (int)nr, text + at);
        at += nr + 1;
    }
    return at;
}

/* The position after the first newline from the byte before `from` on; -1: none. */
static int64_t line_at(int fd, int64_t from)
{
    char text[8192];

    if (from <= 0)
        return 0;
    for (int64_t at = from - 1;;) {
        const ssize_t nr = pread(fd, text, sizeof(text), (off_t)at);
        const char *end = nr > 0 ? memchr(text, '\n', (size_t)nr) : NULL;

        if (end)
            return at + (end - text) + 1;
        if (nr <= 0)
            return -1;
        at += nr;
    }
}

/* For a tail, its first whole line. Else `from` if a line begins there, and 0 if not: the file was
 * cut back (its run resumed from a checkpoint) and must be read again. */
static int64_t place_of_lines(int fd, const struct np_metrics_request *request, int64_t size)
{
    const int64_t at = line_at(fd, request->tail > 0 ? size - request->tail : request->from);

    if (request->tail > 0)
        return at < 0 ? size : at;
    return at == request->from ? at : 0;
}

/* Returns the next position. */
static int64_t write_metrics(
    FILE *out, const struct np_metrics_request *request, int fd, int64_t size)
{
    char *text = np_try_alloc(NP_MAX_METRICS, NULL);
    const int64_t from = place_of_lines(fd, request, size);
    const ssize_t nr = text ? pread(fd, text, NP_MAX_METRICS, (off_t)from) : 0;
    const size_t used = nr > 0 ? write_points(out, text, (size_t)nr, request->max_points) : 0;
    int64_t next = from + (int64_t)used;

    if (used == 0 && nr == (ssize_t)NP_MAX_METRICS) { /* not a run's: no line is so long */
        next = line_at(fd, from + 1);
        next = next < 0 ? from : next;
    }
    np_free(text);
    return next;
}

int np_reader_metrics(const void *context, int out_fd)
{
    const struct np_metrics_request *request = context;
    char *path = np_format("%s/metrics.jsonl", request->dir);
    int64_t next = 0, size = 0;
    FILE *out = fdopen(dup(out_fd), "w");
    const int fd = open_file(AT_FDCWD, path, &size);
    bool failed = !out;

    if (out) {
        fputs("{\"points\": [", out);
        if (fd >= 0)
            next = write_metrics(out, request, fd, size);
        fprintf(out, "], \"next\": %lld}\n", (long long)next);
        failed = fclose(out) != 0;
    }
    if (fd >= 0)
        close(fd);
    np_free(path);
    return failed;
}
