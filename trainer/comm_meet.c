/* The processes of a run find each other: each connects to rank 0, which answers with a table of all.
 * Then each connects to those of its neighbours (comm.h) that have a lower rank, and the others
 * connect to it. Strangers that connect in between are hung up on.
 *
 * Trainer thread, once, before the data are opened. */
#include "trainer/comm_meet.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAGIC       "nnpipe-2"
#define WORDS_MS    2000 /* for what a process says after it has connected */
#define MAX_UNIX    100  /* bytes of an address unix:NAME */
#define AGAIN_MS    50   /* between attempts to connect */
#define MAX_TIMEOUT 86400

/* What each process says first. key: 0 to rank 0 at first, else rank 0's. */
struct hello {
    char magic[8];
    uint32_t rank, world, process, port;
    uint64_t key;
    uint32_t use;  /* of the connection between two neighbours: slot_of() */
    char host[64]; /* its name */
};

struct place { /* of a process, in rank 0's table */
    uint32_t process;
    char host[64];         /* its name */
    char at[256], port[8]; /* where it listens; "": unix */
};

struct guest { /* has connected, and not said all of its hello yet */
    int fd;
    size_t nr; /* bytes of it */
    uint64_t end_ns;
    struct hello hello;
};

#define MAX_GUESTS 64 /* at once: strangers may say nothing */

struct meeting {
    const struct np_launch *launch;
    uint64_t deadline_ns, key;
    uint32_t use;                /* of its next hello */
    int seconds, listener, port; /* port: of the listener; 0: unix */
    struct place *places;        /* (world) */
    struct guest guests[MAX_GUESTS];
    int nr_guests;
};

static bool is_unix(const struct np_launch *launch)
{
    return strncmp(launch->address, "unix:", 5) == 0;
}

static int left_ms(const struct meeting *m)
{
    const uint64_t now = np_now_ns();

    return now >= m->deadline_ns ? 0 : (int)((m->deadline_ns - now) / 1000000) + 1;
}

/* "tcp:HOST:PORT"; HOST may be an IPv6 address. False: it is not that. */
static bool split_tcp(const char *address, char *host, size_t room, char *port, size_t port_room)
{
    const char *colon = strrchr(address, ':');
    int64_t number;

    if (strncmp(address, "tcp:", 4) != 0 || colon <= address + 4 ||
        !np_text_int(colon + 1, 1, 65535, &number))
        return false;
    const char *first = address + 4;
    size_t n = (size_t)(colon - first);
    if (*first == '[' && n > 2 && first[n - 1] == ']') {
        first++;
        n -= 2;
    }
    snprintf(host, room, "%.*s", (int)n, first);
    snprintf(port, port_room, "%d", (int)number);
    return true;
}

/* --- sockets -------------------------------------------------------------------------------- */

static socklen_t unix_name(const struct np_launch *launch, int rank, struct sockaddr_un *ret_at)
{
    *ret_at =
        (struct sockaddr_un){.sun_family = AF_UNIX}; /* a name that begins with 0 has no file */
    const int n = snprintf(
        ret_at->sun_path + 1, sizeof(ret_at->sun_path) - 1, "%s.%d", launch->address + 5, rank);
    const size_t bytes =
        (size_t)n < sizeof(ret_at->sun_path) - 1 ? (size_t)n : sizeof(ret_at->sun_path) - 1;

    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
}

static int listen_unix(struct meeting *m, struct np_err *err)
{
    struct sockaddr_un at;
    const socklen_t bytes = unix_name(m->launch, m->launch->rank, &at);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, bytes) < 0 || listen(fd, 64) < 0) {
        np_err_set(err, -errno, "rank %d cannot listen at %s: %s", m->launch->rank,
            m->launch->address, strerror(errno));
        if (fd >= 0)
            close(fd);
        return err->code;
    }
    m->listener = fd;
    return 0;
}

/* Listens at a port of all addresses, IPv6 (and with it IPv4) or IPv4 alone. Returns the socket, or a
 * negative errno. */
static int listen_at(int family, int port)
{
    const struct sockaddr_in6 ip6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in ip4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const bool six = family == AF_INET6;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, off = 0;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (six)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, six ? (const struct sockaddr *)&ip6 : (const struct sockaddr *)&ip4,
            six ? sizeof(ip6) : sizeof(ip4)) == 0 &&
        listen(fd, 64) == 0)
        return fd;
    const int why = errno;
    close(fd);
    return -why;
}

