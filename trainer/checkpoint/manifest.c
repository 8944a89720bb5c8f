/* manifest.json <-> struct np_manifest. The file holds an XXH3 of its own compact form with sorted
 * keys, which detects every flipped bit. Any thread. */
#include "trainer/checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

#define FORMAT             1
#define MAX_MANIFEST_BYTES (64u << 20)

const char *const np_manifest_files[NP_NR_FILES] = {"weights.safetensors", "optimizer.safetensors"};

enum kind {
    COUNT,
    HASH,
    FLAG,
    REAL,
    NEW_COUNT, /* older manifests lack it: 0 */
    RARE_COUNT,
    RARE_REAL, /* these two stand in the file unless they are 0 */
};
static const struct field {
    const char *key;
    enum kind kind;
    size_t offset;
} fields[] = {
    {"step", COUNT, offsetof(struct np_position, step)},
    {"eval_due", FLAG, offsetof(struct np_position, eval_due)},
    {"ticket_hash", HASH, offsetof(struct np_position, ticket_hash)},
    {"nr_bad", COUNT, offsetof(struct np_position, nr_bad)},
    {"bad_epoch", COUNT, offsetof(struct np_position, bad_epoch)},
    {"log_bytes", COUNT, offsetof(struct np_position, log_bytes)},
    {"metrics_bytes", COUNT, offsetof(struct np_position, metrics_bytes)},
    {"bad_bytes", COUNT, offsetof(struct np_position, bad_bytes)},
    {"history_bytes", COUNT, offsetof(struct np_position, history_bytes)},
    {"losses_bytes", NEW_COUNT, offsetof(struct np_position, losses_bytes)},
    {"best_accuracy", REAL, offsetof(struct np_position, best_accuracy)},
    {"best_step", COUNT, offsetof(struct np_position, best_step)},
    {"train_seconds", REAL, offsetof(struct np_position, train_seconds)},
    {"loss_sum", REAL, offsetof(struct np_position, loss_sum)},
    {"loss_rows", COUNT, offsetof(struct np_position, loss_rows)},
    {"plateau_evals", RARE_COUNT, offsetof(struct np_position, plateau.nr_evals)},
    {"plateau_bad", RARE_COUNT, offsetof(struct np_position, plateau.nr_bad)},
    {"plateau_cooldown", RARE_COUNT, offsetof(struct np_position, plateau.cooldown)},
    {"plateau_best", RARE_REAL, offsetof(struct np_position, plateau.best)},
    {"plateau_factor", RARE_REAL, offsetof(struct np_position, plateau.factor)},
    {"early_evals", RARE_COUNT, offsetof(struct np_position, early.nr_evals)},
    {"early_bad", RARE_COUNT, offsetof(struct np_position, early.nr_bad)},
    {"early_stopped", RARE_COUNT, offsetof(struct np_position, early.stopped)},
    {"early_best", RARE_REAL, offsetof(struct np_position, early.best)},
};
#define NR_FIELDS (sizeof(fields) / sizeof(fields[0]))

/* 64 bits as text: JSON's numbers have 63. */
static json_t *hash_json(uint64_t hash)
{
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    return json_string(text);
}

static bool hash_value(const json_t *value, uint64_t *ret_hash)
{
    const char *text = json_string_value(value);

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *ret_hash = strtoull(text, NULL, 16);
    return true;
}

/* --- writing ------------------------------------------------------------------------------- */

static json_t *position_json(const struct np_position *position)
{
    json_t *object = json_object();

    for (size_t i = 0; i < NR_FIELDS; i++) {
        const void *at = (const char *)position + fields[i].offset;
        json_t *value = NULL;

        if ((fields[i].kind == RARE_COUNT && *(const uint64_t *)at == 0) ||
            (fields[i].kind == RARE_REAL && *(const double *)at == 0))
            continue;
        switch (fields[i].kind) {
        case RARE_COUNT:
        case NEW_COUNT:
        case COUNT: value = json_integer((json_int_t) * (const uint64_t *)at); break;
        case HASH: value = hash_json(*(const uint64_t *)at); break;
        case FLAG: value = json_boolean(*(const bool *)at); break;
        case RARE_REAL:
        case REAL:
            value = isfinite(*(const double *)at) ? json_real(*(const double *)at) : json_null();
            break;
        }
        json_object_set_new(object, fields[i].key, value);
    }
    return object;
}

static json_t *files_json(const struct np_manifest *manifest)
{
    json_t *object = json_object();

    for (int i = 0; i < NP_NR_FILES; i++)
        json_object_set_new(object, np_manifest_files[i],
            json_pack("{s:I, s:o}", "bytes", (json_int_t)manifest->files[i].bytes, "xxh3",
                hash_json(manifest->files[i].xxh3)));
    return object;
}

/* json NULL: out of memory. Returns NULL when out of memory. free(). */
static char *print(const json_t *json, size_t flags, struct np_err *err)
{
    char *text =
        json_dumps(json, flags | JSON_REAL_PRECISION(17)); /* doubles are read back exactly */

    if (!text)
        np_err_set(err, -ENOMEM, "no memory for a manifest");
    return text;
}

