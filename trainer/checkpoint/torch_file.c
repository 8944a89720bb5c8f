/* Reads the containers of torch.save(). The formats: torch/serialization.py, _save() and
 * _legacy_save(). */
#include "trainer/checkpoint/torch_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/zip_stored.h"

#define FIRST_PICKLES (1u << 20) /* bytes read at first of an old file */
#define NR_PICKLES    5
#define SMALL         16 /* bytes of NAME/byteorder */

static bool holds(const uint8_t *start, size_t bytes, const char *word, size_t n)
{
    return memmem(start, bytes, word, n) != NULL;
}

static bool ends(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

bool np_torch_is_zip(const uint8_t *start, size_t bytes)
{
    return bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0 && !holds(start, bytes, ".npy", 4);
}

/* 0x1950a86a20f9469cfc6c as a LONG1, and STOP, in any protocol */
bool np_torch_is_old(const uint8_t *start, size_t bytes)
{
    static const char magic[] = "\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";
    const size_t n = sizeof(magic) - 1;

    return bytes >= n + 2 && start[0] == 0x80 && holds(start, bytes < 32 ? bytes : 32, magic, n);
}

/* --- storages ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *dtype;
    uint64_t bytes;
} types[] = {
    {"FloatStorage", "F32", 4},
    {"DoubleStorage", "F64", 8},
    {"HalfStorage", "F16", 2},
    {"BFloat16Storage", "BF16", 2},
    {"LongStorage", "I64", 8},
    {"IntStorage", "I32", 4},
    {"ShortStorage", "I16", 2},
    {"CharStorage", "I8", 1},
    {"ByteStorage", "U8", 1},
    {"BoolStorage", "BOOL", 1},
    {"UntypedStorage", "untyped", 1},
    {"ComplexFloatStorage", "complex64", 8},
    {"ComplexDoubleStorage", "complex128", 16},
    {"QUInt8Storage", "quint8", 1},
    {"QInt8Storage", "qint8", 1},
    {"QInt32Storage", "qint32", 4},
    {"QUInt4x2Storage", "quint4x2", 1},
    {"QUInt2x4Storage", "quint2x4", 1},
};

bool np_torch_storage_type(
    const struct np_pickle_value *type, const char **ret_dtype, uint64_t *ret_bytes)
{
    if (type->kind != NP_PICKLE_GLOBAL || strncmp(type->text, "torch.", 6) != 0)
        return false;
    const char *name = strrchr(type->text, '.') + 1; /* also torch.cuda. and torch.storage. */

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0) {
            *ret_dtype = types[i].dtype;
            *ret_bytes = types[i].bytes;
            return true;
        }
    return false;
}

static int compare_keys(const void *a, const void *b)
{
    const struct np_torch_storage *x = a, *y = b;
    const size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    const int order = memcmp(x->key, y->key, n);

    return order ? order : x->key_bytes < y->key_bytes ? -1 : x->key_bytes > y->key_bytes;
}

static int sort_entries(const struct np_st_file *file, struct np_torch *torch, struct np_err *err)
{
    struct np_torch_storage *all = torch->storages;

    if (torch->nr_storages > 0)
        qsort(all, torch->nr_storages, sizeof(*all), compare_keys);
    for (size_t i = 1; i < torch->nr_storages; i++)
        if (compare_keys(&all[i - 1], &all[i]) == 0)
            return np_err_set(err, -EBADMSG, "%s: damaged: two storages have the key %.*s",
                file->name, (int)all[i].key_bytes, all[i].key);
    return 0;
}

const struct np_torch_storage *np_torch_find(
    const struct np_torch *torch, const struct np_pickle_value *key)
{
    const struct np_torch_storage wanted = {.key = key->text, .key_bytes = key->bytes};

    if (key->kind != NP_PICKLE_TEXT || torch->nr_storages == 0)
        return NULL;
    return bsearch(&wanted, torch->storages, torch->nr_storages, sizeof(wanted), compare_keys);
}

void np_torch_fini(struct np_torch *torch)
{
    np_pickle_fini(&torch->pickle);
    np_pickle_fini(&torch->keys);
    np_free(torch->storages);
    np_free(torch->bytes);
    np_free(torch->names);
    *torch = (struct np_torch){0};
}

/* --- zip files ------------------------------------------------------------------------------ */

/* The first entry NAME/data.pkl. */
static const struct np_zip_entry *find_pickle(const struct np_zip *zip)
{
    for (int i = 0; i < zip->n; i++)
        if (ends(zip->entries[i].name, "/data.pkl") ||
            strcmp(zip->entries[i].name, "data.pkl") == 0)
            return &zip->entries[i];
    return NULL;
}

/* The entry beside data.pkl. */
static const struct np_zip_entry *find_beside(
    const struct np_zip *zip, const char *prefix, const char *name, struct np_err *err)
{
    char *path = np_try_format(err, "%s%s", prefix, name);
    const struct np_zip_entry *entry = path ? np_zip_find(zip, path) : NULL;

    np_free(path);
    return entry;
}

