/* A run's network: precision and lanes, the graph, its weights, the device's plan. */
#include <errno.h>

#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"
#include "trainer/checkpoint/weights.h"

static int open_graph(struct np_run *run, struct np_err *err)
{
    struct np_report report;
    int code;

    np_config_report(run->config, &report);
    code = np_setup_graph(run->config, run->precision, &run->setup, &report);
    if (code < 0) {
        np_complain_report(&report, run->options->overrides);
        run->usage = true;
        np_err_set(err, -EINVAL, "the model does not fit the data");
    }
    np_report_fini(&report);
    return code;
}

static int open_arrays(struct np_run *run, struct np_err *err)
{
    const struct np_graph *graph = run->setup.graph;

    run->nr_states = np_optim_states(&run->config->optim);
    run->params = np_try_array(graph->nr_params + 1, sizeof(float), err);
    run->buffers = np_try_array(graph->nr_buffers + 1, sizeof(float), err);
    bool good = run->params && run->buffers;
    for (int i = 0; i < run->nr_states; i++)
        good = (run->state[i] = np_try_array(graph->nr_params + 1, sizeof(float), err)) && good;
    return good ? 0 : np_err_context(err, "%llu parameters", (unsigned long long)graph->nr_params);
}

static int open_plan(struct np_run *run, struct np_err *err)
{
    const struct np_plan_options options = {.lanes = run->lanes,
        .threads = run->threads,
        .deterministic = run->config->run.deterministic,
        .tf32 = run->config->run.tf32,
        .state = run->device_state[np_state_kind(run->device)],
        .note = np_run_note,
        .note_context = run};

    return run->device->plan_ops->prepare(
        run->device, run->setup.graph, run->setup.eval_graph, &options, &run->plan, err);
}

/* --weights: loads the tensors that fit by name, reports the others. */
static int load_weights(struct np_run *run, struct np_err *err)
{
    const struct np_source_progress progress = {.note = np_run_note, .context = run};
    char *path = NULL, *checkpoint = NULL, *text = NULL;
    int code = np_weights_find(run->options->weights, &progress, &path, &checkpoint, err);

    if (code == 0)
        code = np_weights_load(path, run->setup.graph, run->params, run->buffers, &text, err);
    if (code == 0)
        np_run_say(run, "weights from %s%s%s", path, text ? "; " : "", text ? text : "");
    np_free(path);
    np_free(checkpoint);
    np_free(text);
    return code;
}

static int start_weights(struct np_run *run, struct np_err *err)
{
    np_graph_init(run->setup.graph, (uint64_t)run->config->seed, run->params, run->buffers);
    return run->options->weights ? load_weights(run, err) : 0;
}

static int upload_weights(struct np_run *run, struct np_err *err)
{
    const struct np_plan_ops *ops = run->device->plan_ops;
    int code = ops->write(run->plan, NP_ARRAY_PARAMS, run->params, err);

    if (code == 0)
        code = ops->write(run->plan, NP_ARRAY_BUFFERS, run->buffers, err);
    for (int i = 0; code == 0 && i < run->nr_states; i++)
        code = ops->write(run->plan, NP_ARRAY_STATE0 + i, run->state[i], err);
    return code;
}

/* Sets what rounding depends on: this machine's choice, or that of the run's checkpoint. */
static int choose(struct np_run *run, struct np_err *err)
{
    run->precision = np_compute_precision(run->config, run->device);
    run->threads = np_compute_threads(run->config);
    run->lanes = run->threads;
    return run->dir ? np_run_load_facts(run, err) : 0;
}

static int open_weights(struct np_run *run, struct np_err *err)
{
    int code = open_arrays(run, err);

    if (code == 0 && run->dir)
        code = np_run_load(run, err);
    else if (code == 0)
        code = start_weights(run, err);
    return code;
}

int np_run_open_model(struct np_run *run, struct np_err *err)
{
    int code = choose(run, err);

    if (code == 0)
        code = open_graph(run, err);
    if (code == 0)
        code = open_weights(run, err);
    if (code == 0)
        code = open_plan(run, err);
    return code == 0 ? upload_weights(run, err) : code;
}
