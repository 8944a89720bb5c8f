/* Opens all that a run needs, and closes it in reverse order. */
#include "daemon/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/analysis/trace.h"
#include "daemon/run/evaluate.h"
#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"
#include "loader/base/clock.h"

#define MAX_RESULT (1u << 20)

/* --- the pipeline -------------------------------------------------------------------------- */

static int open_pipeline(struct np_run *run, struct np_err *err)
{
    struct np_loader_config config = {
        .options = &run->config->loader,
        .train = run->setup.sets.train,
        .train_labels = run->setup.sets.train_labels,
        .augment = run->config->loader.augment,
        .test_augment = run->config->loader.test_augment,
        .allocator = &run->device->pinned,
        .stat = run->stat,
        .first_step = run->position.step,
        .eval_due = run->position.eval_due,
        .picture_bytes = np_picture_bytes(run->setup.sets.train, (int)run->config->loader.channels),
    };
    uint64_t epoch = run->position.step * (uint64_t)run->config->loader.batch / run->nr_train;
    cpu_set_t before;

    if (run->device->ops->room)
        config.device_room = run->device->ops->room(run->device);
    run->of_process = run->config->loader;
    run->of_process.bad_budget = 1; /* np_run_judge_bad() counts those of all processes */
    if (run->comm) {
        run->of_process.nr_sharing = run->options->launch->local_world;
        config.options = &run->of_process;
    }
    config.eval = np_run_eval_set(run, &config.eval_labels);
    np_run_sampler_options(run, &config.sampler);
    config.shape = np_setup_shape(run->config, &run->setup);
    config.shape.world = np_comm_world(run->comm);
    config.shape.rows /= config.shape.world;
    if (run->position.bad_epoch == epoch)
        config.nr_bad = run->position.nr_bad;
    if (!run->options->probe) { /* a measurement makes its own */
        config.share_key = np_share_key(&config, 0);
        config.pictures_key = np_share_pictures_key(&config);
    }
    const bool near = np_run_enter_node(run, &before);
    int code = np_loader_start(&config, &run->loader, err);
    if (near)
        np_run_leave_node(&before);
    if (code < 0)
        return np_device_blame(run->device, err); /* its pinned memory, perhaps */
    if (run->options->trace)
        np_trace_watch(run->options->trace, run->loader->ring, config.shape.rows);
    code = np_feed_new(run->device, run->loader->ring, &config.shape, run->block, &run->feed, err);
    if (code == 0 && run->options->probe)
        np_feed_stub(run->feed, run->options->probe->stubs);
    if (code == 0 && run->loader->resident)
        code = np_feed_keep(run->feed, run->loader->resident, err);
    return code < 0 ? np_device_blame(run->device, err) : 0;
}

/* Saves checksums that the readers have computed in the index of a set of shards; later runs
 * check them. If saving fails, the next run computes them again. Loose files are left to `data
 * verify`: a user who edits one picture of a folder does not damage it. */
static void keep_crcs(const struct np_run *run)
{
    const struct np_data_options *data = &run->config->data;
    const struct np_setup *setup = &run->setup;
    const struct np_source_options *options[] = {&data->train, &data->val, &data->test};
    const struct np_index *sets[] = {setup->sets.train, setup->sets.val, setup->sets.test};

    for (int i = 0; i < 3; i++)
        if (sets[i] && !sets[i]->root &&
            __atomic_load_n(&sets[i]->nr_new_crcs, __ATOMIC_RELAXED) > 0)
            np_source_save(options[i], sets[i], NULL);
}

static void close_pipeline(struct np_run *run)
{
    np_run_say_changed(run, true);
    if (run->loader)
        np_run_report_shared(run);
    if (run->options->trace)
        np_trace_watch(run->options->trace, NULL, 0);
    np_feed_free(run->feed);
    np_loader_stop(run->loader);
    if (run->loader)
        keep_crcs(run);
    run->feed = NULL;
    run->loader = NULL;
}

/* --- begin and end ------------------------------------------------------------------------- */

