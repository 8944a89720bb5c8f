/* See augment.h. Chains are built at config time and then immutable; drawing is pure, any
 * thread. */
#include "loader/pixels/augment.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_OPS 32

extern const struct np_augment np_augment_random_crop, np_augment_center_crop, np_augment_resize,
    np_augment_random_resized_crop, np_augment_flip, np_augment_alternating_flip,
    np_augment_vertical_flip, np_augment_color_jitter, np_augment_grayscale, np_augment_solarize,
    np_augment_posterize, np_augment_equalize, np_augment_autocontrast, np_augment_sharpness,
    np_augment_invert, np_augment_rotation, np_augment_affine, np_augment_rand_augment,
    np_augment_trivial_augment, np_augment_auto_augment, np_augment_gaussian_blur,
    np_augment_three_augment, np_augment_random_erasing, np_augment_cutout;

const struct np_augment *const np_augments[] = {
    &np_augment_random_crop,
    &np_augment_center_crop,
    &np_augment_resize,
    &np_augment_random_resized_crop,
    &np_augment_flip,
    &np_augment_alternating_flip,
    &np_augment_vertical_flip,
    &np_augment_color_jitter,
    &np_augment_grayscale,
    &np_augment_solarize,
    &np_augment_posterize,
    &np_augment_equalize,
    &np_augment_autocontrast,
    &np_augment_sharpness,
    &np_augment_invert,
    &np_augment_rotation,
    &np_augment_affine,
    &np_augment_rand_augment,
    &np_augment_trivial_augment,
    &np_augment_auto_augment,
    &np_augment_gaussian_blur,
    &np_augment_three_augment,
    &np_augment_random_erasing,
    &np_augment_cutout,
    NULL,
};

struct np_chain {
    int nr_ops, max_steps;
    struct {
        const struct np_augment *augment;
        void *object; /* owned: the struct its options describe */
    } ops[MAX_OPS];
};

bool np_sides_are_whole(const struct np_floats *sides)
{
    bool whole = sides->nr_values == 1 || sides->nr_values == 2;

    for (int i = 0; whole && i < sides->nr_values; i++)
        whole = sides->values[i] == floor(sides->values[i]);
    return whole;
}

int np_side(const struct np_floats *sides, int which)
{
    return (int)sides->values[sides->nr_values > 1 ? which : 0];
}

/* --- chains -------------------------------------------------------------------------------- */

static const struct np_augment *find(const char *name)
{
    for (int i = 0; np_augments[i]; i++)
        if (strcmp(np_augments[i]->name, name) == 0)
            return np_augments[i];
    return NULL;
}

static void unknown_op(
    const struct np_node *item, const char *name, const char *what, struct np_report *report)
{
    const char *names[sizeof(np_augments) / sizeof(*np_augments)];
    char suggestion[400];
    int i;

    for (i = 0; np_augments[i]; i++)
        names[i] = np_augments[i]->name;
    names[i] = NULL;
    np_suggest(name, names, "there are", suggestion, sizeof(suggestion));
    np_report_add(report, item->line, item->column, "%s: there is no operation '%.40s'%s", what,
        name, suggestion);
}

static const struct np_option *option_of(const struct np_option *table, const char *key)
{
    for (; table->key; table++)
        if (strcmp(table->key, key) == 0)
            return table;
    return NULL;
}

/* Copies args as a mapping: in `flip: 0.3` and `resize: 256` the value is the first option's, and a
 * number becomes a list of one. NULL stays NULL. */
static struct np_node *normal_args(const struct np_augment *augment, const struct np_node *args)
{
    struct np_node *map;

    if (!args)
        return NULL;
    if (args->kind == NP_NODE_MAP || !augment->options[0].key) {
        map = np_node_copy(args);
    } else {
        map = np_node_new(NP_NODE_MAP, args->line, args->column);
        np_node_add(map, augment->options[0].key, np_node_copy(args));
    }
    for (int i = 0; i < map->nr_items; i++) {
        struct np_node *item = map->items[i], *list;
        const struct np_option *option = option_of(augment->options, item->key);

        if (!option || option->type != NP_OPT_FLOATS || item->kind != NP_NODE_SCALAR)
            continue;
        list = np_node_new(NP_NODE_LIST, item->line, item->column);
        list->key_line = item->key_line;
        list->key_column = item->key_column;
        np_node_add(list, NULL, np_node_copy(item));
        np_node_add(map, item->key, list);
        map->items[i] = map->items[--map->nr_items];
        np_node_free(item);
    }
    return map;
}

static int parse_op(
    struct np_chain *chain, const struct np_node *item, const char *what, struct np_report *report)
{
    const struct np_augment *augment;
    const struct np_node *args;
    struct np_node *map;
    const char *name;
    void *object;
    int before = report->nr_errs + report->nr_dropped;

