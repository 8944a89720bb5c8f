/* Reports of the pipeline during a run: the cause of stalls for the live line, and every two
 * seconds a `pipeline` line with all counters of that time. Main thread.
 *
 * Reading all counters takes about a millisecond, so it is not done at each step. */
#include <math.h>
#include <stdio.h>

#include "daemon/analysis/profile_fields.h"
#include "daemon/run/run_parts.h"
#include "loader/base/box.h"
#include "loader/base/clock.h"

#define EVERY_NS  2000000000ull
#define MIN_NS    500000000ull /* of a window that an evaluation cuts short */
#define MIN_SHARE 0.005        /* a smaller stall is shown as "0%" */

static double checkpoint_steps(const struct np_run *run)
{
    const struct np_period *every = &run->config->checkpoint.every;

    if (every->steps > 0)
        return (double)every->steps;
    return every->epochs * (double)run->nr_train / (double)run->config->loader.batch;
}

static uint64_t set_bytes(const struct np_index *index, bool *ret_packed)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < np_index_samples(index); i++) {
        const struct np_record record = np_index_get(index, i);

        bytes += record.inner_bytes;
        *ret_packed |= record.packing != NP_PACKING_NONE;
    }
    return bytes;
}

void np_run_knobs(const struct np_run *run, struct np_knobs *ret_knobs)
{
    struct np_knobs *knobs = ret_knobs;
    const struct np_batch_shape shape = np_setup_shape(run->config, &run->setup);
    struct np_box box;

    np_box_read(&box);
    *knobs = (struct np_knobs){.readers = run->loader->nr_readers,
        .depth = run->loader->depth,
        .prefetch = np_ring_slots(run->loader->ring),
        .batch = (int)run->config->loader.batch,
        .checkpoint_steps = checkpoint_steps(run),
        .nr_samples = run->nr_train,
        .picture_bytes = np_picture_bytes(run->setup.sets.train, (int)run->config->loader.channels),
        .memory_bytes = box.memory_bytes,
        .free_bytes = box.free_bytes,
        .cores = box.nr_cpus,
        .device_has_memory = run->device->ops->alloc != NULL,
        .geometry_only = !np_chain_touches(run->config->loader.augment) &&
                         !(run->config->loader.test_augment &&
                             np_chain_touches(run->config->loader.test_augment))};
    if (run->device->ops->room && run->device->ops->make_rows)
        knobs->device_room = run->device->ops->room(run->device);
    knobs->row_bytes = np_batch_row_room(&shape);
    knobs->set_bytes = set_bytes(run->setup.sets.train, &knobs->packed);
    snprintf(knobs->io, sizeof(knobs->io), "%s", run->loader->io);
    snprintf(knobs->cache, sizeof(knobs->cache), "%s", run->loader->cache);
    snprintf(knobs->device, sizeof(knobs->device), "%s", run->device->name);
    knobs->cache_fills = np_observe_fills(knobs, run->position.step);
    snprintf(knobs->precision, sizeof(knobs->precision), "%s", np_precision_names[run->precision]);
}

void np_run_observed(struct np_run *run, struct np_observed *ret_seen)
{
    if (run->pipeline.line_ns == 0) {
        run->pipeline.line_ns = np_now_ns();
        np_run_knobs(run, &run->pipeline.knobs);
    }
    *ret_seen = (struct np_observed){.stat = run->stat,
        .ring = run->loader->ring,
        .feed = run->feed,
        .knobs = &run->pipeline.knobs,
        .images = run->total.rows,
        .steps = run->position.step,
        .entered = np_loader_entered(run->loader).entered,
        .missed = np_loader_entered(run->loader).missed,
        .made = np_loader_exchanged(run->loader).made,
        .taken = np_loader_exchanged(run->loader).taken,
        .decoded = np_loader_cache_shared(run->loader).decoded,
        .found = np_loader_cache_shared(run->loader).found};
}

/* Shares of the stall by stage: their sum is 1, or 0 without a stall. */
static void write_causes(struct np_json *line, const struct np_observation *seen)
{
    double sum = 0;

    for (int s = 0; s < NP_NR_STAGES; s++)
        sum += seen->blame_s[s];
    np_json_open(line, "stall_causes", '{');
    for (int s = 0; s < NP_NR_STAGES; s++)
        np_json_real(line, np_stage_names[s], sum > 0 ? seen->blame_s[s] / sum : 0);
    np_json_close(line, '}');
}

