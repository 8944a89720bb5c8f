/* A run's network, and its checkpoints: precision and lanes, the graph, its weights on host and
 * device. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "daemon/run/run_folder.h"
#include "loader/base/clock.h"
#include "trainer/checkpoint/checkpoint_dir.h"

/* --- arrays -------------------------------------------------------------------------------- */

static int open_arrays(struct np_run *run, struct np_err *err)
{
    const struct np_graph *graph = run->setup.graph;

    run->nr_states = np_optim_states(&run->config->optim);
    for (int i = 0; i < NP_ARRAY_GRADS; i++) {
        const uint64_t n = np_array_of_buffers(i) ? graph->nr_buffers : graph->nr_params;
        const bool average = i == NP_ARRAY_AVERAGE || i == NP_ARRAY_AVERAGE_BUFFERS;

        if (average ? np_run_averages(run) : i < NP_ARRAY_STATE0 + run->nr_states)
            run->arrays[i] = np_try_array(n + 1, sizeof(float), err);
    }
    return np_err_context(err, "%llu parameters", (unsigned long long)graph->nr_params);
}

static int write_arrays(struct np_run *run, struct np_err *err)
{
    int code = 0;

    for (int i = 0; code == 0 && i < NP_ARRAY_GRADS; i++)
        if (run->arrays[i])
            code = run->device->plan_ops->write(run->plan, i, run->arrays[i], err);
    return code;
}

int np_run_read_arrays(struct np_run *run, struct np_err *err)
{
    int code = 0;

    for (int i = 0; code == 0 && i < NP_ARRAY_GRADS; i++)
        if (run->arrays[i])
            code = run->device->plan_ops->read(run->plan, i, run->arrays[i], err);
    return code;
}

/* --- writing a checkpoint ------------------------------------------------------------------ */

uint64_t np_run_checkpoint_bytes(const struct np_run *run)
{
    const struct np_graph *graph = run->setup.graph;

    const uint64_t averages = np_run_averages(run);

    return sizeof(float) * (graph->nr_params * (1 + averages + (uint64_t)run->nr_states) +
                               graph->nr_buffers * (1 + averages)) +
           65536;
}

/* Adds the checkpoint's size and the free space to err. -EDOM (weights not finite) needs
 * neither. */
static int explain(struct np_run *run, uint64_t step, int code, struct np_err *err)
{
    struct statvfs fs;
    double room = statvfs(run->dir, &fs) == 0 ? (double)fs.f_bavail * (double)fs.f_frsize : 0;

    if (code != -EDOM)
        np_err_context(err,
            "the checkpoint of step %llu could not be written (it takes %.1f MB, %.1f MB "
            "are free below %s)",
            (unsigned long long)step, (double)np_run_checkpoint_bytes(run) * 1e-6, room * 1e-6,
            np_run_name(run, run->dir));
    if (run->saved_step != UINT64_MAX)
        np_run_say(
            run, "the last good checkpoint is step %llu", (unsigned long long)run->saved_step);
    return code;
}

static void fill(struct np_run *run, struct np_checkpoint *ret_checkpoint)
{
    *ret_checkpoint = (struct np_checkpoint){
        .graph = run->setup.graph,
        .position = run->position,
        .params = run->arrays[NP_ARRAY_PARAMS],
        .buffers = run->arrays[NP_ARRAY_BUFFERS],
        .state = {run->arrays[NP_ARRAY_STATE0], run->arrays[NP_ARRAY_STATE1]},
    };
    if (np_run_averages(run)) {
        ret_checkpoint->raw_params = run->arrays[NP_ARRAY_PARAMS];
        ret_checkpoint->raw_buffers = run->arrays[NP_ARRAY_BUFFERS];
        ret_checkpoint->params = run->arrays[NP_ARRAY_AVERAGE];
        ret_checkpoint->buffers = run->arrays[NP_ARRAY_AVERAGE_BUFFERS];
    }
}

static int read_device_state(struct np_run *run, struct np_err *err)
{
    char *text = NULL;

    if (!run->device->plan_ops->state)
        return 0;
    int code = run->device->plan_ops->state(run->plan, &text, err);
    if (code == 0) {
        char **state = &run->device_state[np_state_kind(run->device)];

        np_free(*state);
        *state = text;
    }
    return code;
}

