/* A checkpoint's facts, JSON in its manifest: writes them, and checks them when a run resumes.
 * Main thread. */
#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Two checksums of the training set. The first depends on neither its place nor how its pictures
 * are stored; the second changes when pictures are rewritten. */
static void sum_train(struct np_run *run)
{
    if (run->train_names[0])
        return;
    snprintf(run->train_names, sizeof(run->train_names), "%016llx",
        (unsigned long long)np_index_names_sum(
            run->setup.sets.train, run->setup.sets.train_labels));
    snprintf(run->train_sum, sizeof(run->train_sum), "%016llx",
        (unsigned long long)np_index_sizes_sum(
            run->setup.sets.train, run->setup.sets.train_labels));
}

/* Asked once: for a GPU its plugin lists all of them. */
static const struct np_device_info *described(struct np_run *run)
{
    if (!run->described) {
        run->described = np_alloc(sizeof(*run->described));
        np_device_describe(run->device->name, run->described);
    }
    return run->described;
}

const char *np_run_facts_json(struct np_run *run)
{
    struct np_json *json = &run->facts;
    const struct np_row_sizes *sizes = &run->setup.sets.size;
    const int eval_size[] = {sizes->eval_height, sizes->eval_width};
    const int size[] = {sizes->height, sizes->width, (int)run->config->loader.channels};
    const struct np_device_info *device = described(run);
    char fold[32];

    snprintf(
        fold, sizeof(fold), "%d/%d", run->config->data.fold_at + 1, run->config->data.nr_folds);
    sum_train(run);
    np_json_begin(json, NULL);
    np_json_text(json, "name", run->config->name);
    np_json_node(json, "classes", run->setup.sets.classes);
    np_json_ints(json, "size", size, 3);
    if (eval_size[0] != size[0] || eval_size[1] != size[1])
        np_json_ints(json, "eval_size", eval_size, 2);
    np_json_node(
        json, "test_augment", np_node_get(np_node_get(run->resolved, "loader"), "test_augment"));
    np_json_text(json, "pixels", np_pixels_names[run->config->loader.pixels]);
    np_json_node(json, "normalize", np_node_get(np_node_get(run->resolved, "loader"), "normalize"));
    np_json_real(json, "split", run->config->data.split);
    np_json_int(json, "split_seed", run->config->data.split_seed);
    np_json_text(json, "split_by", np_split_rules[run->config->data.split_by]);
    if (run->config->data.nr_folds)
        np_json_text(json, "fold", fold);
    if (run->config->data.train.label_type != NP_LABEL_CLASS)
        np_json_text(json, "label_type", np_label_types[run->config->data.train.label_type]);
    np_json_int(json, "train_images", (int64_t)np_index_samples(run->setup.sets.train));
    np_json_text(json, "train_names", run->train_names);
    np_json_text(json, "train_sum", run->train_sum);
    np_json_text(json, "device", run->device->name);
    np_json_text(json, "precision", np_precision_names[run->precision]);
    np_json_int(json, "lanes", run->lanes);
    np_json_int(json, "batch_lanes", run->config->run.lanes);
    if (run->config->run.lanes > 1)
        np_json_int(json, "batchnorm_over", run->batchnorm_over);
    if (run->sums_of > 1)
        np_json_int(json, "sums_of", run->sums_of);
    np_json_open(json, "versions", '{'); /* rounding depends on them, lanes and precision */
    for (int i = 0; i < device->nr_libraries; i++)
        np_json_text(json, device->libraries[i].name, device->libraries[i].version);
    np_json_close(json, '}');
    for (int i = 0; i < NP_NR_STATE_KINDS; i++)
        if (run->device_state[i])
            np_json_text(json, np_state_keys[i], run->device_state[i]);
    if (run->overrides->nr_items)
        np_json_node(json, "overrides", run->overrides);
    if (run->changes.list && run->changes.list->nr_items)
        np_json_node(json, "changes", run->changes.list);
    return np_json_end(json);
}

/* The version of a library of the run's device; NULL: it has no such library. */
static const char *version_of(const struct np_device_info *device, const char *name)
{
    for (int i = 0; i < device->nr_libraries; i++)
        if (strcmp(device->libraries[i].name, name) == 0)
            return device->libraries[i].version;
    return NULL;
}

/* Reports the changes since the run began that may round differently. */
static void say_changes(struct np_run *run, const struct np_node *facts)
{
    const struct np_node *device = np_node_get(facts, "device");
    const struct np_node *then = np_node_get(facts, "versions");
    const struct np_device_info *now = described(run);

    if (device && !np_node_is(device, run->device->name))
        np_run_say(run, "the run was on %s and continues on %s: its weights will round differently",
            device->text, run->device->name);
    for (int i = 0; then && i < then->nr_items; i++) {
        const struct np_node *was = then->items[i];
        const char *is = version_of(now, was->key);

        if (was->kind == NP_NODE_SCALAR && (!is || strcmp(is, was->text) != 0))
            np_run_say(run, "%s was %s and is %s: weights may round differently", was->key,
                was->text, is ? is : "absent");
    }
}

static bool same_names(const struct np_node *then, const struct np_node *now)
{
    bool same = then->kind == NP_NODE_LIST && then->nr_items == now->nr_items;

    for (int i = 0; same && i < now->nr_items; i++)
        same = np_node_is(then->items[i], now->items[i]->text);
    return same;
}

