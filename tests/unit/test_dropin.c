/* The drop-in of a run's unit: only the run's folders are writable, and no path breaks out of its line. */
#include "daemon/service/systemd/dropin.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/test.h"

static char *text_of(const char *dir, const char *cache, const char *config)
{
    struct np_err err = {0};
    char *text = NULL;

    cr_expect_eq(np_dropin_text(dir, cache, config, &text, &err), 0, "%s", err.text);
    return text ? text : np_strdup(err.text);
}

Test(dropin, names_writable_paths)
{
    char *text = text_of("/home/ann/runs/cnn-7", "/home/ann/.cache/nnpipe",
        "name: cnn\ndata: {train: {source: tar, path: /data/x.tar, cache_dir: /scratch/c}}\n");

    cr_assert_str_eq(text, "[Service]\n"
                           "ReadWritePaths=\"-/home/ann/runs/cnn-7\"\n"
                           "ReadWritePaths=\"-/home/ann/.cache/nnpipe\"\n"
                           "ReadWritePaths=\"-/scratch/c\"\n");
    np_free(text);
}

Test(dropin, binds_paths_that_a_private_tmp_hides)
{
    char *text = text_of("/tmp/ann/runs/cnn-7", NULL,
        "data: {train: {path: /tmp/sets/a/b-*.tar}, test: {path: /var/tmp/t}, x: /tmp/, y: "
        "/tmpx/z}\n");

    cr_assert_str_eq(text, "[Service]\n"
                           "BindPaths=\"-/tmp/ann/runs/cnn-7\"\n"
                           "BindReadOnlyPaths=\"-/tmp/sets\"\n"
                           "BindReadOnlyPaths=\"-/var/tmp/t\"\n");
    np_free(text);
}

Test(dropin, keeps_a_path_within_its_word)
{
    char *text = text_of("/r/a \"b\" \\ %h:c/x-1", NULL, "name: x\n");

    cr_assert_str_eq(text, "[Service]\nReadWritePaths=\"-/r/a \\\"b\\\" \\\\ %%h:c/x-1\"\n");
    np_free(text);
}

Test(dropin, refuses_paths_that_no_line_can_hold)
{
    struct np_err err = {0};
    char *text = NULL;

    cr_expect_eq(
        np_dropin_text("/r/x\nExecStartPre=/bin/evil", NULL, "name: x\n", &text, &err), -EINVAL);
    cr_expect_null(text);
    err = (struct np_err){0};
    cr_expect_eq(
        np_dropin_text("/r", NULL, "a: {cache_dir: \"/c\\nExecStart=x\"}\n", &text, &err), -EINVAL);
    cr_expect(strstr(err.text, "/r: a path"));
    err = (struct np_err){0};
    cr_expect_eq(np_dropin_text("/r", NULL, "a: [", &text, &err), -EINVAL);
}
