/* See augment.h. Chains are built at config time and then immutable; drawing is pure, any
 * thread. */
#include "loader/pixels/augment.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_OPS  32
#define APPLY_OP 0x8000u /* so that apply and draw have different draws */

extern const struct np_augment np_augment_random_crop, np_augment_center_crop, np_augment_resize,
    np_augment_random_resized_crop, np_augment_flip;

const struct np_augment *const np_augments[] = {&np_augment_random_crop, &np_augment_center_crop,
    &np_augment_resize, &np_augment_random_resized_crop, &np_augment_flip, NULL};

struct np_chain {
    int nr_ops;
    bool has_apply;
    struct {
        const struct np_augment *augment;
        void *object; /* owned: the struct its options describe */
    } ops[MAX_OPS];
};

/* --- folding ------------------------------------------------------------------------------- */

void np_fold_init(struct np_fold *fold, int source_w, int source_h)
{
    *fold = (struct np_fold){
        .source_w = source_w, .source_h = source_h, .width = source_w, .height = source_h};
    fold->geometry = (struct np_geometry){.right = source_w,
        .bottom = source_h,
        .scaled_w = source_w,
        .scaled_h = source_h,
        .window_w = source_w,
        .window_h = source_h,
        .shown_w = source_w,
        .shown_h = source_h};
}

struct side {
    int32_t *box_lo, *box_hi, *scaled, *window, *window_n, *shown, *shown_n;
};

/* Crops the window to at..at+n-1. Before the resize a crop makes the box smaller, so that the
 * resize reads pixels of the crop alone. A window that is all black stays outside of what is
 * shown, wherever later crops put it. */
static void crop_side(const struct side *side, bool resized, int at, int n, enum np_border border)
{
    const int shown_end = *side->shown + *side->shown_n;
    const bool was_outside =
        *side->window >= shown_end || *side->window + *side->window_n <= *side->shown;
    bool inside;
    int lo, hi;

    *side->window += at;
    *side->window_n = n;
    inside = *side->window >= *side->shown && *side->window + n <= shown_end;
    if (!inside && border == NP_BORDER_REFLECT)
        return; /* the border may mirror any pixel */
    if (was_outside) {
        *side->window = *side->shown - n;
        return;
    }
    lo = *side->window > *side->shown ? *side->window : *side->shown;
    hi = *side->window + n < shown_end ? *side->window + n : shown_end;
    if (lo >= hi)
        return; /* all black */
    *side->shown = lo;
    *side->shown_n = hi - lo;
    if (resized)
        return;
    *side->box_hi = *side->box_lo + hi;
    *side->box_lo += lo;
    *side->scaled = hi - lo;
    *side->window -= lo;
    *side->shown = 0;
}

void np_fold_crop(struct np_fold *fold, int x, int y, int w, int h, enum np_border border)
{
    struct np_geometry *g = &fold->geometry;

    assert(w > 0 && h > 0);
    if (g->flip) /* the flip comes last, so count from the other side */
        x = fold->width - x - w;
    if (x < 0 || y < 0 || x + w > fold->width || y + h > fold->height)
        g->border = border;
    crop_side(&(struct side){&g->left, &g->right, &g->scaled_w, &g->window_x, &g->window_w,
                  &g->shown_x, &g->shown_w},
        fold->resized, x, w, g->border);
    crop_side(&(struct side){&g->top, &g->bottom, &g->scaled_h, &g->window_y, &g->window_h,
                  &g->shown_y, &g->shown_h},
        fold->resized, y, h, g->border);
    fold->width = w;
    fold->height = h;
}

static void cut_axis(int32_t *box_lo, int32_t *box_hi, int32_t window, int32_t window_n)
{
    int side = *box_hi - *box_lo, lo = window < 0 ? 0 : window, hi = window + window_n;

    lo = lo >= side ? side - 1 : lo;
    hi = hi > side ? side : hi <= lo ? lo + 1 : hi;
    *box_hi = *box_lo + hi;
    *box_lo += lo;
}

