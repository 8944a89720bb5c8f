#include "loader/remote/straight.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/version.h"

#define HEADER_BYTES  4096 /* of an answer; one with more is unusual */
#define REQUEST_BYTES 16384
#define ORIGIN_BYTES  300
#define MAX_UNUSUAL   3 /* answers in a row */
#define LOOK_NS       50000000u
#define NR_EVENTS     32

/* A connection, and the call whose answer comes on it. */
struct line {
    enum { FREE, CONNECTING, IDLE, HEADER, BODY } state;
    struct np_web_call connection;
    struct np_web_call *call;  /* NULL: FREE, IDLE */
    char origin[ORIGIN_BYTES]; /* "https://host:port" */
    bool has_served;           /* an answer, so the server may have ended it meanwhile */
    bool is_last;              /* it ends after this answer */
    size_t nr;                 /* bytes of the header so far */
    char header[HEADER_BYTES];
    uint64_t bytes, got;         /* of the body */
    uint64_t begin_ns, heard_ns; /* of the call; of the last byte */
};

struct np_straight {
    struct np_web *web;
    bool has_ended; /* the web has news, or more calls that have ended */
    int epoll;      /* the lines' sockets, and the web's (without a pointer) */
    struct epoll_event events[NR_EVENTS];
    int at, nr_events;
    uint64_t look_ns; /* when to look for calls that take too long */
    int nr_unusual;   /* MAX_UNUSUAL: libcurl does all */
    struct line *lines;
    int nr_lines;
};

/* --- a URL ----------------------------------------------------------------------------------- */

struct place {
    const char *host, *path; /* in the URL */
    int origin_bytes, host_bytes;
};

/* True: no request names it. */
static bool is_usual_port(const char *url, const char *port, size_t bytes)
{
    const char *usual = strncmp(url, "https:", 6) == 0 ? ":443" : ":80";

    return bytes == strlen(usual) && memcmp(port, usual, bytes) == 0;
}

/* False: libcurl knows better what this URL means. */
static bool place_of(const char *url, struct place *ret_place)
{
    const size_t scheme = strncmp(url, "https://", 8) == 0 ? 8 : 7;
    const char *host = url + scheme, *path, *port;

    if (scheme == 7 && strncmp(url, "http://", 7) != 0)
        return false;
    path = strchr(host, '/');
    if (!path || path == host || path - url >= ORIGIN_BYTES)
        return false;
    for (const char *at = host; *at; at++)
        if (*at <= ' ' || *at >= 0x7f || *at == '#' || (at < path && (*at == '@' || *at == '?')))
            return false;
    port = memrchr(host, ':', (size_t)(path - host));
    if (!port || !is_usual_port(url, port, (size_t)(path - port)))
        port = path;
    *ret_place = (struct place){host, path, (int)(path - url), (int)(port - host)};
    return true;
}

static bool leads_to(const struct line *line, const char *url, const struct place *place)
{
    return strncmp(line->origin, url, (size_t)place->origin_bytes) == 0 &&
           !line->origin[place->origin_bytes];
}

/* --- lines ----------------------------------------------------------------------------------- */

static void close_line(struct np_straight *straight, struct line *line)
{
    if (line->state > CONNECTING)
        epoll_ctl(straight->epoll, EPOLL_CTL_DEL, line->connection.fd, NULL);
    if (line->state != FREE)
        np_web_cancel(straight->web, &line->connection);
    if (line->call)
        line->call->line = NULL;
    line->call = NULL;
    line->state = FREE;
}

/* The call has ended, with its code; what is left of the answer does not matter to the next call. */
static struct np_web_call *end_call(struct np_straight *straight, struct line *line)
{
    struct np_web_call *call = line->call;

    if (call->code || line->is_last || line->got < line->bytes) {
        close_line(straight, line);
        return call;
    }
    line->state = IDLE;
    line->nr = 0;
    line->has_served = true;
    line->call = NULL;
    call->line = NULL;
    return call;
}

static struct np_web_call *fail_call(
    struct np_straight *straight, struct line *line, int code, const char *why)
{
    struct np_web_call *call = line->call;

    call->code = code;
    snprintf(call->error, sizeof(call->error), "%s", why);
    return end_call(straight, line);
}

/* libcurl makes the request again. Returns the call if that is not possible. */
static struct np_web_call *give_away(struct np_straight *straight, struct line *line)
{
    struct np_web_call *call = line->call;
    int code;

    close_line(straight, line);
    code = np_web_begin(straight->web, call);
    if (!code)
        return NULL;
    call->code = code;
    snprintf(call->error, sizeof(call->error), "out of memory for a request");
    return call;
}

