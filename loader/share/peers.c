/* See peers.h. */
#include "loader/share/peers.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/source/source.h"

#define VERSION 3 /* of what is shared: a change makes other programs strangers */
#define MAGIC   0x6572616873706e6eull

/* What two processes tell each other, with the descriptor of what they offer. */
struct hello {
    uint64_t magic, version, hash, id;
};

struct np_peers {
    struct hello hello; /* set once, as all up to peers */
    struct np_peers_options options;
    int dir, listener;
    char name[48], new_name[48];         /* of the socket: while it listens, before that */
    struct np_peer *peers[NP_PEERS_MAX]; /* (nr_peers) */
    int nr_peers;
    _Atomic int nr_met;
};

/* --- the folder ----------------------------------------------------------------------------- */

/* Opens path/nnpipe-share, which only this user can enter; made if path exists. */
static int open_below(const char *path, struct np_err *err)
{
    char *name = np_try_format(err, "%s/nnpipe-share", path);
    struct stat st;
    int fd;

    if (!name)
        return -ENOMEM;
    if (mkdir(name, 0700) < 0 && errno != EEXIST) {
        fd = np_err_set(err, -errno, "%s: cannot be created: %s", name, strerror(errno));
        np_free(name);
        return fd;
    }
    fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 0077)) {
        if (fd >= 0)
            close(fd);
        fd = -EPERM;
        np_err_set(err, fd, "%s: not used, because others own it or can enter it", name);
    }
    np_free(name);
    return fd;
}

static int open_folder(struct np_err *err)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char run[40], *cache = NULL;
    struct np_err why = {0};
    int fd = -ENOENT;

    snprintf(run, sizeof(run), "/run/user/%ld", (long)geteuid());
    if (xdg && *xdg == '/')
        fd = open_below(xdg, &why);
    if (fd < 0 && fd != -ENOMEM && access(run, W_OK | X_OK) == 0)
        fd = open_below(run, &why);
    if (fd == -ENOMEM && err)
        *err = why;
    if (fd >= 0 || fd == -ENOMEM)
        return fd;
    fd = np_cache_dir(NULL, &cache, err);
    if (fd < 0)
        return fd;
    fd = np_make_dirs(cache, err);
    if (!fd)
        fd = open_below(cache, err);
    np_free(cache);
    return fd;
}

/* The address of a socket in the folder, whose own path may be too long for one. */
static struct sockaddr_un address_of(const struct np_peers *peers, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", peers->dir, name);
    return address;
}

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* The socket gets its name when it listens: one that refuses connections belongs to nobody. */
static int listen_here(struct np_peers *peers, struct np_err *err)
{
    struct sockaddr_un address;

    snprintf(peers->name, sizeof(peers->name), "%016llx-%016llx",
        (unsigned long long)peers->hello.hash, (unsigned long long)peers->hello.id);
    snprintf(peers->new_name, sizeof(peers->new_name), ".%s", peers->name);
    address = address_of(peers, peers->new_name);
    peers->listener = new_socket();
    if (peers->listener < 0 ||
        bind(peers->listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(peers->listener, NP_PEERS_MAX) < 0 ||
        renameat(peers->dir, peers->new_name, peers->dir, peers->name) < 0)
        return np_err_set(err, -errno, "no socket to share data: %s", strerror(errno));
    return 0;
}

/* --- a connection --------------------------------------------------------------------------- */

static int send_hello(const struct np_peers *peers, int to)
{
    struct hello hello = peers->hello;
    struct iovec data = {&hello, sizeof(hello)};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = control.space,
        .msg_controllen = sizeof(control.space)};
    const int fd = peers->options.fd;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    return sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(hello) ? 0 : -EIO;
}

/* 1: here it is, with the peer's descriptor, or -1; 0: not yet; -EPIPE: the peer has ended. */
static int receive(int from, struct hello *ret_hello, int *ret_fd)
{
    struct iovec data = {ret_hello, sizeof(*ret_hello)};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = control.space,
        .msg_controllen = sizeof(control.space)};
    const ssize_t n = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *rights = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;

    *ret_fd = -1;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(rights), sizeof(*ret_fd));
    if (n == sizeof(*ret_hello))
        return 1;
    if (*ret_fd >= 0)
        close(*ret_fd);
    return -EPIPE;
}

static bool is_own_user(int fd)
{
    struct ucred cred;
    socklen_t bytes = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) == 0 && cred.uid == geteuid();
}

/* Takes the connection, or closes it. */
static void add(struct np_peers *peers, int fd)
{
    struct np_peer *peer = NULL;

    if (peers->nr_peers < NP_PEERS_MAX && is_own_user(fd) && send_hello(peers, fd) == 0)
        peer = np_try_alloc(sizeof(*peer), NULL);
    if (!peer) {
        close(fd);
        return;
    }
    peer->fd = fd;
    peers->peers[peers->nr_peers++] = peer;
}

/* The sockets of dead processes are removed; those of other sets are left alone. */
static void visit(struct np_peers *peers, const char *name)
{
    const struct sockaddr_un address = address_of(peers, name);
    const int fd = new_socket();

    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno == ECONNREFUSED)
            unlinkat(peers->dir, name, 0);
        close(fd);
        return;
    }
    if (strncmp(name, peers->name, 17) == 0) /* the hash */
        add(peers, fd);
    else
        close(fd);
}

