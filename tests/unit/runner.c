/* The runner of tests/test.h. Each test runs in a child forked from here, so that none meets what another left; the
 * program itself is not started again, which takes longer than most tests. Under a sanitizer all run in this process,
 * whose threads and locks it must have seen from the beginning. Prints a line for each test, and their count last.
 *   unit_tests [--jobs N] [--filter PATTERN | SUITE]    N at a time (1); PATTERN: SUITE/TEST, as fnmatch() has it
 * A test may take LIMIT_S, or the longer time that its `.timeout` says: on a busy machine none is too slow. */
#include "tests/test.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOW_S   5.0   /* a test that takes longer is named with its seconds */
#define LIMIT_S  120.0 /* then it is killed */
#define MAX_JOBS 64

struct verdict {
    bool ended; /* not by exit() or a signal */
    bool failed;
    char skipped[256]; /* why; empty: it was not */
};

/* A test that runs. verdict is shared with its process. */
struct job {
    const struct np_test *test; /* NULL: free */
    struct verdict *verdict;
    pid_t pid;
    double start_s;
};

static struct np_test *tests;
static struct verdict *here;
static jmp_buf end_of_test; /* in run() */
static int nr_passed, nr_failed;

void np_test_add(struct np_test *test)
{
    test->next = tests;
    tests = test;
}

void np_test_failed(const char *file, int line, const char *what, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: failed: %s%s", file, line, what, *format ? ": " : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    here->failed = true;
}

void np_test_skipped(const char *why)
{
    snprintf(here->skipped, sizeof(here->skipped), "%s", why);
}

void np_test_end(void)
{
    longjmp(end_of_test, 1);
}

/* The environment as it was when the program began: what one test sets is not the next one's. */
static void restore_environment(void)
{
    static char *begun[1024];

    if (!begun[0])
        for (int i = 0; environ[i] && i < 1023; i++)
            begun[i] = strdup(environ[i]);
    clearenv();
    for (int i = 0; begun[i]; i++)
        putenv(begun[i]);
}

