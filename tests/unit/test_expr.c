/* The arithmetic of blocks. */
#include <stdio.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/graph/expr.h"

static const char *param(void *context, const char *name, size_t length)
{
    (void)context;
    if (length == 3 && memcmp(name, "out", 3) == 0)
        return "64";
    if (length == 2 && memcmp(name, "in", 2) == 0)
        return "16";
    if (length == 4 && memcmp(name, "word", 4) == 0)
        return "same";
    if (length == 5 && memcmp(name, "least", 5) == 0)
        return "-9223372036854775808";
    return NULL;
}

Test(expr, calculates_by_precedence)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"$out", 64}, {"$out*4", 256}, {"2 + 3*4", 14}, {"(2 + 3)*4", 20}, {"-3 + 5", 2},
        {"$in != $out", 1}, {"$in != $out/4", 0}, {"7 % 4", 3}, {"1 or 0 and 0", 1},
        {"(1 or 0) and 0", 0}, {"not $in", 0}, {"not 0 and 1", 1}, {"$in < $out and $in >= 16", 1},
        {"3 <= 2 or 3 > 2", 1}, {"5 == 5", 1}, {"true", 1}, {"false or 0", 0}, {" 8 - 2 - 1 ", 5},
        {"$out/$in/2", 2}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int64_t value = -999;

        cr_assert_eq(np_expr_eval(cases[i].text, param, NULL, &value, NULL), 0);
        cr_assert_eq(value, cases[i].value);
    }
}

Test(expr, errors_name_the_mistake)
{
    static const char *const cases[][2] = {{"$nobody", "no parameter $nobody"},
        {"$word*2", "$word is 'same', not a whole number"}, {"1/0", "division by 0"},
        {"1 % 0", "division by 0"}, {"(1", "missing )"}, {"1 2", "expected an operator"},
        {"", "expected a number or a $parameter at the end"},
        {"1 +", "expected a number or a $parameter at the end"}, {"* 2", "before the rest"},
        {"1.5", "not a whole number"}, {"3x", "not a whole number"}, {"$", "$ and a name"},
        {"99999999999999999999", "too large"}, {"9007199254740992*9007199254740992", "too large"},
        {"9007199254740992 + 9007199254740992", "too large"},
        {"----------------------------------------1", "too deeply"},
        {"((((((((((((((((((((((((((((((((((((((((1", "too deeply"},
        {"1 andy 2", "expected an operator"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct np_err err = {0};
        int64_t value = 5;

        cr_assert_lt(np_expr_eval(cases[i][0], param, NULL, &value, &err), 0);
        cr_assert_eq(value, 5);
        if (!strstr(err.text, cases[i][1]))
            fprintf(stderr, "%s: %s\n", cases[i][0], err.text);
        cr_assert_not_null(strstr(err.text, cases[i][1]));
    }
}

static void join(void *context, const char *name, size_t length)
{
    snprintf((char *)context + strlen(context), 64, "%.*s,", (int)length, name);
}

Test(expr, finds_the_parameters_of_a_text)
{
    char names[256] = "";

    np_expr_params("$a*$bc + ($d_1) $ 4$", join, names);
    cr_assert_str_eq(names, "a,bc,d_1,");
    cr_assert(np_expr_is_param("$out"));
    cr_assert(!np_expr_is_param("$out*4"));
    cr_assert(!np_expr_is_param("$"));
    cr_assert(!np_expr_is_param("out"));
}

/* Divided by -1 the least number of 64 bits would end the program. */
Test(expr, parameters_of_19_digits_are_refused)
{
    static const char *const texts[] = {"$least", "$least / -1", "$least % -1", "-$least"};

    for (int i = 0; i < 4; i++) {
        struct np_err err = {0};
        int64_t value = 7;

        cr_assert_lt(np_expr_eval(texts[i], param, NULL, &value, &err), 0);
        cr_assert_eq(value, 7);
        cr_assert_not_null(strstr(err.text, "not a whole number"));
    }
}