/* Trains while the rows have one size. */
static int train_stage(struct np_run *run, bool eval_due, struct np_err *err)
{
    int code = np_run_best_room(run, err);

    if (code < 0)
        return code;
    struct np_trainer_config config = {
        .device = run->device,
        .plan = run->plan,
        .feed = run->feed,
        .optim = &run->config->optim,
        .schedule = &run->config->schedule,
        .plateau = run->config->schedule.kind == NP_PLATEAU ? &run->position.plateau : NULL,
        .average = np_run_averages(run) ? &run->config->run.ema : NULL,
        .nr_steps = run->nr_steps,
        .nr_train = run->nr_train,
        .batch = (int)run->config->loader.batch,
        .accumulate = (int)run->config->run.accumulate,
        .lanes = {(int)run->config->run.lanes,
            (int)(run->config->loader.batch / run->config->run.lanes),
            (int)run->config->run.accumulate, run->comm, run->block, run->numbers, run->losses,
            run->logits, run->setup.sets.classes->nr_items},
        .schedule_start = np_changes_schedule_start(&run->changes),
        .first_step = run->position.step,
        .eval_due = eval_due,
        .numbers = run->config->data.train.label_type == NP_LABEL_VALUE,
        .block = run->block,
        .losses = run->losses,
        .stubs = run->options->probe ? run->options->probe->stubs : 0,
    };

    np_run_hooks(run, &config.hooks);
    if ((code = np_run_mark(run, err)) < 0)
        return code;
    np_watch_ring(run->watch, run->loader->ring);
    np_watch_arm(run->watch);
    code = np_trainer_run(&config, err);
    np_watch_ring(run->watch, NULL);
    if (code == -EBADMSG) /* also those of prefetched batches */
        np_run_take_bad(run, UINT64_MAX, true);
    if (run->stop_err.code) /* a hook's own error has more detail */
        *err = run->stop_err;
    return code == -EINTR && run->stop_err.code ? run->stop_err.code : code;
}

static int train(struct np_run *run, struct np_err *err)
{
    int code = train_stage(run, run->position.eval_due, err);

    while (code == 0 && !run->position.early.stopped && np_run_grows(run, run->position.step)) {
        if ((code = np_run_grow(run, err)) == 0)
            code = train_stage(run, false, err);
    }
    return code;
}

/* After the last step; code: of the training. */
static int finish(struct np_run *run, int code, struct np_err *err)
{
    struct np_err why = {0};
    const int saved = np_run_finish_save(run, &why);

    if (saved == 0)
        return code;
    if (code == 0)
        return np_err_set(err, saved, "%s", why.text);
    np_run_say(run, "%s", why.text);
    return code;
}

/* Rank 0 tests alone, and ends with the others. */
static bool test_stopping(void *context)
{
    const struct np_run *run = context;

    np_run_at(context, "evaluating");
    return np_watch_stopping(run->watch) != 0 || np_comm_heard(run->comm, NULL) < 0;
}

/* Why the test was cut short: another process has ended, or one was told to stop. */
static int why_cut(const struct np_run *run, struct np_err *err)
{
    struct np_err heard = {0};

    if (np_comm_heard(run->comm, &heard) < 0)
        *err = heard;
    return err->code;
}

static void bad_in_test(void *context, const struct np_bad_sample *bad)
{
    struct np_run *run = context;
    struct np_bad_sample placed = *bad;

    placed.step = np_run_last_step(run);
    np_run_write_bad(run, &placed);
}

/* Evaluates the test set once, if another set was evaluated while training. If it is stopped,
 * the resumed run repeats it from the start. */
static int final_test(struct np_run *run, struct np_err *err)
{
    const enum np_label_type type = (enum np_label_type)run->config->data.train.label_type;
    struct np_kept kept = {.type = type, .width = run->setup.sets.classes->nr_items};
    struct np_evaluation evaluation = {
        .kept = type == NP_LABEL_CLASS ? NULL : &kept,
        .config = run->config,
        .device = run->device,
        .plan = run->plan,
        .index = run->setup.sets.test,
        .labels = run->setup.sets.test_labels,
        .classes = run->setup.sets.classes,
        .stat = run->stat,
        .block = run->block,
        .shape = np_setup_shape(run->config, &run->setup),
        .watch = run->watch,
        .stopping = test_stopping,
        .bad = bad_in_test,
        .context = run,
    };

    if (!run->setup.sets.test || !np_run_has_val(run) || !np_run_leads(run))
        return 0;
    evaluation.shape.rows = run->setup.eval_graph->batch;
    run->testing = true;
    const bool swaps = np_run_averages(run) && run->device->plan_ops->swap;
    int code = swaps ? run->device->plan_ops->swap(run->plan, err) : 0;
    if (code == 0)
        code = np_evaluate(&evaluation, &run->test, err);
    if (code == -EINTR)
        code = why_cut(run, err);
    if (code == 0 && evaluation.kept)
        code = np_figures_make(&kept, NULL, &run->test_figures, err);
    np_kept_fini(&kept);
    return code == 0 && swaps ? run->device->plan_ops->swap(run->plan, err) : code;
}

