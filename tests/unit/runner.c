/* The plain runner of tests/test.h: runs every test of the executable in one process, prints a line
 * for each, and its count last. Empty without SAN: Criterion brings its own main(). */
#include "tests/test.h"

#ifdef NP_SAN
#include <setjmp.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOW_S 5.0 /* a test that takes longer is named with its seconds */

static struct np_test *tests;
static int failed_here;
static const char *skipped_here; /* why */
static jmp_buf end_of_test;      /* in run() */

void np_test_add(struct np_test *test)
{
    test->next = tests;
    tests = test;
}

void np_test_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    failed_here = 1;
}

void np_test_skipped(const char *why)
{
    skipped_here = why;
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

/* What follows an assertion that failed is left out, with what it would have freed. */
static void run(const struct np_test *test)
{
    if (setjmp(end_of_test) == 0)
        test->run();
}

/* A child that a test leaves would be waited for by a later test instead of its own. */
static void no_child_is_left(const struct np_test *test)
{
    if (waitpid(-1, NULL, WNOHANG) < 0)
        return;
    np_test_failed(test->suite, 0, "a child process is left");
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL; /* a suite's name */
    int passed = 0, failed = 0;

    alarm(1200);
    for (struct np_test *test = tests; test; test = test->next) {
        double start_s = now_s(), took_s;

        if (only && strcmp(only, test->suite) != 0)
            continue;
        failed_here = 0;
        skipped_here = NULL;
        restore_environment();
        if (test->options.init)
            test->options.init();
        run(test);
        if (test->options.fini)
            test->options.fini();
        no_child_is_left(test);
        took_s = now_s() - start_s;
        if (took_s > SLOW_S)
            fprintf(stderr, "%.0f s: %s::%s\n", took_s, test->suite, test->name);
        failed += failed_here;
        passed += !failed_here && !skipped_here;
        if (!failed_here && skipped_here)
            printf("skip - %s::%s: %s\n", test->suite, test->name, skipped_here);
        else
            printf("%s - %s::%s\n", failed_here ? "not ok" : "ok", test->suite, test->name);
        fflush(stdout);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
#endif