/* The link `best` is for users: a resumed run reads best_step, so a failure only prints a
 * message. */
static void link_best(struct np_run *run, const char *dir)
{
    struct np_err unnamed = {0};

    if (np_checkpoint_name_best(&run->io, dir, run->position.best_step, &unnamed) < 0)
        np_run_say(run, "%s", unnamed.text);
}

int np_run_mark(struct np_run *run, struct np_err *err)
{
    const size_t bytes = sizeof(float) * run->setup.graph->nr_buffers;

    if (run->config->run.accumulate <= 1)
        return 0;
    if (!run->mark_buffers && !(run->mark_buffers = np_try_alloc(bytes + 1, err)))
        return err->code;
    int code = np_log_sizes(&run->log, false, &run->position, err);
    run->mark = run->position;
    return code < 0
               ? code
               : run->device->plan_ops->read(run->plan, NP_ARRAY_BUFFERS, run->mark_buffers, err);
}

/* Syncs the logs, reads the arrays to the host, and puts the logs' sizes into the position. */
static int collect(struct np_run *run, struct np_err *err)
{
    struct np_position now = run->position;
    int code = np_log_sizes(&run->log, true, &now, err);

    np_track_flush(run->track);
    if (code == 0)
        code = np_run_read_arrays(run, err);
    if (code == 0 && run->at_mark)
        memcpy(run->arrays[NP_ARRAY_BUFFERS], run->mark_buffers,
            sizeof(float) * run->setup.graph->nr_buffers);
    else if (code == 0)
        run->position = now;
    return code;
}

/* A failure here only prints a message: the new checkpoint is on the disk. */
static void prune(struct np_run *run, const char *dir)
{
    const struct np_checkpoint_options *options = &run->config->checkpoint;
    const struct np_position *position = &run->position;
    struct np_err old = {0}, states = {0};

    if (np_checkpoint_prune(dir, (int)options->keep, position->step, position->best_step, &old) < 0)
        np_run_say(run, "old checkpoints could not be deleted: %s", old.text);
    if (options->optimizer == NP_OPTIMIZER_NEWEST &&
        np_checkpoint_drop_optimizers(dir, position->step, &states) < 0)
        np_run_say(run, "older optimizer states could not be deleted: %s", states.text);
}

/* A failure here only makes later epochs slower. */
static void flush_loader(struct np_run *run)
{
    const char *note = run->loader ? np_loader_flush(run->loader) : "";

    if (*note && !run->said_flush)
        np_run_say(run, "%s", note);
    run->said_flush |= *note != '\0';
}

static int write_checkpoint(struct np_run *run, struct np_err *err)
{
    struct np_checkpoint checkpoint;
    int code = collect(run, err);

    if (code == 0)
        code = read_device_state(run, err);
    if (code < 0)
        return code;
    fill(run, &checkpoint);
    checkpoint.facts_json = np_run_facts_json(run);
    if (!checkpoint.facts_json)
        return np_err_set(err, -ENOMEM, "out of memory for the checkpoint's facts");
    char *dir = np_format("%s/checkpoints", run->dir);
    if ((code = np_checkpoint_write(&run->io, dir, &checkpoint, err)) == 0) {
        link_best(run, dir);
        prune(run, dir);
        flush_loader(run);
    }
    np_free(dir);
    return code;
}

int np_run_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err)
{
    const uint64_t start = np_now_ns();
    struct np_json *line = &run->line;

    np_run_at(run, "saving");
    run->position.step = step;
    run->position.eval_due = eval_due;
    const int code = np_run_leads(run) ? write_checkpoint(run, err) : 0;
    if (code < 0)
        return explain(run, step, code, err);
    run->saved_step = step;
    run->saved_eval_due = eval_due;
    run->best_unsaved = false;
    if (!np_run_leads(run))
        return 0;
    const uint64_t ns = np_now_ns() - start;
    np_stat_item(run->block, NP_STAGE_CHECKPOINT, np_run_checkpoint_bytes(run), ns);
    char *path =
        np_format("%s/checkpoints/step-%llu", np_run_name(run, run->dir), (unsigned long long)step);
    np_json_begin(line, "checkpoint");
    np_json_int(line, "step", (int64_t)step);
    np_json_text(line, "path", path);
    np_json_real(line, "seconds", (double)ns * 1e-9);
    np_ui_event(&run->ui, np_json_end(line));
    np_free(path);
    return 0;
}

