/* Finds the state dict in what torch.save() wrote, and makes tensors of its values. Python would
 * call the functions that the pickle names; here a table says what a call of them means, and every
 * other object is refused where a tensor should be, and ignored elsewhere. */
#include "trainer/checkpoint/torch_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "loader/base/mem.h"

#define MAX_DEPTH  4 /* of parts within parts */
#define MAX_WRAPS  4 /* of a tensor in Parameter, subclass ... */
#define MAX_NAME   4096
#define CRC_PIECE  (1u << 20) /* bytes */
#define MAX_LISTED 12         /* parts that a message names */
#define MAX_PART   64         /* bytes of such a name */
#define MAX_LOOKS  (1u << 20)

typedef const struct np_pickle_value *value_ptr;

/* --- maps ---------------------------------------------------------------------------------- */

static bool calls(value_ptr value, const char *name)
{
    return value->kind == NP_PICKLE_CALL && np_pickle_is(value->callee, name);
}

static bool is_map(value_ptr value)
{
    return value->kind == NP_PICKLE_DICT || calls(value, "collections.OrderedDict") ||
           calls(value, "collections.defaultdict");
}

/* Python 2 wrote an OrderedDict as a call with a list of pairs. NULL: it has none. */
static value_ptr pairs_of(value_ptr map)
{
    value_ptr args = map->kind == NP_PICKLE_CALL ? map->args : NULL;

    return args && args->kind == NP_PICKLE_TUPLE && args->nr_items == 1 &&
                   args->items[0]->kind == NP_PICKLE_LIST
               ? args->items[0]
               : NULL;
}

static size_t nr_entries(value_ptr map)
{
    value_ptr pairs = pairs_of(map);

    return map->nr_items / 2 + (pairs ? pairs->nr_items : 0);
}

/* *ret_key NULL: the key is not text. */
static void entry_of(value_ptr map, size_t i, value_ptr *ret_key, value_ptr *ret_value)
{
    const size_t own = map->nr_items / 2;

    *ret_key = NULL;
    if (i < own) {
        *ret_key = map->items[2 * i];
        *ret_value = map->items[2 * i + 1];
    } else {
        value_ptr pair = pairs_of(map)->items[i - own];
        if ((pair->kind != NP_PICKLE_TUPLE && pair->kind != NP_PICKLE_LIST) || pair->nr_items != 2)
            return;
        *ret_key = pair->items[0];
        *ret_value = pair->items[1];
    }
    if ((*ret_key)->kind != NP_PICKLE_TEXT)
        *ret_key = NULL;
}

/* --- tensors ------------------------------------------------------------------------------- */

struct tensor {
    value_ptr storage, size, stride; /* STORED, tuples */
    int64_t offset;                  /* elements */
};

static value_ptr arg(value_ptr call, size_t i)
{
    value_ptr args = call->args;

    return args && args->kind == NP_PICKLE_TUPLE && i < args->nr_items ? args->items[i] : NULL;
}

/* A tuple, or torch.Size of one. */
static value_ptr sizes_of(value_ptr value)
{
    if (value && calls(value, "torch.Size"))
        value = arg(value, 0);
    return value && value->kind == NP_PICKLE_TUPLE ? value : NULL;
}

/* (storage, offset, size, stride, ...) */
static bool take_tensor(value_ptr call, struct tensor *ret)
{
    value_ptr storage = arg(call, 0), offset = arg(call, 1);

    *ret = (struct tensor){storage, sizes_of(arg(call, 2)), sizes_of(arg(call, 3)), 0};
    if (!storage || storage->kind != NP_PICKLE_STORED || !offset || offset->kind != NP_PICKLE_INT ||
        !ret->size || !ret->stride || ret->size->nr_items != ret->stride->nr_items)
        return false;
    ret->offset = offset->number;
    return true;
}

enum meaning { TENSOR, FIRST_ARGUMENT, FUNCTION_AND_ARGUMENTS, REFUSED, IGNORED };

