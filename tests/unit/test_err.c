/* Errors: the first wins, context goes before, NULL is allowed; reports store and sort. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/err.h"

#include "tests/test.h"

Test(err, the_first_error_wins)
{
    struct np_err err = {0};

    cr_assert_eq(np_err_set(&err, -ENOENT, "cannot read %s", "a.tar"), -ENOENT);
    cr_assert_eq(np_err_set(&err, -EIO, "another"), -EIO);
    cr_assert_eq(err.code, -ENOENT);
    cr_assert_eq(err.line, 0);
    cr_assert_str_eq(err.text, "cannot read a.tar");
}

Test(err, context_goes_before_the_text)
{
    struct np_err err = {0};

    cr_assert_eq(np_err_context(&err, "nothing happened"), 0);
    cr_assert_str_eq(err.text, "");
    np_err_set(&err, -EIO, "bad block");
    cr_assert_eq(np_err_context(&err, "member %d of %s", 7, "b.tar"), -EIO);
    cr_assert_str_eq(err.text, "member 7 of b.tar: bad block");
}

Test(err, NULL_is_allowed_for_err)
{
    cr_assert_eq(np_err_set(NULL, -EIO, "x"), -EIO);
    cr_assert_eq(np_err_context(NULL, "x"), 0);
}

Test(err, formats_with_the_known_parts_of_the_place)
{
    const struct np_err at = {.text = "no", .file = "x.yaml", .line = 3, .column = 14};
    const struct np_err file = {.text = "no", .file = "x.yaml"};
    const struct np_err bare = {.text = "no", .line = 3, .column = 14};
    char text[100], small[8];

    np_err_format(&at, text, sizeof(text));
    cr_assert_str_eq(text, "x.yaml:3:14: no");
    np_err_format(&file, text, sizeof(text));
    cr_assert_str_eq(text, "x.yaml: no");
    np_err_format(&bare, text, sizeof(text));
    cr_assert_str_eq(text, "no");
    np_err_format(&at, small, sizeof(small));
    cr_assert_str_eq(small, "x.yaml:");
}

Test(err, long_texts_are_cut_and_hostile_ones_kept_on_one_line)
{
    struct np_err err = {0};
    char name[2000];

    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    np_err_set(&err, -EIO, "cannot read \033[2J\n\x7f%s", name);
    cr_assert_eq(strlen(err.text), sizeof(err.text) - 1);
    cr_assert_eq(strncmp(err.text, "cannot read ?[2J??nnn", 21), 0);
    np_err_context(&err, "%s", name);
    cr_assert_eq(strlen(err.text), sizeof(err.text) - 1);
    memset(&err, 0, sizeof(err));
    np_err_set(&err, -EIO, "caf\xc3\xa9 \xe2\x82\xac");
    cr_assert_str_eq(err.text, "caf\xc3\xa9 \xe2\x82\xac"); /* UTF-8 stays */
    np_err_context(&err, "a\tb");
    cr_assert_eq(strncmp(err.text, "a?b: caf", 8), 0);
}

Test(err, a_report_sorts_by_place_and_keeps_the_order_of_one_place)
{
    struct np_report report;
    static const char *const order[] = {"a", "b", "c", "d", "e"};

    np_report_init(&report, "x.yaml");
    np_report_add(&report, 9, 1, "e");
    np_report_add(&report, 3, 8, "b%s", "");
    np_report_add(&report, 3, 8, "c");
    np_report_add(&report, 4, 1, "d");
    np_report_add(&report, 3, 2, "a");
    np_report_sort(&report);
    cr_assert_eq(report.nr_errs, 5);
    for (int i = 0; i < 5; i++) {
        cr_assert_str_eq(report.errs[i].text, order[i]);
        cr_assert_str_eq(report.errs[i].file, "x.yaml");
        cr_assert_eq(report.errs[i].code, -EINVAL);
    }
    np_report_fini(&report);
    cr_assert_eq(report.nr_errs, 0);
    np_report_fini(&report);
}

Test(err, a_report_holds_a_hundred_and_counts_the_rest)
{
    struct np_report report;

    np_report_init(&report, NULL);
    for (int i = 0; i < 103; i++)
        np_report_add(&report, i, 1, "%d", i);
    cr_assert_eq(report.nr_errs, 100);
    cr_assert_eq(report.nr_dropped, 3);
    cr_assert_str_eq(report.errs[99].text, "99");
    np_report_fini(&report);
}

