/* What `nnpipe top` reads from a run's folder, whatever stands in it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/analysis/model.h"
#include "daemon/run/runs_live.h"
#include "daemon/ui/progress_fields.h"
#include "loader/base/json.h"
#include "tests/test.h"

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

struct live {
    struct np_node *answer, *pipeline;
    const struct np_node *run;
    struct np_progress progress;
};

static void read_of(const char *metrics, struct live *live)
{
    char dir[] = "/tmp/nnpipe-top-XXXXXX", path[128], self[32];
    struct np_err err = {0};

    if (!mkdtemp(dir))
        abort();
    write_file(dir, "metrics.jsonl", metrics);
    snprintf(self, sizeof(self), "%d\n", (int)getpid());
    write_file(dir, "lock", self); /* a process that does not have this file open */
    *live = (struct live){.progress = np_progress_unknown};
    cr_assert_eq(np_live_runs("none", dir, &live->answer, &err), 0, "%s", err.text);
    live->pipeline = np_live_read_pipeline(dir);
    live->run = np_node_get(live->answer, "runs")->items[0];
    np_progress_read(np_node_get(live->run, "progress"), &live->progress);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/lock", dir);
    unlink(path);
    rmdir(dir);
}

static void free_live(struct live *live)
{
    np_node_free(live->answer);
    np_node_free(live->pipeline);
}

#define PIPELINE                                                                                   \
    "{\"event\": \"pipeline\", \"step\": 7, \"epoch\": 0.5, \"total_steps\": 40, "                 \
    "\"images_per_second\": 320, \"stall_ratio\": 0.25, \"stall_causes\": {\"read\": 0.2, "        \
    "\"decode\": 0.8}, \"eta_seconds\": 9, \"seconds\": 2, \"images\": 640, \"steps\": 20, "       \
    "\"readers\": 2, \"cores\": 2, \"stages\": {\"read\": {\"items\": 640}, \"decode\": "          \
    "{\"items\": 640, "                                                                            \
    "\"work_seconds\": 3.5}}, \"knobs\": {\"readers\": 2, \"batch\": 32, \"device\": \"sim\"}}\n"

Test(runs_live, the_newest_lines_tell_and_one_under_way_is_left_out)
{
    struct live live;

    read_of("{\"event\": \"step\", \"step\": 6, \"epoch\": 0.4, \"loss\": 3}\n" PIPELINE
            "{\"event\": \"step\", \"step\": 8, \"epoch\": 0.6, \"loss\": 2}\n"
            "{\"event\": \"step\", \"step\": 9, \"epo",
        &live);
    cr_assert(live.progress.step == 8 && live.progress.epoch == 0.6 && live.progress.loss == 2);
    cr_assert(live.progress.total_steps == 40 && live.progress.images_per_second == 320);
    cr_assert_str_eq(live.progress.cause, "decode");
    cr_assert(np_node_is(np_node_get(live.run, "assigned"), "sim"));
    cr_assert(np_node_is(np_node_get(live.run, "state"), "stopped"));
    free_live(&live);
}

Test(runs_live, a_step_behind_the_pipeline_line_is_older)
{
    struct live live;

    read_of("{\"event\": \"step\", \"step\": 6, \"epoch\": 0.4, \"loss\": 3}\n" PIPELINE
            "{\"event\": \"error\", \"message\": \"x\"}\n",
        &live);
    cr_assert(live.progress.step == 7 && live.progress.epoch == 0.5 && live.progress.loss == 3);
    cr_assert(np_node_is(np_node_get(live.run, "state"), "failed"));
    free_live(&live);
}

Test(runs_live, a_profile_names_what_was_not_measured_alone)
{
    struct np_profile profile;
    char missing[128];
    struct live live;

    read_of(PIPELINE, &live);
    cr_assert(np_live_profile(live.pipeline, &profile, missing, sizeof(missing)));
    cr_assert_str_eq(missing, "read");
    cr_assert(np_model_ceiling(&profile.model, NP_STAGE_DECODE, NP_NR_STAGES) > 320);
    free_live(&live);
}

Test(runs_live, nothing_and_nonsense_tell_nothing)
{
    static const char *const texts[] = {"", "\n\n", "{", "[1]\n", "{\"event\": \"pipeline\"}\n",
        "{\"event\": \"pipeline\", \"knobs\": 3, \"stall_causes\": [], \"seconds\": \"x\"}\n",
        "{\"event\": \"pipeline\", \"seconds\": 2, \"stages\": 1, \"knobs\": {\"readers\": -1}}\n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct np_profile profile;
        char missing[128];
        struct live live;

        read_of(texts[i], &live);
        cr_assert(isnan(live.progress.loss) && !*live.progress.cause, "text %zu", i);
        cr_assert(
            !live.pipeline || !np_live_profile(live.pipeline, &profile, missing, sizeof(missing)),
            "text %zu", i);
        free_live(&live);
    }
}

Test(runs_live, a_lock_that_names_a_process_without_it_is_of_no_run)
{
    struct live live;

    read_of("", &live);
    cr_assert_eq(np_node_number(live.run, "pid", -1), 0);
    free_live(&live);
}