/* --- the whole run ------------------------------------------------------------------------- */

static int open_base(struct np_run *run, struct np_err *err)
{
    int code;

    run->stat = np_stat_new(err);
    if (!run->stat)
        return -ENOMEM;
    if (run->options->trace)
        np_stat_trace(run->stat, np_trace_tracks(run->options->trace));
    if ((code = np_watch_start(
             run->stat, np_run_warn, run, !run->options->probe, &run->watch, err)) < 0)
        return code;
    if (run->options->probe) /* the caller must clean up, so a signal may not end the process */
        np_watch_arm(run->watch);
    run->block = np_stat_join(run->stat, "trainer", NULL); /* NULL: the run counts nothing */
    if ((code = np_io_open(&run->io, "pread", 1, err)) < 0)
        return code;
    code = np_run_open_device(run, err);
    run->device_absent = code < 0;
    if (code == 0) {
        run->device->note = np_run_note;
        run->device->note_context = run;
    }
    return code;
}

static bool is_over(const struct np_run *run)
{
    return run->position.step == np_run_last_step(run) && !run->position.eval_due;
}

static bool is_finished(const struct np_run *run)
{
    return run->saved_step != UINT64_MAX && is_over(run) &&
           np_folder_result(run->dir, NULL) >= (double)np_run_last_step(run);
}

/* In a folder without the sticky bit other users can replace the run's folder. */
static void warn_of_open_runs(struct np_run *run)
{
    struct stat stat_;

    if (stat(run->config->runs, &stat_) == 0 && stat_.st_mode & S_IWOTH &&
        !(stat_.st_mode & S_ISVTX))
        np_run_say(run,
            "runs: every user can rename or replace the folders in %s; `chmod +t` allows it to "
            "their owner only",
            run->config->runs);
}

static void open_trackers(struct np_run *run)
{
    const struct np_tracked_run tracked = {.dir = run->dir,
        .name = run->config->name,
        .config = run->resolved,
        .step = run->position.step,
        .eval_due = run->position.eval_due};

    run->track = np_track_open(run->config->track, &tracked, np_run_warn, run);
}

/* In this order, mistakes are found before anything is written. */
static int open_run(struct np_run *run, struct np_err *err)
{
    int code = open_base(run, err);

    if (code < 0 || (code = np_run_meet(run, err)) < 0 || (code = np_run_open_data(run, err)) < 0 ||
        (code = np_run_find_folder(run, err)) < 0 || (code = np_run_take_lanes(run, err)) < 0 ||
        (run->dir && (code = np_run_open_order(run, err)) < 0) || /* its length may differ */
        (code = np_run_open_model(run, err)) < 0 || (code = np_run_compare_peers(run, err)) < 0)
        return code;
    /* The config may have changed eval_every: then the checkpoint's evaluation is no longer due. */
    run->position.eval_due &= np_sampler_eval_after(run->sampler, run->position.step);
    bool resumed = run->saved_step != UINT64_MAX;
    if (!np_run_leads(run))
        return 0;
    if (!run->dir && (code = np_run_new_folder(run, err)) < 0)
        return code;
    if (is_finished(run)) /* leaves the log as it is */
        return 0;
    pthread_mutex_lock(&run->say_lock);
    code = np_log_open(&run->log, run->dir,
        (unsigned)run->config->run.history << NP_LOG_HISTORY |
            (unsigned)run->config->run.sample_losses << NP_LOG_LOSSES,
        resumed ? &run->position : NULL, err);
    pthread_mutex_unlock(&run->say_lock);
    if (code == 0)
        warn_of_open_runs(run);
    if (code == 0 && !run->options->probe)
        open_trackers(run);
    if (code == 0 && resumed) {
        np_watch_settle(run->watch, NP_EXIT_STOPPED); /* nothing to save, a checkpoint exists */
        np_run_reload_curves(run);
    }
    return code;
}

/* Writes changed values to a checkpoint before the first step that uses them, so that a run killed
 * later resumes with them. */
