/* Paths as a config has them. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/missing.h"
#include "loader/base/path.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

static bool expands(const char *text, const char *want)
{
    char *got = np_expand(text, NULL);
    const bool same = got && strcmp(got, want) == 0;

    np_free(got);
    return same;
}

static bool refused(const char *text, const char *says)
{
    struct np_err err = {0};
    char *got = np_expand(text, &err);

    np_free(got);
    return !got && err.code == -EINVAL && strstr(err.text, says);
}

Test(source_path, expands_variables_and_defaults)
{
    setenv("NP_TEST_A", "value", 1);
    setenv("NP_TEST_EMPTY", "", 1);
    unsetenv("NP_TEST_NONE");
    cr_assert(expands("plain/$HOME/x", "plain/$HOME/x"));
    cr_assert(expands("${NP_TEST_A}/x/${NP_TEST_A}", "value/x/value"));
    cr_assert(expands("${NP_TEST_NONE:-a/b}/x", "a/b/x"));
    cr_assert(expands("${NP_TEST_NONE:-}x", "x"));
    cr_assert(expands("${NP_TEST_EMPTY:-d}", "d"));
    cr_assert(expands("${NP_TEST_EMPTY}x", "x"));
    cr_assert(expands("", ""));
}

Test(source_path, a_first_tilde_is_the_home_folder)
{
    setenv("HOME", "/home/ann", 1);
    setenv("NP_TEST_A", "value", 1);
    cr_assert(expands("~/pics", "/home/ann/pics"));
    cr_assert(expands("~/${NP_TEST_A}", "/home/ann/value"));
    cr_assert(expands("~", "/home/ann"));
    cr_assert(expands("~bob/pics", "~bob/pics"));
    cr_assert(expands("a/~/b", "a/~/b"));
    unsetenv("HOME");
    cr_assert(expands("~/pics", "~/pics"));
}

Test(source_path, names_a_variable_that_is_not_set)
{
    unsetenv("NP_TEST_NONE");
    cr_assert(refused("a/${NP_TEST_NONE}/b", "NP_TEST_NONE is not set"));
    cr_assert(refused("${", "begins a variable"));
    cr_assert(refused("${}", "begins a variable"));
    cr_assert(refused("${A", "begins a variable"));
    cr_assert(refused("${A-b}", "begins a variable"));
}

Test(source_path, match_handles_stars_sets_and_slashes)
{
    static const struct {
        const char *pattern, *text;
        bool want;
    } cases[] = {
        {"train/*", "train/cat/1.jpg", true},
        {"train/*", "test/cat/1.jpg", false},
        {"*.jpg", "a/b/c.jpg", true},
        {"*/cat/*", "train/cat/1.jpg", true},
        {"?.jpg", "a.jpg", true},
        {"?.jpg", ".jpg", false},
        {"[ab]*", "bus", true},
        {"[!ab]*", "bus", false},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[]]x", "]x", true},
        {"[x", "[x", true},
        {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"a**b", "axxb", true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_assert_eq(np_match(cases[i].pattern, cases[i].text), cases[i].want, "%s %s",
            cases[i].pattern, cases[i].text);
}

Test(source_path, relative_paths_start_at_the_config_then_the_current_folder)
{
    char *folder = make_set(), *got, want[1024], here[1024];

    cr_assert_not_null(getcwd(here, sizeof(here)));
    put_file(folder, "conf/a.tar", "", 0);
    put_file(folder, "here/a.tar", "", 0);
    put_file(folder, "here/only.tar", "", 0);
    snprintf(want, sizeof(want), "%s/here", folder);
    cr_assert_eq(chdir(want), 0);
    snprintf(want, sizeof(want), "%s/conf", folder);
    got = np_resolve_path("a.tar", want, NULL);
    cr_assert_not_null(strstr(got, "/conf/a.tar"));
    np_free(got);
    got = np_resolve_path("onl*.tar", want, NULL); /* absolute all the same */
    cr_assert(*got == '/' && strstr(got, "/here/onl*.tar"));
    np_free(got);
    got = np_resolve_path("none.tar", want, NULL); /* nowhere: where it belongs */
    cr_assert_not_null(strstr(got, "/conf/none.tar"));
    np_free(got);
    got = np_resolve_path("/abs.tar", want, NULL);
    cr_assert_str_eq(got, "/abs.tar");
    np_free(got);
    cr_assert_eq(chdir(here), 0);
    remove_set(folder);
}

