/* A run's data: the sets, their order, and files that change during the run. Main thread. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "daemon/analysis/words.h"

#define PROBE_EPOCHS 1e6 /* practically endless: the probe ends the run */

/* Keeps the current path in the stat block, so that the watchdog can name a listing that hangs. */
static void count(void *context, const char *path, uint64_t samples)
{
    struct np_run *run = context;

    np_stat_called(run->block);
    np_stat_call(run->block, "listing", path, samples);
    np_ui_listing(&run->ui, path, samples);
    snprintf(run->opening, sizeof(run->opening), "listing %s files",
        np_words_count((double)samples).text);
    np_run_at(run, run->opening);
}

static void count_unpacked(void *context, const char *path, uint64_t done_bytes, uint64_t bytes)
{
    struct np_run *run = context;

    np_stat_called(run->block);
    np_stat_call(run->block, "unpacking", path, done_bytes);
    snprintf(run->opening, sizeof(run->opening), "unpacking %llu of %llu MiB",
        (unsigned long long)done_bytes >> 20, (unsigned long long)bytes >> 20);
    np_run_at(run, run->opening);
}

struct np_index *np_run_eval_set(const struct np_run *run, const int32_t **ret_labels)
{
    const struct np_setup *setup = &run->setup;
    const bool split = run->config->data.split > 0;

    *ret_labels = setup->sets.val ? setup->sets.val_labels
                  : split         ? setup->sets.train_labels
                                  : setup->sets.test_labels;
    return setup->sets.val ? setup->sets.val : split ? setup->sets.train : setup->sets.test;
}

void np_run_sampler_options(const struct np_run *run, struct np_sampler_options *ret_options)
{
    const struct np_config *config = run->config;

    *ret_options = (struct np_sampler_options){
        .seed = (uint64_t)config->seed,
        .nr_train = run->nr_train,
        .nr_eval = run->nr_eval,
        .batch = (int)config->loader.batch / np_comm_world(run->comm),
        .rank = np_comm_rank(run->comm),
        .world = np_comm_world(run->comm),
        .nr_steps = run->nr_steps,
        .eval_steps = run->options->probe ? 0 : (uint64_t)config->run.eval_every.steps,
        .eval_epochs = run->options->probe ? 0 : config->run.eval_every.epochs,
        .shuffle = config->loader.shuffle,
        .window = (uint64_t)config->loader.window,
        .repeat = (int)config->loader.repeat,
        .balance = config->loader.balance,
        .split = config->data.split > 0 ? run->setup.sets.split.order : NULL,
    };
}

void np_run_rows_config(
    const struct np_run *run, struct np_stat *stat, struct np_loader_config *ret_config)
{
    const struct np_loader_options *options = &run->config->loader;

    *ret_config = (struct np_loader_config){
        .options = options,
        .train = run->setup.sets.train,
        .train_labels = run->setup.sets.train_labels,
        .augment = options->augment,
        .test_augment = options->test_augment,
        .shape = np_setup_shape(run->config, &run->setup),
        .allocator = &np_page_allocator,
        .stat = stat,
    };
    np_run_sampler_options(run, &ret_config->sampler);
}

uint64_t np_run_steps(const struct np_run *run, double epochs, int64_t steps)
{
    const struct np_config *config = run->config;
    const uint64_t accumulate = (uint64_t)config->run.accumulate;
    uint64_t n = (uint64_t)steps;

    if (n == 0 || run->options->probe)
        n = (uint64_t)ceil((run->options->probe ? PROBE_EPOCHS : epochs) * (double)run->nr_train /
                           (double)config->loader.batch);
    return (n + accumulate - 1) / accumulate * accumulate;
}

int np_run_open_order(struct np_run *run, struct np_err *err)
{
    const struct np_config *config = run->config;
    const int32_t *labels;
    const struct np_index *eval = np_run_eval_set(run, &labels);
    struct np_sampler_options options;
    int code = config->data.split > 0 ? np_sets_split(&config->sets, &run->setup.sets, err) : 0;

    if (code < 0)
        return code;
    run->nr_eval = config->data.split > 0 ? run->setup.sets.split.nr_eval
                   : eval                 ? np_index_samples(eval)
                                          : 0;
    run->nr_train = config->data.split > 0 ? run->setup.sets.split.nr_train
                                           : np_index_samples(run->setup.sets.train);
    run->nr_steps = np_run_steps(run, config->run.epochs, config->run.steps);
    if (!run->options->probe && /* a measurement has rows of one size */
        (code = np_setup_growth(config, run->nr_train, &run->setup, err)) < 0)
        return code;
    np_run_sampler_options(run, &options);
    np_sampler_free(run->sampler);
    run->sampler = NULL;
    return np_sampler_new(&options, &run->sampler, err);
}

int np_run_open_data(struct np_run *run, struct np_err *err)
{
    const struct np_source_progress progress = {
        .note = np_run_note, .count = count, .unpack = count_unpacked, .context = run};
    int code = np_sets_open(&run->config->sets, &progress, &run->setup.sets, err);

    np_stat_called(run->block);
    if (code == 0)
        code = np_run_open_order(run, err);
    /* A queued run's data may be unavailable for a while: no usage error, so that it is retried. */
    run->usage = np_sets_is_mistake(code) && (code == -EINVAL || !run->options->into);
    return code;
}

void np_run_say_changed(struct np_run *run, bool end)
{
    const struct np_config *config = run->config;
    const struct np_source_options *sets[] = {
        &config->data.train, run->setup.sets.val ? &config->data.val : &config->data.test};
    char first[1024];

    for (int kind = NP_BATCH_TRAIN; run->loader && kind <= NP_BATCH_EVAL; kind++) {
        const uint64_t n =
            np_loader_changed(run->loader, (enum np_batch_kind)kind, first, sizeof(first));

        if (n && !run->warned_changed[kind]) {
            run->warned_changed[kind] = true;
            np_source_forget(sets[kind]);
            np_run_say(run,
                "%s has changed since it was listed; changed files are read as they are now, and "
                "the next start lists the set again",
                first);
        }
        if (end && n > 1)
            np_run_say(run, "%llu files have changed since they were listed; the first is %s",
                (unsigned long long)n, first);
    }
}