double np_run_time_save(struct np_run *run)
{
    struct np_metrics unused;
    struct np_err err = {0};

    if (run->device->plan_ops->metrics(run->plan, false, &unused, &err) < 0)
        return 0;
    const uint64_t start = np_now_ns();
    const int code = np_run_save(run, run->position.step, false, &err);
    return code < 0 ? 0 : (double)(np_now_ns() - start) * 1e-9;
}

/* --- opening ------------------------------------------------------------------------------- */

/* Reads the newest complete checkpoint of the folder into the host arrays, and the position. */
static int load_checkpoint(struct np_run *run, struct np_err *err)
{
    char *dir = np_format("%s/checkpoints", run->dir), *facts = NULL;
    struct np_checkpoint checkpoint;

    fill(run, &checkpoint);
    int code = np_checkpoint_latest(dir, &checkpoint, &facts, np_run_note, run, err);
    np_free(facts);
    if (code == 0) {
        run->position = checkpoint.position;
        if (np_run_leads(run))
            link_best(run, dir); /* a kill may have prevented it */
    }
    np_free(dir);
    if (code < 0)
        return code;
    run->saved_step = run->position.step;
    run->saved_eval_due = run->position.eval_due;
    run->first_step = run->position.step;
    np_changes_settle(&run->changes, run->position.step);
    if (run->position.step > run->nr_steps)
        return np_err_set(err, -EINVAL, "%s: it is already at step %llu, the config ends at %llu",
            np_run_name(run, run->dir), (unsigned long long)run->position.step,
            (unsigned long long)run->nr_steps);
    return 0;
}

static int open_plan(struct np_run *run, struct np_err *err)
{
    const struct np_plan_options options = {.lanes = run->lanes,
        .threads = run->threads,
        .parts = (int)run->config->run.lanes,
        .batchnorm_over = run->batchnorm_over,
        .comm = run->comm,
        .block = run->block,
        .sum_fast = run->config->run.sum == NP_SUM_FAST,
        .comm_halves = run->config->run.comm_dtype == NP_BF16,
        .deterministic = run->config->run.deterministic,
        .tf32 = run->config->run.tf32,
        .recompute = run->config->run.recompute,
        .muon = run->config->optim.kind == NP_MUON,
        .losses = run->config->run.sample_losses && !run->options->probe,
        .state = run->device_state[np_state_kind(run->device)],
        .note = np_run_note,
        .note_context = run};

    if (options.losses && !run->device->plan_ops->losses) {
        run->usage = true;
        return np_err_set(err, -EINVAL, "train.sample_losses: the device %s computes no losses",
            run->device->name);
    }
    if (options.parts > 1 && !run->numbers &&
        !(run->numbers = np_try_array((size_t)options.parts, sizeof(*run->numbers), err)))
        return err->code;
    if (options.losses && !run->losses &&
        !(run->losses = np_try_array((size_t)run->config->loader.batch, sizeof(float), err)))
        return err->code;
    return run->device->plan_ops->prepare(
        run->device, run->setup.graph, run->setup.eval_graph, &options, &run->plan, err);
}

/* An average begins with the weights that the run begins with. */
static void begin_averages(struct np_run *run)
{
    const struct np_graph *graph = run->setup.graph;
    float **arrays = run->arrays;

    if (!np_run_averages(run))
        return;
    memcpy(arrays[NP_ARRAY_AVERAGE], arrays[NP_ARRAY_PARAMS], graph->nr_params * sizeof(float));
    memcpy(arrays[NP_ARRAY_AVERAGE_BUFFERS], arrays[NP_ARRAY_BUFFERS],
        graph->nr_buffers * sizeof(float));
}

