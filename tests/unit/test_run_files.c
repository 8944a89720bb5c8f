/* A run's folder, its lock, the files it appends to, and its watchdog thread. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/run/run_folder.h"
#include "daemon/run/run_log.h"
#include "daemon/run/watch.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/batch.h"
#include "tests/test.h"

static char *new_folder(void)
{
    char *path = strdup("/tmp/nnpipe-run-XXXXXX");

    return mkdtemp(path);
}

static void drop(char *path)
{
    char *command = NULL;

    if (asprintf(&command, "rm -rf '%s'", path) > 0 && system(command) != 0)
        fprintf(stderr, "%s stays\n", path);
    free(command);
    free(path);
}

static char *read_all(const char *dir, const char *name, uint64_t *ret_bytes)
{
    char *path = np_format("%s/%s", dir, name), *text = NULL;

    np_read_file(path, 1 << 20, &text, ret_bytes, NULL);
    np_free(path);
    return text;
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char *path = np_format("%s/%s", dir, name);
    FILE *file = fopen(path, "w");

    fputs(text, file);
    fclose(file);
    np_free(path);
}

static bool in_order(const char *text, const char *const *parts)
{
    for (; text && *parts; parts++)
        text = strstr(text, *parts);
    return text != NULL;
}

/* --- files ----------------------------------------------------------------------------------- */

Test(run_log, lines_after_the_checkpoint_are_cut_off_except_in_the_log)
{
    static const char *const parts[] = {"Z first\n", "Z second\n", /* people read what went wrong */
        "torn\n2", "Z resumed: metrics and other lists were cut back to step 1\n", "Z third\n",
        NULL};
    char *dir = new_folder(), *text;
    struct np_position position = {.step = 1};
    struct np_run_log log = {0};
    uint64_t bytes;

    cr_assert_eq(np_log_open(&log, dir, 0, NULL, NULL), 0);
    np_log_line(&log, NP_LOG_METRICS, "{\"step\": 1}\n");
    np_log_text(&log, "first");
    cr_assert_eq(np_log_sizes(&log, true, &position, NULL), 0);
    cr_assert_eq(position.metrics_bytes, 12);
    cr_assert_eq(position.history_bytes, 0);
    np_log_line(&log, NP_LOG_METRICS, "{\"step\": 2}\n");
    np_log_line(&log, NP_LOG_BAD, "{\"bad\": 1}\n");
    np_log_text(&log, "second");
    fputs("torn", log.files[NP_LOG_TEXT]);
    np_log_close(&log);
    cr_assert_eq(np_log_open(&log, dir, 0, &position, NULL), 0);
    np_log_line(&log, NP_LOG_METRICS, "{\"step\": 3}\n");
    np_log_text(&log, "third");
    np_log_close(&log);
    text = read_all(dir, "metrics.jsonl", &bytes);
    cr_assert_str_eq(text, "{\"step\": 1}\n{\"step\": 3}\n");
    np_free(text);
    text = read_all(dir, "bad_samples.jsonl", &bytes);
    cr_assert_eq(bytes, 0);
    np_free(text);
    text = read_all(dir, "log", &bytes);
    cr_assert(in_order(text, parts));
    np_free(text);
    drop(dir);
}

Test(run_log, history_is_step_rows_and_samples_little_endian)
{
    static const unsigned char want[] = {
        5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 1, 2, 0, 0};
    static const uint64_t samples[] = {7, 513};
    struct np_position position = {0};
    struct np_run_log log = {0};
    char *dir = new_folder();
    uint64_t bytes;

    cr_assert_eq(np_log_open(&log, dir, 1u << NP_LOG_HISTORY, NULL, NULL), 0);
    np_log_history(&log, 5, samples, 2);
    cr_assert_eq(np_log_sizes(&log, true, &position, NULL), 0);
    cr_assert_eq(position.history_bytes, sizeof(want));
    np_log_close(&log);
    char *text = read_all(dir, "history.bin", &bytes);
    cr_assert(bytes == sizeof(want) && memcmp(text, want, sizeof(want)) == 0);
    np_free(text);
    drop(dir);
}