/* What a call of a function means. */
static const struct {
    const char *name;
    enum meaning meaning;
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

/* What a value is; a tensor without its wraps in *ret. *ret_what: of REFUSED. */
static enum meaning resolve(value_ptr value, struct tensor *ret, const char **ret_what)
{
    struct np_pickle_value inner = {.kind = NP_PICKLE_CALL};

    for (int depth = 0; depth < MAX_WRAPS; depth++) {
        enum meaning meaning = REFUSED;
        if (!value || value->kind != NP_PICKLE_CALL)
            return value && depth == 0 ? IGNORED : REFUSED;
        for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
            if (np_pickle_is(value->callee, functions[i].name)) {
                meaning = functions[i].meaning;
                *ret_what = functions[i].what;
            }
        if (meaning == TENSOR)
            return take_tensor(value, ret) ? TENSOR : REFUSED;
        if (meaning == FUNCTION_AND_ARGUMENTS) { /* (function, type, arguments, state) */
            inner.callee = arg(value, 0);
            inner.args = arg(value, 2);
            value = &inner;
        } else if (meaning == FIRST_ARGUMENT)
            value = arg(value, 0);
        else
            return meaning;
    }
    return REFUSED;
}

static bool is_tensor(value_ptr value)
{
    struct tensor tensor;
    const char *what;

    return resolve(value, &tensor, &what) == TENSOR;
}

/* --- parts --------------------------------------------------------------------------------- */

/* What scripts call the weights, the first is taken before the next; averages only where nothing
 * else is there. */
static const char *const wrappers[] = {"state_dict", "model_state_dict", "model", "model_state",
    "net", "network", "module", "params", "weights", "generator", "backbone", "encoder",
    "state_dict_ema", "model_ema", "ema_state_dict", "ema", "params_ema"};

/* Maps may be shared or hold themselves, so the search has an end: entries that it may look at. */
struct search {
    size_t left;
};

/* Tensors among a map's own values. */
static size_t nr_tensors(value_ptr map, struct search *search)
{
    value_ptr key, value;
    size_t n = 0;

    for (size_t i = 0; i < nr_entries(map) && search->left > 0; i++) {
        search->left--;
        entry_of(map, i, &key, &value);
        n += key && is_tensor(value);
    }
    return n;
}

/* A wrapper may hold only parts: {"model": {"state_dict": ...}}. */
static bool holds_tensors(value_ptr map, int depth, struct search *search)
{
    value_ptr key, value;

    if (nr_tensors(map, search) > 0)
        return true;
    for (size_t i = 0; depth > 1 && i < nr_entries(map) && search->left > 0; i++) {
        search->left--;
        entry_of(map, i, &key, &value);
        if (key && is_map(value) && holds_tensors(value, depth - 1, search))
            return true;
    }
    return false;
}

static value_ptr find_entry(value_ptr map, const char *name, size_t bytes)
{
    value_ptr key, value, found = NULL;

    for (size_t i = 0; i < nr_entries(map); i++) {
        entry_of(map, i, &key, &value);
        if (key && key->bytes == bytes && memcmp(key->text, name, bytes) == 0)
            found = value; /* the last, as in Python */
    }
    return found;
}

struct choice {
    value_ptr map;
    char *path; /* "model/state_dict"; empty: the whole */
    char *others;
    struct search search;
};

/* The part of a map that holds the weights: the first wrapper that is a map, else the map itself if
 * it has tensors, else the part with most tensors. *ret_key NULL: the map itself. */
static value_ptr choose_part(value_ptr map, value_ptr *ret_key, struct search *search)
{
    const size_t nr_wrappers = sizeof(wrappers) / sizeof(wrappers[0]);
    value_ptr key, value, best = map;
    size_t best_rank = nr_wrappers, most = nr_tensors(map, search);

    *ret_key = NULL;
    for (size_t i = 0; i < nr_entries(map); i++) {
        size_t rank = 0, tensors = 0;
        entry_of(map, i, &key, &value);
        if (!key || !is_map(value))
            continue;
        while (rank < nr_wrappers && !np_pickle_is(key, wrappers[rank]))
            rank++;
        if (rank == nr_wrappers && rank == best_rank)
            tensors = nr_tensors(value, search);
        if ((rank < best_rank && holds_tensors(value, MAX_DEPTH, search)) || tensors > most) {
            best = value;
            best_rank = rank;
            most = tensors;
            *ret_key = key;
        }
    }
    return best;
}

/* "a, b": the maps with tensors among a map's values, but for one. NULL: none. */
static int list_parts(
    const struct choice *choice, value_ptr but, char **ret_text, struct np_err *err)
{
    const char *path = choice->path ? choice->path : "";
    value_ptr map = choice->map;
    struct search search = {MAX_LOOKS};
    char *text = NULL;

    for (size_t i = 0, nr = 0; i < nr_entries(map) && nr < MAX_LISTED; i++) {
        value_ptr key, value;
        entry_of(map, i, &key, &value);
        if (!key || !is_map(value) || value == but || key->bytes > MAX_PART ||
            nr_tensors(value, &search) == 0)
            continue;
        char *more = np_try_format(err, "%s%s%s%s%.*s", text ? text : "", text ? ", " : "", path,
            *path ? "/" : "", (int)key->bytes, key->text);
        np_free(text);
        if (!(text = more))
            return err->code;
        nr++;
    }
    *ret_text = text;
    return 0;
}

static int add_to_path(struct choice *choice, const char *name, size_t bytes, struct np_err *err)
{
    char *path = np_try_format(err, "%s%s%.*s", choice->path ? choice->path : "",
        choice->path ? "/" : "", (int)bytes, name);

    np_free(choice->path);
    choice->path = path;
    return path ? 0 : err->code;
}

/* As FILE#KEY says. */
static int follow(
    const struct np_st_file *file, const char *key, struct choice *choice, struct np_err *err)
{
    for (const char *at = key; *at != '\0';) {
        const size_t n = strcspn(at, "/");
        value_ptr next = is_map(choice->map) ? find_entry(choice->map, at, n) : NULL;

        if (!next || !is_map(next)) {
            char *parts = NULL;
            if (is_map(choice->map))
                list_parts(choice, NULL, &parts, err);
            const int code = np_err_set(err, -EINVAL, "%s: there is no part '%s' with tensors%s%s",
                file->name, key, parts ? "; there is " : "", parts ? parts : "");
            np_free(parts);
            return code;
        }
        choice->map = next;
        if (add_to_path(choice, at, n, err) < 0)
            return err->code;
        at += n + (at[n] == '/');
    }
    return 0;
}

/* Goes down to the weights. */
static int choose(const struct np_st_file *file, struct choice *choice, struct np_err *err)
{
    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        value_ptr key, next = choose_part(choice->map, &key, &choice->search);

        if (!key)
            break;
        np_free(choice->others);
        choice->others = NULL;
        if (list_parts(choice, next, &choice->others, err) < 0 ||
            add_to_path(choice, key->text, key->bytes, err) < 0)
            return err->code;
        choice->map = next;
    }
    return 0;
}

