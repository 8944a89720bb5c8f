/* Words of the commands that ask the service, and what their exit codes say. */
#include "daemon/client/runs.h"
#include "loader/base/json.h"
#include "tests/test.h"

Test(runs, times_have_a_unit)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"90s", 90}, {"1.5m", 90}, {"8h", 28800}, {"2d", 172800}, {"1h30m", 5400}};
    static const char *const bad[] = {
        "", "8", "h", "8 h", "8h ", "-8h", "8x", "1e3s", "0s", "inf", "8hh", "1.2.3s"};
    double seconds = -1;

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        cr_assert(np_parse_span(good[i].text, &seconds));
        cr_assert_eq(seconds, good[i].seconds);
    }
    seconds = -1;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        cr_assert(!np_parse_span(bad[i], &seconds) && seconds == -1);
}

Test(runs, an_exit_code_gives_the_end_of_a_run)
{
    static const struct {
        const char *json;
        int code;
    } cases[] = {{"{\"state\": \"done\", \"exit_code\": 0}", 0},
        {"{\"state\": \"failed\", \"exit_code\": 1}", 1},
        {"{\"state\": \"failed\", \"exit_code\": 74}", 74},
        {"{\"state\": \"failed\", \"exit_code\": null}", 1},
        {"{\"state\": \"stopped\", \"exit_code\": 1}", 75},
        {"{\"state\": \"timeout\", \"exit_code\": 75}", 75}};
    struct np_err err = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct np_node *run = NULL;

        cr_assert_eq(np_json_parse(cases[i].json, strlen(cases[i].json), &run, &err), 0);
        cr_assert_eq(np_run_exit_code(run), cases[i].code);
        np_node_free(run);
    }
}