/* Rank 0 at the port that the address says, the others at any. */
static int listen_tcp(struct meeting *m, struct np_err *err)
{
    char host[256], port[8] = "0";
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);

    if (m->launch->rank == 0)
        split_tcp(m->launch->address, host, sizeof(host), port, sizeof(port));
    int fd = listen_at(AF_INET6, atoi(port));
    if (fd < 0 && fd != -EADDRINUSE)
        fd = listen_at(AF_INET, atoi(port));
    if (fd < 0)
        return np_err_set(err, fd,
            "rank %d cannot listen at port %s: %s; NNPIPE_COMM or NNPIPE_COMM_PORT takes another "
            "one",
            m->launch->rank, port, strerror(-fd));
    m->listener = fd;
    if (getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0)
        m->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                    : ((struct sockaddr_in *)&bound)->sin_port);
    return 0;
}

/* A machine that has gone silent counts as ended after ten seconds; one that waits does not. */
static void set_up(int fd)
{
    const int one = 1, idle_s = 4, between_s = 2, probes = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* fail for a unix socket */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof(between_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* Keepalive does not find the end of a machine to which something is on its way. This does, but it also ends
 * the connection of a process that does not read for as long, such as one that waits for its storage: so it
 * is for the line alone, on which the buffer takes all that is ever sent. */
static void set_up_line(int fd)
{
    const int unsent_ms = 10000;

    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof(unsent_ms));
}

/* Is the process at the other end of a unix socket ours? */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == getuid();
}

static int try_unix(const struct meeting *m, int rank)
{
    struct sockaddr_un at;
    const socklen_t bytes = unix_name(m->launch, rank, &at);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    int why = connect(fd, (struct sockaddr *)&at, bytes) < 0 ? errno : 0;
    if (why == 0 && is_ours(fd))
        return fd;
    close(fd);
    return why ? -why : -EACCES; /* another user has taken the name */
}

static int try_tcp(const char *host, const char *port)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1, why = EHOSTUNREACH;

    if (getaddrinfo(host, port, &wanted, &found) != 0)
        return -ENXIO; /* a name may take a while to be known */
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        const struct timeval limit = {3, 0}; /* of connect(): a network may drop what is sent */

        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
            why = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd < 0 ? -why : fd;
}

/* Sends or receives all of it before the time is over. */
static bool whole(int fd, void *bytes, size_t n, bool sends)
{
    const uint64_t end_ns = np_now_ns() + WORDS_MS * 1000000ull;
    char *at = bytes;

    while (n > 0) {
        struct pollfd wait = {fd, sends ? POLLOUT : POLLIN, 0};
        const uint64_t now = np_now_ns();

        if (now >= end_ns || poll(&wait, 1, (int)((end_ns - now) / 1000000) + 1) <= 0)
            return false;
        const ssize_t moved =
            sends ? send(fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, at, n, MSG_DONTWAIT);
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (moved > 0) {
            at += moved;
            n -= (size_t)moved;
        }
    }
    return true;
}

/* --- the meeting ---------------------------------------------------------------------------- */

static void own_hello(const struct meeting *m, struct hello *ret_hello)
{
    *ret_hello = (struct hello){.magic = MAGIC,
        .rank = (uint32_t)m->launch->rank,
        .world = (uint32_t)m->launch->world,
        .process = (uint32_t)getpid(),
        .port = (uint32_t)m->port,
        .key = m->key,
        .use = m->use};
    gethostname(ret_hello->host, sizeof(ret_hello->host) - 1);
}

/* Connects to a process and says hello. Returns the socket, or a negative errno. */
static int call(const struct meeting *m, int rank, const char *host, const char *port)
{
    struct hello hello;
    const int fd = is_unix(m->launch) ? try_unix(m, rank) : try_tcp(host, port);

    if (fd < 0)
        return fd;
    set_up(fd);
    own_hello(m, &hello);
    if (whole(fd, &hello, sizeof(hello), true))
        return fd;
    close(fd);
    return -ECONNRESET;
}

/* Of call(). */
static const char *reason(int code)
{
    return code == -ENXIO         ? "the name of that machine is not known here"
           : code == -EINPROGRESS ? "it does not answer"
                                  : strerror(-code);
}

/* The same, until it works or the time is over. */
static int call_again(
    struct meeting *m, int rank, const char *host, const char *port, struct np_err *err)
{
    int fd = call(m, rank, host, port);

    while (fd < 0 && left_ms(m) > 0) {
        np_sleep_until_ns(np_now_ns() + AGAIN_MS * 1000000ull);
        fd = call(m, rank, host, port);
    }
    if (fd < 0)
        np_err_set(err, -ETIMEDOUT, "rank %d has not reached rank %d at %s%s%s within %d s: %s",
            m->launch->rank, rank, *host ? host : m->launch->address, *port ? ":" : "", port,
            m->seconds, reason(fd));
    return fd;
}

