#include "loader/remote/web.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/version.h"

#define MAX_REDIRECTS 5L
#define BUFFER_BYTES  (32L << 10) /* of a connection: all of them stay in the cache */
#define NR_EVENTS     32

struct np_web {
    CURLM *multi;
    const char *certificates; /* NULL: libcurl's own */
    int epoll;                /* the sockets that libcurl waits for; -1: none yet */
    uint64_t timer_ns; /* when libcurl wants to be called without an event; UINT64_MAX: never */
    CURL **spare;      /* (nr_spare) handles that are free: they keep their memory */
    int nr_spare, room;
    struct np_web_call *calls; /* in flight */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode global_code;

static void init_global(void)
{
    global_code = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static const char *find_certificates(void)
{
    static const char *const variables[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    /* of Debian, Fedora, SUSE, Alpine: a bundled libcurl knows only its own system's */
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *named = getenv(variables[i]);

        if (named && *named)
            return named;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (access(files[i], R_OK) == 0)
            return files[i];
    return NULL;
}

/* libcurl has something else to wait for at a socket. what: CURL_POLL_...; known: NULL for a new one. */
static int on_socket(CURL *curl, curl_socket_t fd, int what, void *context, void *known)
{
    struct np_web *web = context;
    struct epoll_event event = {
        .events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u),
        .data = {.fd = fd}};

    (void)curl;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(web->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (!known)
        curl_multi_assign(web->multi, fd, web);
    /* Not even memory for an event: libcurl ends its calls. */
    return epoll_ctl(web->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0 ? -1 : 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
    struct np_web *web = context;

    (void)multi;
    web->timer_ns = timeout_ms < 0 ? UINT64_MAX : np_now_ns() + (uint64_t)timeout_ms * 1000000u;
    return 0;
}

struct np_web *np_web_new(int max_connections, struct np_err *err)
{
    struct np_web *web = np_try_alloc(sizeof(*web), err);

    pthread_once(&once, init_global);
    if (!web)
        return NULL;
    web->certificates = find_certificates();
    web->timer_ns = UINT64_MAX;
    web->epoll = epoll_create1(EPOLL_CLOEXEC);
    web->multi = global_code ? NULL : curl_multi_init();
    web->room = max_connections;
    web->spare = np_try_array((size_t)max_connections, sizeof(CURL *), err);
    if (web->epoll < 0 || !web->multi || !web->spare) {
        np_err_set(err, -ENOMEM, "libcurl cannot start");
        np_web_free(web);
        return NULL;
    }
    curl_multi_setopt(web->multi, CURLMOPT_MAXCONNECTS, (long)max_connections);
    curl_multi_setopt(web->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(web->multi, CURLMOPT_SOCKETDATA, web);
    curl_multi_setopt(web->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(web->multi, CURLMOPT_TIMERDATA, web);
    return web;
}

/* Gives the handle back. */
static void end(struct np_web *web, struct np_web_call *call)
{
    struct np_web_call **at = &web->calls;

    while (*at && *at != call)
        at = &(*at)->next;
    if (*at)
        *at = call->next;
    curl_multi_remove_handle(web->multi, call->curl);
    curl_slist_free_all(call->list);
    if (web->nr_spare < web->room) {
        curl_easy_setopt(call->curl, CURLOPT_ERRORBUFFER, NULL);
        curl_easy_setopt(call->curl, CURLOPT_HTTPHEADER, NULL);
        web->spare[web->nr_spare++] = call->curl;
    } else
        curl_easy_cleanup(call->curl);
    call->curl = call->list = NULL;
}

void np_web_free(struct np_web *web)
{
    if (!web)
        return;
    while (web->calls)
        end(web, web->calls);
    for (int i = 0; i < web->nr_spare; i++)
        curl_easy_cleanup(web->spare[i]);
    if (web->multi)
        curl_multi_cleanup(web->multi);
    if (web->epoll >= 0)
        close(web->epoll);
    np_free(web->spare);
    np_free(web);
}

/* --- an answer ------------------------------------------------------------------------------- */

static size_t on_field(char *bytes, size_t size, size_t nr, void *context)
{
    struct np_web_call *call = context;

    np_answer_take(&call->answer, bytes, size * nr);
    return size * nr;
}

static void take_status(struct np_web_call *call)
{
    long status = 0;

    curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &status);
    call->answer.status = (int)status;
}

static size_t on_body(char *bytes, size_t size, size_t nr, void *context)
{
    struct np_web_call *call = context;

    nr *= size;
    take_status(call);
    if (call->answer.status / 100 != 2) {
        const size_t room = sizeof(call->body) - 1 - call->text_bytes;
        const size_t part = nr < room ? nr : room;

        memcpy(call->body + call->text_bytes, bytes, part);
        call->text_bytes += part;
        return nr;
    }
    if (!call->begun) {
        call->begun = true;
        call->code = call->begin ? call->begin(call) : 0;
    }
    if (!call->code)
        call->code = call->data(call, bytes, nr);
    return call->code ? CURL_WRITEFUNC_ERROR : nr;
}

/* --- a request ------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static struct curl_slist *list_fields(const char *fields)
{
    struct curl_slist *list = NULL;
    char line[8192];

    while (fields && *fields) {
        const size_t bytes = strcspn(fields, "\n");
        struct curl_slist *longer = NULL;

        if (bytes < sizeof(line)) {
            snprintf(line, sizeof(line), "%.*s", (int)bytes, fields);
            longer = curl_slist_append(list, line);
        }
        if (!longer) {
            curl_slist_free_all(list);
            return NULL;
        }
        list = longer;
        fields += bytes + (fields[bytes] == '\n');
    }
    return list;
}

/* What all requests have alike. */
static void set_up(CURL *curl, const char *certificates)
{
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "nnpipe/" NP_VERSION);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_field);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    if (certificates)
        curl_easy_setopt(curl, CURLOPT_CAINFO, certificates);
}

/* What only this one has: every option is set again, so that none of the call before is left. */
static void ask(CURL *curl, struct np_web_call *call)
{
    call->is_secure = strncmp(call->url, "https:", 6) == 0;
    curl_easy_setopt(curl, CURLOPT_URL, call->url);
    curl_easy_setopt(curl, CURLOPT_CONNECT_ONLY, call->connects ? 1L : 0L);
    if (call->form)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->form);
    else
        curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, call->list);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, call->is_secure ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, call->follows ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, call->direct ? "*" : NULL);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
        (long)(call->connect_ms ? call->connect_ms : NP_WEB_CONNECT_MS));
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)call->max_ms);
    curl_easy_setopt(
        curl, CURLOPT_LOW_SPEED_TIME, call->idle_s ? (long)call->idle_s : (long)NP_WEB_IDLE_S);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, call->error);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, call);
}

