/* `nnpipe daemon`: runs the service in the foreground, under systemd or without it. Opens the
 * sockets and notifies systemd; daemon/service/ does the rest. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/service/http/http.h"
#include "daemon/service/http/listen.h"
#include "daemon/service/http/routes.h"
#include "daemon/service/service.h"
#include "daemon/service/systemd/worker_unit.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_CONNECTIONS 4096
#define MAX_TURNS       16
#define LISTEN_NS       60000000000 /* between two attempts to bind a port that is taken */
#define STOP_SPARE_S    20          /* for the work after the last checkpoint */

struct daemon {
    const char *config, *state, *socket, *listen;
    bool for_box;
    char *paths[3]; /* defaults for those not given; np_free */
    struct np_service *service;
    struct np_routes *routes;
    struct np_http *http;
    bool by_units;          /* --units: runs are systemd units */
    struct np_units *units; /* NULL: runs are children */
    bool notified;          /* systemd listens at NOTIFY_SOCKET */
    uint64_t watchdog_us;   /* 0: systemd expects no watchdog signal */
    uint64_t watchdog_ns, status_version;
    uint64_t listen_ns; /* next attempt to bind a port that was taken; 0: never */
    char status[64];
};

static int find_places(struct daemon *d, struct np_err *err)
{
    const char *socket = getenv("NNPIPE_SOCKET");

    if (!d->state)
        d->state = d->paths[0] = d->for_box
                                     ? np_strdup("/var/lib/nnpipe")
                                     : np_xdg_folder("XDG_STATE_HOME", ".local/state", "nnpipe");
    if (!d->config)
        d->config = d->paths[1] =
            d->for_box ? np_strdup("/etc/nnpipe/service.yaml")
                       : np_xdg_folder("XDG_CONFIG_HOME", ".config", "nnpipe/service.yaml");
    if (!d->socket && socket && *socket)
        d->socket = d->paths[2] = np_strdup(socket);
    if (!d->socket)
        d->socket = d->paths[2] =
            d->for_box ? np_strdup("/run/nnpipe/socket")
                       : np_xdg_folder("XDG_RUNTIME_DIR", ".local/state", "nnpipe/socket");
    if (!d->state || !d->config || !d->socket)
        return np_err_set(err, -EINVAL,
            "neither HOME nor XDG_STATE_HOME is set: give --state, --config and --socket");
    return 0;
}

static bool is_answered(const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool is =
        fd >= 0 &&
        (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN);

    if (fd >= 0)
        close(fd);
    return is;
}

/* Replaces the socket of a killed daemon. */
static int bind_unix(const struct daemon *d, int *ret_fd, struct np_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct group *group = d->for_box ? getgrnam("nnpipe") : NULL;
    struct stat there;
    int code = np_make_parent(d->socket, err), fd;

    if (code < 0)
        return code;
    if (strlen(d->socket) >= sizeof(address.sun_path))
        return np_err_set(err, -ENAMETOOLONG, "%s: the path of a socket may have at most %zu bytes",
            d->socket, sizeof(address.sun_path) - 1);
    strcpy(address.sun_path, d->socket);
    if (is_answered(&address))
        return np_err_set(err, -EADDRINUSE,
            "%s: another nnpipe daemon is listening there; choose another path with --socket",
            d->socket);
    if (lstat(d->socket, &there) == 0 && !S_ISSOCK(there.st_mode))
        return np_err_set(err, -EEXIST, "%s: exists already and is not a socket", d->socket);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(d->socket);
    const mode_t before = umask(d->for_box ? 0117 : 0177);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, NP_BACKLOG) < 0)
        code = np_err_set(err, -errno, "%s: cannot listen: %s", d->socket, strerror(errno));
    umask(before);
    if (code == 0 && group && group->gr_gid != getegid() &&
        chown(d->socket, (uid_t)-1, group->gr_gid) < 0)
        code = np_err_set(
            err, -errno, "%s: cannot give it to the group nnpipe: %s", d->socket, strerror(errno));
    if (code < 0 && fd >= 0)
        close(fd);
    else if (code == 0)
        *ret_fd = fd;
    return code;
}

/* text: "127.0.0.1:7411" or "[::1]:7411"; only loopback and a port of its own are allowed. */
static int bind_tcp(const char *text, int *ret_fd, struct np_err *err)
{
    struct np_listener listener;
    const bool is_fine = np_listen_is_loopback(text) && strcmp(strrchr(text, ':'), ":0") != 0;
    int code = is_fine ? np_listen_tcp(text, &listener, err) : -EINVAL;

    if (code == 0)
        *ret_fd = listener.fd;
    if (code != -EINVAL)
        return code;
    *err = (struct np_err){0};
    return np_err_set(err, -EINVAL,
        "listen: expected 127.0.0.1:PORT or [::1]:PORT, not '%s'; from another machine, use ssh",
        text);
}

