/* The trainer's hooks: work at each batch, step, evaluation and boundary. Trainer (main) thread. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/ui/curves.h"

static uint64_t epochs_done(const struct np_run *run, uint64_t step)
{
    return step * (uint64_t)run->config->loader.batch / run->nr_train;
}

static bool epoch_ends(const struct np_run *run, uint64_t step)
{
    return step > 0 && epochs_done(run, step) > epochs_done(run, step - 1);
}

/* Ends run->line and writes it to --json output, metrics.jsonl and the trackers. */
static void send(struct np_run *run)
{
    const char *line = np_json_end(&run->line);

    np_log_line(&run->log, NP_LOG_METRICS, line);
    np_track_line(run->track, line);
    np_ui_event(&run->ui, line);
}

/* --- batches and steps --------------------------------------------------------------------- */

static int on_batch(void *context, const struct np_batch *batch)
{
    struct np_run *run = context;
    const uint32_t rows = (uint32_t)run->config->loader.batch;
    int code;

    np_run_at(run, batch->kind == NP_BATCH_TRAIN ? "training" : "evaluating");
    if ((code = np_run_judge_bad(run, batch, &run->stop_err)) < 0)
        return code;
    if (batch->kind != NP_BATCH_TRAIN)
        return 0;
    if ((code = np_run_all_samples(run, batch, &run->stop_err)) < 0)
        return code;
    for (uint32_t row = 0; row < rows; row++)
        run->position.ticket_hash = XXH3_64bits_withSeed(
            &run->samples[row], sizeof(run->samples[row]), run->position.ticket_hash);
    np_log_history(&run->log, batch->step, run->samples, rows);
    return 0;
}

/* A checkpoint's copies may be ready while the loader is not. */
static bool on_idle(void *context)
{
    return np_run_poll_save(context);
}

static void add(struct np_run_sums *sums, const struct np_step_report *report)
{
    sums->seconds += report->seconds;
    sums->stall_seconds += report->stall_seconds;
    sums->loss_sum += report->loss_sum;
    sums->rows += report->rows;
    sums->correct += report->correct;
}

/* The live line shows means over the last two seconds. */
static void show_progress(struct np_run *run)
{
    struct np_progress progress = np_progress_unknown;

    np_run_progress(run, &progress);
    progress.total_epochs =
        run->config->run.epochs > 0 ? run->config->run.epochs : np_run_epoch_at(run, run->nr_steps);
    progress.evaluated = np_run_set_name(run);
    np_ui_progress(&run->ui, &progress);
    if (run->lately.seconds > 2) {
        memset(&run->lately, 0, sizeof(run->lately));
        memcpy(run->pipeline.blame_ns, np_feed_account(run->feed)->blame_ns,
            sizeof(run->pipeline.blame_ns));
    }
}

static void report_epoch(struct np_run *run, bool evaluated)
{
    const struct np_eval_report *eval = &run->eval;
    const struct np_position *at = &run->position;
    const double loss = at->loss_rows ? at->loss_sum / (double)at->loss_rows : NAN;
    const double seconds = run->epoch.seconds;
    const int64_t epoch = (int64_t)epochs_done(run, at->step);
    char evals[NP_EVAL_TEXT + 10] = "", words[NP_EVAL_TEXT], text[32];

    np_json_begin(&run->line, "epoch");
    np_json_int(&run->line, "epoch", epoch);
    np_json_int(&run->line, "step", (int64_t)at->step);
    np_json_real(&run->line, "train_loss", loss);
    np_run_put_evals(run, evaluated ? eval : NULL, NULL);
    np_json_real(&run->line, "seconds", seconds);
    send(run);
    np_duration_text(seconds, text, sizeof(text));
    if (evaluated) {
        np_run_eval_text(run, eval, words);
        snprintf(evals, sizeof(evals), "%s %s, ", np_run_set_name(run), words);
    }
    np_run_say(run, "epoch %lld: train loss %.4f, %s%.0f img/s, %s", (long long)epoch, loss, evals,
        seconds > 0 ? (double)run->epoch.rows / seconds : 0, text);
    memset(&run->epoch, 0, sizeof(run->epoch));
    run->position.loss_sum = 0;
    run->position.loss_rows = 0;
}