/* If the same classes come in another order (data.classes changed, or an older nnpipe sorted
 * numeric folders otherwise), takes the order that the weights were trained in. */
static bool restore_order(struct np_run *run, const struct np_node *classes)
{
    struct np_err err = {0};

    if (np_sets_order_classes(&run->config->sets, &run->setup.sets, classes, &err) < 0)
        return false;
    run->train_names[0] = '\0'; /* labels have changed */
    run->old_order = true;
    return true;
}

static int differs(const char *dir, const char *what, struct np_err *err)
{
    return np_err_set(err, -EINVAL,
        "%s: %s than when the run began; restore those, or begin a new run with its weights: "
        "--weights %s",
        dir, what, dir);
}

int np_run_check_data(
    struct np_run *run, const char *dir, const struct np_node *facts, struct np_err *err)
{
    const uint64_t n = np_index_samples(run->setup.sets.train);
    const struct np_node *classes = np_node_get(facts, "classes"),
                         *names = np_node_get(facts, "train_names"),
                         *sizes = np_node_get(facts, "train_sum");
    const double then = np_node_number(facts, "train_images", (double)n);

    dir = np_run_name(run, dir);
    if (then != (double)n)
        return np_err_set(err, -EINVAL,
            "%s: data.train has %llu samples and had %.0f when the run began; %s, or begin a new "
            "run with its weights: --weights %s",
            dir, (unsigned long long)n, then,
            then > (double)n ? "restore the missing ones" : "remove the new ones", dir);
    if (classes && !same_names(classes, run->setup.sets.classes) && !restore_order(run, classes))
        return differs(dir, "data.train has other classes", err);
    sum_train(run);
    if (names && !np_node_is(names, run->train_names))
        return differs(dir, "samples of data.train have other names or labels", err);
    if (!names && sizes && !np_node_is(sizes, run->train_sum)) /* from an older nnpipe */
        return differs(dir, "samples of data.train have other sizes or labels", err);
    return 0;
}

static void say_order(struct np_run *run)
{
    const struct np_node *classes = run->setup.sets.classes;

    if (run->old_order)
        np_run_say(run, "the classes keep the order that the run began with: %s, %s ...",
            classes->items[0]->text, classes->items[classes->nr_items > 1]->text);
}

static void say_rewritten(struct np_run *run, const struct np_node *facts)
{
    const struct np_node *sizes = np_node_get(facts, "train_sum");

    sum_train(run);
    if (sizes && !np_node_is(sizes, run->train_sum))
        np_run_say(run, "data.train has the samples that the run began with, but some have another "
                        "size now: if pixels have changed, the weights will differ");
}

static const char *over_text(int over, char text[32])
{
    if (over == NP_OVER_ALL)
        return "all rows of a batch";
    if (over == NP_OVER_PROCESS)
        return "the rows of a process";
    snprintf(text, 32, "groups of %d rows", over);
    return text;
}

/* The device may be another one, and older runs averaged over a lane on every device. */
static void check_over(struct np_run *run, const struct np_node *facts, struct np_err *err)
{
    const int lane = (int)(run->config->loader.batch / run->config->run.lanes);
    const int then = (int)np_node_number(facts, "batchnorm_over", lane);
    char text[2][32];

    if (then != run->batchnorm_over)
        np_err_set(err, -EINVAL,
            "%s: batchnorms of this run average over %s, and would over %s on %s "
            "(train.batchnorm_over)",
            np_run_name(run, run->dir), over_text(then, text[0]),
            over_text(run->batchnorm_over, text[1]), run->device->name);
}

int np_run_load_facts(struct np_run *run, struct np_err *err)
{
    struct np_node *facts = NULL;
    int code = np_run_newest_facts(run->dir, &facts, err);

    if (code < 0)
        return code;
    const struct np_node *precision = np_node_get(facts, "precision");
    int lanes = (int)np_node_number(facts, "lanes", 0);
    enum np_dtype then = precision ? NP_F32 : run->precision;

    if (precision && precision->text)
        np_precision_find(precision->text, &then);
    if (run->config->precision >= 0 && run->config->precision != (int)then)
        np_err_set(err, -EINVAL, "%s: the run computes in %s, the config asks for %s",
            np_run_name(run, run->dir), np_precision_names[then],
            np_precision_names[run->config->precision]);
    run->precision = then;
    if (lanes > 0 && lanes <= 65536)
        run->lanes = lanes;
    if (run->config->run.lanes > 1)
        check_over(run, facts, err);
    run->sums_before = (int)np_node_number(facts, "sums_of", 1);
    const struct np_node *overrides = np_node_get(facts, "overrides");
    np_node_free(run->overrides); /* the -o of this start are in run->changes */
    run->overrides = overrides && overrides->kind == NP_NODE_LIST ? np_node_copy(overrides)
                                                                  : np_node_new(NP_NODE_LIST, 0, 0);
    for (int i = 0; i < NP_NR_STATE_KINDS; i++) {
        const struct np_node *state = np_node_get(facts, np_state_keys[i]);

        if (state)
            run->device_state[i] = np_strdup(state->text);
    }
    if (!err->code) {
        say_order(run);
        say_rewritten(run, facts);
        say_changes(run, facts);
    }
    np_node_free(facts);
    return err->code;
}
