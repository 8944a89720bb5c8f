/* The resolved config; it parses back to the same config. */
#include "daemon/config/config.h"

#include <string.h>

#include "daemon/track/track.h"
#include "trainer/graph/graph.h"

static struct np_node *blocks_node(const struct np_node *blocks)
{
    struct np_node *map;

    if (blocks->kind != NP_NODE_MAP)
        return np_node_copy(blocks);
    map = np_node_new(NP_NODE_MAP, 0, 0);
    for (int i = 0; i < blocks->nr_items; i++)
        np_node_add(map, blocks->items[i]->key, np_graph_model_node(blocks->items[i]));
    return map;
}

static struct np_node *train_node(const struct np_train_options *options)
{
    struct np_train_options plain = *options;

    plain.ema_node = options->ema_node ? np_options_node(np_average_table, &options->ema) : NULL;
    plain.sam_node = options->sam_node ? np_options_node(np_sam_table, &options->sam) : NULL;
    plain.stop_node = options->stop_node ? np_options_node(np_early_table, &options->stop) : NULL;
    if (plain.ema_node) /* runs older than it is have it in no config */
        np_node_drop_zero((struct np_node *)plain.ema_node, "rise");
    struct np_node *node = np_options_node(np_train_table, &plain);
    np_node_free((struct np_node *)plain.ema_node);
    np_node_free((struct np_node *)plain.sam_node);
    np_node_free((struct np_node *)plain.stop_node);
    return node;
}

/* The value of a top-level key that is no plain option; NULL: not set. */
static struct np_node *section_node(const struct np_config *config, const char *key)
{
    if (strcmp(key, "device") == 0)
        return np_device_node(config->device, &config->device_options);
    if (strcmp(key, "data") == 0)
        return np_data_options_node(&config->data);
    if (strcmp(key, "loader") == 0)
        return np_loader_options_node(&config->loader);
    if (strcmp(key, "model") == 0)
        return np_graph_model_node(config->network.model);
    if (strcmp(key, "blocks") == 0)
        return config->network.blocks ? blocks_node(config->network.blocks) : NULL;
    if (strcmp(key, "loss") == 0)
        return np_graph_loss_node(config->network.loss);
    if (strcmp(key, "optimizer") == 0)
        return np_optim_node(&config->optim);
    if (strcmp(key, "freeze") == 0)
        return np_freeze_node(&config->rules);
    if (strcmp(key, "params") == 0)
        return np_own_rules_node(&config->rules);
    if (strcmp(key, "schedule") == 0)
        return np_schedule_node(&config->schedule);
    if (strcmp(key, "train") == 0)
        return train_node(&config->run);
    if (strcmp(key, "checkpoint") == 0)
        return np_options_node(np_checkpoint_table, &config->checkpoint);
    if (strcmp(key, "track") == 0)
        return np_track_node(config->track);
    return NULL;
}

/* Keys of mixing that are off are not printed: runs from before these keys stay equal. */
static void drop_unmixed(struct np_node *train)
{
    np_node_drop_zero(train, "mixup");
    np_node_drop_zero(train, "cutmix");
    if (np_node_get(train, "mixup") || np_node_get(train, "cutmix"))
        return;
    for (int i = train->nr_items; i-- > 0;)
        if (strcmp(train->items[i]->key, "mix_share") == 0)
            np_node_remove(train, i);
}

struct np_node *np_config_node(const struct np_config *config)
{
    const struct np_config plain = {.name = config->name,
        .runs = config->runs,
        .seed = config->seed,
        .precision = config->precision + 1};
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_node *all = np_options_node(np_config_table, &plain); /* all but the sections */

    for (const struct np_option *option = np_config_table; option->key; option++) {
        struct np_node *value = option->type == NP_OPT_NODE
                                    ? section_node(config, option->key)
                                    : np_node_copy(np_node_get(all, option->key));
        if (value && strcmp(option->key, "train") == 0) {
            /* Only the key that decides is printed; the other key is 0. */
            np_node_drop_zero(value, "epochs");
            np_node_drop_zero(value, "steps");
            drop_unmixed(value);
        }
        if (value)
            np_node_add(map, option->key, value);
    }
    np_node_free(all);
    return map;
}