static bool eval_follows(void *context, uint64_t step)
{
    struct np_run *run = context;

    return run->nr_eval > 0 && np_sampler_eval_after(run->sampler, step);
}

static bool probe_ends(struct np_run *run)
{
    const struct np_run_probe *probe = run->options->probe;
    struct np_observed seen;

    if (!probe)
        return false;
    np_run_observed(run, &seen);
    return probe->step(probe->context, run, &seen);
}

static void add_curves(struct np_run *run, double epoch, double loss, double lr, double accuracy)
{
    const double at = epoch / np_run_epoch_at(run, run->nr_steps);

    np_curve_add(&run->curves.train_loss, at, loss);
    np_curve_add(&run->curves.lr, at, lr);
    np_curve_add(&run->curves.train_accuracy, at, accuracy);
}

static void add_eval_curves(struct np_run *run, double epoch, double loss, double accuracy)
{
    const double at = epoch / np_run_epoch_at(run, run->nr_steps);

    np_curve_add(&run->curves.eval_loss, at, loss);
    np_curve_add(&run->curves.eval_accuracy, at, accuracy);
}

static int on_step(void *context, const struct np_step_report *report)
{
    struct np_run *run = context;
    struct np_json *line = &run->line;
    const bool numbers = run->config->data.train.label_type == NP_LABEL_VALUE;
    const double accuracy =
        report->rows && !numbers ? (double)report->correct / (double)report->rows : NAN;

    np_run_poll_save(run);
    run->position.step = report->step;
    run->lr = report->lr;
    run->position.train_seconds += report->seconds;
    run->position.loss_sum += report->loss_sum;
    run->position.loss_rows += report->rows;
    add(&run->lately, report);
    add(&run->epoch, report);
    add(&run->total, report);
    np_json_begin(line, "step");
    np_json_int(line, "step", (int64_t)report->step);
    np_json_real(line, "epoch", report->epoch);
    np_json_real(line, "loss", report->loss);
    np_json_real(line, "lr", report->lr);
    np_json_real(line, "images_per_second",
        report->seconds > 0 ? (double)report->rows / report->seconds : 0);
    np_json_real(
        line, "stall_ratio", report->seconds > 0 ? report->stall_seconds / report->seconds : 0);
    if (!numbers)
        np_json_real(line, "accuracy", accuracy);
    if (run->config->run.clip_norm > 0)
        np_json_real(line, "grad_norm", report->grad_norm);
    send(run);
    if (report->losses)
        np_log_losses(&run->log, report->step - 1, report->losses,
            (uint32_t)run->config->loader.batch, run->nr_train);
    add_curves(run, report->epoch, report->loss, report->lr, accuracy);
    np_run_take_bad(run, report->step, false);
    np_run_say_changed(run, false);
    if (!run->options->probe) {
        show_progress(run);
        if (np_run_leads(run))
            np_run_pipeline_step(run, report, eval_follows(run, report->step));
    }
    if (epoch_ends(run, report->step) && !eval_follows(run, report->step))
        report_epoch(run, false);
    return probe_ends(run) ? -ECANCELED : 0;
}

/* --- evaluations --------------------------------------------------------------------------- */

static void write_curves(struct np_run *run)
{
    if (!np_run_leads(run))
        return;
    struct np_err err = {0};
    char *path = np_format("%s/curves.svg", run->dir);
    const char *slash = strrchr(run->dir, '/'), *name = slash && slash[1] ? slash + 1 : run->dir;

    run->curves.evaluated = np_run_set_name(run);
    run->curves.title = name;
    run->curves.nr_epochs = np_run_epoch_at(run, run->nr_steps);
    if (np_curves_write(&run->curves, path, &err) < 0)
        np_run_say(run, "%s", err.text); /* training continues without the picture */
    np_free(path);
}

static void take_plateau(struct np_run *run, const struct np_eval_report *report)
{
    const struct np_schedule_options *schedule = &run->config->schedule;
    struct np_plateau *plateau = &run->position.plateau;
    const double before = np_plateau_factor(plateau);

    if (schedule->kind != NP_PLATEAU)
        return;
    np_plateau_step(schedule, np_run_metric(run, report, schedule->metric), plateau);
    if (plateau->factor != before)
        np_run_say(run, "step %llu: the %s has not improved; the rate falls to %g of its peak",
            (unsigned long long)run->position.step, np_metric_names[schedule->metric],
            plateau->factor);
}

