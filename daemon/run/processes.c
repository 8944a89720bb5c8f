/* The parent of a run's processes: it starts them, waits, and passes signals on. Main thread. */
#include "daemon/run/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define TERM_S 1  /* after one has failed, the others are told; most have noticed it themselves */
#define KILL_S 60 /* and killed: one may be writing a checkpoint */

struct family {
    pid_t *pids; /* (nr); 0: it has ended */
    int nr, alive;
    int *codes;         /* (nr) */
    int first_code;     /* of the first that failed by itself; 0: none has */
    uint64_t failed_ns; /* when that was; 0: none has */
    bool told;          /* the others have had SIGTERM for it */
    bool killed;        /* and SIGKILL */
};

/* The child: becomes a rank. */
static void become(char **argv, int rank, int nr, const char *address, const sigset_t *before)
{
    char number[16], of[16];

    snprintf(number, sizeof(number), "%d", rank);
    snprintf(of, sizeof(of), "%d", nr);
    setenv("NNPIPE_RANK", number, 1);
    setenv("NNPIPE_WORLD", of, 1);
    setenv("NNPIPE_COMM", address, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, before, NULL);
    if (rank > 0) {
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (null > STDIN_FILENO)
            dup2(null, STDIN_FILENO);
        else if (null == STDIN_FILENO)
            fcntl(null, F_SETFD, 0);
    }
    execv("/proc/self/exe", argv);
    fprintf(stderr, "nnpipe: rank %d does not start: %s\n", rank, strerror(errno));
    _exit(NP_EXIT_FAILED);
}

static void send_all(const struct family *family, int signal)
{
    for (int r = 0; r < family->nr; r++)
        if (family->pids[r] > 0)
            kill(family->pids[r], signal);
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ended because of a failure: not after the work or a checkpoint. */
static bool is_failure(int code)
{
    return code != NP_EXIT_DONE && code != NP_EXIT_STOPPED && code != NP_EXIT_GAVE_UP;
}

static void take_end(struct family *family, int rank, int status)
{
    const int code = code_of(status);

    family->pids[rank] = 0;
    family->codes[rank] = code;
    family->alive--;
    if (!is_failure(code) || family->killed)
        return;
    if (WIFSIGNALED(status) && !family->told)
        fprintf(stderr, "nnpipe: rank %d was killed by signal %d (%s)\n", rank, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    if (!family->failed_ns) {
        family->failed_ns = np_now_ns();
        family->first_code = code;
    }
}

static void reap(struct family *family)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int r = 0; r < family->nr; r++)
            if (family->pids[r] == pid)
                take_end(family, r, status);
    if (pid < 0 && errno == ECHILD)
        family->alive = 0;
}

/* After a failure, those that have not ended by themselves. */
static void end_rest(struct family *family)
{
    const uint64_t since = family->failed_ns ? np_now_ns() - family->failed_ns : 0;

    if (since > KILL_S * 1000000000ull && !family->killed) {
        family->killed = true;
        send_all(family, SIGKILL);
    } else if (since > TERM_S * 1000000000ull && !family->told) {
        family->told = true;
        send_all(family, SIGTERM);
    }
}

/* The terminal sends Ctrl-C to all of its processes by itself: a signal from there is not passed on. */
static void wait_all(struct family *family, const sigset_t *signals)
{
    while (family->alive > 0) {
        const struct timespec second = {1, 0};
        siginfo_t about;
        const int signal = sigtimedwait(signals, &about, &second);

        if (signal > 0 && signal != SIGCHLD && about.si_code != SI_KERNEL)
            send_all(family, signal);
        reap(family);
        end_rest(family);
    }
}

static int start(struct family *family, char **argv, const sigset_t *before)
{
    uint64_t key = np_now_ns();
    char address[80];

    if (getrandom(&key, sizeof(key), 0) < 0)
        key ^= (uint64_t)getpid();
    snprintf(address, sizeof(address), "unix:nnpipe-%u-%016llx", (unsigned)getuid(),
        (unsigned long long)key);
    for (int r = 0; r < family->nr; r++) {
        const pid_t pid = fork();

        if (pid == 0)
            become(argv, r, family->nr, address, before);
        if (pid < 0) {
            fprintf(stderr, "nnpipe: rank %d does not start: %s\n", r, strerror(errno));
            send_all(family, SIGKILL);
            return -1;
        }
        family->pids[r] = pid;
        family->alive++;
    }
    return 0;
}

int np_processes_run(char **argv, int nr)
{
    struct family family = {.nr = nr};
    int code = NP_EXIT_FAILED;
    sigset_t signals, before;

    family.pids = np_alloc((size_t)nr * sizeof(*family.pids));
    family.codes = np_alloc((size_t)nr * sizeof(*family.codes));
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    /* It may have been left ignored: then children leave nothing to wait for. */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &signals, &before);
    if (start(&family, argv, &before) == 0) {
        wait_all(&family, &signals);
        code = family.killed || family.told ? family.first_code : family.codes[0];
    }
    np_free(family.pids);
    np_free(family.codes);
    return code;
}