Test(run_log, losses_have_one_head_and_are_cut_back_to_the_checkpoint)
{
    static const unsigned char want[] = {'n', 'p', 'L', 'o', 's', 's', 'e', 's', 1, 0, 0, 0, 2, 0,
        0, 0, 0x39, 5, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 8,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x40, 0, 0, 0, 0};
    static const float losses[][2] = {{1, -2}, {9, 9}, {3, 0}};
    struct np_position position = {0};
    struct np_run_log log = {0};
    char *dir = new_folder();
    uint64_t bytes;

    for (int start = 0; start < 2;
         start++) { /* killed after the second step, resumed after the first */
        cr_assert_eq(
            np_log_open(&log, dir, 1u << NP_LOG_LOSSES, start ? &position : NULL, NULL), 0);
        np_log_losses(&log, start ? 8 : 7, losses[start ? 2 : 0], 2, 1337);
        if (start == 0) {
            cr_assert_eq(np_log_sizes(&log, true, &position, NULL), 0);
            cr_assert_eq(position.losses_bytes, 40);
            np_log_losses(&log, 8, losses[1], 2, 1337);
        }
        np_log_close(&log);
    }
    char *text = read_all(dir, "sample_losses.bin", &bytes);
    cr_assert(bytes == sizeof(want) && memcmp(text, want, sizeof(want)) == 0);
    np_free(text);
    position.losses_bytes = 0; /* of a run that began without them */
    cr_assert_eq(np_log_open(&log, dir, 1u << NP_LOG_LOSSES, &position, NULL), 0);
    np_log_losses(&log, 7, losses[0], 2, 1337);
    np_log_close(&log);
    text = read_all(dir, "sample_losses.bin", &bytes);
    cr_assert(bytes == 40 && memcmp(text, want, 40) == 0);
    np_free(text);
    drop(dir);
}

Test(run_log, a_folder_that_cannot_be_written_is_named)
{
    struct np_run_log log = {0};
    struct np_err err = {0};

    cr_assert_eq(np_log_open(&log, "/no/such/run", 0, NULL, &err), -ENOENT);
    cr_assert_str_eq(err.text, "/no/such/run/log: cannot be opened: No such file or directory");
    np_log_text(&log, "nothing happens");
    np_log_close(&log);
}

Test(run_log, a_failed_write_is_reported_by_sync)
{
    struct np_position position = {0};
    struct np_run_log log = {0};
    struct np_err err = {0};

    log.dir = np_strdup("run");
    log.files[NP_LOG_METRICS] = fopen("/dev/full", "w");
    np_log_line(&log, NP_LOG_METRICS, "lost\n");
    cr_assert_eq(np_log_sizes(&log, true, &position, &err), -ENOSPC);
    cr_assert_str_eq(err.text, "run/metrics.jsonl: cannot be written: No space left on device");
    np_log_close(&log);
}

/* --- folders --------------------------------------------------------------------------------- */

Test(run_folder, names_are_unique_and_sort_by_time)
{
    char *runs = new_folder(), *first = NULL, *second = NULL;

    cr_assert_eq(np_folder_create(runs, "net", &first, NULL), 0);
    cr_assert_eq(np_folder_create(runs, "net", &second, NULL), 0);
    cr_assert(strcmp(first, second) != 0);
    const char *name = strrchr(first, '/') + 1;
    cr_assert_eq(strlen(name), strlen("net-20261231-235959-abcd"));
    cr_assert(strncmp(name, "net-20", 6) == 0);
    np_free(first);
    np_free(second);
    drop(runs);
}

Test(run_folder, a_place_that_cannot_be_written_is_named)
{
    struct np_err err = {0};
    char *dir = NULL;

    cr_assert(np_folder_create("/proc/no/runs", "net", &dir, &err) < 0);
    cr_assert(strstr(err.text, "/proc/no") && !dir);
}