/* A handle that is free, or a new one; NULL: out of memory. */
static CURL *take_handle(struct np_web *web)
{
    CURL *curl = web->nr_spare > 0 ? web->spare[--web->nr_spare] : NULL;

    if (!curl && (curl = curl_easy_init()) != NULL)
        set_up(curl, web->certificates);
    return curl;
}

void np_web_reset(struct np_web_call *call)
{
    call->code = 0;
    call->error[0] = call->body[0] = '\0';
    call->text_bytes = 0;
    call->begun = false;
    call->answer = (struct np_web_answer){.bytes = -1};
}

int np_web_begin(struct np_web *web, struct np_web_call *call)
{
    np_web_reset(call);
    call->list = list_fields(call->fields);
    call->curl = take_handle(web);
    if (!call->curl || (call->fields && *call->fields && !call->list)) {
        curl_slist_free_all(call->list);
        curl_easy_cleanup(call->curl);
        call->curl = call->list = NULL;
        return -ENOMEM;
    }
    ask(call->curl, call);
    call->next = web->calls;
    web->calls = call;
    const CURLMcode added = curl_multi_add_handle(web->multi, call->curl);
    if (added) {
        end(web, call);
        return added == CURLM_ABORTED_BY_CALLBACK ? -EAGAIN : -ENOMEM;
    }
    return 0;
}