static int no_state(const struct np_st_file *file, value_ptr value, struct np_err *err)
{
    if (value->kind == NP_PICKLE_CALL && value->callee->kind == NP_PICKLE_GLOBAL)
        return np_err_set(err, -EBADMSG,
            "%s: holds an object of %s, not the weights: in Python, "
            "torch.save(model.state_dict(), FILE) saves them",
            file->name, value->callee->text);
    return np_err_set(
        err, -EBADMSG, "%s: holds no state dict: no mapping of names to tensors", file->name);
}

/* --- tensors in storages ---------------------------------------------------------------------- */

/* ("storage", type, key, location, elements[, (view's key, offset, elements)]) */
static const struct np_torch_storage *storage_of(const struct np_torch *torch, value_ptr stored,
    const char **ret_dtype, uint64_t *ret_size, int64_t *ret_offset)
{
    value_ptr id = stored->args, view;

    if (!id || id->kind != NP_PICKLE_TUPLE || id->nr_items < 5 ||
        !np_pickle_is(id->items[0], "storage") ||
        !np_torch_storage_type(id->items[1], ret_dtype, ret_size))
        return NULL;
    view = id->nr_items > 5 ? id->items[5] : NULL;
    *ret_offset = 0;
    if (view && view->kind == NP_PICKLE_TUPLE && view->nr_items == 3 &&
        view->items[1]->kind == NP_PICKLE_INT)
        *ret_offset = view->items[1]->number;
    return np_torch_find(torch, id->items[2]);
}

