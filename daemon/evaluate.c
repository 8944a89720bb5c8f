/* See evaluate.h. */
#include "daemon/evaluate.h"

#include <errno.h>

static bool never(void *context)
{
    (void)context;
    return false;
}

static void take_bad(const struct np_evaluation *evaluation, struct np_loader *loader)
{
    struct np_bad_sample bad;

    while (np_loader_next_bad(loader, &bad))
        if (evaluation->bad)
            evaluation->bad(evaluation->context, &bad);
}

int np_evaluate(
    const struct np_evaluation *evaluation, struct np_eval_report *ret_report, struct np_err *err)
{
    const struct np_config *config = evaluation->config;
    struct np_loader_config loader_config = {
        .options = &config->loader,
        .sampler = {.seed = (uint64_t)config->seed,
            .nr_eval = np_index_samples(evaluation->index),
            .batch = evaluation->shape.rows},
        .eval = evaluation->index,
        .eval_labels = evaluation->labels,
        .augment = config->augment,
        .test_augment = config->test_augment,
        .shape = evaluation->shape,
        .allocator = &evaluation->device->pinned,
        .stat = evaluation->stat,
        .eval_due = true,
    };
    struct np_trainer_config trainer = {
        .device = evaluation->device,
        .plan = evaluation->plan,
        .block = evaluation->block,
        .hooks = {.stopping = evaluation->stopping ? evaluation->stopping : never,
            .context = evaluation->context},
    };
    struct np_loader *loader = NULL;
    bool cut = false;
    int code = np_loader_start(&loader_config, &loader, err);

    if (code < 0)
        np_device_blame(evaluation->device, err);
    if (code == 0)
        code = np_feed_new(evaluation->device, np_loader_ring(loader), &evaluation->shape,
            evaluation->block, &trainer.feed, err);
    if (code == 0)
        code = np_trainer_eval(&trainer, 0, &cut, ret_report, err);
    if (loader)
        take_bad(evaluation, loader);
    np_feed_free(trainer.feed);
    np_loader_stop(loader);
    return code == 0 && cut ? np_err_set(err, -EINTR, "stopped") : code;
}
