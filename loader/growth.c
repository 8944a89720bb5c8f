#include "loader/growth.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

#define AT(field) offsetof(struct np_grow_options, field)
#define MAX_EPOCH 10000

const struct np_option np_grow_option_table[] = {
    {"from", NP_OPT_INT, AT(from), NULL, 1, 65500, NULL,
        "Height and width of training rows in the first epochs. It takes the place of the `size` "
        "of "
        "`random_resized_crop`."},
    {"since", NP_OPT_FLOAT, AT(since), "0", 0, MAX_EPOCH, NULL,
        "The last epoch with that size; epochs count from 0."},
    {"until", NP_OPT_FLOAT, AT(until), NULL, 0, MAX_EPOCH, NULL,
        "The first epoch with the size of `augment`. Between the two the size is in proportion."},
    {"step", NP_OPT_INT, AT(step), "32", 1, 65500, NULL,
        "Sizes between the two are rounded to multiples of this. Each size is a network of its own "
        "on the device, made when its first epoch begins."},
    NP_OPTIONS_END,
};

/* --- sizes ------------------------------------------------------------------------------------ */

/* A copy of the chain's node in which random_resized_crop has another size. */
static struct np_node *sized_node(const struct np_chain *augment, int side)
{
    struct np_node *all = np_chain_node(augment), *list = np_node_new(NP_NODE_LIST, 0, 0);
    char text[16];

    snprintf(text, sizeof(text), "%d", side);
    for (int i = 0; i < all->nr_items; i++) {
        const struct np_node *op = all->items[i]->items[0];
        struct np_node *item = np_node_new(NP_NODE_MAP, 0, 0), *keys;

        if (strcmp(op->key, "random_resized_crop") != 0) {
            np_node_free(item);
            np_node_add(list, NULL, np_node_copy(all->items[i]));
            continue;
        }
        keys = np_node_new(NP_NODE_MAP, 0, 0);
        for (int k = 0; k < op->nr_items; k++)
            if (strcmp(op->items[k]->key, "size") != 0)
                np_node_add(keys, op->items[k]->key, np_node_copy(op->items[k]));
        struct np_node *sides = np_node_new(NP_NODE_LIST, 0, 0);
        np_node_add(sides, NULL, np_node_scalar(text, 0, 0));
        np_node_add(keys, "size", sides);
        np_node_add(item, op->key, keys);
        np_node_add(list, NULL, item);
    }
    np_node_free(all);
    return list;
}

/* NULL: the chain's rows would not have this size, or there is no memory. */
static struct np_chain *sized_chain(const struct np_chain *augment, int side)
{
    struct np_node *node = sized_node(augment, side);
    struct np_chain *chain = NULL;
    struct np_report report;
    int width = 0, height = 0;

    np_report_init(&report, NULL);
    if (np_chain_parse(node, "augment", &chain, &report) == 0)
        np_chain_size(chain, &width, &height);
    np_report_fini(&report);
    np_node_free(node);
    if (width == side && height == side)
        return chain;
    np_chain_free(chain);
    return NULL;
}

static int side_of(const struct np_grow_options *options, int full, double epoch)
{
    const double length = options->until - options->since;

    if (epoch <= options->since)
        return (int)options->from;
    if (epoch >= options->until)
        return full;
    const double side =
        (double)options->from + (full - (double)options->from) * (epoch - options->since) / length;
    const double rounded = rint(side / (double)options->step) * (double)options->step;
    return (int)fmin(fmax(rounded, (double)options->from), full);
}

/* --- options ---------------------------------------------------------------------------------- */

void np_grow_parse(const struct np_node *node, const struct np_chain *augment,
    struct np_grow_options *ret_options, struct np_report *report)
{
    const int before = report->nr_errs + report->nr_dropped;
    struct np_grow_options options = {0};
    struct np_chain *chain;
    int width = 0, height = 0;

    *ret_options = options;
    if (!node)
        return;
    np_options_parse(np_grow_option_table, node, "grow", NULL, &options, report);
    if (!augment || report->nr_errs + report->nr_dropped > before)
        return;
    np_chain_size(augment, &width, &height);
    if (options.until <= options.since) {
        np_report_add(report, node->line, node->column, "grow: until must be later than since");
    } else if (width == 0 || width != height ||
               !(chain = sized_chain(augment, (int)options.from))) {
        np_report_add(report, node->line, node->column,
            "grow: it changes the size of a random_resized_crop; augment needs one, with a square "
            "size, and nothing behind it that crops or resizes");
    } else {
        np_chain_free(chain);
        if (options.from >= width)
            np_report_add(report, node->line, node->column,
                "grow: from is %d, and augment gives rows of %d pixels: they cannot grow",
                (int)options.from, width);
        *ret_options = options;
    }
}

/* --- stages ----------------------------------------------------------------------------------- */

static int add_stage(struct np_growth *growth, size_t *room, const struct np_chain *augment,
    int side, uint64_t first_row, struct np_err *err)
{
    struct np_grown stage = {first_row, side, side, sized_chain(augment, side)};

    if (!stage.chain)
        return np_err_set(err, -ENOMEM, "out of memory for the stages of loader.grow");
    if (np_try_grow(&growth->stages, room, (size_t)growth->nr + 1, sizeof(stage), err) < 0) {
        np_chain_free(stage.chain);
        return -ENOMEM;
    }
    growth->stages[growth->nr++] = stage;
    return 0;
}

int np_growth_new(const struct np_grow_options *options, const struct np_chain *augment,
    uint64_t nr_train, uint64_t update_rows, struct np_growth **ret_growth, struct np_err *err)
{
    struct np_growth *growth;
    int width = 0, height = 0, side = 0, code = 0;
    size_t room = 0;

    *ret_growth = NULL;
    if (options->from == 0)
        return 0;
    if (!(growth = np_try_alloc(sizeof(*growth), err)))
        return -ENOMEM;
    np_chain_size(augment, &width, &height);
    for (int epoch = 0; code == 0 && side < width; epoch++) {
        const uint64_t row = (uint64_t)epoch * nr_train;
        const int next = side_of(options, width, epoch);

        if (next > side)
            code = add_stage(growth, &room, augment, next,
                (row + update_rows - 1) / update_rows * update_rows, err);
        side = next;
    }
    if (code < 0)
        np_growth_free(growth);
    else
        *ret_growth = growth;
    return code;
}

void np_growth_free(struct np_growth *growth)
{
    for (int i = 0; growth && i < growth->nr; i++)
        np_chain_free(growth->stages[i].chain);
    if (growth)
        np_free(growth->stages);
    np_free(growth);
}

const struct np_grown *np_growth_at(const struct np_growth *growth, uint64_t row)
{
    int i = growth ? growth->nr - 1 : 0;

    while (i > 0 && growth->stages[i].first_row > row)
        i--;
    return growth ? &growth->stages[i] : NULL;
}
