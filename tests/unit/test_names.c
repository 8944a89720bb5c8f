/* Names of users, asked for in a child. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/names.h"
#include "loader/base/clock.h"
#include "tests/test.h"

/* 1 is ann, 2 is nobody, 3 is not known now, all others never answer. */
static int look_up(uid_t uid, char *name, size_t bytes)
{
    while (uid > 3)
        pause();
    snprintf(name, bytes, "%s", uid == 1 ? "ann" : "");
    return uid == 3 ? -EIO : 0;
}

static bool becomes(struct np_names *names, uid_t uid, const char *text)
{
    for (int i = 0; i < 20000; i++) {
        np_names_turn(names);
        if (strcmp(np_names_of(names, uid, NULL), text) == 0)
            return true;
        usleep(500);
    }
    return false;
}

Test(names, number_until_the_name_is_known, .timeout = 120)
{
    struct np_names *names = np_names_new(-1, look_up);
    bool is_name = true;

    cr_assert_str_eq(np_names_of(names, 1, &is_name), "1");
    cr_assert(!is_name);
    cr_assert(becomes(names, 1, "ann"));
    np_names_of(names, 1, &is_name);
    cr_assert(is_name);
    np_names_free(names);
}

Test(names, number_of_a_user_who_is_missing_or_unknown, .timeout = 120)
{
    struct np_names *names = np_names_new(-1, look_up);
    bool is_name = true;

    np_names_of(names, 2, NULL);
    np_names_of(names, 3, NULL);
    cr_assert(becomes(names, 1, "ann")); /* asked for behind those two */
    cr_assert_str_eq(np_names_of(names, 2, &is_name), "2");
    cr_assert(!is_name);
    cr_assert_str_eq(np_names_of(names, 3, &is_name), "3");
    cr_assert(!is_name);
    np_names_free(names);
}

Test(names, a_hanging_user_database_is_not_waited_for, .timeout = 120)
{
    struct np_names *names = np_names_new(-1, look_up);
    const uint64_t began = np_now_ns();

    for (int i = 0; i < 100; i++) {
        cr_assert_str_eq(np_names_of(names, 4, NULL), "4");
        cr_assert_not(np_names_turn(names));
    }
    cr_assert_lt(np_now_ns() - began, 50000000000u);
    np_names_free(names);
    while (waitpid(-1, NULL, 0) > 0) /* the service reaps its children in one place */
        ;
}