static int on_eval(void *context, const struct np_eval_report *report)
{
    struct np_run *run = context;
    struct np_json *line = &run->line;
    const char *set = np_run_set_name(run);
    double images = report->images ? (double)report->images : 1;
    const double accuracy = report->numbers ? NAN : (double)report->correct / images;
    const double epoch = np_run_epoch_at(run, report->step);
    char words[NP_EVAL_TEXT];

    run->eval = *report;
    run->pipeline.start.ns = 0; /* the next step begins a new window */
    np_run_take_bad(run, report->step, true);
    np_run_best(run, report);
    np_json_begin(line, "eval");
    np_json_int(line, "step", (int64_t)report->step);
    np_json_real(line, "epoch", epoch);
    np_json_int(line, "images", (int64_t)report->images);
    np_json_text(line, "set", set);
    np_run_put_eval(run, set, &run->eval);
    if (run->config->data.train.label_type == NP_LABEL_CLASS)
        np_run_put_of_set(line, set, "top5_accuracy", (double)report->top5 / images);
    np_run_best_put(run, report);
    np_json_real(line, "seconds", report->seconds);
    send(run);
    take_plateau(run, report);
    if (np_run_early(run, report))
        send(run);
    add_eval_curves(run, epoch, report->loss, accuracy);
    write_curves(run);
    np_run_eval_text(run, &run->eval, words);
    if (epoch_ends(run, report->step))
        report_epoch(run, true);
    else
        np_run_say(run, "step %llu: %s %s", (unsigned long long)report->step, set, words);
    return 0;
}

static void reload_line(struct np_run *run, const char *text, size_t bytes)
{
    struct np_node *line = NULL;

    if (np_json_parse(text, bytes, &line, NULL) < 0)
        return;
    const struct np_node *event = np_node_get(line, "event");
    double epoch = np_node_number(line, "epoch", NAN);
    if (np_node_is(event, "step")) {
        run->lr = np_node_number(line, "lr", NAN);
        add_curves(run, epoch, np_node_number(line, "loss", NAN), run->lr,
            np_node_number(line, "accuracy", NAN));
    } else if (np_node_is(event, "eval")) {
        const double images = np_node_number(line, "images", 0);
        /* Older nnpipe wrote test_* for every set. */
        const double accuracy = np_node_number(
                         line, "val_accuracy", np_node_number(line, "test_accuracy", NAN)),
                     top5 = np_node_number(line, "val_top5_accuracy",
                         np_node_number(line, "test_top5_accuracy", NAN));

        run->eval = (struct np_eval_report){
            .numbers = run->config->data.train.label_type == NP_LABEL_VALUE,
            .step = (uint64_t)np_node_number(line, "step", 0),
            .images = (uint64_t)images,
            .loss = np_node_number(line, "val_loss", np_node_number(line, "test_loss", NAN)),
            .correct = (uint64_t)llround(images * fmax(accuracy, 0)),
            .top5 = (uint64_t)llround(images * fmax(top5, 0)),
        };
        np_figures_read(line, np_node_get(line, "val_loss") ? "val_" : "test_", &run->figures);
        add_eval_curves(run, epoch, run->eval.loss, accuracy);
        np_run_best_reload(run, line);
    }
    np_node_free(line);
}

void np_run_reload_curves(struct np_run *run)
{
    char *path = np_format("%s/metrics.jsonl", run->dir), *line = NULL;
    FILE *file = fopen(path, "re");
    size_t room = 0;

    for (ssize_t n; file && (n = getline(&line, &room, file)) > 0;)
        reload_line(run, line, (size_t)n);
    free(line);
    if (file)
        fclose(file);
    np_free(path);
}

/* --- boundaries ---------------------------------------------------------------------------- */

/* Has a period of checkpoint.every ended since the previous boundary? Depends on the step only. */
static bool checkpoint_due(const struct np_run *run, uint64_t step)
{
    const struct np_period *every = &run->config->checkpoint.every;
    uint64_t accumulate = (uint64_t)run->config->run.accumulate;
    uint64_t before = step > accumulate ? step - accumulate : 0;

    if (every->steps > 0)
        return step / (uint64_t)every->steps > before / (uint64_t)every->steps;
    if (every->epochs > 0)
        return floor(np_run_epoch_at(run, step) / every->epochs) >
               floor(np_run_epoch_at(run, before) / every->epochs);
    return false;
}

