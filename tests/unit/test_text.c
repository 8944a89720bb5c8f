/* Numbers, columns, lists of CPUs and folders in text. */
#include "loader/base/text.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

#include "tests/test.h"

Test(text, an_integer_is_the_whole_text_and_within_its_range)
{
    static const char *const none[] = {"", " 1", "1 ", "+", "-", "--1", "1.0", "0x10", "1e3",
        "9223372036854775808", "-9223372036854775809", "10", "-6"};
    int64_t value = 77;

    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        cr_assert_not(np_text_int(none[i], strlen(none[i]) > 9 ? INT64_MIN : -5,
                          strlen(none[i]) > 9 ? INT64_MAX : 9, &value),
            "'%s'", none[i]);
    cr_assert_eq(value, 77);
    cr_assert(np_text_int("-9223372036854775808", INT64_MIN, INT64_MAX, &value));
    cr_assert_eq(value, INT64_MIN);
    cr_assert(np_text_int("+007", 7, 7, &value));
    cr_assert_eq(value, 7);
    cr_assert_str_eq(np_text_int_end("12MiB", &value), "MiB");
    cr_assert_eq(value, 12);
}

Test(text, a_real_number_is_finite_and_decimal_in_any_locale)
{
    static const char *const none[] = {
        "", " 1", "1 ", ".", "-", "inf", "nan", "-inf", "0x1p3", "1e", "1e999", "1,5", "101"};
    double value = 77;

    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed */
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        cr_assert_not(np_text_real(none[i], -100, 100, &value), "'%s'", none[i]);
    cr_assert(value > 76 && value < 78);
    cr_assert(np_text_real("-.25e1", -100, 100, &value));
    cr_assert(value > -2.51 && value < -2.49);
    cr_assert_str_eq(np_text_real_end("1.5h", &value), "h");
    setlocale(LC_ALL, "C");
}

Test(text, the_shortest_text_of_a_number_reads_back)
{
    static const double values[] = {0, 0.1, 1e-300, 1.0 / 3, 123456789.125, -2};
    char text[NP_REAL_TEXT];
    double back;

    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        np_text_of_real(values[i], text);
        cr_assert(np_text_real(text, -1e300, 1e300, &back));
        cr_assert(memcmp(&back, &values[i], sizeof(back)) == 0, "%s", text);
    }
    np_text_of_real(0.1, text);
    cr_assert_str_eq(text, "0.1");
}

Test(text, columns_are_characters)
{
    cr_assert_eq(np_text_columns(""), 0);
    cr_assert_eq(np_text_columns("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), 4);
}

Test(text, cpus_of_a_valid_list_are_counted)
{
    static const char *const none[] = {"a", "0-", "3-1", "0;1", "0-9999999", " 1", "-1"};
    cpu_set_t allowed;

    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        cr_assert_eq(np_text_cpus(none[i], NULL), -1, "'%s'", none[i]);
    cr_assert_eq(np_text_cpus("", NULL), 0);
    cr_assert_eq(np_text_cpus("0-3,8,10-11", NULL), 7);
    CPU_ZERO(&allowed);
    CPU_SET(3, &allowed);
    CPU_SET(8, &allowed);
    CPU_SET(9, &allowed);
    cr_assert_eq(np_text_cpus("0-3,8,10-5000", &allowed), 2);
}

Test(text, a_users_folder_is_in_its_variable_or_below_home)
{
    char *folder;

    setenv("HOME", "/home/a", 1);
    setenv("XDG_CACHE_HOME", "/b", 1);
    folder = np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe");
    cr_assert_str_eq(folder, "/b/nnpipe");
    np_free(folder);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    folder = np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe");
    cr_assert_str_eq(folder, "/home/a/.cache/nnpipe");
    np_free(folder);
    unsetenv("HOME");
    cr_assert_null(np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe"));
}