static int check_kind(
    const struct np_st_file *file, const struct np_zip *zip, const char *prefix, struct np_err *err)
{
    const struct np_zip_entry *order = find_beside(zip, prefix, "byteorder", err);
    char text[SMALL] = "";

    if (find_beside(zip, prefix, "constants.pkl", err))
        return np_err_set(err, -EBADMSG,
            "%s: a TorchScript archive: its weights are read from a file that "
            "torch.save(torch.jit.load(FILE).state_dict(), ...) writes",
            file->name);
    if (err->code || !order || order->bytes >= SMALL)
        return err->code;
    const int code = np_st_read_at(file, order->offset, text, order->bytes, err);
    if (code == 0 && strcmp(text, "little") != 0)
        return np_err_set(err, -EBADMSG, "%s: its numbers are %s-endian, only little is read here",
            file->name, text);
    return code;
}

static int check_stored(
    const struct np_st_file *file, const struct np_zip_entry *entry, struct np_err *err)
{
    if (!entry->packed)
        return 0;
    return np_err_set(err, -EBADMSG,
        "%s: the entry %s is %s, which torch.save() never does: unpack the file and pack it again "
        "with zip -0",
        file->name, entry->name, entry->packed);
}

static int list_entries(const struct np_st_file *file, struct np_zip *zip, const char *prefix,
    struct np_torch *torch, struct np_err *err)
{
    const size_t length = strlen(prefix);

    torch->storages = np_try_array((size_t)zip->n, sizeof(*torch->storages), err);
    for (int i = 0; torch->storages && i < zip->n; i++) {
        const struct np_zip_entry *entry = &zip->entries[i];
        if (strncmp(entry->name, prefix, length) != 0 ||
            strncmp(entry->name + length, "data/", 5) != 0)
            continue;
        if (check_stored(file, entry, err) < 0)
            return -EBADMSG;
        const char *key = entry->name + length + 5;
        torch->storages[torch->nr_storages++] =
            (struct np_torch_storage){key, strlen(key), entry->offset, entry->bytes, entry->crc32};
    }
    torch->names = zip->directory;
    zip->directory = NULL;
    return err->code;
}

static int read_pickle(const struct np_st_file *file, const struct np_zip_entry *entry,
    struct np_torch *torch, struct np_err *err)
{
    size_t used;
    int code = check_stored(file, entry, err);

    if (code < 0)
        return code;
    if (entry->bytes > NP_PICKLE_MAX_BYTES)
        return np_err_set(err, -E2BIG, "%s: its pickle is larger than %u MiB", file->name,
            NP_PICKLE_MAX_BYTES >> 20);
    torch->bytes = np_try_alloc(entry->bytes, err);
    code = torch->bytes ? np_st_read_at(file, entry->offset, torch->bytes, entry->bytes, err)
                        : np_err_context(err, "%s", file->name);
    if (code == 0 && entry->crc32 != 0 &&
        crc32(0, torch->bytes, (unsigned)entry->bytes) != entry->crc32)
        code = np_err_set(err, -EBADMSG, "%s: damaged: the CRC-32 of %s is not the one in the file",
            file->name, entry->name);
    if (code == 0 &&
        (code = np_pickle_parse(torch->bytes, entry->bytes, &torch->pickle, &used, err)) < 0)
        np_err_context(err, "%s", file->name);
    return code == -ENODATA ? -EBADMSG : code;
}

int np_torch_read_zip(const struct np_st_file *file, struct np_torch *torch, struct np_err *err)
{
    struct np_zip zip = {0};
    const struct np_zip_entry *pickle;
    char *prefix = NULL;
    int code;

    *torch = (struct np_torch){0};
    code = np_zip_open(file, &zip, err);
    pickle = code == 0 ? find_pickle(&zip) : NULL;
    if (code == 0 && !pickle)
        code =
            np_err_set(err, -EBADMSG, "%s: a zip file without torch's NAME/data.pkl", file->name);
    if (code == 0) {
        prefix = np_try_format(
            err, "%.*s", (int)(strlen(pickle->name) - strlen("data.pkl")), pickle->name);
        code = prefix ? check_kind(file, &zip, prefix, err) : err->code;
    }
    if (code == 0)
        code = read_pickle(file, pickle, torch, err);
    if (code == 0 && (code = list_entries(file, &zip, prefix, torch, err)) == 0)
        code = sort_entries(file, torch, err);
    np_free(prefix);
    np_zip_fini(&zip);
    return code;
}

/* --- files of before 1.6 ---------------------------------------------------------------------- */