static int keep_changes(struct np_run *run, struct np_err *err)
{
    char text[600];

    for (int i = 0; np_changes_text(&run->changes, i, text, sizeof(text)); i++)
        np_run_say(run, "%s", text);
    if (run->changes.nr_new == 0)
        return 0;
    if (np_changes_schedule_start(&run->changes) == run->position.step) /* it begins anew */
        run->position.plateau = (struct np_plateau){0};
    return np_run_save(run, run->position.step, run->position.eval_due, err);
}

/* Prints the stored result of a run that is already finished; writes nothing. */
static int report_finished(struct np_run *run, struct np_err *err)
{
    char *path = np_format("%s/result.json", run->dir), *text = NULL, why[NP_EARLY_TEXT];
    uint64_t bytes = 0;
    const int code = np_read_file(path, MAX_RESULT, &text, &bytes, err);

    snprintf(why, sizeof(why), "all of its %llu steps are done", (unsigned long long)run->nr_steps);
    if (run->position.early.stopped)
        np_run_early_text(run, why, sizeof(why));
    if (code == 0) {
        np_ui_say(
            &run->ui, "%s is finished: %s; nothing was changed", np_run_name(run, run->dir), why);
        np_ui_event(&run->ui, text);
    }
    np_free(text);
    np_free(path);
    return code;
}

/* After training, all is saved: one process may end at a signal. Several end together. */
static void settle_trained(struct np_run *run, int code)
{
    if (code == 0 && run->comm)
        np_watch_arm(run->watch);
    else if (code == -EINTR || (code == 0 && !run->options->probe))
        np_watch_settle(run->watch, NP_EXIT_STOPPED);
}

static int train_and_test(struct np_run *run, struct np_err *err)
{
    np_run_at(run, "opening");
    int code = open_run(run, err);
    if (code < 0)
        return code;
    bool over = is_over(run);
    bool finished = is_finished(run);
    if ((code = np_comm_broadcast(run->comm, &finished, sizeof(finished), err)) < 0)
        return code;
    if (finished)
        return np_run_leads(run) ? report_finished(run, err) : 0;
    if (!over && (code = open_pipeline(run, err)) < 0)
        return code;
    if (!run->options->probe && np_run_leads(run))
        np_run_report_start(run);
    code = keep_changes(run, err);
    if (!over && code == 0)
        code = finish(run, train(run, err), err);
    if (code < 0 && code != -EINTR)
        np_comm_abort(run->comm, code, err->text);
    np_run_leave(run); /* if all are well, they are at this point; else the device must not wait */
    settle_trained(run, code);
    close_pipeline(run);
    if (code == 0)
        code = final_test(run, err);
    if (code == 0 && np_run_leads(run))
        code = np_run_report_done(run, err);
    return code;
}

static int run_all(struct np_run *run, struct np_err *err)
{
    int code = train_and_test(run, err);

    if (code == 0)
        code = np_run_await_first(run, err);
    if (code == 0)
        np_watch_settle(run->watch, NP_EXIT_DONE);
    return code;
}

static void close_run(struct np_run *run)
{
    close_pipeline(run);
    np_sampler_free(run->sampler);
    if (run->plan)
        run->device->plan_ops->free(run->plan);
    for (int i = 0; i < NP_ARRAY_GRADS; i++)
        np_free(run->arrays[i]);
    np_free(run->mark_buffers);
    np_free(run->numbers);
    np_free(run->samples);
    np_run_part(run);
    np_free(run->losses);
    np_free(run->logits);
    np_free(run->labels);
    np_outcomes_fini(&run->outcomes);
    np_kept_fini(&run->kept);
    np_setup_fini(&run->setup);
    np_device_close(run->device);
    np_free(run->described);
    np_watch_stop(run->watch);
    np_stat_free(run->stat);
    np_io_close(&run->io);
    np_log_close(&run->log);
    if (run->lock_fd >= 0)
        close(run->lock_fd);
    np_free(run->dir);
    np_free(run->bad);
    np_node_free(run->resolved);
    np_node_free(run->overrides);
    np_changes_close(&run->changes);
    np_json_fini(&run->line);
    np_json_fini(&run->facts);
    for (int i = 0; i < NP_NR_STATE_KINDS; i++)
        np_free(run->device_state[i]);
    pthread_mutex_destroy(&run->say_lock);
    np_ui_fini(&run->ui);
}

