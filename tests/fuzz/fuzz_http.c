/* Hostile bytes at the service's sockets: libmicrohttpd, http.c and all routes over a queue with runs in it. The first
 * byte says how the rest is sent:
 *   s, t   unchanged, to the Unix socket or to the one served as TCP
 *   j, J   "METHOD TARGET\n" and a body, made into a whole request, likewise (J with the token)
 * and what follows a byte 0x1e is what the check of a submission says, which is its submitter's word.
 * For any bytes the service continues, and every body of type JSON is JSON. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/service/http/http.h"
#include "daemon/service/http/answer.h"
#include "daemon/service/http/routes.h"
#include "daemon/service/service.h"
#include "daemon/service/service_queue.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define TOKEN      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define MAX_SENT   (3u << 19)
#define MAX_ANSWER (4u << 20)
#define JUMP_NS    100000000000 /* longer than anything is waited for */

struct place {
    char dir[64], config[80], sockets[2][80], runs[80];
    struct np_service *service;
    struct np_routes *routes;
    struct np_http *http;
    uint64_t version, nr_inputs;
};

static struct place place;
static uint64_t ahead_ns;    /* of the clock */
static const uint8_t *check; /* what the check under way says */
static size_t check_bytes;

/* --- what stands in for the rest of the world --------------------------------------------------- */

uint64_t __real_np_now_ns(void);
uint64_t __wrap_np_now_ns(void);
uint64_t __wrap_np_now_ns(void)
{
    return __real_np_now_ns() + ahead_ns;
}

static int say_check(const void *context, int out_fd)
{
    (void)context;
    return np_child_write(out_fd, check, check_bytes) < 0;
}

int __wrap_np_checker_start(
    const struct np_check *check_, int epoll_fd, struct np_child *ret_child, struct np_err *err);
int __wrap_np_checker_start(
    const struct np_check *check_, int epoll_fd, struct np_child *ret_child, struct np_err *err)
{
    const struct np_child_start start = {.uid = check_->uid,
        .gid = check_->gid,
        .work = say_check,
        .epoll_fd = epoll_fd,
        .max_s = 60,
        .max_bytes = 4u << 20};

    return np_child_start(&start, ret_child, err);
}

/* --- the service ------------------------------------------------------------------------------ */

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_http: %s\n", what);
    abort();
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    need(file && fputs(text, file) >= 0 && fclose(file) == 0, path);
}

static void add_run(int n)
{
    struct np_entry entry = {.uid = getuid(),
        .gid = getgid(),
        .path = "/tmp/a.yaml",
        .config = "name: a\n",
        .dir = place.runs,
        .max_retries = 3,
        .device = "cpu"};
    int64_t id;
    bool known;
    char path[160];

    snprintf(entry.name, sizeof(entry.name), "a");
    snprintf(entry.key, sizeof(entry.key), "%032d", n);
    need(np_service_submit(place.service, &entry, &id, &known, NULL) == 0, "submit");
    snprintf(path, sizeof(path), "%s/a-%d", place.runs, (int)id);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/a-%d/output", place.runs, (int)id);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/a-%d/output/000002", place.runs, (int)id);
    put(path, "one\ntwo\n");
    snprintf(path, sizeof(path), "%s/a-%d/metrics.jsonl", place.runs, (int)id);
    put(path, "{\"step\": 1}\n{\"step\": 2}\n");
}

static void open_service(void)
{
    const struct np_service_start start = {.dir = place.dir, .config = place.config, .socket = ""};
    char path[160];

    for (int i = 0; i < 3; i++) {
        static const char *const files[] = {"queue.db", "queue.db-wal", "queue.db-shm"};

        snprintf(path, sizeof(path), "%s/%s", place.dir, files[i]);
        unlink(path);
    }
    need(np_service_open(&start, &place.service, NULL) == 0, "np_service_open");
    for (int i = 0; i < 3; i++)
        add_run(i);
    need(np_service_stop(place.service, np_book_run(place.service, 3), NULL) == 0,
        "stop"); /* a finished run */
    if (place.routes)
        place.routes->service = place.service;
    place.version = place.service->version;
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 64) == 0, path);
    return fd;
}

static void clean_up(void)
{
    char command[128];

    np_http_close(place.http);
    np_routes_free(place.routes);
    np_service_close(place.service);
    snprintf(command, sizeof(command), "rm -rf %s", place.dir);
    need(system(command) == 0, command);
}

