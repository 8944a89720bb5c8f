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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "trainer/device.h"

#define TERM_S 1  /* after one has failed, the others are told; most have noticed it themselves */
#define KILL_S 60 /* and killed: one may be writing a checkpoint */

struct family {
    struct np_processes *of;
    pid_t *pids; /* (nr); 0: it has ended */
    int nr, alive;
    int *codes;         /* (nr) */
    uint64_t failed_ns; /* when the first failed by itself; 0: none has */
    bool told;          /* the others have had SIGTERM for it */
    bool killed;        /* and SIGKILL */
};

/* The child: becomes a rank. */
static void become(const struct np_processes *processes, int rank, const char *address,
    const sigset_t *before, pid_t parent)
{
    const int death = processes->death_signal ? processes->death_signal : SIGTERM;
    char number[16], of[16], gpu[16];

    snprintf(number, sizeof(number), "%d", rank);
    snprintf(of, sizeof(of), "%d", processes->nr);
    setenv("NNPIPE_RANK", number, 1);
    setenv("NNPIPE_WORLD", of, 1);
    setenv("NNPIPE_COMM", address, 1);
    if (processes->gpus) {
        snprintf(gpu, sizeof(gpu), "%d", processes->gpus[rank]);
        setenv("NNPIPE_GPU", gpu, 1);
    }
    prctl(PR_SET_PDEATHSIG, death);
    if (getppid() != parent) /* it has ended before that */
        _exit(NP_EXIT_FAILED);
    sigprocmask(SIG_SETMASK, before, NULL);
    if (rank > 0 && !processes->same_input) {
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (null > STDIN_FILENO)
            dup2(null, STDIN_FILENO);
        else if (null == STDIN_FILENO)
            fcntl(null, F_SETFD, 0);
    }
    execv("/proc/self/exe", processes->argv);
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
    /* One that was killed, or has another reason, explains the others' plain failures, even if it is
     * reaped after them. */
    if (!family->failed_ns ||
        (family->of->first_code == NP_EXIT_FAILED && code != NP_EXIT_FAILED && !family->told)) {
        family->of->first_failed = rank;
        family->of->first_code = code;
    }
    if (!family->failed_ns)
        family->failed_ns = np_now_ns();
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

        if (signal == SIGQUIT) {
            family->killed = true;
            send_all(family, SIGKILL);
        } else if (signal > 0 && signal != SIGCHLD && about.si_code != SI_KERNEL) {
            send_all(family, signal);
        }
        reap(family);
        end_rest(family);
    }
}

/* A place of this run alone. Where a sandbox has no Unix sockets, TCP on its loopback. */
static void make_address(char *address, size_t room)
{
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t key = np_now_ns();

    if (getrandom(&key, sizeof(key), 0) < 0)
        key ^= (uint64_t)getpid();
    if (probe < 0 && errno == EAFNOSUPPORT)
        snprintf(address, room, "tcp:127.0.0.1:%d", 20000 + (int)(key % 12000));
    else
        snprintf(
            address, room, "unix:nnpipe-%u-%016llx", (unsigned)getuid(), (unsigned long long)key);
    if (probe >= 0)
        close(probe);
}

static int start(struct family *family, const sigset_t *before)
{
    const pid_t parent = getpid();
    char address[80];

    make_address(address, sizeof(address));
    for (int r = 0; r < family->nr; r++) {
        const pid_t pid = fork();

        if (pid == 0)
            become(family->of, r, address, before, parent);
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

/* Rank 0's. Where it did not end by itself after another one had failed, that one's, or 1 if it was killed. */
static int code_of_all(const struct family *family)
{
    const struct np_processes *of = family->of;

    if ((!family->killed && !family->told) || of->first_failed <= 0 || family->codes[0] < 128)
        return family->codes[0];
    return of->first_code < 128 ? of->first_code : NP_EXIT_FAILED;
}

int np_processes_run(struct np_processes *processes)
{
    const int nr = processes->nr;
    struct family family = {.of = processes, .nr = nr};
    int code = NP_EXIT_FAILED;
    sigset_t signals, before;

    processes->first_failed = -1;
    processes->first_code = 0;

    family.pids = np_alloc((size_t)nr * sizeof(*family.pids));
    family.codes = np_alloc((size_t)nr * sizeof(*family.codes));
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGQUIT);
    /* It may have been left ignored: then children leave nothing to wait for. */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &signals, &before);
    if (start(&family, &before) == 0) {
        wait_all(&family, &signals);
        code = code_of_all(&family);
    }
    np_free(family.pids);
    np_free(family.codes);
    return code;
}

/* --- --gpus ---------------------------------------------------------------------------------- */

/* The driver may start threads, and the parent of a run has none. */
int np_processes_count_gpus(void)
{
    int ends[2], status, n = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return 0;
    const pid_t pid = fork();
    if (pid == 0) {
        n = np_device_count_gpus();
        _exit(write(ends[1], &n, sizeof(n)) == sizeof(n) ? 0 : 1);
    }
    close(ends[1]);
    if (pid < 0 || read(ends[0], &n, sizeof(n)) != sizeof(n))
        n = 0;
    close(ends[0]);
    if (pid > 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    return n;
}

/* "2" or "0-3", of *text, up to the next comma; false: neither. */
static bool take_range(const char **text, int64_t *ret_first, int64_t *ret_last)
{
    const char *end = np_text_int_end(*text, ret_first);

    if (!end)
        return false;
    *ret_last = *ret_first;
    if (*end == '-' && !(end = np_text_int_end(end + 1, ret_last)))
        return false;
    if (*end == ',' && end[1])
        end++;
    else if (*end)
        return false;
    if (*ret_first < 0 || *ret_first > *ret_last || *ret_last > 999)
        return false;
    *text = end;
    return true;
}

static bool contains(const int *gpus, int nr, int64_t gpu)
{
    for (int i = 0; i < nr; i++)
        if (gpus[i] == gpu)
            return true;
    return false;
}

int np_processes_gpus(const char *list, bool counts, int *gpus, int room, struct np_err *err)
{
    const bool all = strcmp(list, "all") == 0;
    const int here = counts ? np_processes_count_gpus() : 1000;
    int nr = 0;

    if (all && !counts)
        return np_err_set(err, -EINVAL, "--gpus all: a sim device has no number of GPUs: 0-3");
    for (int64_t first = 0, last = here - 1; all ? nr == 0 : *list != '\0';) {
        if (!all && !take_range(&list, &first, &last))
            return np_err_set(
                err, -EINVAL, "--gpus: '%.40s': expected numbers as 0-3 or 0,2, or all", list);
        for (; first <= last; first++) {
            if (nr == room || contains(gpus, nr, first))
                return np_err_set(err, -EINVAL, "--gpus: cuda:%d twice, or too many", (int)first);
            if (first >= here)
                return np_err_set(err, -ENODEV,
                    "--gpus: there is no cuda:%d: the driver reports %d GPUs; `nnpipe devices` "
                    "shows what was found",
                    (int)first, here);
            gpus[nr++] = (int)first;
        }
        if (all && nr == 0)
            break;
    }
    if (nr == 0 && !all)
        return np_err_set(err, -EINVAL, "--gpus: expected numbers as 0-3 or 0,2, or all");
    if (nr == 0)
        return np_err_set(err, -ENODEV,
            "--gpus: the driver reports no GPU; `nnpipe devices` shows what was found");
    return nr;
}
