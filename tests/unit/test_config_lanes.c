/* Which numbers of lanes, processes and rows go together, and what is said of those that do not. */
#include <errno.h>
#include <string.h>

#include "daemon/config/config_lanes.h"

#include "tests/test.h"

Test(config_lanes, one_two_four_lanes_of_each_process_sum_as_one)
{
    for (int64_t own = 1; own <= 64; own++)
        for (int64_t processes = 2; processes <= 9; processes++)
            cr_assert_eq(np_lanes_sum_as_one(own * processes, processes),
                own == 1 || own == 2 || own == 4 || own == 8 || own == 16 || own == 32 ||
                    own == 64);
    for (int64_t lanes = 1; lanes <= 64; lanes++)
        cr_assert(np_lanes_sum_as_one(lanes, 1));
}

Test(config_lanes, processes_that_lanes_can_be_divided_among_are_named)
{
    static const struct {
        int64_t lanes;
        const char *text;
    } cases[] = {{1, "1"}, {7, "1 or 7"}, {8, "1, 2, 4 or 8"}, {12, "2, 3, 4, 6 or 12"},
        {1024, "64, 128, 256, 512 or 1024"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[NP_LANES_TEXT];

        np_lanes_text(cases[i].lanes, text);
        cr_assert_str_eq(text, cases[i].text);
    }
}

Test(config_lanes, numbers_that_do_not_go_together_are_refused_with_those_that_do)
{
    static const struct {
        int64_t batch, lanes, over, processes;
        const char *text; /* NULL: they do */
    } cases[] = {{36, 12, 0, 3, NULL}, {36, -1, NP_BN_AUTO, 9, NULL}, {36, 6, NP_BN_ALL, 2, NULL},
        {36, 12, 12, 3, NULL}, {32, 8, 4, 8, NULL},
        {128, -1, 0, 3, "128 rows cannot be divided among 3 processes, but 126 and 129 can"},
        {2, 2, 0, 3, "2 rows cannot be divided among 3 processes, but 3 can"},
        {96, 8, 0, 3,
            "train.lanes: 8 cannot be divided among 3 processes, which need as many "
            "each: take 3, 6, 12, 24 or 48"},
        {32, 1, 0, 2,
            "train.lanes: 1 cannot be divided among 2 processes, which need as many "
            "each: take 2, 4, 8, 16 or 32"},
        {36, 12, 9, 3, "9 rows do not divide the 12 that each of 3 processes has"},
        {32, 8, 8, 8, "8 rows do not divide the 4 that each of 8 processes has"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct np_config config = {.loader = {.batch = cases[i].batch},
            .run = {.lanes = cases[i].lanes, .batchnorm_over = cases[i].over}};
        struct np_err err = {0};
        const int code = np_config_check_processes(&config, cases[i].processes, &err);

        cr_assert_eq(code, cases[i].text ? -EINVAL : 0, "case %zu: %s", i, err.text);
        cr_assert(!cases[i].text || strstr(err.text, cases[i].text), "case %zu: %s", i, err.text);
    }
}