void np_fold_resize(struct np_fold *fold, int w, int h, enum np_filter filter)
{
    struct np_geometry *g = &fold->geometry;

    assert(!fold->resized && w > 0 && h > 0);
    cut_axis(&g->left, &g->right, g->window_x, g->window_w);
    cut_axis(&g->top, &g->bottom, g->window_y, g->window_h);
    g->scaled_w = g->window_w = g->shown_w = w;
    g->scaled_h = g->window_h = g->shown_h = h;
    g->window_x = g->window_y = g->shown_x = g->shown_y = 0;
    g->filter = filter == NP_FILTER_NEAREST && g->flip ? NP_FILTER_NEAREST_FLIPPED : filter;
    fold->resized = true;
    fold->width = w;
    fold->height = h;
}

void np_fold_flip(struct np_fold *fold)
{
    fold->geometry.flip = !fold->geometry.flip;
}

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
    char suggestion[300];
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
    if (args->kind == NP_NODE_MAP) {
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
    chain->has_apply |= augment->apply != NULL;
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
        nr_resizes += chain->ops[i].augment->resizes;
        if (chain->ops[i].augment->resizes && nr_resizes == 2)
            np_report_add(report, list->items[i]->line, list->items[i]->column,
                "%s: %s is the second operation that resizes; a chain may resize only once", what,
                chain->ops[i].augment->name);
    }
}

/* A geometry has one border: zero ones of several crops add up, reflected ones do not. */
static void check_borders(const struct np_chain *chain, const struct np_node *list,
    const char *what, struct np_report *report)
{
    bool reflects = false;
    int nr_pads = 0;

    for (int i = 0; i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;
        enum np_border border = NP_BORDER_ZERO;

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

void np_augment_draw(const struct np_chain *chain, uint64_t seed, uint32_t epoch, uint32_t position,
    int source_w, int source_h, struct np_geometry *ret_geometry)
{
    struct np_draws first;
    struct np_fold fold;

    np_draws_init(&first, seed, NP_STREAM_AUGMENT, epoch, position, 0);
    np_fold_init(&fold, source_w, source_h);
    for (int i = 0; i < chain->nr_ops; i++) {
        struct np_draws draws = first;

        draws.counter[2] = (uint32_t)i; /* as np_draws_init() for op i; the key is the same */
        chain->ops[i].augment->draw(chain->ops[i].object, &draws, &fold);
    }
    *ret_geometry = fold.geometry;
}

bool np_augment_draw_torch(const struct np_chain *chain, const struct np_torch_draws *draws,
    int source_w, int source_h, struct np_geometry *ret_geometry)
{
    struct np_fold fold;
    bool is_right = true;

    np_fold_init(&fold, source_w, source_h);
    for (int i = 0; is_right && i < chain->nr_ops; i++) {
        const struct np_augment *augment = chain->ops[i].augment;

        if (augment->draw_torch)
            is_right = augment->draw_torch(chain->ops[i].object, draws, &fold);
        else
            augment->draw(chain->ops[i].object, NULL, &fold); /* it draws nothing */
    }
    *ret_geometry = fold.geometry;
    return is_right;
}

bool np_augment_has_apply(const struct np_chain *chain)
{
    return chain->has_apply;
}

void np_augment_apply(const struct np_chain *chain, uint64_t seed, uint32_t epoch,
    uint32_t position, uint8_t *row, int height, int width, int channels)
{
    struct np_draws draws;

    for (int i = 0; i < chain->nr_ops; i++) {
        if (!chain->ops[i].augment->apply)
            continue;
        np_draws_init(&draws, seed, NP_STREAM_AUGMENT, epoch, position, (uint32_t)i | APPLY_OP);
        chain->ops[i].augment->apply(chain->ops[i].object, &draws, row, height, width, channels);
    }
}