static struct np_web_call *give_away_unusual(struct np_straight *straight, struct line *line)
{
    straight->nr_unusual++;
    return give_away(straight, line);
}

/* --- a request ------------------------------------------------------------------------------- */

/* Sends the request. Returns the call if it has ended. */
static struct np_web_call *ask(struct np_straight *straight, struct line *line)
{
    const struct np_web_call *call = line->call;
    struct place place;
    char text[REQUEST_BYTES];
    size_t nr;

    place_of(call->url, &place);
    nr = (size_t)snprintf(text, sizeof(text),
        "GET %s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: nnpipe/" NP_VERSION "\r\nAccept: */*\r\n",
        place.path, place.host_bytes, place.host);
    for (const char *field = call->fields; field && *field && nr < sizeof(text);) {
        const size_t bytes = strcspn(field, "\n");

        nr += (size_t)snprintf(text + nr, sizeof(text) - nr, "%.*s\r\n", (int)bytes, field);
        field += bytes + (field[bytes] == '\n');
    }
    if (nr < sizeof(text))
        nr += (size_t)snprintf(text + nr, sizeof(text) - nr, "\r\n");
    if (nr >= sizeof(text))
        return give_away_unusual(straight, line);
    line->state = HEADER;
    line->nr = line->bytes = line->got = 0;
    line->is_last = false;
    /* It fits into the socket's buffer, which is empty. */
    if (np_web_send(&line->connection, text, nr) != (int64_t)nr)
        return give_away(straight, line);
    return NULL;
}

/* libcurl has connected, or not. */
static struct np_web_call *connected(struct np_straight *straight, struct line *line)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = line}};
    const struct np_web_call *connection = &line->connection;

    if (connection->code)
        return fail_call(straight, line, connection->code, connection->error);
    line->state = IDLE;
    line->nr = 0;
    line->has_served = false;
    line->heard_ns = np_now_ns();
    if (epoll_ctl(straight->epoll, EPOLL_CTL_ADD, connection->fd, &event) < 0)
        return give_away(straight, line);
    return ask(straight, line);
}

static int begin_connecting(struct np_straight *straight, struct line *line,
    const struct np_web_call *call, const struct place *place)
{
    const int most_ms = call->connect_ms ? call->connect_ms : NP_WEB_CONNECT_MS;
    int code;

    snprintf(line->origin, sizeof(line->origin), "%.*s", place->origin_bytes, call->url);
    line->connection = (struct np_web_call){.url = call->url,
        .connects = true,
        .connect_ms = call->max_ms && call->max_ms < most_ms ? call->max_ms : most_ms,
        .owner = line};
    code = np_web_begin(straight->web, &line->connection);
    line->state = code ? FREE : CONNECTING;
    return code;
}

/* A line to this place that is idle, else a free one, else one that is idle; NULL: none. */
static struct line *find_line(
    struct np_straight *straight, const char *url, const struct place *place)
{
    struct line *best = NULL;

    for (int i = 0; i < straight->nr_lines; i++) {
        struct line *line = &straight->lines[i];

        if (line->state == IDLE && leads_to(line, url, place))
            return line;
        if (line->state == FREE || (line->state == IDLE && !best))
            best = line;
    }
    return best;
}

int np_straight_begin(struct np_straight *straight, struct np_web_call *call)
{
    struct place place;
    struct line *line = NULL;
    int code;

    call->line = NULL;
    if (call->room && straight->nr_unusual < MAX_UNUSUAL && place_of(call->url, &place))
        line = find_line(straight, call->url, &place);
    if (!line)
        return np_web_begin(straight->web, call);
    np_web_reset(call);
    if (line->state == IDLE && !leads_to(line, call->url, &place))
        close_line(straight, line);
    if (line->state == FREE) {
        code = begin_connecting(straight, line, call, &place);
        if (code)
            return code;
    }
    line->call = call;
    call->line = line;
    line->begin_ns = line->heard_ns = np_now_ns();
    if (line->state == IDLE && ask(straight, line))
        return call->code;
    return 0;
}

/* --- an answer ------------------------------------------------------------------------------- */

/* Where the next bytes of the body go: to the caller's place, or the text of a refusal. */
static uint8_t *room_of(struct line *line, size_t *ret_bytes)
{
    struct np_web_call *call = line->call;
    const uint64_t left = line->bytes - line->got;
    uint8_t *to = (uint8_t *)call->body + line->got;

    *ret_bytes = left;
    if (call->begun)
        to = call->room(call, line->got, ret_bytes);
    *ret_bytes = *ret_bytes < left ? *ret_bytes : left;
    return to;
}