/* A child that a test leaves would be waited for by a later test instead of its own. */
static void no_child_is_left(const struct np_test *test)
{
    if (waitpid(-1, NULL, WNOHANG) < 0)
        return;
    np_test_failed(test->suite, 0, "a child process is left", "");
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* What follows an assertion that failed is left out, with what it would have freed. */
static void run(const struct np_test *test)
{
    if (test->options.init)
        test->options.init();
    if (setjmp(end_of_test) == 0)
        test->run();
    if (test->options.fini)
        test->options.fini();
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* how: of waitpid() */
static void judge(const struct job *job, int how)
{
    const struct np_test *test = job->test;
    const struct verdict *verdict = job->verdict;
    int signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    double took_s = now_s() - job->start_s;
    bool good = test->options.signal ? signal == test->options.signal
                                     : verdict->ended && !verdict->failed && how == 0;

    if (took_s > SLOW_S)
        fprintf(stderr, "%.0f s: %s::%s\n", took_s, test->suite, test->name);
    nr_failed += !good;
    nr_passed += good && !*verdict->skipped;
    if (good && *verdict->skipped)
        printf("skip - %s::%s: %s\n", test->suite, test->name, verdict->skipped);
    else
        printf("%s - %s::%s\n", good ? "ok" : "not ok", test->suite, test->name);
    if (!good && !verdict->failed)
        printf("# %s::%s ended by %s %d after %.0f s\n", test->suite, test->name,
            signal ? "signal" : "exit code", signal ? signal : WEXITSTATUS(how), took_s);
    fflush(stdout);
}

/* In this process or in a child; returns what waitpid() gives for it, or -1: it runs. */
#ifdef NP_SAN
static int start(struct job *job)
{
    here = job->verdict;
    restore_environment();
    run(job->test);
    no_child_is_left(job->test);
    here->ended = true;
    return 0;
}
#else
static int start(struct job *job)
{
    sigset_t none;

    job->pid = fork();
    if (job->pid < 0) {
        perror("fork");
        exit(1);
    }
    if (job->pid > 0)
        return -1;
    here = job->verdict;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    restore_environment();
    run(job->test);
    no_child_is_left(job->test);
    fflush(NULL);
    here->ended = true;
    _exit(0);
}
#endif

static void end(struct job *job, int how)
{
    judge(job, how);
    job->test = NULL;
}

static void kill_the_slow(const struct job *jobs, int nr_jobs)
{
    for (int i = 0; i < nr_jobs; i++) {
        const struct np_test *test = jobs[i].test;
        double limit_s = test && test->options.timeout > LIMIT_S ? test->options.timeout : LIMIT_S;

        if (test && now_s() - jobs[i].start_s > limit_s)
            kill(jobs[i].pid, SIGKILL);
    }
}

/* Waits until a test has ended. SIGCHLD is blocked. */
static void wait_for_one(struct job *jobs, int nr_jobs)
{
    const struct timespec second = {1, 0};
    sigset_t child;
    int how = 0;
    pid_t pid;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while ((pid = waitpid(-1, &how, WNOHANG)) == 0) {
        sigtimedwait(&child, NULL, &second);
        kill_the_slow(jobs, nr_jobs);
    }
    for (int i = 0; i < nr_jobs; i++)
        if (jobs[i].test && jobs[i].pid == pid)
            end(&jobs[i], how);
}

static bool wanted(const struct np_test *test, const char *filter)
{
    char name[512];

    snprintf(name, sizeof(name), "%s/%s", test->suite, test->name);
    return !filter || strcmp(filter, test->suite) == 0 || fnmatch(filter, name, FNM_EXTMATCH) == 0;
}

/* The job that is free; all run: waits for one. */
static struct job *free_job(struct job *jobs, int nr_jobs)
{
    for (;;) {
        for (int i = 0; i < nr_jobs; i++)
            if (!jobs[i].test)
                return &jobs[i];
        wait_for_one(jobs, nr_jobs);
    }
}

static int nr_running(const struct job *jobs, int nr_jobs)
{
    int n = 0;

    for (int i = 0; i < nr_jobs; i++)
        n += jobs[i].test != NULL;
    return n;
}

static void run_all(const char *filter, int nr_jobs)
{
    static struct job jobs[MAX_JOBS];
    struct verdict *verdicts = mmap(NULL, sizeof(*verdicts) * MAX_JOBS, PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sigset_t child;

    if (verdicts == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
#ifndef NP_SAN
    sigprocmask(SIG_BLOCK, &child, NULL);
#endif
    for (struct np_test *test = tests; test; test = test->next) {
        struct job *job;
        int how;

        if (!wanted(test, filter))
            continue;
        job = free_job(jobs, nr_jobs);
        *job = (struct job){test, &verdicts[job - jobs], 0, now_s()};
        memset(job->verdict, 0, sizeof(*job->verdict));
        how = start(job);
        if (how >= 0)
            end(job, how);
    }
    while (nr_running(jobs, nr_jobs) > 0)
        wait_for_one(jobs, nr_jobs);
    munmap(verdicts, sizeof(*verdicts) * MAX_JOBS);
}

int main(int argc, char **argv)
{
    const char *filter = NULL;
    int nr_jobs = 1;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc)
            nr_jobs = atoi(argv[++i]);
        else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            filter = argv[++i];
        else
            filter = argv[i];
    }
    if (nr_jobs < 1 || nr_jobs > MAX_JOBS || (filter && *filter == '-')) {
        fprintf(stderr, "usage: %s [--jobs N] [--filter PATTERN | SUITE]\n", argv[0]);
        return 2;
    }
    run_all(filter, nr_jobs);
    printf("%d passed, %d failed\n", nr_passed, nr_failed);
    return nr_failed != 0 || nr_passed == 0;
}
