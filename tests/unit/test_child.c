/* Processes that do one thing, and what they say. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/child.h"
#include "loader/base/clock.h"
#include "tests/test.h"

static int say_much(const void *context, int out_fd)
{
    const size_t *nr = context;
    char text[1000];

    memset(text, 'x', sizeof(text));
    for (size_t left = *nr; left > 0;) {
        const size_t n = left < sizeof(text) ? left : sizeof(text);

        if (np_child_write(out_fd, text, n) < 0)
            return 1;
        left -= n;
    }
    return 0;
}

static int hang(const void *context, int out_fd)
{
    (void)context;
    np_child_write(out_fd, "x", 1);
    while (pause() < 0)
        ;
    return 0;
}

/* Says which descriptors it has. */
static int say_open(const void *context, int out_fd)
{
    char text[64];

    (void)context;
    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0) {
            snprintf(text, sizeof(text), "%d ", fd);
            np_child_write(out_fd, text, strlen(text));
        }
    return 0;
}

static int await(struct np_child *child)
{
    int code;

    while ((code = np_child_turn(child)) == 0)
        usleep(500);
    return code;
}

static void end(struct np_child *child)
{
    const pid_t left = np_child_stop(child);

    while (left && !np_child_reap(left))
        usleep(500);
}

static struct np_child begin(np_child_fn *work, const void *context, double seconds, size_t most)
{
    const struct np_child_start start = {.uid = getuid(),
        .gid = getgid(),
        .work = work,
        .context = context,
        .epoll_fd = -1,
        .max_s = seconds,
        .max_bytes = most};
    struct np_child child = {.fd = -1};

    if (np_child_start(&start, &child, NULL) < 0) /* its fd is -1 then, and nothing is gathered */
        fprintf(stderr, "# no child\n");
    return child;
}

Test(child, its_output_is_collected, .timeout = 120)
{
    for (size_t nr = 0; nr < 300000; nr = 3 * nr + 1) {
        struct np_child child = begin(say_much, &nr, 10, 1 << 20);

        cr_assert_eq(await(&child), 1);
        cr_assert_eq(child.used, nr);
        cr_assert_eq(strlen(child.text), nr);
        end(&child);
    }
}

Test(child, a_child_that_prints_too_much_is_killed, .timeout = 120)
{
    const size_t nr = 1 << 20;
    struct np_child child = begin(say_much, &nr, 10, 100000);

    cr_assert_eq(await(&child), -EFBIG);
    end(&child);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
}

Test(child, a_hanging_child_is_killed, .timeout = 120)
{
    struct np_child child = begin(hang, NULL, 0.2, 100);
    const pid_t pid = child.pid;

    cr_assert_eq(await(&child), -ETIMEDOUT);
    end(&child);
    cr_assert(child.pid == 0 && kill(pid, 0) < 0 && errno == ESRCH);
}

Test(child, it_inherits_no_descriptor_of_the_service, .timeout = 120)
{
    const int extra = dup(0), more = fcntl(0, F_DUPFD, 77);
    struct np_child child = begin(say_open, NULL, 10, 1000);

    cr_assert_eq(await(&child), 1);
    cr_assert_str_eq(child.text, "0 1 2 3 ");
    end(&child);
    close(extra);
    close(more);
}

Test(child, its_end_wakes_the_waiting_caller_and_leaves_nothing_behind, .timeout = 120)
{
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    const size_t nr = 5;
    const struct np_child_start start = {.uid = getuid(),
        .gid = getgid(),
        .work = say_much,
        .context = &nr,
        .epoll_fd = epoll_fd,
        .max_s = 10,
        .max_bytes = 100};
    struct epoll_event event;
    struct np_child child;

    cr_assert_eq(np_child_start(&start, &child, NULL), 0);
    cr_assert_eq(epoll_wait(epoll_fd, &event, 1, 5000), 1);
    cr_assert_eq(await(&child), 1);
    end(&child);
    cr_assert_eq(epoll_wait(epoll_fd, &event, 1, 0), 0);
    close(epoll_fd);
}

static int pass_a_pipe(const void *context, int out_fd)
{
    int fds[2];

    (void)context;
    return pipe(fds) < 0 || write(fds[1], "hello", 5) != 5 ||
           np_child_pass(out_fd, '0', fds[0]) < 0 || np_child_write(out_fd, "1", 1) < 0;
}

Test(child, a_passed_descriptor_is_taken_where_one_is_expected, .timeout = 120)
{
    for (int wanted = 0; wanted < 2; wanted++) {
        const struct np_child_start start = {.uid = getuid(),
            .gid = getgid(),
            .work = pass_a_pipe,
            .epoll_fd = -1,
            .max_s = 10,
            .max_bytes = 100,
            .takes_fd = wanted};
        struct np_child child;
        char text[8] = "";

        cr_assert_eq(np_child_start(&start, &child, NULL), 0);
        cr_assert_eq(await(&child), 1);
        cr_assert_str_eq(child.text, "01");
        cr_assert_eq(child.passed_fd >= 0, wanted);
        if (wanted) {
            cr_assert_eq(read(child.passed_fd, text, sizeof(text)), 5);
            cr_assert_str_eq(text, "hello");
        }
        end(&child);
    }
}

/* As processes that wait for storage in the kernel: nothing ends them but the storage. */
static pid_t fork_one_that_waits(const int fds[2])
{
    const pid_t pid = fork();
    char byte;

    if (pid == 0) {
        close(fds[1]);
        _exit(read(fds[0], &byte, 1) != 0);
    }
    return pid;
}

Test(child, a_user_whose_processes_cannot_be_killed_gets_no_new_ones, .timeout = 120)
{
    const size_t nr = 1;
    struct np_child_start start = {.uid = getuid(),
        .gid = getgid(),
        .work = say_much,
        .context = &nr,
        .epoll_fd = -1,
        .max_s = 10,
        .max_bytes = 100};
    struct np_child child;
    struct np_err err = {0};
    siginfo_t left;
    int fds[2], code = 0, n = 0;

    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    for (; n < 100 && code == 0; n++) {
        np_child_leave(fork_one_that_waits(fds), getuid() + 1);
        start.uid = getuid() + 1;
        code = np_child_start(&start, &child, &err); /* it may not become that user, but is there */
        if (code == 0)
            end(&child);
    }
    cr_assert_eq(code, -EBUSY);
    cr_assert(strstr(err.text, "hang in storage"), "%s", err.text);
    start.uid = getuid();
    cr_assert_eq(np_child_start(&start, &child, NULL), 0); /* another user's are not held up */
    end(&child);
    close(fds[1]); /* the storage answers */
    start.uid = getuid() + 1;
    while (np_child_start(&start, &child, &err) == -EBUSY)
        usleep(500);
    end(&child);
    while (waitid(P_ALL, 0, &left, WEXITED | WNOHANG | WNOWAIT) == 0) { /* until there is none */
        np_child_reap(0);
        usleep(500);
    }
}
