/* A run of one step with each of its allocations failing in turn. What may fail ends the run with a sentence, and
 * nothing of it leaks or crashes (the sanitizers look). */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/analysis/profile.h"
#include "daemon/analysis/trace.h"
#include "daemon/config/config.h"
#include "daemon/run/evaluate.h"
#include "daemon/run/inference.h"
#include "daemon/run/run.h"
#include "daemon/run/run_parts.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

static const char text[] =
    "name: m\ndevice: cpu\nprecision: f32\n"
    "data: {train: {source: synth, samples: 4, size: 8}, test: {source: synth, samples: 2, size: "
    "8}}\n"
    "loader: {batch: 2, readers: 1, io: pread}\nmodel: [flatten, {linear: {out: classes}}]\n"
    "optimizer: {adamw: {lr: 0.01}}\ntrain: {steps: 2, accumulate: 2, threads: 1}\n";

static char folder[64];
static int streams[2]; /* where stdout and stderr went before the test */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static void clear(void)
{
    made_memory_fail(0);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(streams[i], i + 1);
        close(streams[i]);
    }
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void begin(void)
{
    snprintf(folder, sizeof(folder), "%s/run-memory-XXXXXX", "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
    fflush(NULL);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        streams[i] = dup(i + 1);
        cr_assert_eq(dup2(null, i + 1), i + 1);
    }
    close(null);
}

static struct np_config *load(void)
{
    char path[96], runs[96];
    const char *const overrides[] = {runs};
    struct np_config *config = NULL;
    struct np_report report;

    snprintf(path, sizeof(path), "%s/c.yaml", folder);
    snprintf(runs, sizeof(runs), "runs=%s/runs", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
    np_report_init(&report, path);
    cr_assert_eq(np_config_load(path, overrides, 1, &config, &report), 0);
    np_report_fini(&report);
    return config;
}

static void ignore(void *context, const struct np_run *run, const char *doing)
{
    (void)context;
    (void)run;
    (void)doing;
}

/* The run with its n-th allocation failing; false: there is none. */
static bool run_without(int n, struct np_err *ret_err, int *ret_code)
{
    enum np_device_trouble trouble = NP_DEVICE_WELL;
    const struct np_run_follower follower = {.at = ignore, .err = ret_err, .trouble = &trouble};
    const struct np_run_options options = {.follower = &follower};
    struct np_config *config = load();

    *ret_err = (struct np_err){0};
    made_memory_fail(n);
    *ret_code = np_run_train(config, &options);
    const bool failed = made_memory_failed();
    made_memory_fail(0);
    np_config_free(config);
    return failed;
}

Test(run_memory, any_failed_allocation_ends_a_run_with_an_error, .init = begin, .fini = clear,
    .timeout = 120)
{
    int n = 1, code, nr_ended = 0;
    struct np_err err;

    for (; run_without(n, &err, &code); n++) {
        if (code == NP_EXIT_DONE)
            continue; /* it did without */
        nr_ended++;
        cr_assert(code == NP_EXIT_FAILED || code == NP_EXIT_GAVE_UP, "allocation %d", n);
        cr_assert_eq(err.code, -ENOMEM, "allocation %d: %s", n, err.text);
    }
    cr_assert_eq(code, NP_EXIT_DONE);
    cr_assert_gt(
        nr_ended, 5); /* weights, buffers, two states, the mark, the plan's and the loader's */
}

/* From facts and weights to a plan: of `eval` and `predict`. */
static bool open_without(int n, const char *weights, int *ret_code, struct np_err *ret_err)
{
    const struct np_source_progress progress = {.note = NULL};
    struct np_inference inference = {0};
    struct np_config *config = load();

    *ret_err = (struct np_err){0};
    made_memory_fail(n);
    *ret_code = np_inference_open(config, weights, NULL, &progress, &inference, ret_err);
    const bool failed = made_memory_failed();
    made_memory_fail(0);
    np_inference_close(&inference);
    np_config_free(config);
    return failed;
}

Test(run_memory, weights_without_memory_are_not_evaluated, .init = begin, .fini = clear,
    .timeout = 120)
{
    char command[160], weights[160] = "";
    struct np_err err;
    int code, nr_failed = 0;

    run_without(0, &err, &code);
    cr_assert_eq(code, NP_EXIT_DONE);
    snprintf(command, sizeof(command), "ls -d %s/runs/m-*", folder);
    FILE *list = popen(command, "r");
    cr_assert(list && fgets(weights, sizeof(weights), list));
    pclose(list);
    weights[strcspn(weights, "\n")] = '\0';
    for (int n = 1; open_without(n, weights, &code, &err); n++)
        if (code < 0) {
            nr_failed++;
            cr_assert_eq(err.code, code, "allocation %d: %s", n, err.text);
        }
    cr_assert_eq(code, 0);
    cr_assert_gt(nr_failed, 2);
}

Test(run_memory, a_trace_without_memory_is_not_opened, .init = begin, .fini = clear)
{
    char path[96];
    struct np_trace *trace = NULL;

    snprintf(path, sizeof(path), "%s/t", folder);
    for (int n = 1; n <= 2; n++) {
        struct np_err err = {0};

        made_memory_fail(n);
        cr_assert_eq(np_trace_open(path, NULL, &trace, &err), -ENOMEM);
        cr_assert_eq(err.code, -ENOMEM);
    }
}

Test(run_memory, a_profile_without_memory_is_not_read, .init = begin, .fini = clear)
{
    struct np_profile profile = {.config = "c"};
    struct np_ribbon ribbon[2] = {{.rate = 1}, {.rate = 2}};
    int n = 1;

    profile.ribbon = ribbon;
    profile.nr_ribbon = 2;
    char *json = np_profile_json(&profile, NULL);
    cr_assert(json != NULL);
    for (;; n++) {
        struct np_profile read = {0};
        struct np_err err = {0};

        made_memory_fail(n);
        const int code = np_profile_parse(json, strlen(json), &read, &err);
        if (!made_memory_failed()) {
            cr_assert_eq(code, 0);
            np_profile_fini(&read);
            break;
        }
        cr_assert_eq(code, -ENOMEM);
    }
    cr_assert_gt(n, 1);
    np_free(json);
}