static int open_weights(struct np_run *run, struct np_err *err)
{
    int code = open_arrays(run, err);

    if (code < 0)
        return code;
    if (run->dir)
        return load_checkpoint(run, err);
    np_graph_init(run->setup.graph, (uint64_t)run->config->seed, run->arrays[NP_ARRAY_PARAMS],
        run->arrays[NP_ARRAY_BUFFERS]);
    if (!run->options->probe) /* it measures time only */
        code = np_run_whiten(run, err);
    if (code == 0 && run->options->weights)
        code = np_run_load_weights(run, err);
    if (code == 0)
        begin_averages(run);
    return code;
}

/* Prints what stays as it is. */
static void say_frozen(struct np_run *run)
{
    struct np_rules_count count;
    char later[96] = "", norms[64] = "", stopped[64] = "";

    np_rules_count(run->setup.graph, &count);
    if (count.frozen + count.later + count.stopped == 0)
        return;
    if (count.later > 0)
        snprintf(later, sizeof(later), "; %d more until step %llu", count.later,
            (unsigned long long)count.thaw * (unsigned long long)run->config->run.accumulate);
    if (count.stopped > 0)
        snprintf(stopped, sizeof(stopped), "; %d stop learning later", count.stopped);
    if (count.batchnorms > 0)
        snprintf(norms, sizeof(norms), "; %d batchnorms keep their statistics", count.batchnorms);
    np_run_say(run, "frozen: %d of %d parameters, with %llu of %llu values%s%s%s", count.frozen,
        count.params, (unsigned long long)count.frozen_elements, (unsigned long long)count.elements,
        later, stopped, norms);
}

/* Prints what a user of other programs might not expect. */
static void say_over(struct np_run *run)
{
    bool has = false;

    for (int n = 0; n < run->setup.graph->nr_forward; n++)
        has |= run->setup.graph->nodes[n].op == NP_OP_BN_STATS;
    if (has && run->comm && run->batchnorm_over == NP_OVER_PROCESS)
        np_run_say(run,
            "train.batchnorm_over: batchnorms average over the rows of a process; the running "
            "statistics are rank 0's, and the weights depend on the number of processes, %d",
            np_comm_world(run->comm));
}

/* --- rows that grow ------------------------------------------------------------------------- */

bool np_run_grows(const struct np_run *run, uint64_t step)
{
    const struct np_setup *setup = &run->setup;
    const uint64_t row = step * (uint64_t)run->config->loader.batch;

    return setup->growth && step < np_run_last_step(run) &&
           np_growth_at(setup->growth, row) != setup->stage;
}

/* Builds the graphs for the rows behind the current step. */
static int take_stage(struct np_run *run, struct np_err *err)
{
    struct np_setup *setup = &run->setup;
    const uint64_t step = run->position.step;

    if (!setup->growth)
        return 0;
    setup->stage = np_growth_at(setup->growth, step * (uint64_t)run->config->loader.batch);
    np_run_say(run, "step %llu: training images of %dx%d from here on (loader.grow)",
        (unsigned long long)step, setup->stage->width, setup->stage->height);
    return np_compute_graph(run->config, run->precision, run->options->overrides, setup, err);
}

int np_run_grow(struct np_run *run, struct np_err *err)
{
    int code = np_run_read_arrays(run, err);

    if (code == 0)
        code = read_device_state(run, err);
    if (code < 0)
        return code;
    run->device->plan_ops->free(run->plan);
    run->plan = NULL;
    if ((code = take_stage(run, err)) == 0 && (code = open_plan(run, err)) == 0)
        code = write_arrays(run, err);
    run->pipeline.start.ns = 0; /* the next step begins a new window */
    return code;
}

/* Adds the lines of more that *text does not have. */
static void add_lines(char **text, const char *more)
{
    for (const char *end, *at = more; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        char *line = np_format("%.*s\n", (int)(end - at), at), *old = *text;

        if (!strstr(old, line))
            *text = np_format("%s%s", old, line);
        if (*text != old)
            np_free(old);
        np_free(line);
    }
}

/* Prepares the plan of each size once, the largest first, so that a device with too little memory says
 * so now, and keeps what all of them chose (engines, kernels): a resumed run chooses nothing anew. */