    if (!np_node_named(item, &name, &args)) {
        np_report_add(report, item->line, item->column,
            "%s: expected the name of an operation, as in `flip` or `resize: {size: 256}`", what);
        return 0;
    }
    augment = find(name);
    if (!augment) {
        unknown_op(item, name, what, report);
        return 0;
    }
    object = np_try_alloc(augment->object_bytes, NULL);
    if (!object)
        return np_report_no_memory(report);
    chain->ops[chain->nr_ops].augment = augment;
    chain->ops[chain->nr_ops++].object = object;
    map = normal_args(augment, args);
    np_options_parse(augment->options, map, name, NULL, object, report);
    if (augment->check && report->nr_errs + report->nr_dropped == before)
        augment->check(object, map ? map : item, report);
    np_node_free(map);
    return 0;
}

static void check_resizes(const struct np_chain *chain, const struct np_node *list,
    const char *what, struct np_report *report)
{
    int nr_resizes = 0;

    for (int i = 0; i < chain->nr_ops; i++) {
        nr_resizes = chain->ops[i].augment->touch ? 0 : nr_resizes + chain->ops[i].augment->resizes;
        if (chain->ops[i].augment->resizes && nr_resizes == 2)
            np_report_add(report, list->items[i]->line, list->items[i]->column,
                "%s: %s is the second operation that resizes; a chain may resize only once, but "
                "again behind an operation on pixels",
                what, chain->ops[i].augment->name);
    }
}

/* Geometry between two operations on pixels has one border: zero ones of several crops add up,
 * reflected ones do not. */
static void check_borders(const struct np_chain *chain, const struct np_node *list,
    const char *what, struct np_report *report)
{
    bool reflects = false;
    int nr_pads = 0;

    for (int i = 0; i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;
        enum np_border border = NP_BORDER_ZERO;

        if (augment->touch) {
            reflects = false;
            nr_pads = 0;
        }
        if (!augment->pad || augment->pad(chain->ops[i].object, &border) == 0)
            continue;
        nr_pads++;
        reflects |= border == NP_BORDER_REFLECT;
        if (nr_pads > 1 && reflects) {
            np_report_add(report, list->items[i]->line, list->items[i]->column,
                "%s: %s is the second operation with pad; beside `border: reflect` a chain may "
                "have only one",
                what, augment->name);
            return;
        }
    }
}

/* With that of the geometry before it. */
static int steps_of(const struct np_augment *augment, const void *object)
{
    if (!augment->touch)
        return 0;
    return 1 + (augment->nr_steps ? augment->nr_steps(object) : 1);
}

int np_chain_parse(const struct np_node *list, const char *what, struct np_chain **ret_chain,
    struct np_report *report)
{
    struct np_chain *chain = np_try_alloc(sizeof(*chain), NULL);
    int before = report->nr_errs + report->nr_dropped, code = 0;

    if (!chain)
        return np_report_no_memory(report);
    if (list && list->kind != NP_NODE_LIST)
        np_report_add(report, list->line, list->column,
            "%s: expected a list of operations, as in [{random_crop: {size: 32, pad: 4}}, flip]",
            what);
    else if (list && list->nr_items > MAX_OPS)
        np_report_add(
            report, list->line, list->column, "%s: more than %d operations", what, MAX_OPS);
    else
        for (int i = 0; list && i < list->nr_items && code == 0; i++)
            code = parse_op(chain, list->items[i], what, report);
    if (code == 0 && report->nr_errs + report->nr_dropped == before && list) {
        check_resizes(chain, list, what, report);
        check_borders(chain, list, what, report);
    }
    if (code == 0 && report->nr_errs + report->nr_dropped != before)
        code = -EINVAL;
    if (code) {
        np_chain_free(chain);
        return code;
    }
    for (int i = 0; i < chain->nr_ops; i++)
        chain->max_steps += steps_of(chain->ops[i].augment, chain->ops[i].object);
    chain->max_steps += chain->max_steps > 0; /* the geometry behind the last */
    *ret_chain = chain;
    return 0;
}

void np_chain_free(struct np_chain *chain)
{
    if (!chain)
        return;
    for (int i = 0; i < chain->nr_ops; i++) {
        np_options_fini(chain->ops[i].augment->options, chain->ops[i].object);
        np_free(chain->ops[i].object);
    }
    np_free(chain);
}

struct np_node *np_chain_node(const struct np_chain *chain)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int i = 0; i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;
        struct np_node *item = np_node_new(NP_NODE_MAP, 0, 0);

        np_node_add(item, augment->name, np_options_node(augment->options, chain->ops[i].object));
        np_node_add(list, NULL, item);
    }
    return list;
}

void np_chain_size(const struct np_chain *chain, int *ret_w, int *ret_h)
{
    *ret_w = *ret_h = 0;
    for (int i = 0; i < chain->nr_ops; i++)
        if (chain->ops[i].augment->size)
            chain->ops[i].augment->size(chain->ops[i].object, ret_w, ret_h);
}

/* --- drawing ------------------------------------------------------------------------------- */

