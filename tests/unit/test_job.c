/* A job reaches the worker unchanged, and a malformed one is refused. */
#include "daemon/service/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/as_user.h"
#include "loader/base/mem.h"
#include "tests/test.h"

static int read_fd(int fd, struct np_job *ret_job, struct np_err *err)
{
    char path[32];

    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    return np_job_read(path, ret_job, err);
}

static int read_text(const char *text, struct np_job *ret_job, struct np_err *err)
{
    const int fd = np_text_fd(text);
    const int code = read_fd(fd, ret_job, err);

    close(fd);
    return code;
}

Test(job, reads_back_unchanged)
{
    const struct np_entry entry = {.dir = "/home/ann/a \"b\"\n/cnn-7",
        .assigned = "cuda:1",
        .overrides = "a.b=\"c\"\nd=1",
        .umask = 027,
        .attempt = 1234567890123};
    const struct np_worker_start start = {.entry = &entry,
        .config = "name: cnn\n# \xc3\xa9 \\ \x01\ttab\n",
        .environment = "DATA=/a\nB=\n"};
    char *text = np_job_text(&start, 4321, NULL);
    struct np_job back;
    struct np_err err = {0};

    cr_assert_not_null(text);
    cr_assert_eq(read_text(text, &back, &err), 0, "%s", err.text);
    cr_assert_str_eq(back.dir, entry.dir);
    cr_assert_str_eq(back.device, entry.assigned);
    cr_assert_str_eq(back.config, start.config);
    cr_assert_str_eq(back.environment, start.environment);
    cr_assert_str_eq(back.overrides, entry.overrides);
    cr_expect(back.attempt == entry.attempt && back.parent == 4321 && back.umask == 027);
    np_node_free(back.node);
    np_free(text);
}

Test(job, a_long_config_comes_through_a_pipe_in_pieces)
{
    const size_t bytes = 1 << 20;
    char *config = np_alloc(bytes + 1);
    struct np_job back;
    struct np_err err = {0};
    int ends[2];

    memset(config, '\n', bytes); /* two bytes each, quoted */
    const struct np_entry entry = {.dir = "/r", .assigned = "cpu"};
    const struct np_worker_start start = {.entry = &entry, .config = config};
    char *text = np_job_text(&start, 0, NULL);
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        size_t left = strlen(text);

        for (const char *at = text; left > 0;) {
            const ssize_t nr = write(ends[1], at, left < 1000 ? left : 1000);

            if (nr <= 0)
                _exit(1);
            at += nr;
            left -= (size_t)nr;
        }
        _exit(0);
    }
    close(ends[1]);
    cr_assert_eq(read_fd(ends[0], &back, &err), 0, "%s", err.text);
    cr_assert_str_eq(back.config, config);
    close(ends[0]);
    cr_expect_eq(waitpid(child, NULL, 0), child);
    np_node_free(back.node);
    np_free(text);
    np_free(config);
}

Test(job, a_malformed_job_is_refused)
{
    static const char *const texts[] = {"", "{", "[]", "null", "{}",
        "{\"dir\": \"r/a-1\", \"device\": \"cpu\", \"attempt\": 1, \"config\": \"\"}",
        "{\"dir\": \"/r\", \"device\": \"cpu\", \"config\": \"\"}",
        "{\"dir\": \"/r\", \"device\": \"cpu\", \"attempt\": -1, \"config\": \"\"}",
        "{\"dir\": \"/r\", \"device\": [], \"attempt\": 1, \"config\": \"\"}",
        "{\"dir\": \"/r\", \"device\": \"cpu\", \"attempt\": 1}"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct np_job job;
        struct np_err err = {0};

        cr_expect_eq(read_text(texts[i], &job, &err), -EBADMSG, "%s", texts[i]);
        cr_expect(err.text[0]);
        np_node_free(job.node);
    }
}
