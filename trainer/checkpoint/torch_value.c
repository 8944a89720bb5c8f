/* The meaning of values. The calls are those of torch/_utils.py and torch/_tensor.py. */
#include "trainer/checkpoint/torch_value.h"

#include <string.h>

#define MAX_WRAPS      4    /* of a tensor in Parameter, subclass ... */
#define MAX_ATTRIBUTES 1000 /* of a module */

/* --- maps ---------------------------------------------------------------------------------- */

static bool calls(const struct np_pickle_value *value, const char *name)
{
    return value->kind == NP_PICKLE_CALL && np_pickle_is(value->callee, name);
}

bool np_torch_is_map(const struct np_pickle_value *value)
{
    return value->kind == NP_PICKLE_DICT || calls(value, "collections.OrderedDict") ||
           calls(value, "collections.defaultdict");
}

const struct np_pickle_value *np_torch_of_module(
    const struct np_pickle_value *module, const char *which)
{
    const struct np_pickle_value *map = module->kind == NP_PICKLE_CALL && module->state &&
                                                module->state->kind == NP_PICKLE_DICT &&
                                                module->state->nr_items <= 2 * MAX_ATTRIBUTES
                                            ? np_pickle_get(module->state, which)
                                            : NULL;

    return map && np_torch_is_map(map) ? map : NULL;
}

bool np_torch_is_module(const struct np_pickle_value *value)
{
    return np_torch_of_module(value, "_parameters") && np_torch_of_module(value, "_buffers") &&
           np_torch_of_module(value, "_modules");
}

/* Python 2 wrote an OrderedDict as a call with a list of pairs. NULL: it has none. */
static const struct np_pickle_value *pairs_of(const struct np_pickle_value *map)
{
    const struct np_pickle_value *args = map->kind == NP_PICKLE_CALL ? map->args : NULL;

    return args && args->kind == NP_PICKLE_TUPLE && args->nr_items == 1 &&
                   args->items[0]->kind == NP_PICKLE_LIST
               ? args->items[0]
               : NULL;
}

size_t np_torch_nr_entries(const struct np_pickle_value *map)
{
    const struct np_pickle_value *pairs = pairs_of(map);

    return map->nr_items / 2 + (pairs ? pairs->nr_items : 0);
}

void np_torch_entry(const struct np_pickle_value *map, size_t i,
    const struct np_pickle_value **ret_key, const struct np_pickle_value **ret_value)
{
    const size_t own = map->nr_items / 2;

    *ret_key = NULL;
    if (i < own) {
        *ret_key = map->items[2 * i];
        *ret_value = map->items[2 * i + 1];
    } else {
        const struct np_pickle_value *pair = pairs_of(map)->items[i - own];
        if ((pair->kind != NP_PICKLE_TUPLE && pair->kind != NP_PICKLE_LIST) || pair->nr_items != 2)
            return;
        *ret_key = pair->items[0];
        *ret_value = pair->items[1];
    }
    if ((*ret_key)->kind != NP_PICKLE_TEXT)
        *ret_key = NULL;
}

/* --- tensors ------------------------------------------------------------------------------- */

static const struct np_pickle_value *arg(const struct np_pickle_value *call, size_t i)
{
    const struct np_pickle_value *args = call->args;

    return args && args->kind == NP_PICKLE_TUPLE && i < args->nr_items ? args->items[i] : NULL;
}

/* A tuple, or torch.Size of one. */
static const struct np_pickle_value *sizes_of(const struct np_pickle_value *value)
{
    if (value && calls(value, "torch.Size"))
        value = arg(value, 0);
    return value && value->kind == NP_PICKLE_TUPLE ? value : NULL;
}

/* (storage, offset, size, stride, ...) */
static bool take_tensor(const struct np_pickle_value *call, struct np_torch_tensor *ret)
{
    const struct np_pickle_value *storage = arg(call, 0), *offset = arg(call, 1);

    *ret = (struct np_torch_tensor){storage, sizes_of(arg(call, 2)), sizes_of(arg(call, 3)), 0};
    if (!storage || storage->kind != NP_PICKLE_STORED || !offset || offset->kind != NP_PICKLE_INT ||
        !ret->size || !ret->stride || ret->size->nr_items != ret->stride->nr_items)
        return false;
    ret->offset = offset->number;
    return true;
}

enum way { TENSOR, FIRST_ARGUMENT, FUNCTION_AND_ARGUMENTS, REFUSED, IGNORED };

/* What a call of a function means. */
static const struct {
    const char *name;
    enum way way;
    const char *what; /* REFUSED: why */
} functions[] = {
    {"torch._utils._rebuild_tensor_v2", TENSOR, NULL},
    {"torch._utils._rebuild_tensor", TENSOR, NULL},
    {"torch._utils._rebuild_parameter", FIRST_ARGUMENT, NULL},
    {"torch._utils._rebuild_parameter_with_state", FIRST_ARGUMENT, NULL},
    {"torch._tensor._rebuild_from_type_v2", FUNCTION_AND_ARGUMENTS, NULL},
    {"torch._utils._rebuild_tensor_v3", REFUSED, "a tensor of a type that only newer GPUs have"},
    {"torch._utils._rebuild_qtensor", REFUSED, "a quantized tensor"},
    {"torch._utils._rebuild_sparse_tensor", REFUSED, "a sparse tensor"},
    {"torch._utils._rebuild_sparse_csr_tensor", REFUSED, "a sparse tensor"},
    {"torch._utils._rebuild_nested_tensor", REFUSED, "a nested tensor"},
    {"torch._utils._rebuild_meta_tensor_no_storage", REFUSED, "a tensor without values"},
    {"torch.Size", IGNORED, NULL},
    {"torch.device", IGNORED, NULL},
    {"collections.OrderedDict", IGNORED, NULL},
    {"collections.defaultdict", IGNORED, NULL},
};

enum np_torch_meaning np_torch_meaning(
    const struct np_pickle_value *value, struct np_torch_tensor *ret_tensor, const char **ret_what)
{
    struct np_pickle_value inner = {.kind = NP_PICKLE_CALL};

    *ret_what = NULL;
    if (value->kind != NP_PICKLE_CALL)
        return NP_TORCH_IGNORED;
    for (int depth = 0; depth < MAX_WRAPS && value && value->kind == NP_PICKLE_CALL; depth++) {
        enum way way = REFUSED;
        for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
            if (np_pickle_is(value->callee, functions[i].name)) {
                way = functions[i].way;
                *ret_what = functions[i].what;
            }
        if (way == TENSOR && take_tensor(value, ret_tensor))
            return NP_TORCH_TENSOR;
        if (way == TENSOR || way == REFUSED)
            return NP_TORCH_REFUSED;
        if (way == IGNORED)
            return NP_TORCH_IGNORED;
        if (way == FUNCTION_AND_ARGUMENTS) { /* (function, type, arguments, state) */
            inner.callee = arg(value, 0);
            inner.args = arg(value, 2);
            value = &inner;
        } else {
            value = arg(value, 0);
        }
    }
    return NP_TORCH_REFUSED;
}
