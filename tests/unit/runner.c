/* The plain runner of tests/test.h: runs every test of the executable in one process and
 * prints Criterion's closing words. Empty without SAN: Criterion brings its own main(). */
#include "tests/test.h"

#ifdef NP_SAN
#include <unistd.h>

static struct np_test *tests;
static int failed_here;

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

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL; /* a suite's name */
    int passed = 0, failed = 0;

    alarm(1200);
    for (struct np_test *test = tests; test; test = test->next) {
        if (only && strcmp(only, test->suite) != 0)
            continue;
        failed_here = 0;
        test->run();
        failed += failed_here;
        passed += !failed_here;
        if (failed_here)
            fprintf(stderr, "FAILED %s::%s\n", test->suite, test->name);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
#endif
