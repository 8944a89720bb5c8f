/* Test(suite, sentence) { cr_assert(...); }: Criterion; under a sanitizer a plain runner
 * with the same macros, because Criterion 2.4.1 does not start under gcc's thread sanitizer
 * and reports a leaking test as passed under the address sanitizer. */
#ifndef NP_TEST_H
#define NP_TEST_H

#ifndef NP_SAN
#include <criterion/criterion.h>
#else
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct np_test_options { /* Criterion's names; the plain runner has one alarm for all */
    void (*init)(void);
    void (*fini)(void);
    double timeout;
};
struct np_test {
    const char *suite, *name;
    void (*run)(void);
    struct np_test_options options;
    struct np_test *next;
};
void np_test_add(struct np_test *test);
void np_test_failed(const char *file, int line, const char *what);
void np_test_skipped(const char *why);
_Noreturn void np_test_end(void); /* also from a function that the test called */

#define Test(suite_, name_, ...)                                                                   \
    static void suite_##_##name_##_run(void);                                                      \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)                          \
    {                                                                                              \
        static struct np_test test = {                                                             \
            #suite_, #name_, suite_##_##name_##_run, {__VA_ARGS__}, NULL};                         \
        np_test_add(&test);                                                                        \
    }                                                                                              \
    static void suite_##_##name_##_run(void)
                                  /* As in Criterion, a failed assertion ends the test. */
#define NP_CR_CHECK(condition, what)                                                               \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            np_test_failed(__FILE__, __LINE__, what);                                              \
            np_test_end();                                                                         \
        }                                                                                          \
    } while (0)
#define cr_assert(condition, ...)       NP_CR_CHECK(condition, #condition)
#define cr_assert_not(condition, ...)   NP_CR_CHECK(!(condition), "not " #condition)
#define cr_assert_eq(a, b, ...)         NP_CR_CHECK((a) == (b), #a " == " #b)
#define cr_assert_neq(a, b, ...)        NP_CR_CHECK((a) != (b), #a " != " #b)
#define cr_assert_lt(a, b, ...)         NP_CR_CHECK((a) < (b), #a " < " #b)
#define cr_assert_leq(a, b, ...)        NP_CR_CHECK((a) <= (b), #a " <= " #b)
#define cr_assert_gt(a, b, ...)         NP_CR_CHECK((a) > (b), #a " > " #b)
#define cr_assert_geq(a, b, ...)        NP_CR_CHECK((a) >= (b), #a " >= " #b)
#define cr_assert_str_eq(a, b, ...)     NP_CR_CHECK(strcmp(a, b) == 0, #a " equals " #b)
#define cr_assert_str_neq(a, b, ...)    NP_CR_CHECK(strcmp(a, b) != 0, #a " differs from " #b)
#define cr_assert_fail(...)             NP_CR_CHECK(0, "reached")
#define cr_assert_str_empty(a, ...)     NP_CR_CHECK(*(a) == '\0', #a " is empty")
#define cr_assert_str_not_empty(a, ...) NP_CR_CHECK(*(a) != '\0', #a " is not empty")
#define cr_assert_float_eq(a, b, e, ...)                                                           \
    NP_CR_CHECK(fabs((double)(a) - (double)(b)) <= (e), #a " ~ " #b)
#define cr_assert_null(p, ...)         NP_CR_CHECK((p) == NULL, #p " is NULL")
#define cr_assert_not_null(p, ...)     NP_CR_CHECK((p) != NULL, #p " is not NULL")
#define cr_assert_arr_eq(a, b, n, ...) NP_CR_CHECK(memcmp(a, b, n) == 0, #a " equals " #b)
                                  /* A failure is printed, and the test continues. */
#define cr_expect(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            np_test_failed(__FILE__, __LINE__, #condition);                                        \
    } while (0)
#define cr_expect_eq(a, b, ...)          cr_expect((a) == (b))
#define cr_expect_neq(a, b, ...)         cr_expect((a) != (b))
#define cr_expect_gt(a, b, ...)          cr_expect((a) > (b))
#define cr_expect_leq(a, b, ...)         cr_expect((a) <= (b))
#define cr_expect_geq(a, b, ...)         cr_expect((a) >= (b))
#define cr_expect_str_eq(a, b, ...)      cr_expect(strcmp(a, b) == 0)
#define cr_expect_arr_eq(a, b, n, ...)   cr_expect(memcmp(a, b, n) == 0)
#define cr_expect_null(p, ...)           cr_expect((p) == NULL)
#define cr_expect_not_null(p, ...)       cr_expect((p) != NULL)
#define cr_expect_not(condition, ...)    cr_expect(!(condition))
#define cr_expect_str_empty(a, ...)      cr_expect(*(a) == '\0')
#define cr_expect_float_eq(a, b, e, ...) cr_expect(fabs((double)(a) - (double)(b)) <= (e))
#define cr_fatal(...)                    NP_CR_CHECK(0, "reached")
#define cr_skip(...)                                                                               \
    do {                                                                                           \
        np_test_skipped("" __VA_ARGS__);                                                           \
        np_test_end();                                                                             \
    } while (0)
#define cr_skip_test cr_skip
#endif

/* How often a test repeats; under the thread sanitizer, which makes each time some twenty times
 * slower, only a few times. */
#ifndef __SANITIZE_THREAD__
#define NP_TIMES(n, few) (n)
#else
#define NP_TIMES(n, few) (few)
#endif

#endif
