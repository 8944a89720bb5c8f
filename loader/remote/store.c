#include "loader/remote/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "loader/base/mem.h"

#define MAX_SETS 2

struct np_remote_store {
    struct np_range_cache *caches[MAX_SETS];
    char *names[MAX_SETS]; /* of the sets, as np_range_options.set */
    int nr_caches;
    struct np_range_object **objects; /* (nr_objects) by handle, from the highest on */
    int nr_objects, first;
};

/* "CACHE/index/x.npidx": "CACHE/objects", and so in a folder for one user of several. */
static char *folder_of(const char *cached, struct np_err *err)
{
    const char *end = strrchr(cached, '/'), *index = end;

    while (index > cached && index[-1] != '/')
        index--;
    if (!end || strncmp(index, "index", 5) != 0) {
        np_err_set(err, -EINVAL, "%s: not in a folder of indexes", cached);
        return NULL;
    }
    index += strlen("index");
    return np_try_format(
        err, "%.*sobjects%.*s", (int)(index - 5 - cached), cached, (int)(end - index), index);
}

/* Objects below one folder are one set, whichever of them a run reads. */
static char *name_of(const char *url, struct np_err *err)
{
    const char *end = memrchr(url, '/', np_path_bytes(url));

    return np_try_format(err, "%.*s", (int)(end - url), url);
}

/* What stands for the URL on disk, where others may read it: its query may be a secret. */
static char *stored_url(const char *url, struct np_err *err)
{
    const size_t bytes = np_path_bytes(url);

    if (!url[bytes])
        return np_try_strdup(url, err);
    return np_try_format(err, "%.*s?%016llx", (int)bytes, url,
        (unsigned long long)XXH3_64bits(url + bytes, strlen(url + bytes)));
}

static int open_cache(struct np_remote_store *store, const struct np_store_set *set,
    uint64_t max_bytes, struct np_range_cache **ret_cache, struct np_err *err)
{
    char *name = name_of(set->urls[0], err), *folder = folder_of(set->cached, err);
    const struct np_range_options options = {.folder = folder, .set = name, .max_bytes = max_bytes};
    struct np_range_cache *cache = NULL;
    int code = name && folder ? 0 : err && err->code ? err->code : -ENOMEM;

    for (int i = 0; !code && i < store->nr_caches; i++)
        if (strcmp(store->names[i], name) == 0)
            cache = store->caches[i];
    if (!code && !cache) {
        code = np_range_cache_open(&options, &cache, err);
        if (!code) {
            store->caches[store->nr_caches] = cache;
            store->names[store->nr_caches++] = name;
            name = NULL;
        }
    }
    np_free(name);
    np_free(folder);
    if (!code)
        *ret_cache = cache;
    return code;
}

/* An object without its file is read without: its error is no error. */
static int open_object(struct np_remote_store *store, struct np_range_cache *cache, const char *url,
    int file, struct np_err *err)
{
    struct np_range_object **place = &store->objects[store->first - file];
    struct np_range_name name;
    struct np_err own = {0};
    uint64_t number;
    char *stored;

    if (*place)
        return 0;
    np_remote()->facts(file, &name.bytes, &number, &name.version);
    if (!*name.version) /* what is stored could be older */
        return 0;
    name.url = stored = stored_url(url, err);
    if (!stored)
        return -ENOMEM;
    if (np_range_object_open(cache, &name, place, &own))
        *place = NULL;
    np_free(stored);
    return own.code == -ENOMEM ? np_err_set(err, -ENOMEM, "%s", own.text) : 0;
}

