/* What the pipeline says of itself while a run goes on: the cause of its stalls for the live line, and
 * every few seconds a `pipeline` line with all counters since the one before. Main thread.
 *
 * A look at all counters takes about a millisecond, so there are few of them. */
#include <string.h>

#include "daemon/profile/observe.h"
#include "daemon/profile/profile_fields.h"
#include "daemon/run.h"
#include "loader/base/clock.h"

#define EVERY_NS    5000000000ull
#define LEAST_SHARE 0.005 /* a smaller stall reads "0%" */

struct np_run_pipeline {
    struct np_snapshot last;
    uint64_t blame_ns[NP_NR_STAGES]; /* at the start of the live line's numbers */
};

void np_run_pipeline_free(struct np_run *run)
{
    np_free(run->pipeline);
    run->pipeline = NULL;
}

/* Without memory for it the run goes on, and says less. */
static struct np_run_pipeline *pipeline_of(struct np_run *run)
{
    if (!run->pipeline && (run->pipeline = np_alloc(sizeof(*run->pipeline))))
        np_observe_now(run, &run->pipeline->last);
    return run->pipeline;
}

static void write_event(struct np_run *run, uint64_t step, const struct np_observation *observation)
{
    struct np_json *line = &run->line;

    np_json_begin(line, "pipeline");
    np_json_int(line, "step", (int64_t)step);
    np_fields_write_observation(line, observation);
    const char *text = np_json_end(line);
    np_log_line(run->log.metrics, text);
    np_ui_event(&run->ui, text);
}

void np_run_pipeline_step(struct np_run *run, uint64_t step)
{
    struct np_run_pipeline *pipeline = pipeline_of(run);
    struct np_observation observation;
    struct np_snapshot now;

    if (!pipeline || (np_now_ns() - pipeline->last.ns < EVERY_NS && step != run->nr_steps))
        return;
    np_observe_now(run, &now);
    np_observe_between(run, &pipeline->last, &now, &observation);
    pipeline->last = now;
    if (observation.steps > 0)
        write_event(run, step, &observation);
}

const char *np_run_stall_cause(struct np_run *run)
{
    struct np_run_pipeline *pipeline = pipeline_of(run);
    const struct np_run_sums *lately = &run->lately;
    uint64_t now_ns[NP_NR_STAGES], most_ns = 0;
    const char *cause = NULL;

    if (!pipeline || lately->stall_seconds < LEAST_SHARE * lately->seconds)
        return NULL;
    np_feed_blame(run->feed, now_ns);
    for (int s = 0; s < NP_NR_STAGES; s++)
        if (now_ns[s] - pipeline->blame_ns[s] > most_ns) {
            most_ns = now_ns[s] - pipeline->blame_ns[s];
            cause = np_stage_names[s];
        }
    return cause;
}

void np_run_stall_restart(struct np_run *run)
{
    if (run->pipeline)
        np_feed_blame(run->feed, run->pipeline->blame_ns);
}