static int by_key_and_size(const void *a, const void *b)
{
    const struct np_torch_storage *x = a, *y = b;
    const int order = compare_keys(a, b);

    return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Only the places where the pickle names a storage tell the size of its elements, which stands in
 * .bytes here. offset 0: not found in the file yet. */
static int list_named(struct np_torch *torch, struct np_err *err)
{
    size_t room = 0, n = 0;

    for (size_t i = 0; i < torch->pickle.nr_values; i++) {
        const struct np_pickle_value *value = np_pickle_value(&torch->pickle, i),
                                     *id = value->kind == NP_PICKLE_STORED ? value->args : NULL;
        struct np_torch_storage storage = {0};
        const char *dtype;

        if (!id || id->kind != NP_PICKLE_TUPLE || id->nr_items < 5 ||
            id->items[2]->kind != NP_PICKLE_TEXT ||
            !np_torch_storage_type(id->items[1], &dtype, &storage.bytes))
            continue;
        if (np_try_grow(&torch->storages, &room, n + 1, sizeof(storage), err) < 0)
            return err->code;
        storage.key = id->items[2]->text;
        storage.key_bytes = id->items[2]->bytes;
        torch->storages[n++] = storage;
    }
    if (n > 0)
        qsort(torch->storages, n, sizeof(*torch->storages), by_key_and_size);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || compare_keys(&torch->storages[i], &torch->storages[i - 1]) != 0)
            torch->storages[torch->nr_storages++] = torch->storages[i];
    return 0;
}

/* at: the first byte after the pickles. */
static int list_old(
    const struct np_st_file *file, uint64_t at, struct np_torch *torch, struct np_err *err)
{
    const struct np_pickle_value *keys = torch->keys.root;
    int code = keys->kind == NP_PICKLE_LIST ? list_named(torch, err) : -EBADMSG;

    for (size_t i = 0; code == 0 && i < keys->nr_items; i++) {
        struct np_torch_storage *storage =
            (struct np_torch_storage *)np_torch_find(torch, keys->items[i]);
        uint64_t n = 0, bytes = 0;

        code = !storage || storage->offset || file->nr_bytes - at < 8
                   ? -EBADMSG
                   : np_st_read_at(file, at, &n, 8, err);
        if (code == 0 &&
            (__builtin_mul_overflow(n, storage->bytes, &bytes) || bytes > file->nr_bytes - at - 8))
            code = -EBADMSG;
        if (code == 0) {
            storage->offset = at + 8;
            storage->bytes = bytes;
            at += 8 + bytes;
        }
    }
    if (code == -EBADMSG)
        np_err_set(err, code,
            "%s: damaged or truncated: its storages do not fit its %" PRIu64 " bytes", file->name,
            file->nr_bytes);
    return code;
}

/* Whether the system that the third pickle describes has our byte order. */
static int check_system(
    const struct np_st_file *file, const struct np_pickle_value *system, struct np_err *err)
{
    const struct np_pickle_value *little = np_pickle_get(system, "little_endian");

    if (little && little->kind == NP_PICKLE_BOOL && !little->number)
        return np_err_set(
            err, -EBADMSG, "%s: its numbers are big-endian, only little is read here", file->name);
    return 0;
}

/* The five pickles in (bytes) bytes. -ENODATA: they end later. *ret_used: their length. */
static int parse_pickles(const struct np_st_file *file, size_t bytes, struct np_torch *torch,
    size_t *ret_used, struct np_err *err)
{
    size_t at = 0, used = 0;
    int code = 0;

    for (int i = 0; i < NR_PICKLES && code == 0; i++) {
        struct np_pickle other = {0};
        struct np_pickle *pickle = i == 3 ? &torch->pickle : i == 4 ? &torch->keys : &other;
        code = np_pickle_parse(torch->bytes + at, bytes - at, pickle, &used, err);
        if (code < 0)
            np_err_context(err, "%s", file->name);
        if (code == 0 && i == 2)
            code = check_system(file, pickle->root, err);
        np_pickle_fini(&other);
        at += used;
    }
    *ret_used = at;
    return code;
}

int np_torch_read_old(const struct np_st_file *file, struct np_torch *torch, struct np_err *err)
{
    const uint64_t max =
        file->nr_bytes < NP_PICKLE_MAX_BYTES ? file->nr_bytes : NP_PICKLE_MAX_BYTES;
    uint64_t bytes = FIRST_PICKLES;
    size_t used = 0;
    int code = -ENODATA;

    *torch = (struct np_torch){0};
    while (code == -ENODATA) {
        struct np_err why = {0};
        np_torch_fini(torch);
        bytes = bytes < max ? bytes : max;
        torch->bytes = np_try_alloc(bytes, &why);
        code = torch->bytes ? np_st_read_at(file, 0, torch->bytes, bytes, &why) : why.code;
        if (code == 0)
            code = parse_pickles(file, bytes, torch, &used, &why);
        if (code == -ENODATA && bytes == max)
            code = -EBADMSG;
        if (code < 0 && code != -ENODATA)
            return np_err_set(err, code, "%s", why.text);
        bytes *= 4;
    }
    return list_old(file, used, torch, err);
}
