/* What `nnpipe top` makes of a run's folder, whatever stands in it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/client/top.h"
#include "tests/test.h"

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static struct np_top_run read_of(const char *metrics)
{
    char dir[] = "/tmp/nnpipe-top-XXXXXX", path[128], self[32];
    struct np_top_run run = {0};

    if (!mkdtemp(dir))
        abort();
    write_file(dir, "metrics.jsonl", metrics);
    snprintf(self, sizeof(self), "%d\n", (int)getpid());
    write_file(dir, "lock", self); /* a process that has not this file */
    if (np_top_read(dir, &run, NULL) < 0)
        abort();
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/lock", dir);
    unlink(path);
    rmdir(dir);
    return run;
}

#define PIPELINE                                                                                   \
    "{\"event\": \"pipeline\", \"step\": 7, \"epoch\": 0.5, \"total_steps\": 40, "                 \
    "\"images_per_second\": 320, \"stall_ratio\": 0.25, \"stall_causes\": {\"read\": 0.2, "        \
    "\"decode\": 0.8}, \"eta_seconds\": 9, \"seconds\": 2, \"images\": 640, \"steps\": 20, "       \
    "\"readers\": 2, \"cores\": 2, \"stages\": {\"read\": {\"items\": 640}, \"decode\": "          \
    "{\"items\": 640, "                                                                            \
    "\"work_seconds\": 3.5}}, \"knobs\": {\"readers\": 2, \"batch\": 32, \"device\": \"sim\"}}\n"

Test(top, the_newest_lines_tell_and_one_under_way_is_left_out)
{
    const struct np_top_run run =
        read_of("{\"event\": \"step\", \"step\": 6, \"epoch\": 0.4, \"loss\": 3}\n" PIPELINE
                "{\"event\": \"step\", \"step\": 8, \"epoch\": 0.6, \"loss\": 2}\n"
                "{\"event\": \"step\", \"step\": 9, \"epo");

    cr_assert_eq(run.step, 8);
    cr_assert_eq(run.loss, 2);
    cr_assert_eq(run.total_steps, 40);
    cr_assert_eq(run.images_per_second, 320);
    cr_assert_str_eq(run.cause, "decode");
    cr_assert(run.seen && run.knobs.readers == 2 && run.observation.images == 640);
    cr_assert_eq(run.observation.stages[NP_STAGE_DECODE].work_s, 3.5);
}

Test(top, a_profile_names_what_was_not_measured_alone)
{
    const struct np_top_run run = read_of(PIPELINE);
    struct np_profile profile;
    char missing[128];

    cr_assert(run.seen);
    np_top_profile(&run, &profile, missing, sizeof(missing));
    cr_assert_str_eq(missing, "read");
    cr_assert(np_model_ceiling(&profile.model, NP_STAGE_DECODE, NP_NR_STAGES) > 320);
}

Test(top, nothing_and_nonsense_tell_nothing)
{
    static const char *const texts[] = {"", "\n\n", "{", "[1]\n", "{\"event\": \"pipeline\"}\n",
        "{\"event\": \"pipeline\", \"knobs\": 3, \"stall_causes\": [], \"seconds\": \"x\"}\n",
        "{\"event\": \"pipeline\", \"seconds\": 2, \"stages\": 1, \"knobs\": {\"readers\": -1}}\n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        const struct np_top_run run = read_of(texts[i]);

        cr_assert(!run.seen && isnan(run.loss) && !*run.cause, "text %zu", i);
    }
}

Test(top, a_lock_that_names_a_process_without_it_is_of_no_run)
{
    cr_assert_eq(read_of("").pid, 0);
}
