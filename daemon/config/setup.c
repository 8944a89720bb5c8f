#include "daemon/config/setup.h"

#include <errno.h>

#include "loader/base/mem.h"

void np_setup_fini(struct np_setup *setup)
{
    np_graph_free(setup->graph);
    np_graph_free(setup->eval_graph);
    np_sets_fini(&setup->sets);
    np_growth_free(setup->growth);
    *setup = (struct np_setup){0};
}

struct np_batch_shape np_setup_shape(const struct np_config *config, const struct np_setup *setup)
{
    return (struct np_batch_shape){
        .rows = (int)config->loader.batch,
        .height = setup->sets.size.height,
        .width = setup->sets.size.width,
        .channels = (int)config->loader.channels,
        .values =
            config->data.train.label_type == NP_LABEL_CLASS ? 0 : setup->sets.classes->nr_items,
        .eval_height = setup->sets.size.eval_height,
        .eval_width = setup->sets.size.eval_width,
        .growth = setup->growth,
    };
}

int np_setup_growth(
    const struct np_config *config, uint64_t nr_train, struct np_setup *setup, struct np_err *err)
{
    const struct np_loader_options *loader = &config->loader;

    np_growth_free(setup->growth);
    setup->stage = NULL;
    return np_growth_new(&loader->grow, loader->augment, nr_train,
        (uint64_t)loader->batch * (uint64_t)config->run.accumulate, &setup->growth, err);
}

const char *np_classes_word(const struct np_config *config)
{
    return config->data.train.label_type == NP_LABEL_VALUE ? "values" : "classes";
}

static uint64_t nr_train(const struct np_config *config, const struct np_sets *sets)
{
    if (config->data.split > 0 && sets->split.order)
        return sets->split.nr_train;
    return sets->train ? np_index_samples(sets->train) : 0; /* none: evaluation only */
}

/* The training samples of each class: of the part that is trained on. np_free. -ENOMEM. */
static int count_classes(const struct np_sets *sets, uint64_t **ret_samples)
{
    const struct np_split *split = &sets->split;
    const uint64_t n = split->order ? split->nr_train : np_index_samples(sets->train);
    uint64_t *samples = np_try_array((size_t)sets->classes->nr_items, sizeof(*samples), NULL);

    for (uint64_t i = 0; samples && i < n; i++) {
        const struct np_record *record =
            np_index_record(sets->train, split->order ? split->order[split->nr_eval + i] : i);
        const int class = (int)record->label;

        if (!record->no_label)
            samples[sets->train_labels ? sets->train_labels[class] : class]++;
    }
    *ret_samples = samples;
    return samples ? 0 : -ENOMEM;
}

static int add_views(
    const struct np_config *config, struct np_setup *setup, struct np_report *report)
{
    const struct np_node *at = np_node_get(config->run_node, "tta");
    const int height = setup->sets.size.eval_height, width = setup->sets.size.eval_width;

    if (config->run.tta == NP_TTA_FLIP_SHIFT && (height < 2 || width < 2))
        return np_report_add(report, at ? at->line : 0, at ? at->column : 0,
            "train.tta: flip_shift moves pictures by a pixel, and these are %d x %d; use flip",
            width, height);
    np_graph_views(setup->eval_graph, (enum np_tta)config->run.tta);
    return 0;
}

int np_setup_graph(const struct np_config *config, enum np_dtype precision, struct np_setup *setup,
    struct np_report *report)
{
    struct np_graph_input input;
    struct np_err err = {0};
    const struct np_rules_time time = {
        (double)nr_train(config, &setup->sets) / (double)config->loader.batch,
        (uint64_t)config->run.accumulate, (uint64_t)(setup->lanes > 0 ? setup->lanes : 1)};

    uint64_t *samples = NULL;

    if (setup->sets.train && config->data.train.label_type == NP_LABEL_CLASS &&
        count_classes(&setup->sets, &samples) < 0) {
        np_report_no_memory(report);
        return -EINVAL;
    }
    const struct np_row_sizes *size = &setup->sets.size;
    const struct np_grown *stage = setup->stage;
    np_network_input(&config->network, stage ? stage->height : size->height,
        stage ? stage->width : size->width, setup->sets.classes->nr_items, precision, &input);
    np_graph_free(setup->graph);
    np_graph_free(setup->eval_graph);
    setup->eval_graph = NULL;
    input.batch /= (int)time.lanes * (setup->processes > 0 ? setup->processes : 1);
    input.class_samples = samples;
    setup->graph = np_network_build(&config->network, &input, report);
    np_free(samples);
    if (!setup->graph)
        return -EINVAL;
    for (int i = 0; config->optim.decay_all && i < setup->graph->nr_tensors; i++)
        setup->graph->tensors[i].rule.decay = 1; /* by default only weights of conv and linear */
    if (np_rules_apply(&config->rules, &time, setup->graph, report) < 0)
        return -EINVAL;
    setup->eval_graph =
        np_network_build_eval(&config->network, &input, &setup->sets.size, setup->graph, report);
    if (!setup->eval_graph ||
        np_network_check_grown(&config->network, &input, setup->graph, report) < 0)
        return -EINVAL;
    if (np_autodiff(setup->graph, &err) < 0)
        return np_report_add(report, 0, 0, "%s", err.code ? err.text : "out of memory");
    return add_views(config, setup, report);
}