static void dismiss(struct meeting *m, int i)
{
    close(m->guests[i].fd);
    m->guests[i] = m->guests[--m->nr_guests];
}

static void let_in(struct meeting *m)
{
    const int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    set_up(fd);
    m->guests[m->nr_guests++] =
        (struct guest){.fd = fd, .end_ns = np_now_ns() + WORDS_MS * 1000000ull};
    if (is_unix(m->launch) && !is_ours(fd))
        dismiss(m, m->nr_guests - 1);
}

/* Takes what a guest says. Returns its connection, the caller's, when it has said hello with our key. */
static int listen_to(struct meeting *m, int i, uint64_t key, struct hello *ret_hello)
{
    struct guest *guest = &m->guests[i];
    struct hello *hello = &guest->hello;
    const ssize_t n =
        recv(guest->fd, (char *)hello + guest->nr, sizeof(*hello) - guest->nr, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n > 0 && (guest->nr += (size_t)n) < sizeof(*hello))
        return -EAGAIN;
    if (n <= 0 || memcmp(hello->magic, MAGIC, sizeof(hello->magic)) != 0 || hello->key != key) {
        dismiss(m, i);
        return -EAGAIN;
    }
    hello->host[sizeof(hello->host) - 1] = '\0';
    const int fd = guest->fd;
    *ret_hello = *hello;
    *guest = m->guests[--m->nr_guests];
    return fd;
}

/* Waits for the listener, and for what the guests say; those who have said too little for too long leave. */
static void await_news(struct meeting *m, struct pollfd wait[1 + MAX_GUESTS])
{
    int ms = left_ms(m);

    wait[0] = (struct pollfd){m->nr_guests < MAX_GUESTS ? m->listener : -1, POLLIN, 0};
    for (int i = 0; i < m->nr_guests; i++)
        wait[1 + i] = (struct pollfd){m->guests[i].fd, POLLIN, 0};
    if (m->nr_guests > 0 && ms > AGAIN_MS)
        ms = AGAIN_MS;
    if (poll(wait, (nfds_t)m->nr_guests + 1, ms) < 0)
        memset(wait, 0, (1 + MAX_GUESTS) * sizeof(*wait)); /* a signal */
}

/* The next process that connects and says hello with our key. -ETIMEDOUT. */
static int answer(struct meeting *m, uint64_t key, struct hello *ret_hello)
{
    struct pollfd wait[1 + MAX_GUESTS];

    while (left_ms(m) > 0) {
        await_news(m, wait);
        for (int i = m->nr_guests - 1; i >= 0; i--) {
            const int fd = wait[1 + i].revents ? listen_to(m, i, key, ret_hello) : -EAGAIN;

            if (fd >= 0)
                return fd;
            if (!wait[1 + i].revents && m->guests[i].end_ns <= np_now_ns())
                dismiss(m, i);
        }
        if (wait[0].revents)
            let_in(m);
    }
    return -ETIMEDOUT;
}

static void note_place(int fd, const struct hello *hello, struct place *ret_place)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);

    *ret_place = (struct place){.process = hello->process};
    memcpy(ret_place->host, hello->host, sizeof(ret_place->host));
    if (hello->port == 0 || getpeername(fd, (struct sockaddr *)&from, &bytes) < 0)
        return;
    const struct sockaddr_in *ip4 = (const struct sockaddr_in *)&from;
    const struct sockaddr_in6 *ip6 = (const struct sockaddr_in6 *)&from;
    snprintf(ret_place->port, sizeof(ret_place->port), "%u", hello->port & 0xffff);
    /* From here: where rank 0 is, for the others. */
    if (from.ss_family == AF_INET
            ? ntohl(ip4->sin_addr.s_addr) >> 24 == 127
            : IN6_IS_ADDR_LOOPBACK(&ip6->sin6_addr) ||
                  (IN6_IS_ADDR_V4MAPPED(&ip6->sin6_addr) && ip6->sin6_addr.s6_addr[12] == 127))
        return;
    getnameinfo((struct sockaddr *)&from, bytes, ret_place->at, sizeof(ret_place->at), NULL, 0,
        NI_NUMERICHOST);
}

static int name_absent(const struct meeting *m, const int *fds, struct np_err *err)
{
    char ranks[200] = "";

    for (int r = 1; r < m->launch->world && strlen(ranks) < 150; r++)
        if (fds[r] < 0)
            snprintf(ranks + strlen(ranks), sizeof(ranks) - strlen(ranks), "%s%d",
                *ranks ? ", " : "", r);
    return np_err_set(err, -ETIMEDOUT,
        "of %d processes, rank %s did not come within %d s (NNPIPE_COMM_TIMEOUT)", m->launch->world,
        ranks, m->seconds);
}

