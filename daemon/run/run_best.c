/* Which evaluation was the best so far, by train.best. Its value is not in the checkpoint: a resumed
 * run reads it from metrics.jsonl, so it may go on with another metric. */
#include <errno.h>
#include <math.h>

#include "daemon/run/evaluate.h"
#include "daemon/run/run_parts.h"

static const char *const keys[NP_NR_BEST] = {
    "accuracy", "loss", "top5_accuracy", "f1", "map", "mae", "rmse", "r2"};

static bool has_classes(const struct np_run *run)
{
    return run->config->data.train.label_type == NP_LABEL_CLASS;
}

static double value_of(const struct np_run *run, const struct np_eval_report *report)
{
    switch (run->config->run.best) {
    case NP_BEST_LOSS: return report->loss;
    case NP_BEST_TOP5: return report->images ? (double)report->top5 / (double)report->images : 0;
    case NP_BEST_F1: return has_classes(run) ? run->f1 : run->figures.f1;
    case NP_BEST_MAP: return run->figures.map;
    case NP_BEST_MAE: return run->figures.value.mae;
    case NP_BEST_RMSE: return run->figures.value.rmse;
    case NP_BEST_R2: return run->figures.value.r2;
    default: return report->images ? (double)report->correct / (double)report->images : 0;
    }
}

double np_run_metric(const struct np_run *run, const struct np_eval_report *report, int metric)
{
    switch ((enum np_metric)metric) {
    case NP_METRIC_MAP: return run->figures.map;
    case NP_METRIC_MAE: return run->figures.value.mae;
    case NP_METRIC_RMSE: return run->figures.value.rmse;
    case NP_METRIC_R2: return run->figures.value.r2;
    case NP_METRIC_ACCURACY: return report->numbers ? (double)NAN : np_eval_accuracy(report);
    default: return report->loss;
    }
}

static bool is_better(const struct np_run *run, double value)
{
    if (run->position.best_step == 0 || isnan(run->best_value))
        return true;
    const int best = run->config->run.best;
    const bool lower = best == NP_BEST_LOSS || best == NP_BEST_MAE || best == NP_BEST_RMSE;
    return lower ? value < run->best_value : value > run->best_value;
}

/* The mean F1 of the classes, from the answers for all images of the evaluation. */
static void take_f1(struct np_run *run)
{
    struct np_class_figures *classes =
        run->outcomes.nr_rows
            ? np_try_array((size_t)run->outcomes.nr_classes, sizeof(*classes), NULL)
            : NULL;
    struct np_class_means means = {0};

    if (classes)
        np_outcomes_classes(&run->outcomes, classes, &means);
    np_free(classes);
    run->f1 = means.macro.f1;
}

void np_run_best(struct np_run *run, const struct np_eval_report *report)
{
    if (!has_classes(run))
        np_figures_make(&run->kept, NULL, &run->figures, NULL); /* -ENOMEM: those before it */
    else if (run->config->run.best == NP_BEST_F1)
        take_f1(run);
    const double value = value_of(run, report);
    if (!is_better(run, value))
        return;
    run->best_value = value;
    run->position.best_accuracy = report->numbers ? 0 : np_eval_accuracy(report);
    run->position.best_step = report->step;
    run->best_unsaved = true;
}

void np_run_best_put(struct np_run *run, const struct np_eval_report *report)
{
    if (has_classes(run) && run->config->run.best == NP_BEST_F1)
        np_run_put_of_set(&run->line, np_run_set_name(run), keys[NP_BEST_F1], run->f1);
    if (run->config->run.best != NP_BEST_ACCURACY)
        np_json_bool(&run->line, "best", run->position.best_step == report->step);
}

void np_run_best_reload(struct np_run *run, const struct np_node *line)
{
    static const char *const sets[] = {"val", "test"};

    if (np_node_number(line, "step", -1) != (double)run->position.best_step)
        return;
    run->best_value = run->config->run.best == NP_BEST_ACCURACY ? run->position.best_accuracy : NAN;
    for (int i = 0; i < 2 && isnan(run->best_value); i++) {
        char key[32];

        snprintf(key, sizeof(key), "%s_%s", sets[i], keys[run->config->run.best]);
        run->best_value = np_node_number(line, key, NAN);
    }
}

