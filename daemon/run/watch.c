/* The thread sleeps in poll() on a signalfd and an eventfd. */
#include "daemon/run/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/ring.h"
#include "trainer/comm.h"

#define LONG_WAIT_NS 4500000000ull /* plus the period: below 5 s */
#define PERIOD_MS    400
#define RECENT_NS    30000000000ull /* a refusal by a server is still worth a word */
#define ECHO_NS      500000000ull

struct np_watch {
    struct np_stat *stat; /* set once */
    void (*say)(void *context, const char *text);
    void *context;
    bool saves;
    sigset_t signals, old_mask;
    int signal_fd, end_fd;
    pthread_t thread;
    bool said_wait; /* this thread only */
    pthread_mutex_t lock;
    /* Under lock: */
    bool armed, settled;
    int stopping; /* the signal; 0: none */
    uint64_t stopping_ns;
    bool interrupted;
    struct np_ring *ring;
    struct np_comm *comm;
    int exit_code;
};

/* Prints to stderr unless that would block, and without the screen's lock: the process is
 * ending. */
static void say_at_once(int number, const char *text, bool saved)
{
    struct pollfd screen = {STDERR_FILENO, POLLOUT, 0};

    if (poll(&screen, 1, 0) == 1 && screen.revents & POLLOUT)
        dprintf(STDERR_FILENO, "%sSIG%s%s%s\n", isatty(STDERR_FILENO) ? "\n" : "",
            sigabbrev_np(number), text, saved ? "; earlier checkpoints are kept" : "");
}

static void die_of(const struct np_watch *watch, int number)
{
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &watch->signals, NULL);
    raise(number);
    _exit(128 + number);
}

/* Under lock, settled: another process has brought the stop, or the first signal, for which this process waits
 * until rank 0 has saved. A launcher that sees it end before may end rank 0. */
static bool is_known(const struct np_watch *watch)
{
    if (!watch->comm || watch->exit_code == 0)
        return false;
    return watch->stopping ? np_now_ns() - watch->stopping_ns < ECHO_NS
                           : np_comm_heard(watch->comm, NULL) == -EINTR;
}

