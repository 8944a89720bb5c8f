/* The processes of a run find each other over TCP, and what becomes of their connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/comm.h"
#include "trainer/comm_line.h"
#include "trainer/comm_wire.h"
#include "trainer/comm_meet.h"

#include "tests/test.h"
#include "tests/unit/made_launch.h"

/* Milliseconds after which bytes that were not taken end a connection; 0: never. */
static int unsent_ms(int fd)
{
    int ms = -1;
    socklen_t bytes = sizeof(ms);

    getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &bytes);
    return ms;
}

/* Sums may be more than the buffers take, and the other end may wait for its storage. */
static bool only_lines_time_out(int rank, const char *address)
{
    struct np_launch launch = {rank, 3, rank, 3, "test", "", -1};
    struct np_link links[NP_MAX_LINKS];
    struct np_err err = {0};

    snprintf(launch.address, sizeof(launch.address), "%s", address);
    if (np_meet(&launch, links, &err) < 0)
        return false;
    for (int k = 0; k < NP_MAX_LINKS; k++)
        if (links[k].fd >= 0 && (unsent_ms(links[k].fd) != 0 || unsent_ms(links[k].sums) != 0 ||
                                    unsent_ms(links[k].line) != 10000))
            return false;
    return true;
}

Test(meet, who_does_not_read_for_long_is_not_taken_for_dead, .timeout = 120)
{
    char address[60];
    pid_t pids[2];
    int status;

    made_launch_clear();
    snprintf(address, sizeof(address), "tcp:127.0.0.1:%d", made_launch_port());
    for (int i = 0; i < 2; i++)
        if ((pids[i] = fork()) == 0)
            _exit(!only_lines_time_out(i + 1, address));
    cr_assert(only_lines_time_out(0, address));
    for (int i = 0; i < 2; i++)
        cr_assert(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
}

/* A line that ends as that of a machine which is gone: with an error. Returns its other end. */
static int connection_lost(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger none = {.l_onoff = 1};
    socklen_t bytes = sizeof(at);
    const int listener = socket(AF_INET, SOCK_STREAM, 0), lost = socket(AF_INET, SOCK_STREAM, 0);

    cr_assert_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&at, &bytes);
    cr_assert_eq(connect(lost, (struct sockaddr *)&at, sizeof(at)), 0);
    const int here = accept(listener, NULL, NULL);
    setsockopt(lost, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(lost);
    close(listener);
    return here;
}

Test(meet, a_machine_that_is_gone_ends_all_exchanges, .timeout = 120)
{
    struct np_link link = {.name = "rank 1 (process 7 on box)", .line = connection_lost()};
    const struct np_head head = {NP_MESSAGE_ANY, 0, 1, 4};
    struct np_head other;
    struct np_line *line;
    struct np_err err = {0};
    const int ended = eventfd(0, EFD_CLOEXEC);
    uint32_t bits = 0;
    int fd[2]; /* to a process that does not answer */

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    cr_assert_eq(np_line_new(&link, 1, ended, &line, &err), 0);
    const struct np_wire wire = {fd[0], ended};
    cr_assert_eq(np_wire_exchange(wire, &head, &bits, &bits, sizeof(bits), &other), -ECONNRESET);
    cr_assert_eq(np_line_heard(line, &err), -ECONNRESET);
    cr_assert_str_eq(err.text, "rank 1 (process 7 on box) has ended");
    np_line_free(line);
}

Test(meet, a_machine_whose_name_is_not_known_is_named, .timeout = 120)
{
    struct np_launch launch = {1, 2, 1, 2, "test", "tcp:none.invalid:29500", -1};
    struct np_link links[NP_MAX_LINKS];
    struct np_err err = {0};

    made_launch_clear();
    setenv("NNPIPE_COMM_TIMEOUT", "1", 1);
    cr_assert_eq(np_meet(&launch, links, &err), -ETIMEDOUT);
    cr_assert(strstr(err.text, "the name of that machine is not known here"), "%s", err.text);
}

Test(meet, a_timeout_that_is_no_number_is_refused)
{
    struct np_launch launch = {0, 2, 0, 2, "test", "unix:nnpipe-test-timeout", -1};
    struct np_comm *comm;
    struct np_err err = {0};

    made_launch_clear();
    setenv("NNPIPE_COMM_TIMEOUT", "5m", 1);
    cr_assert_eq(np_comm_open(&launch, &comm, &err), -EINVAL);
    cr_assert_str_eq(err.text, "NNPIPE_COMM_TIMEOUT=5m: expected seconds, 1 to 86400");
}

/* As rank 1 of 2: connects, and says hello half a second later, as a process on a busy machine. Returns the
 * connection. */
static int come_late(int port, uint64_t key, uint32_t use)
{
    const struct {
        char magic[8];
        uint32_t rank, world, process, port;
        uint64_t key;
        uint32_t use;
        char host[64];
    } hello = {"nnpipe-2", 1, 2, 7, 1, key, use, "late"};
    struct sockaddr_in at = {.sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    while (connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
        close(fd);
        usleep(2000);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    usleep(500000);
    send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
    return fd;
}

Test(meet, who_says_hello_late_is_waited_for, .timeout = 120)
{
    struct np_launch launch = {0, 2, 0, 2, "test", "", -1};
    struct np_comm *comm;
    struct np_err err = {0};
    const int port = made_launch_port();

    made_launch_clear();
    setenv("NNPIPE_COMM_TIMEOUT", "20", 1);
    snprintf(launch.address, sizeof(launch.address), "tcp:127.0.0.1:%d", port);
    const pid_t pid = fork();
    if (pid == 0) {
        uint64_t key = 0;
        const int fd = come_late(port, 0, 0);

        alarm(30);
        if (recv(fd, &key, sizeof(key), MSG_WAITALL) == sizeof(key))
            for (uint32_t use = 0; use < 3; use++)
                come_late(port, key, use);
        _exit(0);
    }
    cr_assert_eq(np_comm_open(&launch, &comm, &err), -ECONNRESET); /* in the first exchange */
    cr_assert_str_eq(err.text, "rank 1 (process 7 on late) has ended");
    waitpid(pid, NULL, 0);
}