/* Fills dims and strides. *ret_last: the number of the last element, counted from the first; -1:
 * there is none. false: impossible. */
static bool take_shape(const struct tensor *from, struct np_st_tensor *tensor, int64_t *ret_last)
{
    int64_t last = 0, in_order = 1, product;
    bool empty = false;

    if (from->size->nr_items > NP_ST_MAX_DIMS)
        return false;
    tensor->nr_dims = (int)from->size->nr_items;
    for (int i = tensor->nr_dims; i-- > 0;) {
        value_ptr size = from->size->items[i], stride = from->stride->items[i];
        if (size->kind != NP_PICKLE_INT || stride->kind != NP_PICKLE_INT || size->number < 0 ||
            stride->number < 0)
            return false;
        tensor->dims[i] = size->number;
        tensor->strides[i] = stride->number;
        tensor->strided |= size->number != 1 && stride->number != in_order;
        if (size->number == 0)
            empty = true;
        else if (__builtin_mul_overflow(size->number - 1, stride->number, &product) ||
                 __builtin_add_overflow(last, product, &last) ||
                 __builtin_mul_overflow(in_order, size->number, &in_order))
            return false;
    }
    tensor->strided &= !empty;
    *ret_last = empty ? -1 : last;
    return true;
}

static int make_tensor(const struct np_st_file *file, const struct np_torch *torch,
    const struct tensor *from, struct np_st_tensor *tensor, bool *used, struct np_err *err)
{
    uint64_t size = 0, first, end;
    int64_t view = 0, last = 0;
    const struct np_torch_storage *storage =
        storage_of(torch, from->storage, &tensor->dtype, &size, &view);

    if (!storage || storage->offset == 0)
        return np_err_set(
            err, -EBADMSG, "%s: %s: its storage is not in the file", file->name, tensor->name);
    if (!take_shape(from, tensor, &last) || from->offset < 0 || view < 0 ||
        __builtin_add_overflow((uint64_t)from->offset, (uint64_t)view, &first) ||
        __builtin_add_overflow(first, (uint64_t)(last + 1), &end) || end > storage->bytes / size)
        return np_err_set(err, -EBADMSG,
            "%s: %s: its shape does not fit its storage of %" PRIu64 " bytes", file->name,
            tensor->name, storage->bytes);
    tensor->offset = storage->offset + first * size;
    tensor->bytes = (uint64_t)(last + 1) * size;
    used[storage - torch->storages] = true;
    return 0;
}

/* A key becomes a name of the file: its bytes with a NUL. */
static int take_name(const struct np_st_file *file, value_ptr key, char **names,
    const char **ret_name, struct np_err *err)
{
    if (key->bytes > MAX_NAME || memchr(key->text, 0, key->bytes))
        return np_err_set(err, -EBADMSG, "%s: a name of its state dict is damaged", file->name);
    memcpy(*names, key->text, key->bytes);
    *ret_name = *names;
    *names += key->bytes + 1;
    return 0;
}

static int take_entry(const struct np_torch *torch, value_ptr key, value_ptr value,
    struct np_st_file *file, char **names, bool *used, struct np_err *err)
{
    struct np_st_tensor *tensor = &file->tensors[file->n];
    struct tensor from;
    const char *what = NULL;
    const enum meaning meaning = resolve(value, &from, &what);
    value_ptr callee = value->kind == NP_PICKLE_CALL ? value->callee : NULL;