static int survey_stages(struct np_run *run, struct np_err *err)
{
    const struct np_plan_ops *ops = run->device->plan_ops;
    struct np_setup *setup = &run->setup;
    char *all = np_strdup(""), *text = NULL;
    int code = 0;

    for (int i = setup->growth->nr - 1; code == 0 && i >= 0; i--) {
        setup->stage = &setup->growth->stages[i];
        code = np_compute_graph(run->config, run->precision, run->options->overrides, setup, err);
        if (code == 0)
            code = open_plan(run, err);
        if (code == 0 && ops->state && (code = ops->state(run->plan, &text, err)) == 0) {
            add_lines(&all, text);
            np_free(text);
        }
        if (run->plan)
            ops->free(run->plan);
        run->plan = NULL;
    }
    if (ops->state)
        run->device_state[np_state_kind(run->device)] = all;
    else
        np_free(all);
    return code;
}

/* Keys that need all rows of a batch at once, or more than one batch. */
static const char *against_lanes(const struct np_config *config)
{
    const struct np_train_options *run = &config->run;

    return run->accumulate > 1                               ? "train.accumulate above 1"
           : run->sam_node                                   ? "train.sam"
           : run->sample_losses                              ? "train.sample_losses"
           : run->best > NP_BEST_TOP5                        ? "this metric of train.best"
           : config->data.train.label_type != NP_LABEL_CLASS ? "labels other than one class"
                                                             : NULL;
}

/* What a batch in lanes (train.lanes) is to this device. */
static int take_lanes(struct np_run *run, struct np_err *err)
{
    const struct np_plan_ops *ops = run->device->plan_ops;
    const int lanes = (int)run->config->run.lanes, over = (int)run->config->run.batchnorm_over;
    const int lane_rows = (int)run->config->loader.batch / lanes;

    if (lanes == 1)
        return 0;
    run->usage = true;
    if (!ops->at_once && !ops->step_lanes)
        return np_err_set(
            err, -EINVAL, "train.lanes: %d: not with the device %s", lanes, run->device->name);
    if (!ops->at_once && against_lanes(run->config))
        return np_err_set(err, -EINVAL, "train.lanes: on %s not with %s", run->device->name,
            against_lanes(run->config));
    if (!ops->at_once && over != NP_BN_AUTO && over != lane_rows)
        return np_err_set(err, -EINVAL,
            "train.batchnorm_over: the device %s averages over the rows of a lane (%d)",
            run->device->name, lane_rows);
    run->usage = false;
    run->setup.lanes = ops->at_once ? 0 : lanes;
    run->setup.processes = ops->at_once ? np_comm_world(run->comm) : 0;
    run->batchnorm_over = over > 0                ? over
                          : over == NP_BN_PROCESS ? NP_OVER_PROCESS
                          : ops->at_once          ? NP_OVER_ALL
                                                  : lane_rows;
    return 0;
}

int np_run_open_model(struct np_run *run, struct np_err *err)
{
    int code = 0;

    /* Rounding depends on these: this machine's choice, or that of the run's checkpoint. */
    run->precision = np_compute_precision(run->config, run->device);
    run->threads = np_compute_threads(run->config);
    run->lanes = run->threads;
    if (run->comm) /* each takes its share of this machine */
        run->threads = (run->threads + run->options->launch->local_world - 1) /
                       run->options->launch->local_world;
    if ((code = take_lanes(run, err)) < 0)
        return code;
    if (run->dir)
        code = np_run_load_facts(run, err);
    if (code == 0)
        code = np_run_share_lanes(run, err);
    if (code == 0)
        code = np_compute_graph(
            run->config, run->precision, run->options->overrides, &run->setup, err);
    run->usage = run->usage || code == -ENOEXEC;
    if (code == 0)
        code = open_weights(run, err);
    if (code == 0) {
        say_frozen(run);
        say_over(run);
    }
    if (code == 0 && run->setup.growth && !run->device_state[np_state_kind(run->device)])
        code = survey_stages(run, err);
    if (code == 0)
        code = take_stage(run, err);
    if (code == 0)
        code = open_plan(run, err);
    return code == 0 ? write_arrays(run, err) : code;
}
