/* A run's log and metrics, as its folder has them: rotated, cut back, and not what they should be. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/service/log_reader.h"
#include "loader/base/mem.h"
#include "tests/test.h"

static char dir[64];

static void make_dir(void)
{
    char path[96];

    strcpy(dir, "/tmp/nnpipe-reader.XXXXXX");
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof(path), "%s/output", dir);
    mkdir(path, 0700);
}

static void remove_dir(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    if (system(command))
        abort();
}

static void put(const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "a");
    fputs(text, file);
    fclose(file);
}

/* What it says; free(). */
static char *hear(int (*reader)(const void *request, int out_fd), const void *request)
{
    FILE *file = tmpfile();
    char *text = calloc(1, 3u << 20);

    if (reader(request, fileno(file)) != 0)
        abort();
    rewind(file);
    text[fread(text, 1, (3u << 20) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static bool log_is(struct np_log_request request, const char *expected)
{
    request.dir = dir;
    char *text = hear(np_reader_log, &request);
    const bool is = strcmp(text, expected) == 0;

    if (!is)
        fprintf(stderr, "log: %.200s\n", text);
    free(text);
    return is;
}

static bool metrics_are(struct np_metrics_request request, const char *expected)
{
    request.dir = dir;
    request.max_points = request.max_points ? request.max_points : 5000;
    char *text = hear(np_reader_metrics, &request);
    const bool is = strcmp(text, expected) == 0;

    if (!is)
        fprintf(stderr, "metrics: %.300s\n", text);
    free(text);
    return is;
}

Test(reader, a_log_continues_over_its_segments)
{
    make_dir();
    cr_expect(log_is((struct np_log_request){.tail = -1}, "1:0\n"));
    put("output/000003", "three\n");
    put("output/000004", "four\n");
    cr_expect(log_is((struct np_log_request){.tail = -1}, "4:5\nthree\nfour\n"));
    cr_expect(log_is(
        (struct np_log_request){.segment = 3, .position = 3, .tail = -1}, "4:5\nee\nfour\n"));
    cr_expect(log_is((struct np_log_request){.segment = 4, .position = 5, .tail = -1}, "4:5\n"));
    cr_expect(log_is(
        (struct np_log_request){.segment = 1, .position = 9, .tail = -1}, "4:5\nthree\nfour\n"));
    cr_expect(log_is((struct np_log_request){.tail = 3}, "4:5\nur\n"));
    cr_expect(log_is((struct np_log_request){.tail = 0}, "4:5\n"));
    cr_expect(log_is(
        (struct np_log_request){.segment = 99999999, .position = 1, .tail = -1}, "99999999:1\n"));
    remove_dir();
}

Test(reader, a_log_must_be_a_regular_file, .timeout = 120)
{
    char path[128];

    make_dir();
    put("secret", "secret\n");
    snprintf(path, sizeof(path), "%s/output/000001", dir);
    cr_assert_eq(symlink("../secret", path), 0);
    snprintf(path, sizeof(path), "%s/output/000002", dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/output/000003", dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    put("output/1", "x");
    put("output/0000004x", "x");
    cr_expect(log_is((struct np_log_request){.tail = -1}, "1:0\n"));
    put("output/000004", "four\n");
    cr_expect(log_is((struct np_log_request){.segment = 3, .tail = -1}, "4:5\nfour\n"));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    cr_assert_eq(symlink("secret", path), 0);
    cr_expect(metrics_are((struct np_metrics_request){0}, "{\"points\": [], \"next\": 0}\n"));
    remove_dir();
}

Test(reader, a_log_is_waited_for, .timeout = 120)
{
    make_dir();
    if (fork() == 0) {
        usleep(300000);
        put("output/000001", "late\n");
        _exit(0);
    }
    cr_expect(log_is((struct np_log_request){.tail = -1, .wait_s = 10}, "1:5\nlate\n"));
    wait(NULL);
    cr_expect(log_is(
        (struct np_log_request){.segment = 1, .position = 5, .tail = -1, .wait_s = 0.3}, "1:5\n"));
    remove_dir();
}

Test(reader, metrics_are_whole_lines_of_objects)
{
    make_dir();
    put("metrics.jsonl", "{\"step\": 1}\n{\"step\": 2}\nno\n[1]\n\"]}\n{\"step\": 3}\n{\"st");
    cr_expect(metrics_are((struct np_metrics_request){0},
        "{\"points\": [\n{\"step\": 1},\n{\"step\": 2},\n{\"step\": 3}], \"next\": 47}\n"));
    cr_expect(metrics_are((struct np_metrics_request){.from = 12},
        "{\"points\": [\n{\"step\": 2},\n{\"step\": 3}], \"next\": 47}\n"));
    cr_expect(metrics_are((struct np_metrics_request){.max_points = 1},
        "{\"points\": [\n{\"step\": 1}], \"next\": 12}\n"));
    cr_expect(
        metrics_are((struct np_metrics_request){.from = 47}, "{\"points\": [], \"next\": 47}\n"));
    cr_expect(metrics_are((struct np_metrics_request){.tail = 20},
        "{\"points\": [\n{\"step\": 3}], \"next\": 47}\n"));
    remove_dir();
}

Test(reader, truncated_metrics_are_read_from_the_beginning)
{
    make_dir();
    put("metrics.jsonl", "{\"step\": 1}\n{\"step\": 2}\n");
    cr_expect(metrics_are((struct np_metrics_request){.from = 13},
        "{\"points\": [\n{\"step\": 1},\n{\"step\": 2}], \"next\": 24}\n"));
    cr_expect(metrics_are((struct np_metrics_request){.from = 1000},
        "{\"points\": [\n{\"step\": 1},\n{\"step\": 2}], \"next\": 24}\n"));
    remove_dir();
}

Test(reader, a_line_that_never_ends_is_skipped)
{
    const size_t bytes = NP_MAX_METRICS + 100;
    char *line = malloc(bytes + 1), expected[64];

    make_dir();
    memset(line, 'x', bytes);
    line[bytes] = '\0';
    put("metrics.jsonl", line);
    cr_expect(metrics_are((struct np_metrics_request){0}, "{\"points\": [], \"next\": 0}\n"));
    put("metrics.jsonl", "\n{}\n");
    snprintf(expected, sizeof(expected), "{\"points\": [], \"next\": %zu}\n", bytes + 1);
    cr_expect(metrics_are((struct np_metrics_request){0}, expected));
    cr_expect(metrics_are((struct np_metrics_request){.from = (int64_t)bytes + 1},
        "{\"points\": [\n{}], \"next\": 1048680}\n"));
    free(line);
    remove_dir();
}

/* The last lines of this log, as `logs -n` asks for them; free(). */
static char *last_lines(int64_t lines)
{
    const struct np_log_request request = {.dir = dir, .tail = -1, .lines = lines};
    char *said = hear(np_reader_log, &request);

    memmove(said, strchr(said, '\n') + 1, strlen(strchr(said, '\n')));
    return said;
}

Test(reader, the_last_lines_reach_back_over_segments, .init = make_dir, .fini = remove_dir)
{
    static char pad[5000]; /* more than is looked at in one go */
    char longest[5100];

    memset(pad, 'x', sizeof(pad) - 1);
    snprintf(longest, sizeof(longest), "%s\nc\n", pad);
    put("output/000001", "one\na\n");
    put("output/000002", "b");
    put("output/000003", longest);
    static const struct {
        int64_t lines;
        const char *begin;
        size_t bytes;
    } cases[] = {{1, "c\n", 2}, {2, "bxx", 5003}, {3, "a\nbx", 5005}, {4, "one\na\n", 5009},
        {99, "one\na\n", 5009}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *said = last_lines(cases[i].lines);

        cr_assert_eq(strlen(said), cases[i].bytes);
        cr_assert_eq(strncmp(said, cases[i].begin, strlen(cases[i].begin)), 0);
        free(said);
    }
    put("output/000003", "no end");
    char *said = last_lines(1);
    cr_assert_str_eq(said, "no end");
    free(said);
}