/* XXH3 of everything but the key "xxh3" itself. */
static bool hash_of(const json_t *root, uint64_t *ret_hash, struct np_err *err)
{
    char *text = print(root, JSON_COMPACT | JSON_SORT_KEYS, err);

    if (text)
        *ret_hash = XXH3_64bits(text, strlen(text));
    free(text);
    return text != NULL;
}

int np_manifest_dump(
    const struct np_manifest *manifest, const char *facts_json, char **ret_text, struct np_err *err)
{
    json_error_t why;
    json_t *facts = json_loads(facts_json ? facts_json : "{}", 0, &why);
    uint64_t hash;

    if (!json_is_object(facts)) {
        json_decref(facts);
        return np_err_set(err, -EINVAL, "the facts for a manifest are not a JSON object: %s",
            facts ? "something else" : why.text);
    }
    json_t *root = json_pack("{s:i, s:o, s:o, s:o}", "format", FORMAT, "position",
        position_json(&manifest->position), "files", files_json(manifest), "facts", facts);
    char *text = NULL;
    if (hash_of(root, &hash, err)) {
        bool added = json_object_set_new(root, "xxh3", hash_json(hash)) == 0;

        text = print(added ? root : NULL, JSON_INDENT(2), err);
    }
    json_decref(root);
    if (!text)
        return -ENOMEM;
    *ret_text = text;
    return 0;
}

/* --- reading ------------------------------------------------------------------------------- */

static bool read_count(const json_t *value, uint64_t *ret_count)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret_count = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_field(const struct field *field, const json_t *value, void *at)
{
    switch (field->kind) {
    case COUNT: return read_count(value, at);
    case RARE_COUNT:
    case NEW_COUNT: return !value || read_count(value, at);
    case HASH: return hash_value(value, at);
    case FLAG: *(bool *)at = json_is_true(value); return json_is_boolean(value);
    case RARE_REAL:
        if (!value)
            return true;
        /* fall through */
    case REAL:
        *(double *)at = json_is_null(value) ? (double)NAN : json_number_value(value);
        return json_is_null(value) || json_is_number(value);
    }
    return false;
}

static int read_root(
    const char *path, const json_t *root, struct np_manifest *manifest, struct np_err *err)
{
    const json_t *position = json_object_get(root, "position");
    const json_t *files = json_object_get(root, "files");

    for (size_t i = 0; i < NR_FIELDS; i++)
        if (!read_field(&fields[i], json_object_get(position, fields[i].key),
                (char *)&manifest->position + fields[i].offset))
            return np_err_set(
                err, -EBADMSG, "%s: position.%s is missing or wrong", path, fields[i].key);
    for (int i = 0; i < NP_NR_FILES; i++) {
        const json_t *file = json_object_get(files, np_manifest_files[i]);
        if (!read_count(json_object_get(file, "bytes"), &manifest->files[i].bytes) ||
            !hash_value(json_object_get(file, "xxh3"), &manifest->files[i].xxh3))
            return np_err_set(
                err, -EBADMSG, "%s: files.%s is missing or wrong", path, np_manifest_files[i]);
    }
    return 0;
}

/* Removes "xxh3" from root and compares it. */
static int check_hash(const char *path, json_t *root, struct np_err *err)
{
    uint64_t stored, hash;
    bool there = hash_value(json_object_get(root, "xxh3"), &stored);

    json_object_del(root, "xxh3");
    if (!hash_of(root, &hash, err))
        return -ENOMEM;
    if (!there || stored != hash)
        return np_err_set(
            err, -EBADMSG, "%s: damaged: its XXH3 differs from the one it was written with", path);
    return 0;
}

static int parse(const char *path, json_t *root, struct np_manifest *manifest,
    char **ret_facts_json, struct np_err *err)
{
    const json_t *format = json_object_get(root, "format");
    struct np_manifest mine = {0};

    if (!json_is_integer(format))
        return np_err_set(err, -EBADMSG, "%s: not the manifest of a checkpoint", path);
    if (json_integer_value(format) != FORMAT)
        return np_err_set(err, -EPROTO,
            "%s: has format %" JSON_INTEGER_FORMAT
            ", this nnpipe reads %d: use the version that wrote it",
            path, json_integer_value(format), FORMAT);
    int code = read_root(path, root, &mine, err);
    if (code == 0)
        code = check_hash(path, root, err);
    if (code < 0)
        return code;
    const json_t *facts = json_object_get(root, "facts");
    if (!json_is_object(facts))
        return np_err_set(err, -EBADMSG, "%s: facts are missing", path);
    char *text = print(facts, JSON_COMPACT, err);
    if (!text)
        return -ENOMEM;
    *manifest = mine;
    *ret_facts_json = text;
    return 0;
}

int np_manifest_read(
    const char *path, struct np_manifest *ret_manifest, char **ret_facts_json, struct np_err *err)
{
    char *text;
    uint64_t bytes;
    json_error_t why;
    int code = np_read_file(path, MAX_MANIFEST_BYTES, &text, &bytes, err);

    if (code < 0)
        return code;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    np_free(text);
    if (!json_is_object(root))
        code = np_err_set(err, -EBADMSG, "%s: damaged: %s", path, root ? "no object" : why.text);
    else
        code = parse(path, root, ret_manifest, ret_facts_json, err);
    json_decref(root);
    return code;
}