/* Notifies systemd, if it listens: the watchdog after a quarter of its timeout, and the status
 * line. */
static void notify_alive(struct daemon *d)
{
    const uint64_t now = np_now_ns();
    int running = 0, queued = 0;
    char status[64];

    if (d->watchdog_us > 0 && now - d->watchdog_ns >= d->watchdog_us * 1000 / 4) {
        sd_notify(0, "WATCHDOG=1");
        d->watchdog_ns = now;
    }
    if (!d->notified || d->status_version == d->service->version)
        return;
    d->status_version = d->service->version;
    for (int i = 0; i < d->service->nr_runs; i++) {
        running += np_entry_has_worker(d->service->entries[i]);
        queued += d->service->entries[i]->state == NP_ENTRY_QUEUED;
    }
    snprintf(status, sizeof(status), "STATUS=%d running, %d queued", running, queued);
    if (strcmp(status, d->status) != 0)
        sd_notify(0, status);
    strcpy(d->status, status);
}

/* At a stop, systemd must wait as long as the runs have for their checkpoints. */
static void notify_state(void *context, const char *state)
{
    struct daemon *d = context;

    if (strcmp(state, "RELOADING") == 0 && d->listen_ns > 0)
        d->listen_ns = 1; /* at once */
    if (strcmp(state, "STOPPING") == 0)
        sd_notifyf(0, "STOPPING=1\nSTATUS=waiting for checkpoints\nEXTEND_TIMEOUT_USEC=%.0f",
            (d->service->options.stop_s + STOP_SPARE_S) * 1e6);
    else
        sd_notifyf(0, "%s=1", state);
}

static const char *listen_at(const struct daemon *d)
{
    return d->listen ? d->listen : d->service->options.listen;
}

/* A taken port must not stop the queue: any user of the box could take it. */
static int try_tcp(struct daemon *d, const char *address, int *ret_fd, struct np_err *err)
{
    struct np_err taken = {0};
    const int code = bind_tcp(address, ret_fd, &taken);
    char text[200];

    d->listen_ns = 0;
    if (code == -EINVAL) {
        *err = taken;
        return code;
    }
    if (code < 0) {
        snprintf(text, sizeof(text), "%.120s; retried every minute", taken.text);
        if (strcmp(d->service->problem, text) != 0)
            fprintf(stderr, "nnpipe daemon: no page: %s\n", text);
        d->listen_ns = np_now_ns() + LISTEN_NS;
    }
    snprintf(d->service->problem, sizeof(d->service->problem), "%s", code < 0 ? text : "");
    return 0;
}

static void try_again(struct daemon *d)
{
    struct np_err err = {0};
    int fd = -1, fds[NP_HTTP_FDS];

    if (d->listen_ns == 0 || np_now_ns() < d->listen_ns)
        return;
    if (try_tcp(d, listen_at(d), &fd, &err) < 0 || fd < 0)
        return;
    int code = np_http_add_tcp(d->http, fd, &err);
    if (code < 0) {
        close(fd);
    } else {
        np_http_fds(d->http, fds);
        code = np_book_wake_on(d->service, fds[NP_HTTP_FDS - 1], &err);
    }
    fprintf(stderr, "nnpipe daemon: %s%s\n", code < 0 ? "no page: " : "the page is at ",
        code < 0 ? err.text : listen_at(d));
}

static void turn(void *context)
{
    struct daemon *d = context;

    try_again(d);

    /* Sends the last answers, and handles requests that have come in meanwhile. */
    for (int i = 0; i < MAX_TURNS; i++) {
        np_http_turn(d->http);
        if (!np_routes_turn(d->routes))
            break;
    }
    notify_alive(d);
}