/* Bytes of the body are in their place. True: there are no more, or no more are wanted. */
static bool take_body(struct line *line, const uint8_t *bytes, size_t nr)
{
    struct np_web_call *call = line->call;

    line->got += nr;
    if (call->begun)
        call->code = call->data(call, bytes, nr);
    else
        call->body[line->got] = '\0';
    return call->code || line->got == line->bytes;
}

/* The beginning of the body has come with the header. True: as take_body(). */
static bool take_beginning(struct line *line, const char *bytes, size_t nr)
{
    bool is_all = line->bytes == 0;

    while (!is_all && nr > 0) {
        size_t room;
        uint8_t *to = room_of(line, &room);

        room = room < nr ? room : nr;
        memcpy(to, bytes, room);
        bytes += room;
        nr -= room;
        is_all = take_body(line, to, room);
    }
    return is_all;
}

/* Its text is not here. A server that is busy is not asked again at once; libcurl may read why another one
 * refuses. */
static struct np_web_call *take_long_refusal(struct np_straight *straight, struct line *line)
{
    if (line->call->answer.status < 500 && line->call->answer.status != 429)
        return give_away(straight, line);
    line->is_last = true; /* what comes is not read */
    return end_call(straight, line);
}

/* Returns the call if it has ended; it may be libcurl's now. bytes: of the header */
static struct np_web_call *take_header(struct np_straight *straight, struct line *line, int bytes)
{
    struct np_web_call *call = line->call;
    const struct np_web_answer *answer = &call->answer;
    const uint64_t length = (uint64_t)answer->bytes, more = line->nr - (uint64_t)bytes;
    const bool is_refusal = answer->status >= 400 && answer->status <= 599;

    const bool has_length = answer->bytes >= 0 && !answer->is_coded && more <= length;

    if (is_refusal && !(has_length && length < sizeof(call->body)))
        return take_long_refusal(straight, line);
    if (!is_refusal && (!has_length || answer->status != 206 || length != call->body_bytes))
        return give_away_unusual(straight, line);
    straight->nr_unusual = 0;
    line->state = BODY;
    line->is_last = answer->is_last;
    line->bytes = length;
    call->begun = !is_refusal;
    if (call->begun && call->begin)
        call->code = call->begin(call);
    if (call->code || take_beginning(line, line->header + bytes, more))
        return end_call(straight, line);
    return NULL;
}

/* The connection has ended too early. code: 0: by the server */
static struct np_web_call *lose(struct np_straight *straight, struct line *line, int code)
{
    char why[128];

    if (line->state == HEADER && line->nr == 0 && line->has_served)
        return give_away(straight, line); /* before the request came */
    snprintf(why, sizeof(why), "the connection ended after %llu bytes of %s%s%s",
        (unsigned long long)(line->state == BODY ? line->got : line->nr),
        line->state == BODY ? "the body" : "the header", code ? ": " : "",
        code ? strerror(-code) : "");
    return fail_call(straight, line, -EIO, why);
}

/* Takes what has come. Returns the call if it has ended. */
static struct np_web_call *receive(struct np_straight *straight, struct line *line)
{
    for (;;) {
        const bool in_body = line->state == BODY;
        size_t room = sizeof(line->header) - line->nr;
        uint8_t *to = in_body ? room_of(line, &room) : (uint8_t *)line->header + line->nr;
        const int64_t got = np_web_receive(&line->connection, to, room);

        if (got == -EAGAIN || got == -EINTR)
            return NULL;
        if (line->state == IDLE) { /* the server has ended it */
            close_line(straight, line);
            return NULL;
        }
        if (got <= 0)
            return lose(straight, line, (int)got);
        line->heard_ns = np_now_ns();
        if (!in_body) {
            struct np_web_call *ended;
            int bytes;

            line->nr += (size_t)got;
            bytes = np_answer_read(line->header, line->nr, &line->call->answer);
            if (bytes < 0 || (bytes == 0 && line->nr == sizeof(line->header)))
                return give_away_unusual(straight, line);
            if (bytes == 0)
                continue;
            ended = take_header(straight, line, bytes);
            if (ended || line->state != BODY)
                return ended;
        } else if (take_body(line, to, (size_t)got))
            return end_call(straight, line);
    }
}

/* --- all of them ----------------------------------------------------------------------------- */

