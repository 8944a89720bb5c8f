/* A run's data: the sets, their order, the split's list, and files that change under way. Main thread. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/analysis/words.h"

#define PROBE_EPOCHS 1e6 /* until the probe ends it */

/* A listing that gets no further is named by the watchdog. */
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

    *ret_labels = setup->val ? setup->val_labels : split ? setup->train_labels : setup->test_labels;
    return setup->val ? setup->val : split ? setup->train : setup->test;
}

void np_run_sampler_options(const struct np_run *run, struct np_sampler_options *ret_options)
{
    const struct np_config *config = run->config;

    *ret_options = (struct np_sampler_options){
        .seed = (uint64_t)config->seed,
        .nr_train = run->nr_train,
        .nr_eval = run->nr_eval,
        .batch = (int)config->loader.batch,
        .nr_steps = run->nr_steps,
        .eval_steps = run->options->probe ? 0 : (uint64_t)config->run.eval_every.steps,
        .eval_epochs = run->options->probe ? 0 : config->run.eval_every.epochs,
        .shuffle = config->loader.shuffle,
        .window = (uint64_t)config->loader.window,
        .split = config->data.split > 0 ? run->setup.split.order : NULL,
    };
}

void np_run_shape(const struct np_run *run, struct np_batch_shape *ret_shape)
{
    *ret_shape = (struct np_batch_shape){
        .rows = (int)run->config->loader.batch,
        .height = run->setup.height,
        .width = run->setup.width,
        .channels = (int)run->config->loader.channels,
    };
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
    int code = config->data.split > 0 ? np_setup_split(config, &run->setup, err) : 0;

    if (code < 0)
        return code;
    run->nr_eval = config->data.split > 0 ? run->setup.split.nr_eval
                   : eval                 ? np_index_samples(eval)
                                          : 0;
    run->nr_train =
        config->data.split > 0 ? run->setup.split.nr_train : np_index_samples(run->setup.train);
    run->nr_steps = np_run_steps(run, config->run.epochs, config->run.steps);
    np_run_sampler_options(run, &options);
    np_sampler_free(run->sampler);
    run->sampler = NULL;
    return np_sampler_new(&options, &run->sampler, err);
}

int np_run_open_data(struct np_run *run, struct np_err *err)
{
    const struct np_source_progress progress = {
        .note = np_run_note, .count = count, .unpack = count_unpacked, .context = run};
    int code = np_setup_data(run->config, &progress, &run->setup, err);

    np_stat_called(run->block);
    if (code == 0)
        code = np_run_open_order(run, err);
    /* Data of a run that was going on may be away for a while; a new one's are as the config says. */
    run->usage = np_setup_is_mistake(code) && (code == -EINVAL || !run->options->into);
    return code;
}

int np_run_write_split(struct np_run *run, struct np_err *err)
{
    const struct np_split *split = &run->setup.split;
    char *text = NULL, *path = np_format("%s/val.txt", run->dir), name[NP_MAX_NAME + 1];
    size_t bytes = 0;
    FILE *out = run->config->data.split > 0 ? open_memstream(&text, &bytes) : NULL;
    int code = 0;

    for (uint64_t i = 0; out && i < split->nr_eval; i++) {
        np_index_name(run->setup.train, split->order[i], name, sizeof(name));
        np_text_clean(name); /* a newline in it would be another sample's */
        fprintf(out, "%s\n", name);
    }
    if (out && fclose(out) != 0)
        code = np_err_set(err, -errno, "the names of data.split: %s", strerror(errno));
    if (out && code == 0)
        code = np_io_replace(&run->io, path, text, bytes, err);
    free(text);
    np_free(path);
    return code;
}

void np_run_say_changed(struct np_run *run, bool end)
{
    const struct np_config *config = run->config;
    const struct np_source_options *sets[] = {
        &config->data.train, run->setup.val ? &config->data.val : &config->data.test};
    char first[1024];

    for (int kind = NP_BATCH_TRAIN; run->loader && kind <= NP_BATCH_EVAL; kind++) {
        const uint64_t n =
            np_loader_changed(run->loader, (enum np_batch_kind)kind, first, sizeof(first));

        if (n && !run->said_changed[kind]) {
            run->said_changed[kind] = true;
            np_source_forget(sets[kind]);
            np_run_say(run,
                "%s has changed since it was listed; such files are read as they are now, and "
                "listed anew at the next start",
                first);
        }
        if (end && n > 1)
            np_run_say(run, "%llu files have changed since they were listed, the first is %s",
                (unsigned long long)n, first);
    }
}

/* Checksums that the readers have filled in are kept with a shard's index and checked from then on;
 * where they cannot be saved the next run fills them in again. Loose files are left to `data verify`:
 * whoever edits one picture of a folder does not mean it to be bad. */
static void keep_crcs(const struct np_source_options *options, const struct np_index *index)
{
    struct np_err unsaved = {0};

    if (index && !np_index_root(index) && np_index_new_crcs(index) > 0)
        np_source_save(options, index, &unsaved);
}

void np_run_keep_crcs(const struct np_run *run)
{
    keep_crcs(&run->config->data.train, run->setup.train);
    keep_crcs(&run->config->data.val, run->setup.val);
    keep_crcs(&run->config->data.test, run->setup.test);
}