static void visit_all(struct np_peers *peers)
{
    const int fd = openat(peers->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, peers->name) != 0)
            visit(peers, entry->d_name);
    closedir(dir);
}

/* --- open and close ------------------------------------------------------------------------- */

int np_peers_open(
    const struct np_peers_options *options, struct np_peers **ret_peers, struct np_err *err)
{
    struct np_peers *peers = np_try_alloc(sizeof(*peers), err);
    int code = 0;

    if (!peers)
        return -ENOMEM;
    peers->hello = (struct hello){.magic = MAGIC, .version = VERSION, .hash = options->hash};
    peers->options = *options;
    peers->listener = -1;
    peers->dir = open_folder(err);
    if (peers->dir < 0)
        code = peers->dir;
    else if (getrandom(&peers->hello.id, sizeof(peers->hello.id), 0) != sizeof(peers->hello.id))
        code = np_err_set(err, -errno, "getrandom: %s", strerror(errno));
    else
        code = listen_here(peers, err);
    if (code) {
        np_peers_close(peers);
        return code;
    }
    visit_all(peers);
    *ret_peers = peers;
    return 0;
}

static void free_peer(const struct np_peers *peers, struct np_peer *peer)
{
    assert(peer->nr_users == 0);
    if (peer->fd >= 0)
        close(peer->fd);
    if (peer->view)
        peers->options.view_free(peer->view);
    np_free(peer);
}

void np_peers_close(struct np_peers *peers)
{
    if (!peers)
        return;
    for (int i = 0; i < peers->nr_peers; i++)
        free_peer(peers, peers->peers[i]);
    if (peers->dir >= 0 && *peers->name) {
        unlinkat(peers->dir, peers->name, 0);
        unlinkat(peers->dir, peers->new_name, 0);
    }
    if (peers->listener >= 0)
        close(peers->listener);
    if (peers->dir >= 0)
        close(peers->dir);
    np_free(peers);
}

/* --- poll ----------------------------------------------------------------------------------- */

static bool is_known(const struct np_peers *peers, uint64_t id)
{
    for (int i = 0; i < peers->nr_peers; i++)
        if (peers->peers[i]->view && peers->peers[i]->id == id)
            return true;
    return id == peers->hello.id;
}

/* Ends the connection; the view stays while a thread copies from it. */
static void end(struct np_peers *peers, struct np_peer *peer)
{
    if (peer->fd >= 0) {
        close(peer->fd);
        atomic_fetch_sub(&peers->nr_met, peer->view != NULL);
    }
    peer->fd = -1;
}

static void listen_to(struct np_peers *peers, struct np_peer *peer)
{
    struct hello hello = {0};
    int fd, code = receive(peer->fd, &hello, &fd);

    if (code == 0)
        return;
    if (code > 0 && !peer->view && !peer->twin && fd >= 0 && hello.magic == MAGIC &&
        hello.version == VERSION && hello.hash == peers->hello.hash) {
        peer->id = hello.id;
        peer->twin = is_known(peers, hello.id);
        if (!peer->twin)
            peer->view = peers->options.view_new(fd, peers->options.context);
        code = peer->twin || peer->view ? 0 : -EPROTO;
        atomic_fetch_add(&peers->nr_met, peer->view != NULL);
    } else {
        code = -EPROTO;
    }
    if (fd >= 0)
        close(fd);
    if (code < 0)
        end(peers, peer);
}

static void accept_all(struct np_peers *peers)
{
    for (;;) {
        const int fd = accept4(peers->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        add(peers, fd);
    }
}

void np_peers_poll(struct np_peers *peers)
{
    struct pollfd polls[NP_PEERS_MAX + 1];
    const int nr_peers = peers->nr_peers;
    int nr_left = 0;

    for (int i = 0; i < nr_peers; i++)
        polls[i] = (struct pollfd){.fd = peers->peers[i]->fd, .events = POLLIN};
    polls[nr_peers] = (struct pollfd){.fd = peers->listener, .events = POLLIN};
    if (poll(polls, (nfds_t)nr_peers + 1, 0) > 0) {
        for (int i = 0; i < nr_peers; i++)
            if (polls[i].revents)
                listen_to(peers, peers->peers[i]);
        if (polls[nr_peers].revents)
            accept_all(peers);
        for (int i = nr_peers; i < peers->nr_peers; i++) /* a newcomer has said hello already */
            listen_to(peers, peers->peers[i]);
    }
    for (int i = 0; i < peers->nr_peers; i++) {
        struct np_peer *peer = peers->peers[i];

        if (peer->fd < 0 && peer->nr_users == 0)
            free_peer(peers, peer);
        else
            peers->peers[nr_left++] = peer;
    }
    peers->nr_peers = nr_left;
}

struct np_peer *np_peers_get(const struct np_peers *peers, int i)
{
    return i < peers->nr_peers ? peers->peers[i] : NULL;
}

uint64_t np_peers_id(const struct np_peers *peers)
{
    return peers->hello.id;
}

int np_peers_met(const struct np_peers *peers)
{
    return atomic_load_explicit(&peers->nr_met, memory_order_relaxed);
}
