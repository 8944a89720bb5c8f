/* What `nnpipe top` and `nnpipe runs` read from a run's folder, whatever stands in it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/analysis/model.h"
#include "daemon/analysis/profile_fields.h"
#include "daemon/analysis/model.h"
#include "daemon/run/runs_found.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

/* np_runs_free. */
static struct np_found_runs read_of(const char *metrics)
{
    static const char *const names[] = {"metrics.jsonl", "lock", "config.yaml"};
    char dir[] = "/tmp/nnpipe-top-XXXXXX", path[128], self[32];
    struct np_found_runs runs = {0};

    if (!mkdtemp(dir))
        abort();
    write_file(dir, "metrics.jsonl", metrics);
    write_file(dir, "config.yaml", "name: x\n");
    snprintf(self, sizeof(self), "%d\n", (int)getpid());
    write_file(dir, "lock", self); /* a process that does not have this file open */
    cr_assert_eq(np_runs_find(dir, true, &runs, NULL), 0);
    cr_assert_eq(runs.nr_runs, 1);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    return runs;
}

#define PIPELINE                                                                                   \
    "{\"event\": \"pipeline\", \"step\": 7, \"epoch\": 0.5, \"total_steps\": 40, "                 \
    "\"images_per_second\": 320, \"stall_ratio\": 0.25, \"stall_causes\": {\"read\": 0.2, "        \
    "\"decode\": 0.8}, \"eta_seconds\": 9, \"seconds\": 2, \"images\": 640, \"steps\": 20, "       \
    "\"readers\": 2, \"cores\": 2, \"stages\": {\"read\": {\"items\": 640}, \"decode\": "          \
    "{\"items\": 640, "                                                                            \
    "\"work_seconds\": 3.5}}, \"knobs\": {\"readers\": 2, \"batch\": 32, \"device\": \"sim\"}}\n"

Test(runs_found, the_newest_whole_lines_count)
{
    struct np_found_runs runs =
        read_of("{\"event\": \"step\", \"step\": 6, \"epoch\": 0.4, \"loss\": 3}\n" PIPELINE
                "{\"event\": \"step\", \"step\": 8, \"epoch\": 0.6, \"loss\": 2}\n"
                "{\"event\": \"step\", \"step\": 9, \"epo");
    cr_assert(runs.runs[0].progress.step == 8 && runs.runs[0].progress.epoch == 0.6 &&
              runs.runs[0].progress.loss == 2);
    cr_assert(
        runs.runs[0].progress.total_steps == 40 && runs.runs[0].progress.images_per_second == 320);
    cr_assert_str_eq(runs.runs[0].progress.cause, "decode");
    cr_assert_eq(runs.runs[0].state, NP_RUN_STOPPED);
    np_runs_free(&runs);
}

Test(runs_found, a_step_behind_the_pipeline_line_is_older)
{
    struct np_found_runs runs =
        read_of("{\"event\": \"step\", \"step\": 6, \"epoch\": 0.4, \"loss\": 3}\n" PIPELINE
                "{\"event\": \"error\", \"message\": \"x\"}\n");
    cr_assert(runs.runs[0].progress.step == 7 && runs.runs[0].progress.epoch == 0.5 &&
              runs.runs[0].progress.loss == 3);
    cr_assert_eq(runs.runs[0].state, NP_RUN_FAILED);
    np_runs_free(&runs);
}

Test(runs_found, a_profile_names_what_was_not_measured_alone)
{
    struct np_profile profile;
    char missing[128];
    struct np_found_runs runs = read_of(PIPELINE);
    cr_assert(np_fields_read_profile(runs.runs[0].pipeline, &profile, missing, sizeof(missing)));
    cr_assert_str_eq(missing, "read");
    cr_assert(np_model_ceiling(&profile.model, NP_STAGE_DECODE, NP_NR_STAGES) > 320);
    np_runs_free(&runs);
}

Test(runs_found, empty_and_malformed_lines_give_nothing)
{
    static const char *const texts[] = {"", "\n\n", "{", "[1]\n", "{\"event\": \"pipeline\"}\n",
        "{\"event\": \"pipeline\", \"knobs\": 3, \"stall_causes\": [], \"seconds\": \"x\"}\n",
        "{\"event\": \"pipeline\", \"seconds\": 2, \"stages\": 1, \"knobs\": {\"readers\": -1}}\n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct np_profile profile;
        char missing[128];
        struct np_found_runs runs = read_of(texts[i]);
        cr_assert(
            isnan(runs.runs[0].progress.loss) && !*runs.runs[0].progress.cause, "text %zu", i);
        cr_assert(!runs.runs[0].pipeline || !np_fields_read_profile(runs.runs[0].pipeline, &profile,
                                                missing, sizeof(missing)),
            "text %zu", i);
        np_runs_free(&runs);
    }
}

Test(runs_found, a_lock_naming_a_process_without_it_means_no_run)
{
    struct np_found_runs runs = read_of("");
    cr_assert_eq(runs.runs[0].pid, 0);
    np_runs_free(&runs);
}

Test(runs_found, a_tail_without_memory_is_left_out)
{
    bool failed = true;

    for (int n = 1; failed; n++) {
        made_memory_fail(n);
        struct np_found_runs runs = read_of(PIPELINE);
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert(failed || runs.runs[0].progress.step == 7);
        np_runs_free(&runs);
    }
}
