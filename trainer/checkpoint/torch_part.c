/* Chooses the part of a file that holds the weights. */
#include "trainer/checkpoint/torch_part.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/torch_value.h"

#define MAX_DEPTH  4  /* of parts within parts */
#define MAX_LISTED 12 /* parts that a message names */
#define MAX_NAME   64 /* bytes of such a name */
#define MAX_LOOKS  (1u << 20)

/* What scripts call the weights, the first is taken before the next; averages only where nothing
 * else is there. */
static const char *const wrappers[] = {"state_dict", "model_state_dict", "model", "model_state",
    "net", "network", "module", "params", "weights", "generator", "backbone", "encoder",
    "state_dict_ema", "model_ema", "ema_state_dict", "ema", "params_ema"};

/* Maps may be shared or hold themselves, so the search has an end: entries that it may look at. */
struct search {
    size_t left;
};

static bool is_part(const struct np_pickle_value *value)
{
    return np_torch_is_map(value) || np_torch_is_module(value);
}

/* Tensors among a map's own values; of a module, whose tensors are not counted, 1. */
static size_t nr_tensors(const struct np_pickle_value *map, struct search *search)
{
    const struct np_pickle_value *key, *value;
    struct np_torch_tensor tensor;
    const char *what;
    size_t n = np_torch_is_module(map);

    for (size_t i = 0; i < np_torch_nr_entries(map) && search->left > 0; i++) {
        search->left--;
        np_torch_entry(map, i, &key, &value);
        n += key && np_torch_meaning(value, &tensor, &what) == NP_TORCH_TENSOR;
    }
    return n;
}

/* A wrapper may hold only parts: {"model": {"state_dict": ...}}. */
static bool holds_tensors(const struct np_pickle_value *map, int depth, struct search *search)
{
    const struct np_pickle_value *key, *value;

    if (nr_tensors(map, search) > 0)
        return true;
    for (size_t i = 0; depth > 1 && i < np_torch_nr_entries(map) && search->left > 0; i++) {
        search->left--;
        np_torch_entry(map, i, &key, &value);
        if (key && is_part(value) && holds_tensors(value, depth - 1, search))
            return true;
    }
    return false;
}

static const struct np_pickle_value *find_entry(
    const struct np_pickle_value *map, const char *name, size_t bytes)
{
    const struct np_pickle_value *key, *value, *found = NULL;

    for (size_t i = 0; i < np_torch_nr_entries(map); i++) {
        np_torch_entry(map, i, &key, &value);
        if (key && key->bytes == bytes && memcmp(key->text, name, bytes) == 0)
            found = value; /* the last, as in Python */
    }
    return found;
}

/* The part of a map that holds the weights: the first wrapper that holds tensors, else whatever has
 * most tensors, the map itself or a part. *ret_key NULL: the map itself. */
static const struct np_pickle_value *choose_part(const struct np_pickle_value *map,
    const struct np_pickle_value **ret_key, struct search *search)
{
    const size_t nr_wrappers = sizeof(wrappers) / sizeof(wrappers[0]);
    const struct np_pickle_value *key, *value, *best = map;
    size_t best_rank = nr_wrappers, most = nr_tensors(map, search);

    *ret_key = NULL;
    for (size_t i = 0; i < np_torch_nr_entries(map); i++) {
        size_t rank = 0, tensors = 0;
        np_torch_entry(map, i, &key, &value);
        if (!key || !is_part(value))
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
static int list_parts(const struct np_torch_part *part, const struct np_pickle_value *but,
    char **ret_text, struct np_err *err)
{
    const char *path = part->path ? part->path : "";
    const struct np_pickle_value *map = part->value;
    struct search search = {MAX_LOOKS};
    char *text = NULL;

    for (size_t i = 0, nr = 0; i < np_torch_nr_entries(map) && nr < MAX_LISTED; i++) {
        const struct np_pickle_value *key, *value;
        np_torch_entry(map, i, &key, &value);
        if (!key || value == but || !is_part(value) || key->bytes > MAX_NAME ||
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

static int add_to_path(
    struct np_torch_part *part, const char *name, size_t bytes, struct np_err *err)
{
    char *path = np_try_format(
        err, "%s%s%.*s", part->path ? part->path : "", part->path ? "/" : "", (int)bytes, name);

    np_free(part->path);
    part->path = path;
    return path ? 0 : err->code;
}

/* As FILE#KEY says. */
static int follow(const char *name, const char *key, struct np_torch_part *part, struct np_err *err)
{
    for (const char *at = key; *at != '\0';) {
        const size_t n = strcspn(at, "/");
        const struct np_pickle_value *next =
            np_torch_is_map(part->value) ? find_entry(part->value, at, n) : NULL;

        if (!next || !is_part(next)) {
            char *parts = NULL;
            if (np_torch_is_map(part->value))
                list_parts(part, NULL, &parts, err);
            const int code = np_err_set(err, -EINVAL, "%s: there is no part '%s' with tensors%s%s",
                name, key, parts ? "; there is " : "", parts ? parts : "");
            np_free(parts);
            return code;
        }
        part->value = next;
        if (add_to_path(part, at, n, err) < 0)
            return err->code;
        at += n + (at[n] == '/');
    }
    return 0;
}

/* Goes down to the weights. */
static int choose(struct np_torch_part *part, struct np_err *err)
{
    struct search search = {MAX_LOOKS};

    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        const struct np_pickle_value *key, *next = choose_part(part->value, &key, &search);

        if (!key)
            break;
        np_free(part->others);
        part->others = NULL;
        if (list_parts(part, next, &part->others, err) < 0 ||
            add_to_path(part, key->text, key->bytes, err) < 0)
            return err->code;
        part->value = next;
    }
    return 0;
}

static int no_state(const char *name, const struct np_pickle_value *value, struct np_err *err)
{
    if (value->kind == NP_PICKLE_CALL && value->callee->kind == NP_PICKLE_GLOBAL)
        return np_err_set(err, -EBADMSG,
            "%s: holds an object of %s, not the weights: in Python, "
            "torch.save(model.state_dict(), FILE) saves them",
            name, value->callee->text);
    return np_err_set(
        err, -EBADMSG, "%s: holds no state dict: no mapping of names to tensors", name);
}

int np_torch_find_part(const char *name, const struct np_pickle_value *root, const char *key,
    struct np_torch_part *part, struct np_err *err)
{
    struct search search = {MAX_LOOKS};
    int code;

    *part = (struct np_torch_part){.value = root};
    if (!is_part(root))
        return no_state(name, root, err);
    code = key ? follow(name, key, part, err) : choose(part, err);
    if (code == 0 && nr_tensors(part->value, &search) == 0)
        code = no_state(name, root, err);
    return code;
}