/* Rank 0: all come, then each receives the key and the table. */
static int receive_all(struct meeting *m, struct np_err *err)
{
    const int world = m->launch->world;
    int *fds = np_alloc((size_t)world * sizeof(*fds)), code = 0;
    struct hello hello;

    for (int r = 0; r < world; r++)
        fds[r] = -1;
    own_hello(m, &hello);
    note_place(-1, &hello, &m->places[0]);
    for (int missing = world - 1; missing > 0 && code == 0;) {
        const int fd = answer(m, 0, &hello);

        if (fd < 0) {
            code = name_absent(m, fds, err);
        } else if (hello.world != (uint32_t)world || hello.rank == 0 || hello.rank >= hello.world ||
                   fds[hello.rank] >= 0) {
            close(fd);
            code = np_err_set(err, -EINVAL,
                "process %u on %s says that it is rank %u of %u; here are %d, and %s",
                hello.process, hello.host, hello.rank, hello.world, world,
                hello.world == (uint32_t)world ? "that rank is taken"
                                               : "all must have the same number");
        } else {
            fds[hello.rank] = fd;
            note_place(fd, &hello, &m->places[hello.rank]);
            missing--;
        }
    }
    if (code == 0 && getrandom(&m->key, sizeof(m->key), 0) != sizeof(m->key))
        m->key = np_now_ns();
    m->key |= 1;
    for (int r = 1; r < world; r++) {
        if (fds[r] < 0)
            continue;
        if (code == 0 && (!whole(fds[r], &m->key, sizeof(m->key), true) ||
                             !whole(fds[r], m->places, (size_t)world * sizeof(*m->places), true)))
            code = np_err_set(err, -ECONNRESET, "rank %d has ended", r);
        close(fds[r]);
    }
    np_free(fds);
    return code;
}

/* Waits for rank 0's table, which comes when all have come. */
static int await_table(struct meeting *m, int fd, struct np_err *err)
{
    struct pollfd wait = {fd, POLLIN, 0};
    const size_t bytes = (size_t)m->launch->world * sizeof(*m->places);

    if (poll(&wait, 1, left_ms(m) + WORDS_MS) <= 0 || !whole(fd, &m->key, sizeof(m->key), false) ||
        !whole(fd, m->places, bytes, false))
        return np_err_set(err, -ECONNRESET, "rank 0 has ended, or does not wait for rank %d of %d",
            m->launch->rank, m->launch->world);
    for (int r = 0; r < m->launch->world; r++) {
        m->places[r].host[sizeof(m->places[r].host) - 1] = '\0';
        m->places[r].at[sizeof(m->places[r].at) - 1] = '\0';
        m->places[r].port[sizeof(m->places[r].port) - 1] = '\0';
    }
    return 0;
}

static int report_to_rank_0(struct meeting *m, struct np_err *err)
{
    char host[256] = "", port[8] = "";

    if (!is_unix(m->launch))
        split_tcp(m->launch->address, host, sizeof(host), port, sizeof(port));
    const int fd = call_again(m, 0, host, port, err);
    if (fd < 0)
        return -ETIMEDOUT;
    const int code = await_table(m, fd, err);
    close(fd);
    /* Those that rank 0 sees at no address, or at its own machine's, are where rank 0 was called. */
    for (int r = 0; r < m->launch->world; r++)
        if (!*m->places[r].at)
            snprintf(m->places[r].at, sizeof(m->places[r].at), "%s", host);
    snprintf(m->places[0].port, sizeof(m->places[0].port), "%s", port);
    return code;
}

/* The connections of two neighbours; NULL: no such use. */
#define NR_USES  3
#define USE_LINE 1
static int *slot_of(struct np_link *link, uint32_t use)
{
    return use == 0 ? &link->fd : use == USE_LINE ? &link->line : use == 2 ? &link->sums : NULL;
}

static int call_neighbour(struct meeting *m, int rank, struct np_link *link, struct np_err *err)
{
    const struct place *place = &m->places[rank];

    for (m->use = 0; m->use < NR_USES; m->use++) {
        int *fd = slot_of(link, m->use);

        if ((*fd = call_again(m, rank, place->at, place->port, err)) < 0)
            return *fd;
        if (m->use == USE_LINE)
            set_up_line(*fd);
    }
    return 0;
}