    if (meaning == IGNORED)
        return 0;
    int code = take_name(file, key, names, &tensor->name, err);
    if (code == 0 && meaning == REFUSED)
        return np_err_set(err, -EBADMSG, "%s: %s is %s%s, which is not read", file->name,
            tensor->name,
            what                                         ? what
            : callee && callee->kind == NP_PICKLE_GLOBAL ? "an object of "
                                                         : "an object",
            !what && callee && callee->kind == NP_PICKLE_GLOBAL ? callee->text : "");
    if (code == 0)
        code = make_tensor(file, torch, &from, tensor, used, err);
    file->n += code == 0;
    return code;
}

/* --- damage -------------------------------------------------------------------------------- */

static int check_storage(
    const struct np_st_file *file, const struct np_torch_storage *storage, struct np_err *err)
{
    uint8_t *piece = np_try_alloc(CRC_PIECE, err);
    uLong sum = crc32(0, NULL, 0);
    int code = piece ? 0 : np_err_context(err, "%s", file->name);

    for (uint64_t at = 0; code == 0 && at < storage->bytes;) {
        const uint64_t left = storage->bytes - at, n = left < CRC_PIECE ? left : CRC_PIECE;
        code = np_st_read_at(file, storage->offset + at, piece, n, err);
        if (code == 0)
            sum = crc32(sum, piece, (unsigned)n);
        at += n;
    }
    np_free(piece);
    if (code == 0 && sum != storage->crc32)
        return np_err_set(err, -EBADMSG,
            "%s: damaged: the CRC-32 of storage %.*s is not the one in the file", file->name,
            (int)storage->key_bytes, storage->key);
    return code;
}

/* --- all ----------------------------------------------------------------------------------- */

static int take_map(
    const struct np_torch *torch, value_ptr map, struct np_st_file *file, struct np_err *err)
{
    const size_t n = nr_entries(map);
    bool *used = np_try_array(torch->nr_storages + 1, sizeof(*used), err);
    size_t bytes = 0;
    value_ptr key, value;
    char *names;
    int code;

    for (size_t i = 0; i < n; i++) {
        entry_of(map, i, &key, &value);
        bytes += key ? key->bytes + 1 : 0;
    }
    file->names = names = np_try_alloc(bytes + 1, err);
    file->free_names = np_free;
    file->tensors = np_try_array(n, sizeof(*file->tensors), err);
    code = !used || !file->names || !file->tensors ? np_err_context(err, "%s", file->name) : 0;
    for (size_t i = 0; code == 0 && i < n; i++) {
        entry_of(map, i, &key, &value);
        if (key)
            code = take_entry(torch, key, value, file, &names, used, err);
    }
    for (size_t i = 0; code == 0 && i < torch->nr_storages; i++)
        if (used[i] && torch->storages[i].crc32 != 0)
            code = check_storage(file, &torch->storages[i], err);
    np_free(used);
    return code;
}

static int by_place(const void *a, const void *b)
{
    const struct np_st_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return strcmp(x->name, y->name);
}

int np_torch_tensors(
    const struct np_torch *torch, const char *key, struct np_st_file *file, struct np_err *err)
{
    struct choice choice = {.map = torch->pickle.root, .search = {MAX_LOOKS}};
    struct search search = {MAX_LOOKS};
    int code = 0;

    if (!is_map(choice.map))
        return no_state(file, choice.map, err);
    code = key ? follow(file, key, &choice, err) : choose(file, &choice, err);
    if (code == 0 && nr_tensors(choice.map, &search) == 0)
        code = no_state(file, torch->pickle.root, err);
    if (code == 0)
        code = take_map(torch, choice.map, file, err);
    if (code == 0) {
        qsort(file->tensors, (size_t)file->n, sizeof(*file->tensors), by_place);
        code = np_st_sort_names(file, err);
    }
    file->part = choice.path;
    file->others = choice.others;
    return code;
}