Test(err, a_log_keeps_its_lines_and_moves_no_cursor_at_any_cut)
{
    static const char log[] =
        "a\tb\n\033[2J\r\xc2\x9b 0\0\xe2\x80\xaeX \xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x9b\n\xe2";
    static const char wanted[] = "a\tb\n?[2J??? 0????X \xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x9b\n\xe2";
    const size_t nr = sizeof(log) - 1;

    for (size_t cut = 0; cut <= nr; cut++) {
        char text[sizeof(log)];

        memcpy(text, log, sizeof(log));
        const size_t first = np_text_clean_log(text, cut, false);
        cr_assert(first <= cut && cut - first <= 3);
        cr_assert_eq(np_text_clean_log(text + first, nr - first, true), nr - first);
        cr_assert_arr_eq(text, wanted, sizeof(wanted), "cut at %zu", cut);
    }
}

Test(err, no_text_moves_the_cursor_or_changes_the_writing_direction)
{
    /* an escape, DEL, C1 (CSI) as UTF-8 and as a byte, bidirectional overrides and isolates */
    char text[] = "a\033[2J\x7f \xc2\x9b"
                  "2J \x9b"
                  "2J \xe2\x80\xae"
                  "b\xe2\x81\xa6"
                  "c";
    char kept[] = "\xc3\x9b \xe9t\xe9 \xe2\x82\xac \xf0\x9f\x90\x9b \xe2\x80\x94 \xc2\xa0 \xd7\x90";
    struct np_err err = {0};
    char before[sizeof(kept)];
    size_t bytes = 0;

    memcpy(before, kept, sizeof(kept));
    np_err_set(&err, -EIO, "%s", text);
    np_text_clean(text);
    cr_assert_str_eq(text, "a?[2J? ??2J ?2J ???b???c");
    cr_assert_str_eq(err.text, text);
    np_text_clean(kept); /* letters whose bytes look like one, emoji, dashes, Latin-1 */
    cr_assert_str_eq(kept, before);
    cr_assert_null(np_text_control(kept, &bytes));
    cr_assert_not_null(np_text_control("\xc2\x85", &bytes));
    cr_assert_eq(bytes, 2);
}

static bool hidden(const char *text, const char *want)
{
    char got[200];

    snprintf(got, sizeof(got), "%s", text);
    np_text_hide(got);
    return strcmp(got, want) == 0 && np_text_has_secret(text) == (strcmp(text, want) != 0);
}

Test(err, secrets_of_urls_are_dots)
{
    struct np_err err = {0};

    cr_expect(hidden("http://h/a.tar?X-Amz-Signature=abc: gone", "http://h/a.tar?...: gone"));
    cr_expect(hidden("a 'https://h/a?b/c=d&e=f' and https://h/{a,b}?g={0..9}.",
        "a 'https://h/a?...' and https://h/{a,b}?...."));
    cr_expect(hidden("http://me:word@h:80/a?b=c d", "http://...@h:80/a?... d"));
    cr_expect(hidden("http://h/a?b", "http://h/a?."));
    cr_expect(hidden("http://a@b@h", "http://...@h"));
    cr_expect(hidden("HTTP://h/x.tar?sig=abc", "HTTP://h/x.tar?..."));
    cr_expect(hidden("https://me:wo/rd@h/a", "https://...@h/a"));
    cr_expect(hidden("https://me:wo?rd@h/a", "https://...@h/a"));
    cr_expect(hidden("https://h:8080/a@b/c", "https://h:8080/a@b/c"));
    cr_expect(hidden("[\"http://h/a?x\\ty\"]", "[\"http://h/a?.\\ty\"]"));
    cr_expect(hidden("s3://b/what?, gs://b/a@b?c", "s3://b/what?, gs://b/a@b?c"));
    cr_expect(hidden("http://h/a@b:c, why? http:// ? http://h? http://h/?...",
        "http://h/a@b:c, why? http:// ? http://h? http://h/?..."));
    np_err_set(&err, -EIO, "%s: no", "http://h/a?secret");
    np_err_context(&err, "%s", "http://me@h");
    cr_expect_str_eq(err.text, "http://..@h: http://h/a?...: no");
}