Test(run_folder, a_lock_has_one_holder_and_names_it)
{
    char *dir = new_folder(), want[64], text[64];
    struct np_err err = {0};
    int first = -1, second = -1;

    cr_assert_eq(np_folder_lock(dir, &first, NULL), 0);
    cr_assert_eq(np_folder_lock(dir, &second, &err), -EBUSY);
    snprintf(want, sizeof(want), "this run is running, process %d;", (int)getpid());
    cr_assert(strstr(err.text, want));
    cr_assert(np_folder_running(dir, text, sizeof(text)));
    snprintf(want, sizeof(want), "running, process %d", (int)getpid());
    cr_assert_str_eq(text, want);
    close(first);
    cr_assert_not(np_folder_running(dir, text, sizeof(text)));
    cr_assert_eq(np_folder_lock(dir, &second, NULL), 0);
    close(second);
    drop(dir);
}

/* config NULL: none. */
static void add_run(const char *runs, const char *name, const char *config)
{
    char *dir = np_format("%s/%s", runs, name);

    np_make_dirs(dir, NULL);
    if (config)
        write_text(dir, "config.yaml", config);
    np_free(dir);
}

/* Asks in the order of the calls, takes what has "seed: 1". */
static char asked[512];
static bool has_seed_1(void *context, const char *dir)
{
    struct np_node *config = NULL;
    bool has =
        np_folder_config(dir, &config, NULL) == 0 && np_node_is(np_node_get(config, "seed"), "1");

    (void)context;
    snprintf(asked + strlen(asked), sizeof(asked) - strlen(asked), "%s", strrchr(dir, '/'));
    np_node_free(config);
    return has;
}

Test(run_folder, newest_run_of_a_name_comes_first)
{
    static const char same[] = "name: net\nseed: 1\nloader: {readers: 3}\n";
    char *runs = new_folder(), *dir = NULL;

    cr_assert_eq(np_folder_find("/no/such/runs", "net", has_seed_1, NULL, &dir, NULL), 0);
    cr_assert_null(dir);
    cr_assert_eq(np_folder_find(runs, "net", has_seed_1, NULL, &dir, NULL), 0);
    cr_assert_null(dir);
    cr_assert(np_folder_find("/proc/self/status", "net", has_seed_1, NULL, &dir, NULL) < 0);
    add_run(runs, "net-20260101-000000-0001", same);
    add_run(runs, "net-20260102-000000-0001", same); /* this one */
    add_run(runs, "net-20260104-000000-0001", "name: net\nseed: 2\n");
    add_run(runs, "net-20260106-000000-0001", NULL);
    add_run(runs, "net-20260107-000000-0001", "a: [");
    add_run(runs, "other-20260108-000000-0001", same);
    asked[0] = '\0';
    cr_assert_eq(np_folder_find(runs, "net", has_seed_1, NULL, &dir, NULL), 0);
    cr_assert(dir && strcmp(strrchr(dir, '/'), "/net-20260102-000000-0001") == 0);
    cr_assert_str_eq(asked,
        "/net-20260107-000000-0001/net-20260106-000000-0001/net-20260104-000000-0001"
        "/net-20260102-000000-0001");
    np_free(dir);
    drop(runs);
}

Test(run_folder, a_config_from_before_pixels_says_pillow_12)
{
    char *runs = new_folder(), *dir = np_format("%s/net-1", runs);
    struct np_node *node = NULL;

    np_make_dirs(dir, NULL);
    write_text(dir, "config.yaml", "name: net\nloader: {batch: 8}\n");
    cr_assert_eq(np_folder_config(dir, &node, NULL), 0);
    cr_expect(np_node_is(np_node_get(np_node_get(node, "loader"), "pixels"), "pillow-12"));
    np_node_free(node);
    write_text(dir, "config.yaml", "name: net\nloader: {pixels: pillow-13}\n");
    cr_assert_eq(np_folder_config(dir, &node, NULL), 0);
    cr_expect(np_node_is(np_node_get(np_node_get(node, "loader"), "pixels"), "pillow-13"));
    np_node_free(node);
    np_free(dir);
    drop(runs);
}