static void take_signal(struct np_watch *watch)
{
    struct signalfd_siginfo info;
    char text[160];

    if (read(watch->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    int number = (int)info.ssi_signo;
    pthread_mutex_lock(&watch->lock);
    bool armed = watch->armed, first = armed && !watch->stopping;
    if (watch->settled && is_known(watch)) {
        if (!watch->stopping) {
            watch->stopping = number;
            watch->stopping_ns = np_now_ns();
        }
        pthread_mutex_unlock(&watch->lock);
        return;
    }
    if (watch->settled) {
        if (watch->exit_code != 0 && !watch->stopping)
            say_at_once(number, ": ended at once", watch->saves);
        _exit(watch->exit_code);
    }
    if (first) {
        watch->stopping = number;
        watch->stopping_ns = np_now_ns();
        if (watch->ring)
            np_ring_interrupt(watch->ring);
        if (watch->comm)
            np_comm_ask_stop(watch->comm);
    }
    /* timeout(1) signals the process and its group, systemd sends SIGTERM and SIGHUP: one
     * request. */
    bool echo = !first && armed && np_now_ns() - watch->stopping_ns < ECHO_NS;
    pthread_mutex_unlock(&watch->lock);
    if (echo)
        return;
    if (!first) {
        say_at_once(number,
            armed ? " again: ended at once" : ": ended before the first step, nothing was saved",
            armed && watch->saves);
        die_of(watch, number);
    }
    snprintf(text, sizeof(text), "SIG%s: stopping after this step%s", sigabbrev_np(number),
        watch->saves ? ", with a checkpoint" : "");
    watch->say(watch->context, text);
}

static void say_wait(void *argument, const char *text)
{
    struct np_watch *watch = argument;

    watch->said_wait = true;
    watch->say(watch->context, text);
}

/* Reports long waits; if servers have refused something meanwhile, what they said. */
static void say_waits(struct np_watch *watch)
{
    char text[600] = "the last trouble with a server: ";
    const size_t used = strlen(text);

    watch->said_wait = false;
    np_stat_waits(watch->stat, LONG_WAIT_NS, say_wait, watch);
    if (watch->said_wait && np_remote() &&
        np_remote()->trouble(np_now_ns() - RECENT_NS, text + used, sizeof(text) - used))
        watch->say(watch->context, text);
}

static void *watch_thread(void *argument)
{
    struct np_watch *watch = argument;

    for (;;) {
        struct pollfd fds[] = {{watch->end_fd, POLLIN, 0}, {watch->signal_fd, POLLIN, 0}};
        int n = poll(fds, 2, PERIOD_MS);

        if (fds[0].revents)
            return NULL;
        if (n > 0 && fds[1].revents)
            take_signal(watch);
        if (n == 0 && watch->stat)
            say_waits(watch);
    }
}

static void block_signals(struct np_watch *watch)
{
    struct sigaction action;

    sigemptyset(&watch->signals);
    sigaddset(&watch->signals, SIGINT);
    sigaddset(&watch->signals, SIGTERM);
    sigaddset(&watch->signals, SIGUSR1); /* mpirun passes it on as it is, Slurm sends it ahead */
    /* Under nohup SIGHUP is ignored and stays so. */
    if (sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
        sigaddset(&watch->signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &watch->signals, &watch->old_mask);
}

int np_watch_start(struct np_stat *stat, void (*say)(void *context, const char *text),
    void *context, bool saves, struct np_watch **ret_watch, struct np_err *err)
{
    struct np_watch *watch = np_alloc(sizeof(*watch));

    watch->stat = stat;
    watch->say = say;
    watch->context = context;
    watch->saves = saves;
    pthread_mutex_init(&watch->lock, NULL);
    block_signals(watch);
    watch->signal_fd = signalfd(-1, &watch->signals, SFD_CLOEXEC);
    watch->end_fd = eventfd(0, EFD_CLOEXEC);
    int code = watch->signal_fd < 0 || watch->end_fd < 0
                   ? -errno
                   : -pthread_create(&watch->thread, NULL, watch_thread, watch);
    if (code < 0) {
        np_err_set(err, code, "the watchdog thread cannot start: %s", strerror(-code));
        if (watch->signal_fd >= 0)
            close(watch->signal_fd);
        if (watch->end_fd >= 0)
            close(watch->end_fd);
        pthread_sigmask(SIG_SETMASK, &watch->old_mask, NULL);
        np_free(watch);
        return code;
    }
    *ret_watch = watch;
    return 0;
}

void np_watch_arm(struct np_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->armed = true;
    watch->settled = false;
    pthread_mutex_unlock(&watch->lock);
}

void np_watch_ring(struct np_watch *watch, struct np_ring *ring)
{
    pthread_mutex_lock(&watch->lock);
    watch->ring = ring;
    if (ring && (watch->stopping || watch->interrupted))
        np_ring_interrupt(ring);
    pthread_mutex_unlock(&watch->lock);
}

void np_watch_interrupt(struct np_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->interrupted = true;
    if (watch->ring)
        np_ring_interrupt(watch->ring);
    pthread_mutex_unlock(&watch->lock);
}

void np_watch_comm(struct np_watch *watch, struct np_comm *comm)
{
    pthread_mutex_lock(&watch->lock);
    watch->comm = comm;
    if (comm && watch->stopping)
        np_comm_ask_stop(comm);
    pthread_mutex_unlock(&watch->lock);
}

void np_watch_settle(struct np_watch *watch, int exit_code)
{
    pthread_mutex_lock(&watch->lock);
    watch->settled = true;
    watch->exit_code = exit_code;
    pthread_mutex_unlock(&watch->lock);
}

int np_watch_stopping(struct np_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    int stopping = watch->stopping;
    pthread_mutex_unlock(&watch->lock);
    return stopping;
}

void np_watch_stop(struct np_watch *watch)
{
    uint64_t one = 1;

    if (!watch)
        return;
    if (write(watch->end_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
        pthread_join(watch->thread, NULL);
    close(watch->signal_fd);
    close(watch->end_fd);
    pthread_mutex_destroy(&watch->lock);
    np_free(watch);
}