static bool boundary_follows(void *context, uint64_t step)
{
    const struct np_run *run = context;

    return run->config->run.accumulate > 1 || run->best_unsaved || run->save_err.code ||
           np_run_stopping(context) || checkpoint_due(run, step) || np_run_grows(run, step);
}

static int stopped(struct np_run *run)
{
    run->stop_code = -EINTR;
    return np_err_set(&run->stop_err, -EINTR, "stopped");
}

static int on_boundary(void *context, uint64_t step, bool eval_due)
{
    struct np_run *run = context;
    const bool last = (step == run->nr_steps || run->position.early.stopped) && !eval_due;
    const bool stop = !last && np_run_stopping(run);
    const bool saved = (step == run->saved_step && eval_due == run->saved_eval_due) ||
                       np_run_saves(run, step, eval_due);
    const bool saves = !saved && (last || stop || run->best_unsaved || checkpoint_due(run, step));
    int code = np_run_compare_arrays(run, step, saves, &run->stop_err);

    if (code == -EBADE)
        return code;
    if (code == 0 && saves)
        code =
            (last || stop ? np_run_save : np_run_start_save)(run, step, eval_due, &run->stop_err);
    /* What failed since the last boundary; and what no later one would wait for with all processes. */
    if (code == 0 && (last || stop || run->save_err.code || np_run_grows(run, step)))
        code = np_run_finish_save(run, &run->stop_err);
    code = np_run_barrier(run, code, &run->stop_err);
    if (code == 0 && stop)
        return stopped(run);
    if (code == 0)
        code = np_run_mark(run, &run->stop_err);
    run->stop_code = code;
    return code;
}

static bool ends(void *context)
{
    const struct np_run *run = context;

    return run->position.early.stopped > 0 || np_run_grows(run, run->position.step);
}

/* If the mark is of this step, goes back to it: np_run_save() leaves out the batches accumulated
 * since. */
static void go_to_mark(struct np_run *run, uint64_t step)
{
    run->at_mark = run->mark_buffers && run->mark.step == step;
    if (run->at_mark)
        run->position = run->mark;
}

/* After a stop, or when a file cannot be read (-EIO, perhaps only now) or is another one than it was
 * (-ESTALE), the run ends with a checkpoint and can be resumed. Bad content would fail again; its checkpoint keeps the training
 * done so far. */
static void on_rescue(void *context, uint64_t step, bool eval_due, int why)
{
    struct np_run *run = context;
    struct np_err err = {0};
    int code = 0;

    np_run_settle_save(run);
    const bool saved = step == run->saved_step && eval_due == run->saved_eval_due;
    go_to_mark(run, step);
    if (!saved && (step > 0 || why == -EINTR) &&
        (code = np_run_save(run, step, eval_due, &err)) < 0) {
        if (why == -EINTR) { /* a stop that cannot be kept is no stop */
            run->stop_err = err;
            run->stop_code = code;
        } else
            np_run_say(run, "%s", err.text);
    }
    if (why == -EIO || why == -ESTALE)
        run->stop_code = why;
    else if (why == -EINTR && code == 0)
        stopped(run);
}

/* Hook `stopping`: what this process was told, whatever the others were. */
static bool told_to_stop(void *context)
{
    const struct np_run *run = context;

    return np_watch_stopping(run->watch) != 0;
}

static void all_stop(void *context)
{
    struct np_run *run = context;

    run->all_stop = true;
}

void np_run_hooks(struct np_run *run, struct np_trainer_hooks *ret_hooks)
{
    *ret_hooks = (struct np_trainer_hooks){
        .batch = on_batch,
        .step = on_step,
        .idle = on_idle,
        .eval = on_eval,
        .evaluated = np_run_best_look,
        .eval_follows = eval_follows,
        .stopping = told_to_stop,
        .agreed = all_stop,
        .boundary_follows = boundary_follows,
        .boundary = on_boundary,
        .ends = ends,
        .rescue = on_rescue,
        .context = run,
    };
}