static bool has_proxy(void)
{
    static const char *const names[] = {
        "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (getenv(names[i]) && *getenv(names[i]))
            return true;
    return false;
}

struct np_straight *np_straight_new(int max, struct np_err *err)
{
    struct np_straight *straight = np_try_alloc(sizeof(*straight), err);
    struct epoll_event event = {.events = EPOLLIN};

    if (!straight)
        return NULL;
    straight->epoll = -1;
    straight->nr_lines = max;
    straight->lines = np_try_array((size_t)max, sizeof(*straight->lines), err);
    straight->web = straight->lines ? np_web_new(2 * max, err) : NULL;
    if (straight->web) {
        straight->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (straight->epoll < 0 ||
            epoll_ctl(straight->epoll, EPOLL_CTL_ADD, np_web_fd(straight->web), &event) < 0)
            np_err_set(err, -errno, "libcurl cannot start: %s", strerror(errno));
        else {
            straight->nr_unusual = has_proxy() ? MAX_UNUSUAL : 0;
            return straight;
        }
    }
    np_straight_free(straight);
    return NULL;
}

void np_straight_free(struct np_straight *straight)
{
    if (!straight)
        return;
    for (int i = 0; straight->web && i < straight->nr_lines; i++)
        close_line(straight, &straight->lines[i]);
    np_web_free(straight->web);
    if (straight->epoll >= 0)
        close(straight->epoll);
    np_free(straight->lines);
    np_free(straight);
}

void np_straight_cancel(struct np_straight *straight, struct np_web_call *call)
{
    if (call->line)
        close_line(straight, call->line);
    else
        np_web_cancel(straight->web, call);
}

/* Ends a call that takes too long, if there is one. */
static struct np_web_call *end_late(struct np_straight *straight, uint64_t now_ns)
{
    for (int i = 0; i < straight->nr_lines; i++) {
        struct line *line = &straight->lines[i];
        const struct np_web_call *call = line->call;
        const int idle_s = call && call->idle_s ? call->idle_s : NP_WEB_IDLE_S;
        char why[64];

        if (line->state != HEADER && line->state != BODY)
            continue;
        if (now_ns - line->heard_ns >= (uint64_t)idle_s * 1000000000u)
            snprintf(why, sizeof(why), "no byte came for %d s", idle_s);
        else if (call->max_ms && now_ns - line->begin_ns >= (uint64_t)call->max_ms * 1000000u)
            snprintf(why, sizeof(why), "it takes longer than %d s", call->max_ms / 1000);
        else
            continue;
        return fail_call(straight, line, -ETIMEDOUT, why);
    }
    return NULL;
}

/* A call of the web's that has ended. */
static struct np_web_call *turn_web(struct np_straight *straight)
{
    struct np_web_call *call;

    while ((call = np_web_turn(straight->web)) != NULL) {
        if (call->connects)
            call = connected(straight, call->owner);
        if (call) {
            straight->has_ended = true;
            return call;
        }
    }
    straight->has_ended = false;
    return NULL;
}

/* What has come at the sockets, once all is done that came before. */
static void look_at_sockets(struct np_straight *straight)
{
    int nr;

    if (straight->at < straight->nr_events)
        return;
    nr = epoll_wait(straight->epoll, straight->events, NR_EVENTS, 0);
    straight->at = 0;
    straight->nr_events = nr > 0 ? nr : 0;
}

struct np_web_call *np_straight_turn(struct np_straight *straight)
{
    const uint64_t now_ns = np_now_ns();
    struct np_web_call *call;

    if (now_ns >= straight->look_ns) {
        if ((call = end_late(straight, now_ns)) != NULL)
            return call;
        straight->look_ns = now_ns + LOOK_NS;
    }
    look_at_sockets(straight);
    while (straight->at < straight->nr_events) {
        struct line *line = straight->events[straight->at++].data.ptr;

        if (!line)
            straight->has_ended = true;
        else if (line->state > CONNECTING && (call = receive(straight, line)) != NULL)
            return call;
    }
    if (straight->has_ended || np_web_due_ns(straight->web) <= now_ns)
        return turn_web(straight);
    return NULL;
}

void np_straight_wait(struct np_straight *straight, int extra_fd, int timeout_ms)
{
    struct pollfd fds[] = {
        {.fd = straight->epoll, .events = POLLIN}, {.fd = extra_fd, .events = POLLIN}};

    if (straight->has_ended || straight->at < straight->nr_events)
        return;
    poll(fds, extra_fd >= 0 ? 2 : 1, np_until_ms(np_web_due_ns(straight->web), timeout_ms));
}
