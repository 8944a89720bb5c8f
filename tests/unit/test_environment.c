/* What of an environment a run is given. */
#include <stdlib.h>
#include <string.h>

#include "daemon/service/environment.h"
#include "tests/test.h"

extern char **environ;

Test(environment, a_secret_of_the_service_reaches_no_run)
{
    static char *own[] = {(char *)"PATH=/bin", (char *)"SLACK_TOKEN=secret", (char *)"LC_ALL=C",
        (char *)"http_proxy=http://user:secret@proxy", (char *)"=secret", (char *)"NNPIPE_CPU=sse2",
        (char *)"CUDA_HOME=/cuda", (char *)"LD_PRELOAD=/secret.so", (char *)"no name", NULL};

    environ = own;
    np_environment_reduce();
    cr_assert_str_eq(environ[0], "PATH=/bin");
    cr_assert_str_eq(environ[1], "LC_ALL=C");
    cr_assert_str_eq(environ[2], "NNPIPE_CPU=sse2");
    cr_assert_str_eq(environ[3], "CUDA_HOME=/cuda");
    cr_assert_null(environ[4]);
}

Test(environment, names_of_a_config_are_found)
{
    static const char text[] = "path: ${DATA}/a, ${_B:-x} ${} ${1A} ${C-x} ${D";

    cr_assert(np_environment_is_named("DATA", text) && np_environment_is_named("_B", text));
    for (const char *const *name = (const char *[]){"DAT", "A", "C", "D", "1A", "", NULL}; *name;
         name++)
        cr_expect_not(np_environment_is_named(*name, text), "%s", *name);
}

Test(environment, submitted_variables_are_set)
{
    np_environment_set("NP_A=1=2\nNP_B=\n=3\nnothing\nNP_C=x");
    cr_assert_str_eq(getenv("NP_A"), "1=2");
    cr_assert_str_eq(getenv("NP_B"), "");
    cr_assert_str_eq(getenv("NP_C"), "x");
}
