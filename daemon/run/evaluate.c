#include "daemon/run/evaluate.h"

#include <errno.h>
#include <math.h>

#include "loader/base/mem.h"

static void take_bad(const struct np_evaluation *evaluation, struct np_loader *loader)
{
    struct np_bad_sample bad;

    while (np_loader_next_bad(loader, &bad))
        evaluation->bad(evaluation->context, &bad);
}

int np_outputs_check(const float *logits, const struct np_node *classes, struct np_err *err)
{
    for (int i = 0; i < classes->nr_items; i++)
        if (!isfinite(logits[i]))
            return np_err_set(err, -EDOM, "the network's output for class '%s' is %s",
                classes->items[i]->text, isnan(logits[i]) ? "not a number" : "infinite");
    return 0;
}

/* A pass that looks at every image's outputs. */
struct look {
    const struct np_evaluation *evaluation;
    float *logits;                /* (rows, classes) */
    struct np_outcomes *outcomes; /* NULL, as kept: the outputs are only checked */
    struct np_kept *kept;
    struct np_err err;
};

static int look_at_row(struct look *look, const struct np_batch *batch, int r)
{
    const struct np_evaluation *evaluation = look->evaluation;
    const float *logits = look->logits + (size_t)r * (size_t)evaluation->classes->nr_items;
    const uint64_t sample = batch->about[r].sample;
    char name[512];

    if (batch->labels[r] < 0)
        return 0;
    if (evaluation->answer)
        return evaluation->answer(evaluation->context, sample, logits, &look->err);
    int code = np_outputs_check(logits, evaluation->classes, &look->err);
    if (code < 0 && np_index_name(evaluation->index, sample, name, sizeof(name)) >= 0)
        np_err_context(&look->err, "%s", name);
    if (code == 0 && look->outcomes)
        code = np_outcomes_add(look->outcomes, sample, batch->labels[r], logits, &look->err);
    if (code == 0 && look->kept)
        code = np_kept_add(look->kept, sample, logits,
            np_batch_values(batch->labels, evaluation->shape.rows) +
                (size_t)r * (size_t)evaluation->shape.values,
            &look->err);
    return code;
}

static int look_at(void *context, const struct np_batch *batch)
{
    struct look *look = context;
    const struct np_evaluation *evaluation = look->evaluation;
    int code = evaluation->device->plan_ops->logits(evaluation->plan, look->logits, &look->err);

    for (int r = 0; code == 0 && r < evaluation->shape.rows; r++)
        code = look_at_row(look, batch, r);
    return code;
}

static bool look_stopping(void *context)
{
    const struct np_evaluation *evaluation = ((const struct look *)context)->evaluation;

    return evaluation->stopping(evaluation->context);
}

void np_evaluation_loader(
    const struct np_evaluation *evaluation, struct np_loader_config *ret_config)
{
    const struct np_config *config = evaluation->config;

    *ret_config = (struct np_loader_config){
        .options = &config->loader,
        .sampler = {.seed = (uint64_t)config->seed,
            .nr_eval = evaluation->split ? evaluation->split->nr_eval
                                         : np_index_samples(evaluation->index),
            .nr_train = evaluation->split ? evaluation->split->nr_train : 0,
            .split = evaluation->split ? evaluation->split->order : NULL,
            .batch = evaluation->shape.rows},
        .eval = evaluation->index,
        .eval_labels = evaluation->labels,
        .augment = config->loader.augment,
        .test_augment = config->loader.test_augment,
        .shape = evaluation->shape,
        .allocator = &evaluation->device->pinned,
        .stat = evaluation->stat,
        .eval_due = true,
    };
}

/* reports: the bad samples are reported, in the first pass alone. */
static int pass(const struct np_evaluation *evaluation, const struct np_trainer_hooks *hooks,
    bool reports, struct np_eval_report *ret_report, struct np_err *err)
{
    struct np_loader_config options;
    struct np_trainer_config trainer = {
        .device = evaluation->device,
        .plan = evaluation->plan,
        .block = evaluation->block,
        .numbers = evaluation->config->data.train.label_type == NP_LABEL_VALUE,
        .hooks = *hooks,
    };
    struct np_loader *loader = NULL;
    bool cut = false;
    int code;

    np_evaluation_loader(evaluation, &options);
    code = np_loader_start(&options, &loader, err);

    if (code < 0)
        np_device_blame(evaluation->device, err);
    if (code == 0)
        code = np_feed_new(evaluation->device, loader->ring, &evaluation->shape, evaluation->block,
            &trainer.feed, err);
    if (code == 0 && evaluation->watch) {
        np_watch_ring(evaluation->watch, loader->ring);
        np_watch_arm(evaluation->watch);
    }
    if (code == 0)
        code = np_trainer_eval(&trainer, 0, hooks->stopping ? &cut : NULL, ret_report, err);
    if (evaluation->watch)
        np_watch_ring(evaluation->watch, NULL);
    if (loader && reports)
        take_bad(evaluation, loader);
    np_feed_free(trainer.feed);
    np_loader_stop(loader);
    return code == 0 && cut ? np_err_set(err, -EINTR, "stopped") : code;
}

/* A pass that looks at the outputs; unless it keeps outcomes, and without answer(), it checks them
 * only. */
static int look_pass(const struct np_evaluation *evaluation, bool reports, bool keeps,
    struct np_eval_report *ret_report, struct np_err *err)
{
    struct look look = {.evaluation = evaluation,
        .outcomes = keeps ? evaluation->outcomes : NULL,
        .kept = keeps ? evaluation->kept : NULL};
    const struct np_trainer_hooks hooks = {.stopping = evaluation->stopping ? look_stopping : NULL,
        .evaluated = look_at,
        .context = &look};
    int code;

    look.logits = np_try_array(
        (size_t)evaluation->shape.rows * (size_t)evaluation->classes->nr_items, sizeof(float), err);
    if (!look.logits)
        return err->code;
    code = pass(evaluation, &hooks, reports, ret_report, err);
    np_free(look.logits);
    if (look.err.code)
        *err = look.err;
    return look.err.code ? look.err.code : code;
}

static int blame(const struct np_evaluation *evaluation, double loss, struct np_err *err)
{
    struct np_eval_report again;
    const int code = look_pass(evaluation, false, false, &again, err);

    return code < 0 ? code
                    : np_err_set(err, -EDOM, "the loss is %s, though every output is finite",
                          isnan(loss) ? "not a number" : "infinite");
}

int np_evaluate(
    const struct np_evaluation *evaluation, struct np_eval_report *ret_report, struct np_err *err)
{
    const struct np_trainer_hooks hooks = {
        .stopping = evaluation->stopping, .context = evaluation->context};
    struct np_eval_report report;
    int code = evaluation->outcomes || evaluation->kept || evaluation->answer
                   ? look_pass(evaluation, true, true, &report, err)
                   : pass(evaluation, &hooks, true, &report, err);

    if (code == 0 && !evaluation->answer && !isfinite(report.loss))
        code = blame(evaluation, report.loss, err);
    if (code == 0)
        *ret_report = report;
    return code;
}