static bool is_loopback(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {0};
    socklen_t bytes = sizeof(address);

    if (getsockname(fd, &address.any, &bytes) < 0)
        return false;
    return address.any.sa_family == AF_INET6
               ? IN6_IS_ADDR_LOOPBACK(&address.v6.sin6_addr)
               : ntohl(address.v4.sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

/* systemd (nnpipe.socket) passes one Unix socket and at most one loopback TCP socket. */
static int take_passed(struct np_http_options *options, struct np_err *err)
{
    const int nr = sd_listen_fds(1);

    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + nr; fd++) {
        const bool is_unix = sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0;
        int *place = is_unix ? &options->socket_fd : &options->tcp_fd;

        if (!is_unix && sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
            return np_err_set(err, -EINVAL, "passed socket %d: not a listening stream socket", fd);
        if (!is_unix && !is_loopback(fd))
            return np_err_set(err, -EINVAL,
                "passed socket %d: TCP is only allowed on loopback, 127.0.0.1 or [::1]; from "
                "another machine, use ssh",
                fd);
        if (*place >= 0)
            return np_err_set(err, -EINVAL, "passed socket %d: more than one %s socket", fd,
                is_unix ? "Unix" : "TCP");
        if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
            return np_err_set(err, -errno, "passed socket %d: %s", fd, strerror(errno));
        *place = fd;
    }
    return nr < 0 ? np_err_set(err, nr, "LISTEN_FDS: %s", strerror(-nr)) : 0;
}

static int open_sockets(struct daemon *d, struct np_http_options *options, struct np_err *err)
{
    const char *address = listen_at(d);
    int code = take_passed(options, err);

    if (code == 0 && options->socket_fd < 0)
        code = bind_unix(d, &options->socket_fd, err);
    if (code < 0 || options->tcp_fd >= 0 || !address)
        return code;
    if (d->units)
        return np_err_set(err, -EINVAL,
            "listen: under systemd the service has no network of its own; nnpipe.socket must open "
            "the port: add [Socket] and ListenStream=%s with `systemctl --user edit "
            "nnpipe.socket`, then remove listen",
            address);
    return try_tcp(d, address, &options->tcp_fd, err);
}

static int open_http(struct daemon *d, struct np_err *err)
{
    const struct group *group = d->for_box ? getgrnam("nnpipe") : NULL;
    struct np_http_options options = {.socket_fd = -1,
        .tcp_fd = -1,
        .group = group ? group->gr_gid : (gid_t)-1,
        .token = d->service->token,
        .user_of = np_routes_user_of,
        .max_connections = MAX_CONNECTIONS,
        .handler = np_routes_handle,
        .allows = np_routes_allow,
        .context = d->routes};
    int fds[NP_HTTP_FDS], code = open_sockets(d, &options, err);

    if (code == 0)
        code = np_http_open(&options, &d->http, err);
    if (code < 0)
        return code;
    np_http_fds(d->http, fds);
    for (int i = 0; i < NP_HTTP_FDS && code == 0; i++)
        if (fds[i] >= 0)
            code = np_book_wake_on(d->service, fds[i], err);
    return code < 0 ? code : np_book_wake_on(d->service, np_routes_fd(d->routes), err);
}

static int serve(struct daemon *d, struct np_err *err)
{
    int code = find_places(d, err);

    if (code == 0 && d->by_units)
        code = np_units_open(&d->units, err);
    struct np_service_start start = {.dir = d->state,
        .config = d->config,
        .socket = d->socket,
        .for_box = d->for_box,
        .units = d->units,
        .notify = notify_state,
        .turn = turn,
        .context = d};
    if (code == 0)
        code = np_service_open(&start, &d->service, err);
    if (code == 0)
        code = np_routes_new(d->service, &d->routes, err);
    if (code == 0)
        code = open_http(d, err);
    if (code < 0)
        return code;
    if (sd_watchdog_enabled(0, &d->watchdog_us) <= 0)
        d->watchdog_us = 0;
    fprintf(stderr, "nnpipe daemon: listening on %s\n", d->socket);
    if (listen_at(d) && d->listen_ns == 0)
        fprintf(stderr, "nnpipe daemon: the page is http://%s/, its token in %s/token\n",
            listen_at(d), d->state);
    d->status_version = UINT64_MAX;
    d->notified = sd_notify(0, "READY=1") > 0;
    return np_service_run(d->service, err);
}

int np_cmd_daemon(int argc, char **argv)
{
    struct daemon d = {0};
    const struct np_flag flags[] = {
        {"--config", &d.config, NULL, NULL},
        {"--state", &d.state, NULL, NULL},
        {"--socket", &d.socket, NULL, NULL},
        {"--listen", &d.listen, NULL, NULL},
        {"--box", NULL, &d.for_box, NULL},
        {"--units", NULL, &d.by_units, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 0 || (d.for_box && d.by_units)) {
        fprintf(stderr, nr != 0 ? "nnpipe daemon: no operands are expected\n"
                                : "nnpipe daemon: --units is for one user's service, not --box\n");
        return NP_EXIT_USAGE;
    }
    code = serve(&d, &err);
    if (code < 0)
        np_complain(&err);
    np_http_close(d.http);
    np_routes_free(d.routes);
    np_service_close(d.service);
    np_units_close(d.units);
    for (int i = 0; i < 3; i++)
        np_free(d.paths[i]);
    /* systemd does not restart a daemon after a usage error: wrong settings stay wrong. */
    return code == -EINVAL ? NP_EXIT_USAGE : code < 0 ? NP_EXIT_FAILED : NP_EXIT_DONE;
}
