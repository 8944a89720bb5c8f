/* Makes tensors of the state dict, or of the modules, that torch.save() wrote. */
#include "trainer/checkpoint/torch_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/torch_part.h"
#include "trainer/checkpoint/torch_value.h"

#define MAX_DEPTH   32 /* of modules within modules */
#define MAX_NAME    1024
#define MAX_TENSORS 100000
#define MAX_LOOKS   (8u << 20)
#define CRC_PIECE   (1u << 20) /* bytes */

/* --- tensors in storages ---------------------------------------------------------------------- */

/* ("storage", type, key, location, elements[, (view's key, offset, elements)]) */
static const struct np_torch_storage *storage_of(const struct np_torch *torch,
    const struct np_pickle_value *stored, const char **ret_dtype, uint64_t *ret_size,
    int64_t *ret_offset)
{
    const struct np_pickle_value *id = stored->args, *view;

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
static bool take_shape(
    const struct np_torch_tensor *from, struct np_st_tensor *tensor, int64_t *ret_last)
{
    int64_t last = 0, in_order = 1, product;
    bool empty = false;

    if (from->size->nr_items > NP_ST_MAX_DIMS)
        return false;
    tensor->nr_dims = (int)from->size->nr_items;
    for (int i = tensor->nr_dims; i-- > 0;) {
        const struct np_pickle_value *size = from->size->items[i], *stride = from->stride->items[i];
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
    const struct np_torch_tensor *from, struct np_st_tensor *tensor, bool *used, struct np_err *err)
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

/* Goes through a map, or a module with those in it, twice: to count, and to fill. */
struct walk {
    const struct np_torch *torch;
    struct np_st_file *file;
    bool counts;
    size_t nr, nr_bytes;   /* tensors at most, of their names with a NUL */
    char prefix[MAX_NAME]; /* "layer1.0." */
    size_t prefix_bytes;
    char *names;     /* where the next name goes */
    bool *used;      /* (torch->nr_storages) */
    size_t nr_looks; /* entries that were looked at: modules may hold themselves */
};

static int refuse(const struct walk *walk, const char *name, const struct np_pickle_value *value,
    const char *what, struct np_err *err)
{
    const struct np_pickle_value *callee = value->callee;
    const bool named = !what && callee && callee->kind == NP_PICKLE_GLOBAL;

    return np_err_set(err, -EBADMSG, "%s: %s is %s%s, which is not read", walk->file->name, name,
        what    ? what
        : named ? "an object of "
                : "an object",
        named ? callee->text : "");
}

static int look(struct walk *walk, struct np_err *err)
{
    return ++walk->nr_looks <= MAX_LOOKS
               ? 0
               : np_err_set(
                     err, -E2BIG, "%s: its state dict has too many entries", walk->file->name);
}

static int take_entry(struct walk *walk, const struct np_pickle_value *key,
    const struct np_pickle_value *value, struct np_err *err)
{
    const size_t bytes = walk->prefix_bytes + key->bytes + 1;
    struct np_torch_tensor from;
    const char *what;
    const enum np_torch_meaning meaning = np_torch_meaning(value, &from, &what);

    if (meaning == NP_TORCH_IGNORED)
        return 0;
    if (bytes > MAX_NAME || memchr(key->text, 0, key->bytes))
        return np_err_set(
            err, -EBADMSG, "%s: a name of its state dict is damaged", walk->file->name);
    if (walk->counts) {
        walk->nr_bytes += bytes;
        return ++walk->nr <= MAX_TENSORS ? 0
                                         : np_err_set(err, -E2BIG, "%s: more than %d tensors",
                                               walk->file->name, MAX_TENSORS);
    }
    struct np_st_tensor *tensor = &walk->file->tensors[walk->file->n];
    tensor->name = walk->names;
    walk->names += bytes;
    snprintf((char *)tensor->name, bytes, "%s%.*s", walk->prefix, (int)key->bytes, key->text);
    if (meaning == NP_TORCH_REFUSED)
        return refuse(walk, tensor->name, value, what, err);
    walk->file->n++;
    return make_tensor(walk->file, walk->torch, &from, tensor, walk->used, err);
}

static int take_map(struct walk *walk, const struct np_pickle_value *map, struct np_err *err)
{
    const struct np_pickle_value *key, *value;
    int code = 0;

    for (size_t i = 0; code == 0 && i < np_torch_nr_entries(map); i++) {
        np_torch_entry(map, i, &key, &value);
        code = look(walk, err);
        if (code == 0 && key)
            code = take_entry(walk, key, value, err);
    }
    return code;
}

/* Modules within modules: their names are those of state_dict(). */
static int take_module(
    struct walk *walk, const struct np_pickle_value *module, int depth, struct np_err *err)
{
    const struct np_pickle_value *children = np_torch_of_module(module, "_modules"), *key, *value;
    const size_t length = walk->prefix_bytes;
    int code = take_map(walk, np_torch_of_module(module, "_parameters"), err);

    if (code == 0)
        code = take_map(walk, np_torch_of_module(module, "_buffers"), err);
    for (size_t i = 0; code == 0 && i < np_torch_nr_entries(children); i++) {
        np_torch_entry(children, i, &key, &value);
        code = look(walk, err);
        if (code < 0 || !key || !np_torch_is_module(value))
            continue;
        if (depth == 0 || key->bytes + 2 > MAX_NAME - length)
            return np_err_set(
                err, -E2BIG, "%s: its modules are nested too deeply", walk->file->name);
        walk->prefix_bytes += (size_t)snprintf(
            walk->prefix + length, MAX_NAME - length, "%.*s.", (int)key->bytes, key->text);
        code = take_module(walk, value, depth - 1, err);
        walk->prefix[walk->prefix_bytes = length] = '\0';
    }
    return code;
}

static int take_part(struct walk *walk, const struct np_pickle_value *part, struct np_err *err)
{
    return np_torch_is_module(part) ? take_module(walk, part, MAX_DEPTH, err)
                                    : take_map(walk, part, err);
}

static int take_all(struct walk *walk, const struct np_pickle_value *part, struct np_err *err)
{
    const struct np_torch *torch = walk->torch;
    struct np_st_file *file = walk->file;
    int code;

    walk->counts = true;
    code = take_part(walk, part, err);
    if (code < 0)
        return code;
    walk->counts = false;
    walk->used = np_try_array(torch->nr_storages + 1, sizeof(*walk->used), err);
    file->names = walk->names = np_try_alloc(walk->nr_bytes + 1, err);
    file->free_names = np_free;
    file->tensors = np_try_array(walk->nr, sizeof(*file->tensors), err);
    if (!walk->used || !file->names || !file->tensors)
        return np_err_context(err, "%s", file->name);
    code = take_part(walk, part, err);
    for (size_t i = 0; code == 0 && i < torch->nr_storages; i++)
        if (walk->used[i] && torch->storages[i].crc32 != 0)
            code = check_storage(file, &torch->storages[i], err);
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
    struct walk walk = {.torch = torch, .file = file};
    struct np_torch_part part;
    int code = np_torch_find_part(file->name, torch->pickle.root, key, &part, err);

    file->part = part.path;
    file->others = part.others;
    if (code == 0)
        code = take_all(&walk, part.value, err);
    np_free(walk.used);
    if (code < 0)
        return code;
    qsort(file->tensors, (size_t)file->n, sizeof(*file->tensors), by_place);
    return np_st_sort_names(file, err);
}