void np_web_cancel(struct np_web *web, struct np_web_call *call)
{
    if (call->curl)
        end(web, call);
}

static int errno_of(CURLcode code)
{
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return -ETIMEDOUT;
    case CURLE_COULDNT_CONNECT: return -ECONNREFUSED;
    case CURLE_OUT_OF_MEMORY: return -ENOMEM;
    /* no time mends these */
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_TOO_MANY_REDIRECTS: return -EPROTO;
    default: return -EIO;
    }
}

static bool has_socket(struct np_web_call *call)
{
    curl_socket_t fd = CURL_SOCKET_BAD;

    curl_easy_getinfo(call->curl, CURLINFO_ACTIVESOCKET, &fd);
    call->fd = fd;
    if (fd == CURL_SOCKET_BAD) {
        call->code = -EIO;
        snprintf(call->error, sizeof(call->error), "the connection has ended already");
    }
    return fd != CURL_SOCKET_BAD;
}

static void finish(struct np_web *web, struct np_web_call *call, CURLcode code)
{
    take_status(call);
    call->body[call->text_bytes] = '\0';
    if (code && !call->code) {
        call->code = errno_of(code);
        if (!*call->error)
            snprintf(call->error, sizeof(call->error), "%s", curl_easy_strerror(code));
    }
    if (!code && !call->begun && call->answer.status / 100 == 2 && call->begin)
        call->code = call->begin(call); /* without a body */
    if (code || !call->connects || !has_socket(call))
        end(web, call);
}

/* Lets libcurl do what is possible at the sockets that have news, and what is due. */
static void act(struct np_web *web)
{
    struct epoll_event events[NR_EVENTS];
    const int nr = epoll_wait(web->epoll, events, NR_EVENTS, 0);
    int running;

    for (int i = 0; i < nr; i++) {
        const unsigned in = events[i].events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0;
        const unsigned out = events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
        const unsigned bad = events[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0;

        /* of a socket that was closed meanwhile: nothing */
        curl_multi_socket_action(web->multi, events[i].data.fd, (int)(in | out | bad), &running);
    }
    if (web->timer_ns <= np_now_ns()) {
        web->timer_ns = UINT64_MAX; /* libcurl sets the next one */
        curl_multi_socket_action(web->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

/* A call that has ended, or NULL. */
static struct np_web_call *take_ended(struct np_web *web)
{
    const CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(web->multi, &left)) != NULL) {
        struct np_web_call *call = NULL;
        const CURLcode code = message->data.result;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        finish(web, call, code);
        return call;
    }
    return NULL;
}

struct np_web_call *np_web_turn(struct np_web *web)
{
    struct np_web_call *ended = take_ended(web);

    if (ended)
        return ended;
    act(web); /* also without calls: idle connections have events */
    return take_ended(web);
}

int np_web_fd(const struct np_web *web)
{
    return web->epoll;
}

uint64_t np_web_due_ns(const struct np_web *web)
{
    return web->timer_ns;
}

void np_web_wait(struct np_web *web, int timeout_ms)
{
    struct pollfd fd = {.fd = web->epoll, .events = POLLIN};

    poll(&fd, 1, np_until_ms(web->timer_ns, timeout_ms));
}

/* --- a connection of one's own --------------------------------------------------------------- */

int64_t np_web_send(struct np_web_call *call, const void *bytes, size_t nr)
{
    size_t sent = 0;
    const CURLcode code = curl_easy_send(call->curl, bytes, nr, &sent);

    return code == CURLE_AGAIN ? -EAGAIN : code ? -EIO : (int64_t)sent;
}

int64_t np_web_receive(struct np_web_call *call, void *bytes, size_t nr)
{
    size_t got = 0;
    CURLcode code;

    if (!call->is_secure) { /* libcurl looks the connection up, which takes longer than the call */
        const ssize_t n = recv(call->fd, bytes, nr, MSG_DONTWAIT);

        return n < 0 ? -errno : n;
    }
    code = curl_easy_recv(call->curl, bytes, nr, &got);
    return code == CURLE_AGAIN ? -EAGAIN : code ? -EIO : (int64_t)got;
}
