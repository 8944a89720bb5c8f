/* Packing: names for the members, the shards (pack_shard.c), and the index of what was written.
 * One thread. */
#include "loader/pack/pack.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/pack/pack_shard.h"
#include "loader/source/source.h"
#include "loader/source/tar.h"

struct np_packer {
    char *out, *name, *pattern;
    struct np_shards *shards;
    struct np_index *index;
    uint64_t samples, *names; /* hash set of the members' names */
    uint64_t names_room;
};

static int no_memory(struct np_err *err)
{
    return np_err_set(err, -ENOMEM, "out of memory to pack");
}

/* New shards among old ones would be one set to a glob. */
static int check_empty(const struct np_packer *packer, struct np_err *err)
{
    char *old = np_try_format(NULL, "%s/%s-[0-9]*.tar*", packer->out, packer->name);
    glob_t found = {0};
    int code = old ? 0 : no_memory(err);

    if (old && glob(old, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; !code && i < found.gl_pathc; i++)
            if (!strstr(found.gl_pathv[i], ".part")) /* left by a packing that was killed */
                code = np_err_set(err, -EEXIST,
                    "%s is there already: remove the old shards, or name another folder with --out "
                    "or another set with --split (train, test or val: shards are SET-NNNNN.tar)",
                    found.gl_pathv[i]);
    globfree(&found);
    np_free(old);
    return code;
}

int np_packer_open(
    const struct np_pack_options *options, struct np_packer **ret_packer, struct np_err *err)
{
    struct np_packer *packer = np_try_alloc(sizeof(*packer), NULL);
    struct np_pack_options own = *options;
    char real[4096];
    int code = packer ? np_make_dirs(options->out, err) : no_memory(err);

    if (!code && !realpath(options->out, real))
        code = np_err_set(err, -errno, "%s: %s", options->out, strerror(errno));
    if (!code) {
        packer->out = np_try_strdup(real, NULL);
        packer->name = np_try_strdup(options->name, NULL);
        packer->pattern = np_try_format(
            NULL, "%s/%s-*.tar%s", real, options->name, options->zstd_level ? ".zst" : "");
        packer->index = np_index_new(err);
        if (!packer->out || !packer->name || !packer->pattern || !packer->index)
            code = no_memory(err);
    }
    if (!code)
        code = check_empty(packer, err);
    if (!code) {
        own.out = packer->out;
        own.name = packer->name;
        own.align = options->align && !options->zstd_level;
        code = np_shards_open(&own, packer->index, &packer->shards, err);
    }
    if (code) {
        np_packer_abort(packer);
        return code;
    }
    *ret_packer = packer;
    return 0;
}

void np_packer_abort(struct np_packer *packer)
{
    if (!packer)
        return;
    np_shards_free(packer->shards);
    np_index_free(packer->index);
    np_free(packer->out);
    np_free(packer->name);
    np_free(packer->pattern);
    np_free(packer->names);
    np_free(packer);
}

/* Adds a hash; false: it was there. */
static bool add_hash(uint64_t *names, uint64_t room, uint64_t hash)
{
    uint64_t at;

    hash = hash ? hash : 1;
    for (at = hash % room; names[at]; at = (at + 1) % room)
        if (names[at] == hash)
            return false;
    names[at] = hash;
    return true;
}

/* 1: the name is new; 0: it was used before; -ENOMEM. */
static int claim(struct np_packer *packer, const char *name)
{
    if (packer->samples * 2 >= packer->names_room) {
        const uint64_t room = packer->names_room ? packer->names_room * 2 : 1024;
        uint64_t *larger = np_try_array(room, sizeof(*larger), NULL);

        if (!larger)
            return -ENOMEM;
        for (uint64_t i = 0; i < packer->names_room; i++)
            if (packer->names[i])
                add_hash(larger, room, packer->names[i]);
        np_free(packer->names);
        packer->names = larger;
        packer->names_room = room;
    }
    return add_hash(packer->names, packer->names_room, XXH64(name, strlen(name), 0));
}

/* CLASS/BASE.EXT, or CLASS/BASE-NUMBER.EXT where that is taken. */
static int make_name(struct np_packer *packer, const char *class_name, const char *name,
    const char *extension, char *text, struct np_err *err)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strrchr(base, '.');
    const int base_bytes = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    const char *ending = extension ? extension : dot && dot != base ? dot + 1 : "img";
    const size_t class_bytes = class_name ? strlen(class_name) : 0;
    size_t used = 0;
    int claimed;

    if (class_bytes + (size_t)base_bytes + strlen(ending) + 32 > NP_TAR_MAX_NAME)
        return np_err_set(err, -ENAMETOOLONG, "%s: the name is too long for an archive", name);
    if (class_name)
        used = (size_t)sprintf(text, "%s/", class_name);
    sprintf(text + used, "%.*s.%s", base_bytes, base, ending);
    claimed = claim(packer, text);
    if (claimed == 0) {
        sprintf(text + used, "%.*s-%08llu.%s", base_bytes, base,
            (unsigned long long)packer->samples, ending);
        claimed = claim(packer, text);
    }
    if (claimed == 0)
        return np_err_set(err, -EEXIST, "%s: two members of that name", text);
    return claimed < 0 ? no_memory(err) : 0;
}

int np_packer_add(struct np_packer *packer, const char *class_name, const char *name,
    const char *extension, const void *bytes, uint32_t nr_bytes, struct np_err *err)
{
    struct np_record record = {
        .crc32c = np_crc32c(0, bytes, nr_bytes), .has_crc = 1, .no_label = !class_name};
    const int label = class_name ? np_index_add_class(packer->index, class_name) : 0;
    char member[NP_TAR_MAX_NAME + 1];
    int code = label < 0 ? no_memory(err) : 0;

    record.label = label < 0 ? 0 : (uint32_t)label;
    if (!code)
        code = make_name(packer, class_name, name, extension, member, err);
    if (!code)
        code = np_shards_add(packer->shards, member, bytes, nr_bytes, &record, err);
    packer->samples++;
    return code;
}

/* The shards as they now are, for the index. */
static int stamp(struct np_packer *packer, struct np_err *err)
{
    for (int i = 0; i < np_shards_count(packer->shards); i++) {
        char *path = np_shards_path(packer->shards, i);
        struct stat st;
        int code = 0;

        if (!path)
            code = no_memory(err);
        else if (stat(path, &st) < 0)
            code = np_err_set(err, -errno, "%s: %s", path, strerror(errno));
        else if (np_index_add_file(packer->index, path, (uint64_t)st.st_size,
                     (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec) < 0)
            code = no_memory(err);
        np_free(path);
        if (code)
            return code;
    }
    return np_index_finish(packer->index, err);
}

int np_packer_close(struct np_packer *packer, struct np_pack_result *ret_result, struct np_err *err)
{
    char tar[] = "tar", none[] = "";
    const struct np_source_options options = {
        .source = tar, .path = packer->pattern, .match = none, .labels = none, .cache_dir = none};
    int code = packer->samples ? np_shards_publish(packer->shards, err)
                               : np_err_set(err, -ENODATA, "no samples to pack");

    if (!code)
        code = stamp(packer, err);
    if (!code)
        code = np_source_save_beside(&options, packer->index, NULL, err);
    if (!code) {
        ret_result->samples = packer->samples;
        ret_result->bytes = np_shards_bytes(packer->shards);
        ret_result->nr_shards = np_shards_count(packer->shards);
        snprintf(ret_result->pattern, sizeof(ret_result->pattern), "%s", packer->pattern);
    }
    np_packer_abort(packer);
    return code;
}