/* --- the watchdog ---------------------------------------------------------------------------- */

static void count_lines(void *context, const char *text)
{
    (void)text;
    ++*(int *)context;
}

/* Waits up to five seconds for the answer to a signal. */
static int answer(struct np_watch *watch)
{
    for (int i = 0; i < 500 && !np_watch_stopping(watch); i++)
        np_sleep_until_ns(np_now_ns() + 10000000);
    return np_watch_stopping(watch);
}

Test(watch, a_signal_requests_a_stop_once_armed, .timeout = 120)
{
    struct np_watch *watch = NULL;
    int lines = 0;

    cr_assert_eq(np_watch_start(NULL, count_lines, &lines, true, &watch, NULL), 0);
    cr_assert_eq(np_watch_stopping(watch), 0);
    np_watch_arm(watch);
    kill(getpid(), SIGTERM);
    cr_assert_eq(answer(watch), SIGTERM);
    np_watch_stop(watch); /* joins: the line has been said */
    cr_assert_eq(lines, 1);
}

/* What a child that runs `act` dies of: the signal's number, or -1 - exit code. said: what it
 * has written on standard error. */
static int died_of(void (*act)(struct np_watch *watch), bool saves, char said[256])
{
    int status, lines = 0, ends[2];
    bool piped = pipe(ends) == 0;
    pid_t child = piped ? fork() : -1;
    ssize_t n;

    if (child < 0)
        return 0; /* no signal's number */
    if (child == 0) {
        struct np_watch *watch = NULL;

        dup2(ends[1], STDERR_FILENO);
        np_watch_start(NULL, count_lines, &lines, saves, &watch, NULL);
        act(watch);
        np_sleep_until_ns(np_now_ns() + 10000000000ull);
        _exit(9);
    }
    waitpid(child, &status, 0);
    close(ends[1]);
    n = read(ends[0], said, 255);
    said[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1 - WEXITSTATUS(status);
}

static void one_unarmed(struct np_watch *watch)
{
    (void)watch;
    kill(getpid(), SIGINT);
}

static void two_armed(struct np_watch *watch)
{
    np_watch_arm(watch);
    kill(getpid(), SIGINT);
    answer(watch);
    kill(getpid(), SIGTERM); /* at once: the same wish */
    np_sleep_until_ns(np_now_ns() + 700000000ull);
    kill(getpid(), SIGTERM);
}

Test(watch, a_signal_before_or_a_second_one_ends_the_process, .timeout = 120)
{
    char said[256];

    cr_assert_eq(died_of(one_unarmed, true, said), SIGINT);
    cr_assert_str_eq(said, "SIGINT: ended before the first step, nothing was saved\n");
    cr_assert_eq(died_of(two_armed, true, said), SIGTERM);
    cr_assert_str_eq(said, "SIGTERM again: ended at once; earlier checkpoints are kept\n");
    cr_assert_eq(died_of(two_armed, false, said), SIGTERM);
    cr_assert_str_eq(said, "SIGTERM again: ended at once\n");
}

static void two_settled(struct np_watch *watch)
{
    np_watch_arm(watch);
    kill(getpid(), SIGINT);
    answer(watch);
    np_watch_settle(watch, 75);
    kill(getpid(), SIGINT);
}

static void one_too_late(struct np_watch *watch)
{
    np_watch_arm(watch);
    np_watch_settle(watch, 0);
    np_watch_stop(watch);
    kill(getpid(), SIGTERM);
    _exit(7);
}

Test(watch, a_signal_after_the_last_write_changes_no_exit_code, .timeout = 120)
{
    char said[256];

    cr_assert_eq(died_of(two_settled, true, said), -1 - 75);
    cr_assert_eq(died_of(one_too_late, true, said), -1 - 7);
}