/* The place of a connection that a neighbour has made; NULL: none is due from there. */
static int *place_of(const struct meeting *m, const struct hello *hello, struct np_link *links)
{
    const int rank = m->launch->rank, other = (int)hello->rank, bit = other ^ rank;

    if (other <= rank || other >= m->launch->world || bit & (bit - 1))
        return NULL;
    int *fd = slot_of(&links[__builtin_ctz((unsigned)bit)], hello->use);
    return fd && *fd < 0 ? fd : NULL;
}

/* Calls the neighbours with lower ranks, and answers the others. */
static int link_up(struct meeting *m, struct np_link *links, struct np_err *err)
{
    const int rank = m->launch->rank;
    int waits = 0, code = 0;

    for (int k = 0; code == 0 && 1 << k < m->launch->world; k++) {
        const int other = rank ^ (1 << k);

        if (other >= m->launch->world)
            continue;
        snprintf(links[k].name, sizeof(links[k].name), "rank %d (process %u on %s)", other,
            m->places[other].process, m->places[other].host);
        if (other > rank)
            waits += NR_USES;
        else
            code = call_neighbour(m, other, &links[k], err);
    }
    while (code == 0 && waits > 0) {
        struct hello hello = {0};
        const int fd = answer(m, m->key, &hello);

        if (fd == -ETIMEDOUT)
            code =
                np_err_set(err, -ETIMEDOUT, "%d neighbours of rank %d did not connect within %d s",
                    (waits + NR_USES - 1) / NR_USES, rank, m->seconds);
        if (fd < 0)
            continue;
        int *place = place_of(m, &hello, links);
        if (place) {
            *place = fd;
            waits--;
            if (hello.use == USE_LINE)
                set_up_line(fd);
        } else {
            close(fd);
        }
    }
    return code;
}

/* False: it is no number. */
static bool read_timeout(int64_t *ret_seconds)
{
    const char *text = getenv("NNPIPE_COMM_TIMEOUT");

    *ret_seconds = 60;
    return !text || np_text_int(text, 1, MAX_TIMEOUT, ret_seconds);
}

static int check_launch(const struct np_launch *launch, struct np_err *err)
{
    char host[256], port[8];
    int64_t seconds;

    if (launch->world > 1 << NP_MAX_LINKS)
        return np_err_set(
            err, -EINVAL, "%d processes: a run has at most %d", launch->world, 1 << NP_MAX_LINKS);
    if (is_unix(launch) && strlen(launch->address) > MAX_UNIX)
        return np_err_set(err, -EINVAL, "%.200s: a unix name has at most %d bytes", launch->address,
            MAX_UNIX - 5);
    if (!read_timeout(&seconds))
        return np_err_set(err, -EINVAL, "NNPIPE_COMM_TIMEOUT=%.40s: expected seconds, 1 to %d",
            getenv("NNPIPE_COMM_TIMEOUT"), MAX_TIMEOUT);
    if (!is_unix(launch) && !split_tcp(launch->address, host, sizeof(host), port, sizeof(port)))
        return np_err_set(err, -EINVAL, "NNPIPE_COMM=%.200s: expected tcp:HOST:PORT or unix:NAME",
            launch->address);
    return 0;
}

int np_comm_timeout_s(void)
{
    int64_t seconds;

    read_timeout(&seconds); /* np_meet() has refused another text */
    return (int)seconds;
}

int np_meet(const struct np_launch *launch, struct np_link *links, struct np_err *err)
{
    struct meeting m = {.launch = launch, .listener = -1};
    int code = check_launch(launch, err);

    if (code < 0)
        return code;
    m.seconds = np_comm_timeout_s();
    m.deadline_ns = np_now_ns() + (uint64_t)m.seconds * 1000000000ull;
    m.places = np_alloc((size_t)launch->world * sizeof(*m.places));
    for (int k = 0; k < NP_MAX_LINKS; k++)
        links[k].fd = links[k].line = links[k].sums = -1;
    if ((code = is_unix(launch) ? listen_unix(&m, err) : listen_tcp(&m, err)) == 0)
        code = launch->rank == 0 ? receive_all(&m, err) : report_to_rank_0(&m, err);
    if (code == 0)
        code = link_up(&m, links, err);
    for (int k = 0; code < 0 && k < NP_MAX_LINKS; k++)
        for (uint32_t use = 0; use < NR_USES; use++)
            if (*slot_of(&links[k], use) >= 0)
                close(*slot_of(&links[k], use));
    while (m.nr_guests > 0)
        dismiss(&m, 0);
    if (m.listener >= 0)
        close(m.listener);
    np_free(m.places);
    return code;
}