static void report_error(struct np_run *run, const struct np_err *err)
{
    char text[1100];

    np_err_format(err, text, sizeof(text));
    np_log_text(&run->log, text);
    /* A resumed run cuts this line off again. */
    np_json_begin(&run->line, "error");
    np_json_text(&run->line, "message", text);
    np_log_line(&run->log, NP_LOG_METRICS, np_json_end(&run->line));
    np_log_flush(&run->log);
    np_ui_error(&run->ui, err);
}

static int report_end(struct np_run *run, int code, const struct np_err *err)
{
    const bool saved = run->saved_step != UINT64_MAX;

    const char *dir = run->dir ? np_run_name(run, run->dir) : "";

    if (code == -EINTR && saved) {
        np_run_say(run, "stopped at step %llu; resume with --resume %s",
            (unsigned long long)run->saved_step, dir);
        return NP_EXIT_STOPPED;
    }
    if (np_run_leads(run)) /* else it prints what the others told it */
        report_error(run, err);
    if (code == -ECONNRESET && saved) /* a process has died: nothing is saved */
        np_run_say(run, "the last checkpoint is of step %llu: resume with --resume %s",
            (unsigned long long)run->saved_step, dir);
    if (run->usage)
        return NP_EXIT_USAGE;
    /* Weights that are not finite would become so again; a process that is gone is a failure whenever it
     * is noticed, also behind a checkpoint. */
    if (!saved || !run->stop_code || run->stop_code == -EDOM || run->stop_code == -ECONNRESET)
        return NP_EXIT_FAILED;
    np_run_say(run, "given up; the checkpoint of step %llu is kept: resume with --resume %s",
        (unsigned long long)run->saved_step, dir);
    return NP_EXIT_GAVE_UP;
}

static void report_to_follower(
    const struct np_run *run, const struct np_run_follower *follower, const struct np_err *err)
{
    *follower->err = *err;
    *follower->trouble = run->device_absent                   ? NP_DEVICE_ABSENT
                         : run->device && *run->device->fault ? NP_DEVICE_FAILED
                                                              : NP_DEVICE_WELL;
}

static void add_text(struct np_node *list, const char *text)
{
    char *shown = np_strdup(text);
    struct np_node *node;

    np_text_hide(shown);
    node = np_node_scalar(shown, 0, 0);
    np_free(shown);
    node->quoted = true;
    np_node_add(list, NULL, node);
}

static struct np_node *overrides_list(const struct np_run_options *options)
{
    const struct np_overrides *overrides = options->overrides;
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);
    char *lines = np_strdup(options->submitted ? options->submitted : ""), *rest = NULL;

    for (int i = 0; overrides && i < overrides->nr_texts; i++)
        add_text(list, overrides->texts[i]);
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        add_text(list, line);
    np_free(lines);
    return list;
}

int np_run_train(struct np_config *config, const struct np_run_options *options)
{
    struct np_run *run = np_alloc(sizeof(*run));
    struct np_err err = {0};
    int exit_code = NP_EXIT_DONE;

    run->config = config;
    run->options = options;
    run->start_ns = np_now_ns();
    run->lock_fd = -1;
    run->saved_step = UINT64_MAX;
    run->resolved = np_config_node(config);
    run->overrides = overrides_list(options);
    run->lr = run->best_value = NAN;
    pthread_mutex_init(&run->say_lock, NULL);
    np_ui_init(&run->ui, options->json);
    run->rank = options->launch ? options->launch->rank : 0;
    if (options->probe || run->rank > 0)
        np_ui_hush(&run->ui);
    int code = run_all(run, &err);
    if (code < 0)
        np_comm_abort(run->comm, code, err.text);
    if (options->probe) {
        *options->probe->err = err;
        exit_code = code == -ECANCELED ? NP_EXIT_DONE
                    : code == -EINTR   ? NP_EXIT_STOPPED
                                       : NP_EXIT_FAILED;
    } else if (code < 0) {
        exit_code = report_end(run, code, &err);
    }
    if (options->follower && code == 0 && run->position.early.stopped)
        np_run_early_text(run, options->follower->ended, NP_EARLY_TEXT);
    if (code < 0 && options->follower)
        report_to_follower(run, options->follower, &err);
    np_track_close(run->track, code == 0        ? NP_TRACK_DONE
                               : code == -EINTR ? NP_TRACK_STOPPED
                                                : NP_TRACK_FAILED);
    np_run_leave(run);
    np_comm_wait_end(run->comm); /* a launcher may end rank 0 when another rank has ended */
    close_run(run);
    np_free(run);
    return exit_code;
}