bool np_dice_chance(const struct np_dice *dice, double p)
{
    if (dice->draws)
        return np_draw_uniform(dice->draws) < p;
    return np_torch_uniform(dice->torch->rng, 0, 1, dice->torch->fused) < (float)p;
}

bool np_dice_at_most(const struct np_dice *dice, double p)
{
    if (dice->draws)
        return np_draw_uniform(dice->draws) < p;
    return np_torch_uniform(dice->torch->rng, 0, 1, dice->torch->fused) <= (float)p;
}

bool np_dice_applies(const struct np_dice *dice, double p)
{
    if (p >= 1)
        return true;
    if (dice->torch && dice->torch->version == 1)
        return np_dice_at_most(dice, p);
    return np_dice_chance(dice, p);
}

double np_dice_between(const struct np_dice *dice, double lo, double hi)
{
    if (dice->draws)
        return lo + np_draw_uniform(dice->draws) * (hi - lo);
    return (double)np_torch_uniform(dice->torch->rng, (float)lo, (float)hi, dice->torch->fused);
}

int np_dice_below(const struct np_dice *dice, int n)
{
    if (dice->draws)
        return (int)np_draw_below(dice->draws, (uint32_t)n);
    return (int)np_torch_below(dice->torch->rng, n);
}

void np_dice_order(const struct np_dice *dice, int n, int *ret_order)
{
    for (int i = 0; i < n; i++)
        ret_order[i] = i;
    for (int i = 0; i < n - 1; i++) { /* as torch.randperm() */
        const int at = i + np_dice_below(dice, n - i), other = ret_order[at];

        ret_order[at] = ret_order[i];
        ret_order[i] = other;
    }
}

int np_dice_version(const struct np_dice *dice)
{
    return dice->draws ? 1 : dice->torch->version;
}

bool np_chain_touches(const struct np_chain *chain)
{
    return chain->max_steps > 0;
}

const char *np_chain_needs_epoch(const struct np_chain *chain)
{
    for (int i = 0; i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;

        if (augment->random && augment->draw && !augment->draw_torch)
            return augment->name;
    }
    return NULL;
}

int np_chain_max_steps(const struct np_chain *chain)
{
    return chain->max_steps;
}

static void begin(const struct np_chain *chain, int source_w, int source_h, struct np_fold *fold,
    struct np_drawn *drawn)
{
    np_fold_init(fold, source_w, source_h);
    fold->steps = drawn->steps;
    fold->max_steps = chain->max_steps;
}

static void end(struct np_fold *fold, struct np_drawn *drawn)
{
    np_fold_cut(fold);
    drawn->geometry = fold->first;
    drawn->width = fold->width;
    drawn->height = fold->height;
    drawn->nr_steps = fold->nr_steps;
}

/* Where an operation on pixels stands the geometry is cut, whether or not it then does anything:
 * the steps between two of them are the same for all samples. */
static void touch(
    const struct np_augment *augment, void *object, struct np_dice dice, struct np_fold *fold)
{
    np_fold_cut(fold);
    augment->touch(object, &dice, fold);
}

void np_augment_draw_row(const struct np_chain *chain, uint64_t seed, uint32_t epoch,
    uint32_t position, uint64_t sample, int source_w, int source_h, struct np_drawn *drawn)
{
    struct np_draws first;
    struct np_fold fold;

    np_draws_init(&first, seed, NP_STREAM_AUGMENT, epoch, position, 0);
    first.sample = sample;
    begin(chain, source_w, source_h, &fold, drawn);
    for (int i = 0; i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;
        struct np_draws draws = first;

        draws.counter[2] = (uint32_t)i; /* as np_draws_init() for op i; the key is the same */
        if (augment->touch)
            touch(augment, chain->ops[i].object, (struct np_dice){.draws = &draws}, &fold);
        else
            augment->draw(chain->ops[i].object, &draws, &fold);
    }
    end(&fold, drawn);
}

bool np_augment_draw_torch(const struct np_chain *chain, const struct np_torch_draws *draws,
    int source_w, int source_h, struct np_drawn *drawn)
{
    struct np_fold fold;
    bool is_right = true;

    begin(chain, source_w, source_h, &fold, drawn);
    for (int i = 0; is_right && i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;

        if (augment->touch)
            touch(augment, chain->ops[i].object, (struct np_dice){.torch = draws}, &fold);
        else if (augment->draw_torch)
            is_right = augment->draw_torch(chain->ops[i].object, draws, &fold);
        else
            augment->draw(chain->ops[i].object, NULL, &fold); /* it draws nothing */
    }
    end(&fold, drawn);
    return is_right;
}

void np_augment_draw(const struct np_chain *chain, uint64_t seed, uint32_t epoch, uint32_t position,
    int source_w, int source_h, struct np_geometry *ret_geometry)
{
    struct np_drawn drawn = {0};

    np_augment_draw_row(chain, seed, epoch, position, position, source_w, source_h, &drawn);
    *ret_geometry = drawn.geometry;
}
