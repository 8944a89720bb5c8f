/* What a resumed run may change (rate, schedule, length) changes no row, and all other keys that
 * a row depends on must stay: so one config replays every step. */
#include "daemon/run/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"

/* Puts into the config what the run's folder stores: keys that its config.yaml is too old to
 * have, and changes. */
static int take_keys(
    struct np_replay *replay, const char *dir, const struct np_node *facts, struct np_err *err)
{
    struct np_config *config = replay->run->config;
    struct np_changes changes;
    struct np_node *in_force = NULL;
    int code = np_folder_config(dir, &in_force, err);

    if (code < 0)
        return code;
    np_changes_open(&changes, np_node_get(facts, "changes"));
    if ((code = np_changes_apply(&changes, in_force, err)) < 0)
        np_err_context(err, "%s", dir);
    if (code == 0)
        code = np_run_take_own(in_force, dir, config, err);
    if (code == 0)
        code = np_changes_take(in_force, config, err);
    np_changes_close(&changes);
    np_node_free(in_force);
    return code;
}

static int check_data(struct np_replay *replay, const char *dir, const struct np_node *facts,
    const struct np_source_progress *progress, struct np_err *err)
{
    const struct np_node *sizes = np_node_get(facts, "train_sum");
    struct np_err why = {0};
    const int code = np_run_check_data(replay->run, dir, facts, &why);

    if (code < 0)
        return np_err_set(err, code,
            "%.*s: its rows need the training set that it was trained on; -o data.train.path=PATH "
            "names another place of it",
            (int)strcspn(why.text, ";"), why.text);
    if (sizes && !np_node_is(sizes, replay->run->train_sum))
        progress->note(progress->context,
            "some files of data.train have another size than in the run: their rows differ");
    return 0;
}

static int open_set(struct np_replay *replay, const char *dir, const struct np_node *facts,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct np_run *run = replay->run;
    int code = np_sets_open(&run->config->sets, progress, &run->setup.sets, err);

    replay->usage = np_sets_is_mistake(code);
    if (code == 0 && facts) {
        code = check_data(replay, dir, facts, progress, err);
        replay->usage = code == -EINVAL;
    } else if (code == 0)
        progress->note(progress->context,
            "the run has no checkpoint: whether data.train is still its set cannot be checked");
    return code == 0 ? np_run_open_order(run, err) : code;
}

static void set_up(struct np_replay *replay)
{
    struct np_run *run = replay->run;

    np_run_rows_config(run, replay->stat, &replay->loader);
    replay->nr_steps = run->nr_steps;
    replay->batch = (int)run->config->loader.batch;
    replay->setup = &run->setup;
}

int np_replay_open(struct np_replay *replay, struct np_config *config, const char *dir,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct np_node *facts = NULL;
    struct np_err why = {0};

    *replay = (struct np_replay){.run = np_alloc(sizeof(*replay->run))};
    replay->run->config = config;
    replay->run->options = &replay->options;
    config->data.has_test = config->data.has_val = false;
    replay->stat = np_stat_new(err);
    int code = np_run_newest_facts(dir, &facts, &why);

    if (code < 0 && code != -ENOENT)
        return np_err_set(err, code, "%s", why.text);
    code = replay->stat ? take_keys(replay, dir, facts, err) : -ENOMEM;
    if (code == 0)
        code = open_set(replay, dir, facts, progress, err);
    if (code == 0)
        set_up(replay);
    np_node_free(facts);
    return code;
}

void np_replay_close(struct np_replay *replay)
{
    if (!replay->run)
        return;
    np_sampler_free(replay->run->sampler);
    np_setup_fini(&replay->run->setup);
    np_free(replay->run);
    np_stat_free(replay->stat);
    *replay = (struct np_replay){0};
}

int np_replay_step(struct np_replay *replay, uint64_t step, int row, np_remade_fn *take,
    void *context, struct np_err *err)
{
    const uint64_t first = step * (uint64_t)replay->batch;

    replay->usage = step >= replay->nr_steps || row >= replay->batch;
    if (step >= replay->nr_steps)
        return np_err_set(err, -ERANGE, "the run has %llu steps, the last one is --step %llu",
            (unsigned long long)replay->nr_steps, (unsigned long long)replay->nr_steps - 1);
    if (row >= replay->batch)
        return np_err_set(err, -ERANGE, "a step of the run has %d rows, the last one is --row %d",
            replay->batch, replay->batch - 1);
    return np_remake_rows(&replay->loader, row < 0 ? first : first + (uint64_t)row,
        row < 0 ? replay->batch : 1, take, context, replay->changed, err);
}