static void set_up(void)
{
    struct np_http_options options = {.group = (gid_t)-1,
        .token = TOKEN,
        .max_connections = 64,
        .allows = np_routes_allow,
        .handler = np_routes_handle};

    snprintf(place.dir, sizeof(place.dir), "%s/nnpipe-fuzz.XXXXXX",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    need(mkdtemp(place.dir) != NULL, "mkdtemp");
    snprintf(place.config, sizeof(place.config), "%s/service.yaml", place.dir);
    put(place.config, "devices: [cpu]\n");
    snprintf(place.runs, sizeof(place.runs), "%s/runs", place.dir);
    mkdir(place.runs, 0700);
    open_service();
    need(np_routes_new(place.service, &place.routes, NULL) == 0, "np_routes_new");
    for (int i = 0; i < 2; i++) {
        snprintf(place.sockets[i], sizeof(place.sockets[i]), "%s/%d", place.dir, i);
        *(i ? &options.tcp_fd : &options.socket_fd) = listen_at(place.sockets[i]);
    }
    options.context = place.routes;
    need(np_http_open(&options, &place.http, NULL) == 0, "np_http_open");
    atexit(clean_up);
}

static void turn(void)
{
    np_http_turn(place.http);
    np_routes_turn(place.routes);
    np_http_turn(place.http);
}

/* --- a request -------------------------------------------------------------------------------- */

static int dial(int which)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", place.sockets[which]);
    need(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
    return fd;
}

/* Sends all of it, and takes what comes, until the service closes, or there is nothing more for a while. */
static size_t talk(int fd, const char *bytes, size_t nr, char *answer, size_t room)
{
    size_t sent = 0, used = 0;
    bool closed = false;

    for (int quiet = 0; quiet < 4 && !closed;) {
        const ssize_t n = sent < nr ? send(fd, bytes + sent, nr - sent, MSG_NOSIGNAL) : 0;

        sent += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno == EPIPE)
            sent = nr;
        turn();
        const ssize_t got = recv(fd, answer + used, room - used, 0);
        used += got > 0 ? (size_t)got : 0;
        closed = got == 0;
        quiet = n > 0 || got > 0 ? 0 : quiet + 1;
        if (n <= 0 && got < 0 && place.routes->nr_waits > 0 && quiet < 3) {
            usleep(300);
            quiet = place.routes->waits[0].child.pid ? quiet - 1 : quiet;
        }
    }
    return used;
}

/* The first answer: what it calls JSON is JSON. */
static void look_at(const char *answer, size_t bytes)
{
    const char *head_end = memmem(answer, bytes, "\r\n\r\n", 4), *field;
    struct np_node *node = NULL;
    size_t length;

    if (bytes == 0)
        return;
    need(bytes > 12 && memcmp(answer, "HTTP/1.", 7) == 0, "the answer is no HTTP");
    if (!head_end || memcmp(answer + 9, "100", 3) == 0)
        return;
    const size_t head = (size_t)(head_end - answer) + 4;
    field = memmem(answer, head, "Content-Length: ", 16);
    if (!field || !memmem(answer, head, "application/json", 16))
        return;
    length = strtoul(field + 16, NULL, 10);
    if (length == 0 || head + length > bytes)
        return;
    if (np_json_parse(answer + head, length, &node, NULL) < 0)
        need(false, answer);
    if (answer[9] != '2')
        need(np_node_get(node, "error") || np_node_get(node, "problems"), "no error object");
    np_node_free(node);
}

/* All connections and waits of this input go, as if much time had passed; what it has changed is made undone. */
static void leave(void)
{
    ahead_ns = JUMP_NS;
    for (int i = 0; i < 4 || place.routes->nr_waits > 0; i++)
        turn();
    ahead_ns = 0;
    place.routes->health.until_ns = 0;
    if (place.service->version != place.version) {
        np_service_close(place.service);
        open_service();
    }
}

static void send_it(bool tcp, const char *bytes, size_t nr)
{
    static char answer[MAX_ANSWER];
    const int fd = dial(tcp);
    const size_t used = talk(fd, bytes, nr, answer, sizeof(answer) - 1);

    answer[used] = '\0';
    if (!memmem(bytes, nr, "HEAD", 4)) /* an answer without a body */
        look_at(answer, used);
    close(fd);
    leave();
}

static void send_whole(bool tcp, const uint8_t *data, size_t n)
{
    static char request[MAX_SENT];
    const uint8_t *end = memchr(data, '\n', n);
    const size_t first = end ? (size_t)(end - data) : n, body = n - first - (end ? 1 : 0);
    const int head = snprintf(request, sizeof(request),
        "%.*s HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\n%sContent-Length: "
        "%zu\r\n\r\n",
        (int)first, (const char *)data, tcp ? "Authorization: Bearer " TOKEN "\r\n" : "", body);

    if (head < 0 || (size_t)head + body > sizeof(request))
        return;
    if (body)
        memcpy(request + head, end + 1, body);
    send_it(tcp, request, (size_t)head + body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!place.http)
        set_up();
    if (n == 0)
        return 0;
    const uint8_t *mark = memchr(data, 0x1e, n);
    const size_t bytes = mark ? (size_t)(mark - data) : n;
    check = mark ? mark + 1 : data + n;
    check_bytes = n - bytes - (mark ? 1 : 0);
    if (bytes == 0)
        return 0;
    if (*data == 'j' || *data == 'J')
        send_whole(*data == 'J', data + 1, bytes - 1);
    else
        send_it(*data == 't', (const char *)data + 1, bytes - 1);
    if (place.nr_inputs++ % 256 == 0) {
        static const char health[] = "GET /healthz";

        send_whole(false, (const uint8_t *)health, strlen(health));
    }
    return 0;
}