/* The handles of all objects, and their bytes. */
static int gather(const struct np_store_set *sets, int nr_sets, struct np_remote_store *store,
    uint64_t *ret_bytes, struct np_err *err)
{
    int lowest = 0, file, code = 0;
    uint64_t bytes = 0, one, number;
    const char *version;

    store->first = INT32_MIN;
    for (int s = 0; s < nr_sets; s++)
        for (int i = 0; !code && i < sets[s].nr; i++) {
            code = np_remote()->open(sets[s].urls[i], &file, err);
            if (code)
                break;
            np_remote()->facts(file, &one, &number, &version);
            bytes += one;
            store->first = file > store->first ? file : store->first;
            lowest = file < lowest ? file : lowest;
        }
    if (code)
        return code;
    store->nr_objects = store->first - lowest + 1;
    store->objects = np_try_array((size_t)store->nr_objects, sizeof(*store->objects), err);
    *ret_bytes = bytes;
    return store->objects ? 0 : -ENOMEM;
}

static int open_all(struct np_remote_store *store, const struct np_store_set *sets, int nr_sets,
    uint64_t max_bytes, struct np_err *err)
{
    struct np_range_numbers numbers;
    struct np_range_cache *cache;
    uint64_t bytes;
    int file, code = gather(sets, nr_sets, store, &bytes, err);

    for (int s = 0; !code && s < nr_sets; s++) {
        code = open_cache(store, &sets[s], max_bytes, &cache, err);
        if (code)
            break;
        np_range_numbers(cache, &numbers);
        if (max_bytes == 0 && bytes > numbers.max_bytes)
            return -EFBIG;
        for (int i = 0; !code && i < sets[s].nr; i++) {
            code = np_remote()->open(sets[s].urls[i], &file, err);
            if (!code)
                code = open_object(store, cache, sets[s].urls[i], file, err);
        }
    }
    return code;
}

int np_remote_store_open(const struct np_store_set *sets, int nr_sets, uint64_t max_bytes,
    struct np_remote_store **ret_store, struct np_err *err)
{
    struct np_remote_store *store = np_try_alloc(sizeof(*store), err);
    int code = store ? open_all(store, sets, nr_sets, max_bytes, err) : -ENOMEM;

    if (code) {
        np_remote_store_close(store);
        store = NULL;
    }
    if (!code || code == -EFBIG)
        *ret_store = store;
    return code == -EFBIG ? 0 : code;
}

void np_remote_store_close(struct np_remote_store *store)
{
    if (!store)
        return;
    for (int i = 0; store->objects && i < store->nr_objects; i++)
        np_range_object_close(store->objects[i]);
    for (int i = 0; i < store->nr_caches; i++) {
        np_range_cache_close(store->caches[i]);
        np_free(store->names[i]);
    }
    np_free(store->objects);
    np_free(store);
}

struct np_range_object *np_remote_store_find(const struct np_remote_store *store, int file)
{
    const int at = store->first - file;

    return at >= 0 && at < store->nr_objects ? store->objects[at] : NULL;
}

void np_remote_store_numbers(
    const struct np_remote_store *store, struct np_range_numbers *ret_numbers)
{
    struct np_range_numbers sum = {0}, one;

    for (int i = 0; i < store->nr_caches; i++) {
        np_range_numbers(store->caches[i], &one);
        sum.nr_hits += one.nr_hits;
        sum.hit_bytes += one.hit_bytes;
        sum.nr_misses += one.nr_misses;
        sum.nr_stored += one.nr_stored;
        sum.nr_slow += one.nr_slow;
        sum.nr_full += one.nr_full;
        sum.nr_wrong += one.nr_wrong;
        sum.nr_damaged += one.nr_damaged;
        sum.nr_evicted += one.nr_evicted;
        sum.used_bytes = one.used_bytes > sum.used_bytes ? one.used_bytes : sum.used_bytes;
        sum.max_bytes = one.max_bytes;
        sum.is_off |= one.is_off;
    }
    *ret_numbers = sum;
}

const char *np_remote_store_note(const struct np_remote_store *store)
{
    for (int i = 0; i < store->nr_caches; i++)
        if (*np_range_note(store->caches[i]))
            return np_range_note(store->caches[i]);
    return "";
}