/* Answers and labels of a batch, of all processes one after the other. */
struct answers {
    const float *logits;   /* (rows, classes) */
    const int32_t *labels; /* of a process: (own), then its values */
    const uint64_t *samples;
    int rows, own;     /* of all; of a process */
    int width, values; /* of logits; of a label */
};

static int take_answers(
    struct np_run *run, const struct np_batch *batch, struct answers *ret_answers)
{
    const int world = np_comm_world(run->comm), width = run->setup.sets.classes->nr_items;
    const int rows = (int)run->config->loader.batch, own = rows / world;
    const int values = has_classes(run) ? 0 : width;
    const size_t label_bytes = (1 + (size_t)values) * (size_t)own * sizeof(int32_t);
    const size_t logit_bytes = (size_t)width * (size_t)own * sizeof(float);
    struct np_err *err = &run->stop_err;
    int code;

    if (!run->labels && !(run->labels = np_try_array((size_t)world, label_bytes, err)))
        return -ENOMEM;
    float *mine = run->logits + (size_t)np_comm_rank(run->comm) * (size_t)own * (size_t)width;
    /* Of lanes that are computed one after the other they are there. */
    if ((run->setup.lanes <= 1 &&
            (code = run->device->plan_ops->logits(run->plan, mine, err)) < 0) ||
        (code = np_comm_gather(run->comm, mine, run->logits, logit_bytes, err)) < 0 ||
        (code = np_comm_gather(run->comm, batch->labels, run->labels, label_bytes, err)) < 0 ||
        (code = np_run_all_samples(run, batch, err)) < 0)
        return code;
    *ret_answers =
        (struct answers){run->logits, run->labels, run->samples, rows, own, width, values};
    return 0;
}

static int add_answer(struct np_run *run, const struct answers *answers, int row)
{
    const int process = row / answers->own, r = row % answers->own;
    const int32_t *labels =
        answers->labels + (size_t)process * (size_t)answers->own * (1 + (size_t)answers->values);
    const float *logits = answers->logits + (size_t)row * (size_t)answers->width;
    const uint64_t sample = answers->samples[row];

    if (labels[r] < 0)
        return 0;
    if (has_classes(run))
        return np_outcomes_add(&run->outcomes, sample, labels[r], logits, &run->stop_err);
    return np_kept_add(&run->kept, sample, logits,
        np_batch_values(labels, answers->own) + (size_t)r * (size_t)answers->values,
        &run->stop_err);
}

/* Does an evaluation need the answers for all images? */
static bool looks(const struct np_run *run)
{
    return !has_classes(run) || run->config->run.best == NP_BEST_F1;
}

int np_run_best_room(struct np_run *run, struct np_err *err)
{
    const size_t bytes = (size_t)run->setup.sets.classes->nr_items * sizeof(*run->logits);

    if (looks(run) && !run->logits)
        run->logits = np_try_array((size_t)run->config->loader.batch, bytes, err);
    return looks(run) && !run->logits ? -ENOMEM : 0;
}

int np_run_best_look(void *context, const struct np_batch *batch)
{
    struct np_run *run = context;
    const int nr = run->setup.sets.classes->nr_items;
    struct answers answers;

    if (!looks(run))
        return 0;
    if (batch->part == 0)
        run->outcomes.nr_rows = run->kept.nr_rows = 0;
    run->kept.type = (enum np_label_type)run->config->data.train.label_type;
    run->kept.width = nr;
    run->outcomes.nr_classes = nr;
    run->outcomes.sigmoids = np_graph_has_sigmoids(run->setup.eval_graph);
    int code = take_answers(run, batch, &answers);
    for (int row = 0; code == 0 && row < answers.rows; row++)
        code = add_answer(run, &answers, row);
    return code;
}
