/* A run's network: precision and lanes, the graph, its weights on host and device. run_save.c writes its
 * checkpoints. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <string.h>

#include "daemon/run/run_folder.h"
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
    int code = np_run_finish_save(run, err); /* which reads the arrays */

    for (int i = 0; code == 0 && i < NP_ARRAY_GRADS; i++)
        if (run->arrays[i])
            code = run->device->plan_ops->read(run->plan, i, run->arrays[i], err);
    return code;
}

/* --- opening ------------------------------------------------------------------------------- */

/* Reads the newest complete checkpoint of the folder into the host arrays, and the position. */
static int load_checkpoint(struct np_run *run, struct np_err *err)
{
    char *dir = np_format("%s/checkpoints", run->dir), *facts = NULL;
    struct np_checkpoint checkpoint;

    np_run_fill_checkpoint(run, &checkpoint);
    int code = np_checkpoint_latest(dir, &checkpoint, &facts, np_run_note, run, err);
    np_free(facts);
    if (code == 0) {
        run->position = checkpoint.position;
        if (np_run_leads(run))
            np_run_link_best(run, dir); /* a kill may have prevented it */
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

unsigned np_run_arrays(const struct np_run *run)
{
    unsigned arrays = 0;

    for (int i = 0; i < NP_ARRAY_GRADS; i++)
        arrays |= run->arrays[i] ? 1u << i : 0;
    return arrays;
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
        .snapshot = np_run_leads(run) ? np_run_arrays(run) : 0,
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
        code = np_run_read_state(run, err);
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