static void write_event(
    struct np_run *run, const struct np_step_report *report, const struct np_observation *seen)
{
    struct np_json *line = &run->line;
    struct np_progress progress = np_progress_unknown;
    struct np_profile look;

    np_profile_look(seen, &run->pipeline.knobs, &look);
    np_run_progress(run, &progress);
    progress.images_per_second = NAN; /* written with the observation */
    progress.stall_ratio = seen->stall_s / seen->seconds;
    progress.eta_seconds =
        (double)(np_run_last_step(run) - report->step) * seen->seconds / (double)seen->steps;
    np_json_begin(line, "pipeline");
    np_progress_write(line, &progress, true);
    write_causes(line, seen);
    np_profile_write_look(line, &look);
    np_fields_write(line, np_fields_observation, seen);
    np_json_open(line, "knobs", '{');
    np_fields_write(line, np_fields_knobs, &run->pipeline.knobs);
    np_json_close(line, '}');
    const char *text = np_json_end(line);
    np_log_line(&run->log, NP_LOG_METRICS, text);
    np_track_line(run->track, text);
    np_log_flush(&run->log); /* `nnpipe top` reads it */
    np_ui_event(&run->ui, text);
}

/* A window that is still short ends before an evaluation if the last line is more than EVERY_NS
 * old. */
static bool is_due(
    const struct np_run *run, uint64_t now, const struct np_step_report *report, bool eval_follows)
{
    const struct np_run_pipeline *pipeline = &run->pipeline;
    const uint64_t window = now - pipeline->start.ns;

    return window >= EVERY_NS || report->step == run->nr_steps ||
           (eval_follows && (window >= MIN_NS || now - pipeline->line_ns >= EVERY_NS));
}

void np_run_pipeline_step(
    struct np_run *run, const struct np_step_report *report, bool eval_follows)
{
    struct np_run_pipeline *pipeline = &run->pipeline;
    struct np_observation seen;
    struct np_observed observed;
    struct np_snapshot end;

    np_run_observed(run, &observed);
    if (pipeline->start.ns == 0) {
        np_observe_now(&observed, &pipeline->start);
        return;
    }
    if (!is_due(run, np_now_ns(), report, eval_follows))
        return;
    np_observe_now(&observed, &end);
    np_observe_between(&observed, &pipeline->start, &end, &seen);
    const struct np_stage_sum *checkpoints = &end.trainer.stages[NP_STAGE_CHECKPOINT];
    if (checkpoints->items > 0) /* a mean over the run, not the window */
        seen.checkpoint_each_s = (double)checkpoints->work_ns * 1e-9 / (double)checkpoints->items;
    pipeline->start = end;
    pipeline->line_ns = end.ns;
    if (seen.steps > 0)
        write_event(run, report, &seen);
}

/* The stage that caused most of the stall in run->lately; "" if there is hardly any. */
static const char *stall_cause(const struct np_run *run)
{
    const struct np_run_sums *lately = &run->lately;
    const uint64_t *now_ns = np_feed_account(run->feed)->blame_ns;
    uint64_t max_ns = 0;
    const char *cause = "";

    if (run->pipeline.line_ns == 0 || lately->stall_seconds < MIN_SHARE * lately->seconds)
        return "";
    for (int s = 0; s < NP_NR_STAGES; s++)
        if (now_ns[s] - run->pipeline.blame_ns[s] > max_ns) {
            max_ns = now_ns[s] - run->pipeline.blame_ns[s];
            cause = np_stage_names[s];
        }
    return cause;
}

void np_run_progress(const struct np_run *run, struct np_progress *progress)
{
    const struct np_run_sums *lately = &run->lately;
    const double step = (double)run->position.step, done = step - (double)run->first_step;

    if (run->nr_train > 0) {
        progress->step = step;
        progress->total_steps = (double)np_run_last_step(run);
        progress->epoch = np_run_epoch_at(run, run->position.step);
    }
    if (lately->rows > 0 && lately->seconds > 0) {
        progress->loss = lately->loss_sum / (double)lately->rows;
        progress->images_per_second = (double)lately->rows / lately->seconds;
        progress->stall_ratio = lately->stall_seconds / lately->seconds;
        snprintf(progress->cause, sizeof(progress->cause), "%s", stall_cause(run));
    }
    if (run->eval.images > 0)
        progress->accuracy = np_eval_accuracy(&run->eval);
    if (done > 0)
        progress->eta_seconds = run->total.seconds / done * (progress->total_steps - step);
}