Test(source_path, globs_are_sorted_and_literal_names_win)
{
    char *folder = make_set(), pattern[1024];
    struct np_paths paths;
    struct np_err err = {0};

    put_file(folder, "s-2.tar", "", 0);
    put_file(folder, "s-10.tar", "", 0);
    put_file(folder, "s-[1].tar", "", 0);
    snprintf(pattern, sizeof(pattern), "%s/s-*.tar", folder);
    cr_assert_eq(np_paths_find(pattern, &paths, NULL), 0);
    cr_assert_eq(paths.nr_paths, 3);
    cr_assert_not_null(strstr(paths.paths[0], "s-10.tar"));
    cr_assert_not_null(strstr(paths.paths[1], "s-2.tar"));
    np_paths_fini(&paths);
    snprintf(pattern, sizeof(pattern), "%s/s-[1].tar", folder);
    cr_assert_eq(np_paths_find(pattern, &paths, NULL), 0);
    cr_assert_eq(paths.nr_paths, 1);
    np_paths_fini(&paths);
    snprintf(pattern, sizeof(pattern), "%s/none/t-*.tar", folder);
    cr_assert_eq(np_paths_find(pattern, &paths, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "t-*.tar: no file matches"));
    cr_assert_not_null(strstr(err.text, folder));
    remove_set(folder);
}

Test(source_path, a_glob_skips_indexes_beside_the_files)
{
    char *folder = make_set(), pattern[1024];
    struct np_paths paths;

    put_file(folder, "s-1.tar", "", 0);
    put_file(folder, "s-_.tar.npidx", "", 0);
    snprintf(pattern, sizeof(pattern), "%s/s-*.tar*", folder);
    cr_assert_eq(np_paths_find(pattern, &paths, NULL), 0);
    cr_expect_eq(paths.nr_paths, 1);
    cr_expect_not_null(strstr(paths.paths[0], "s-1.tar"));
    np_paths_fini(&paths);
    snprintf(pattern, sizeof(pattern), "%s/s-_*", folder);
    cr_expect_eq(np_paths_find(pattern, &paths, NULL), -ENOENT);
    remove_set(folder);
}

/* Neighbours share the look-up of their folder: the result is realpath()'s all the same. */
Test(source_path, files_and_folders_may_be_links)
{
    static const char *const patterns[] = {
        "*/*.tar", "b/../?/*.tar", "a/x.tar", "a//x.tar", "c/.", "a/..", "l*"};
    char *folder = make_set(), command[1024], pattern[1100], real[PATH_MAX];
    struct np_paths paths;
    glob_t found;

    put_file(folder, "a/x.tar", "", 0);
    put_file(folder, "a/y.tar", "", 0);
    put_file(folder, "b/z.tar", "", 0);
    snprintf(command, sizeof(command),
        "cd '%s' && ln -s a c && ln -s ../b/z.tar a/link.tar && ln -s link.tar a/more.tar && ln -s "
        "a/x.tar l1 && "
        "ln -s b l2",
        folder);
    cr_assert_eq(system(command), 0);
    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
        snprintf(pattern, sizeof(pattern), "%s/%s", folder, patterns[p]);
        cr_assert_eq(np_paths_find(pattern, &paths, NULL), 0);
        cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
        cr_expect_eq(paths.nr_paths, (int)found.gl_pathc);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            bool is_there = false;

            cr_assert_not_null(realpath(found.gl_pathv[i], real));
            for (int k = 0; k < paths.nr_paths; k++)
                is_there |= strcmp(paths.paths[k], real) == 0;
            cr_expect(is_there, "%s: %s is missing", patterns[p], real);
        }
        globfree(&found);
        np_paths_fini(&paths);
    }
    snprintf(pattern, sizeof(pattern), "%s/nowhere.tar", folder);
    cr_assert_eq(symlink("gone.tar", pattern), 0);
    snprintf(pattern, sizeof(pattern), "%s/n*.tar", folder);
    cr_expect_eq(np_paths_find(pattern, &paths, NULL), -ENOENT);
    remove_set(folder);
}

static int missing(const int *numbers, int nr, struct np_err *err)
{
    static char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    struct np_missing missing = {0};

    for (int i = 0; i < nr; i++) {
        struct np_err why = {0};

        np_err_set(&why, -ENOENT, "%s: gone", names[numbers[i] % 7]);
        cr_expect_eq(np_missing_add(&missing, numbers[i], &why), i < NP_MAX_MISSING - 1);
    }
    return np_missing_err(&missing, names, 7, err);
}

Test(source_path, missing_files_are_named_together_in_their_order)
{
    static const int numbers[NP_MAX_MISSING] = {4, 1, 5, 0, 6, 2};
    struct np_err one = {0}, two = {0}, six = {0}, many = {0};

    cr_expect_eq(missing(numbers, 0, &one), 0);
    cr_expect_eq(missing(numbers, 1, &one), -ENOENT);
    cr_expect_str_eq(one.text, "e: gone");
    cr_expect_eq(missing(numbers, 2, &two), -ENOENT);
    cr_expect_str_eq(two.text, "2 of 7 files are missing: b and e (b: gone)");
    missing(numbers, 6, &six);
    cr_expect_str_eq(six.text, "6 of 7 files are missing: a, b, c, e, f and others (a: gone)");
    missing(numbers, NP_MAX_MISSING, &many);
    cr_expect(strncmp(many.text, "at least 16 of 7 files", 22) == 0, "%s", many.text);
}
