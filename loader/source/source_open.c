/* Opens the index of a set: a saved one that is not stale, else by a scan. Decides where indexes
 * are saved. One thread. */
#include "loader/source/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/base/text.h"
#include "loader/source/entries.h"
#include "loader/source/source_scan.h"

#define SCAN_VERSION 2 /* of the rules by which sources list: a change makes indexes stale */

static bool is_set(const char *text)
{
    return text && *text;
}

/* Creates the folder in /tmp that replaces a missing home, or checks its owner: another user may
 * have made it, with false labels in its indexes. */
static int private_dir(const char *path, struct np_err *err)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return np_err_set(err, -errno, "%s: cannot be created: %s", path, strerror(errno));
    if (lstat(path, &st) < 0)
        return np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0077))
        return np_err_set(err, -EPERM,
            "%s: not used as a cache, because others own it or can write to it: make it yours "
            "with mode 700, or set HOME, XDG_CACHE_HOME or the set's cache_dir",
            path);
    return 0;
}

int np_cache_dir(const struct np_source_options *options, char **ret_dir, struct np_err *err)
{
    const char *home = getenv("HOME"), *tmp = getenv("TMPDIR"), *xdg = getenv("XDG_CACHE_HOME");
    char *dir;
    int code = 0;

    if (options && is_set(options->cache_dir))
        dir = np_try_strdup(options->cache_dir, err);
    else if ((xdg && *xdg == '/') || (home && *home == '/')) {
        dir = np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe");
        code = dir ? 0 : np_err_set(err, -ENOMEM, "out of memory for the cache folder's name");
    } else {
        dir =
            np_try_format(err, "%s/nnpipe-%ld", tmp && *tmp == '/' ? tmp : "/tmp", (long)geteuid());
        code = dir ? private_dir(dir, err) : 0;
    }
    if (!dir)
        return -ENOMEM;
    if (code)
        np_free(dir);
    else
        *ret_dir = dir;
    return code;
}

#define UNUSED_DAYS 90 /* an index unopened for longer is removed */

/* Where an index may be. In the cache folder it is index/BASE.HASH.npidx: BASE is the last part of
 * the path, with '_' for the characters of a glob, HASH the hash of the folder and the options. It
 * is used if its key is the same: the options, device and inode of the first file, and name, size
 * and mtime of each. An index that a user put beside the data (`data index --beside`, `data pack`)
 * is BASE.npidx, or BASE-HASH.npidx with `match` or `labels`; its key has no folder, so that data
 * and index can be moved together. */
struct places {
    char *beside, *beside_key;
    char *cached, *key;     /* cached: NULL if there is no cache folder */
    struct np_err no_cache; /* the reason */
    uid_t owner;            /* of the data: an index of this user is trusted */
};

static void places_fini(struct places *places)
{
    np_free(places->beside);
    np_free(places->beside_key);
    np_free(places->cached);
    np_free(places->key);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static char *describe(const struct np_source_options *options, struct np_err *err)
{
    const char *columns = is_set(options->columns) ? options->columns : NULL;
    const char *synsets = is_set(options->synsets) ? base_of(options->synsets) : NULL;

    char type[40] = "";

    if (options->label_type != NP_LABEL_CLASS)
        snprintf(type, sizeof(type), "label_type=%d '%.1s'\n", options->label_type,
            is_set(options->separator) ? options->separator : "|");
    return np_try_format(err,
        "nnpipe index %d\nsource=%s\npath=%s\nlabels=%s\nmatch=%s\n%s%s%s%s%s%s%s", SCAN_VERSION,
        options->source, base_of(options->path), options->labels ? base_of(options->labels) : "",
        options->match ? options->match : "", columns ? "columns=" : "", columns ? columns : "",
        columns ? "\n" : "", synsets ? "synsets=" : "", synsets ? synsets : "", synsets ? "\n" : "",
        type);
}

/* A key: the options, and one line per file (base: without its folder). A set may have tens of
 * thousands of files. */
static char *describe_files(
    const char *asked, const struct np_paths *paths, bool base, struct np_err *err)
{
    char *text = NULL, *key = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out)
        fputs(asked, out);
    for (int i = 0; out && i < paths->nr_paths; i++) {
        struct stat st = {0};

        np_file_stat(paths->paths[i], &st, NULL); /* a missing file fails in the scan */
        if (!base && i == 0)
            fprintf(out, "at %llx:%llx\n", (unsigned long long)st.st_dev,
                (unsigned long long)st.st_ino);
        fprintf(out, "%s %llu %lld.%09ld\n", base ? base_of(paths->paths[i]) : paths->paths[i],
            S_ISREG(st.st_mode) ? (unsigned long long)st.st_size : 0ull,
            (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    if (out && fclose(out) == 0)
        key = np_try_strdup(text, err);
    if (!key)
        np_err_set(err, -ENOMEM, "out of memory to describe a set's files");
    free(text);
    return key;
}

/* Of a URL without its query, which may be a secret: all who see the folder see the name. */
static char *clean_base(const char *path, struct np_err *err)
{
    char *whole = np_try_format(err, "%.*s", (int)np_path_bytes(path), path);
    char *base = whole ? np_try_strdup(base_of(whole), err) : NULL;

    np_free(whole);

    for (char *at = base; at && *at; at++)
        if (strchr("*?[]{},: ", *at))
            *at = '_';
    if (base && strlen(base) > 100)
        base[100] = '\0';
    return base;
}

/* The folder for an index beside the first path; np_free. For a folder of images it is the parent:
 * inside, the index would change the folder that it describes. */
static char *folder_beside(const struct np_paths *paths, struct np_err *err)
{
    char *folder = np_try_strdup(paths->paths[0], err),
         *slash = folder ? strrchr(folder, '/') : NULL;

    if (slash)
        slash[slash == folder] = '\0';
    return folder;
}

/* The folder for indexes; in another user's cache, a separate one. */
static char *index_folder(const char *cache, struct np_err *err)
{
    struct stat st;

    if (stat(cache, &st) == 0 && st.st_uid != geteuid())
        return np_try_format(err, "%s/index-%ld", cache, (long)geteuid());
    return np_try_format(err, "%s/index", cache);
}

static char *name_beside(const struct np_source_options *options, const char *folder,
    const char *asked, struct np_err *err)
{
    char *base = clean_base(options->path, err), *name = NULL;

    if (base && (is_set(options->match) || is_set(options->labels)))
        name = np_try_format(
            err, "%s/%s-%08x.npidx", folder, base, (unsigned)XXH64(asked, strlen(asked), 0));
    else if (base)
        name = np_try_format(err, "%s/%s.npidx", folder, base);
    np_free(base);
    return name;
}

static char *name_cached(const struct np_source_options *options, const char *cache,
    const char *folder, const char *asked, struct np_err *err)
{
    char *base = clean_base(options->path, err), *in = index_folder(cache, err), *name = NULL;
    char *where = np_try_format(err, "%s%s\n", asked, folder);

    if (base && in && where)
        name = np_try_format(err, "%s/%s.%016llx.npidx", in, base,
            (unsigned long long)XXH64(where, strlen(where), 0));
    np_free(base);
    np_free(in);
    np_free(where);
    return name;
}

char *np_source_place(uint64_t hash, struct np_err *err)
{
    char *cache = NULL, *folder = NULL, *place = NULL;

    if (np_cache_dir(NULL, &cache, err) == 0)
        folder = index_folder(cache, err);
    if (folder)
        place = np_try_format(err, "%s/files.%016llx.npidx", folder, (unsigned long long)hash);
    np_free(cache);
    np_free(folder);
    return place;
}

/* Asks the servers for the current versions of all objects at once. The set's URLs come first. */
static int look_at_urls(const struct np_paths *paths, struct np_err *err)
{
    int nr = 0;

    while (nr < paths->nr_paths && np_is_url(paths->paths[nr]))
        nr++;
    return nr > 0 ? np_remote()->look(paths->paths, nr, err) : 0;
}

/* Names the objects whose changes cannot be seen. */
static void note_versions(const struct np_paths *paths, const struct np_source_progress *progress)
{
    const char *first = NULL, *version;
    uint64_t bytes, number;
    int nr = 0, file;

    for (int i = 0; i < paths->nr_paths && np_is_url(paths->paths[i]); i++) {
        if (np_remote()->open(paths->paths[i], &file, NULL))
            continue;
        np_remote()->facts(file, &bytes, &number, &version);
        first = first || *version ? first : paths->paths[i];
        nr += !*version;
    }
    if (nr > 0)
        np_source_note(progress,
            "%s%s: the server names no version (ETag or Last-Modified), so a change is seen only "
            "by "
            "another size. It is listed at each start, and not kept in the cache on disk",
            first, nr > 1 ? " and others" : "");
}

/* All files of a set, those of the labels included. */
static int find_files(const struct np_source_options *options, bool looks,
    struct np_paths *ret_paths, struct np_err *err)
{
    struct np_paths paths = {NULL, 0};
    int code = np_paths_find(options->path, &paths, err);

    if (!code && is_set(options->labels))
        code = np_paths_add(options->labels, &paths, err);
    if (!code && is_set(options->synsets))
        code = np_paths_add(options->synsets, &paths, err);
    if (!code && looks)
        code = look_at_urls(&paths, err);
    if (code)
        np_paths_fini(&paths);
    else
        *ret_paths = paths;
    return code;
}

/* looks: asks servers for the current versions of objects; else those are taken that are known, so that
 * the end of a run waits for no server. */
static int find_places(const struct np_source_options *options, bool looks,
    const struct np_source_progress *progress, struct places *ret_places, struct np_err *err)
{
    struct places places = {0};
    struct np_paths paths;
    char *asked = NULL, *folder = NULL, *cache = NULL;
    struct stat st;
    bool has_cache;
    int code = find_files(options, looks, &paths, err);

    if (code)
        return code;
    if (looks)
        note_versions(&paths, progress);
    asked = describe(options, err);
    folder = folder_beside(&paths, err);
    has_cache = np_cache_dir(options, &cache, &places.no_cache) == 0;
    places.owner = np_file_stat(paths.paths[0], &st, NULL) == 0 ? st.st_uid : geteuid();
    if (asked && folder) {
        places.beside = name_beside(options, folder, asked, err);
        places.beside_key = describe_files(asked, &paths, true, err);
        places.cached = has_cache ? name_cached(options, cache, folder, asked, err) : NULL;
        places.key = describe_files(asked, &paths, false, err);
    }
    np_paths_fini(&paths);
    np_free(cache);
    np_free(asked);
    np_free(folder);
    if (!places.beside || !places.beside_key || (has_cache && !places.cached) || !places.key) {
        places_fini(&places);
        return -ENOMEM;
    }
    *ret_places = places;
    return 0;
}

/* The cached one first: it has the newer checksums. */
static int open_saved(const struct places *places, struct np_index **ret_index)
{
    int code = -ENOENT;

    if (places->cached)
        code = np_index_open(places->cached, places->key, geteuid(), ret_index, NULL);
    if (code == 0)
        utimensat(AT_FDCWD, places->cached, NULL, 0); /* for remove_unused() */
    else if (!np_is_url(places->beside))
        code = np_index_open(places->beside, places->beside_key, places->owner, ret_index, NULL);
    return code;
}

/* "s3://b/train-{000..999}.tar": "s3://b/train-_.tar.npidx", as `data pack` names it. np_free. */
static char *name_on_server(const char *pattern, struct np_err *err)
{
    char *name = np_try_format(err, "%s.npidx", pattern), *to = name;

    for (const char *at = name; at && *at; at++) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;

        *to++ = end ? '_' : *at;
        at = end ? end : at;
    }
    if (to)
        *to = '\0';
    return name;
}

/* From beside the archives on a server, if the set is listed in the plain way. */
static int open_on_server(const struct np_source_options *options,
    const struct np_source_progress *progress, struct np_index **ret_index)
{
    char *url, key[64];
    struct np_paths paths;
    int code;

    if (!np_is_url(options->path) || is_set(options->match) || is_set(options->labels) ||
        is_set(options->columns) || options->label_type != NP_LABEL_CLASS ||
        strchr(options->path, '?'))
        return -ENOENT;
    if (np_paths_find(options->path, &paths, NULL))
        return -ENOENT;
    snprintf(key, sizeof(key), "nnpipe index %d\nsource=%s\n", SCAN_VERSION, options->source);
    url = name_on_server(options->path, NULL);
    code = url ? np_index_fetch(url, key, paths.paths, paths.nr_paths, ret_index) : -ENOMEM;
    if (!code)
        np_source_note(progress, "the samples are those of the index %s", url);
    else if (code != -ENOENT)
        np_source_note(progress, "the index %s is damaged, or not of these archives", url);
    np_free(url);
    np_paths_fini(&paths);
    return code;
}

static void remove_index(int folder_fd, const char *folder, const char *name)
{
    char *path = np_try_format(NULL, "%s/%s", folder, name);

    if (path)
        np_entries_remove(path);
    np_free(path);
    unlinkat(folder_fd, name, 0);
}

static void remove_unused(const char *folder)
{
    DIR *dir = opendir(folder);
    const time_t oldest = time(NULL) - (time_t)UNUSED_DAYS * 24 * 3600;
    struct stat st;

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (strstr(entry->d_name, ".npidx") &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mtime < oldest)
            remove_index(dirfd(dir), folder, entry->d_name);
    if (dir)
        closedir(dir);
}

static bool has_secret(const struct np_index *index)
{
    for (int i = 0; i < index->nr_files; i++)
        if (np_text_has_secret(index->paths[i]))
            return true;
    return false;
}

static int save_in_cache(
    struct np_io *io, const struct places *places, const struct np_index *index, struct np_err *err)
{
    char *folder;
    int code;

    if (!places->cached)
        return np_err_set(err, places->no_cache.code, "%s", places->no_cache.text);
    folder = np_try_strdup(places->cached, err);
    if (!folder)
        return -ENOMEM;
    *strrchr(folder, '/') = '\0';
    code = np_make_dirs(folder, err);
    if (code == 0 && has_secret(index))
        code = np_io_make_private(places->cached, err);
    if (code == 0)
        code = np_index_save(index, io, places->cached, places->key, err);
    if (code == 0)
        remove_unused(folder);
    np_free(folder);
    return code;
}

static int save(
    const struct places *places, const struct np_index *index, bool beside, struct np_err *err)
{
    struct np_io io;
    int code = np_io_open(&io, "pread", 1, err);

    if (code)
        return code;
    code = beside ? np_index_save(index, &io, places->beside, places->beside_key, err)
                  : save_in_cache(&io, places, index, err);
    np_io_close(&io);
    return code;
}

static int save_somewhere(const struct np_source_options *options, const struct np_index *index,
    bool beside, char **ret_path, struct np_err *err)
{
    struct places places;
    int code = find_places(options, false, NULL, &places, err);

    if (code)
        return code;
    if (index->key && strcmp(index->key, places.key) != 0)
        code = np_err_set(err, -ESTALE,
            "%s: its files have changed since they were listed; the next run lists them again",
            options->path);
    else
        code = save(&places, index, beside, err);
    if (!code && ret_path)
        *ret_path = np_try_strdup(beside ? places.beside : places.cached, NULL);
    places_fini(&places);
    return code;
}

int np_source_save(
    const struct np_source_options *options, const struct np_index *index, struct np_err *err)
{
    if (index->raw.kind == NP_RAW_SYNTH)
        return 0; /* synth sets have no index file */
    return save_somewhere(options, index, false, NULL, err);
}

int np_source_save_beside(const struct np_source_options *options, const struct np_index *index,
    char **ret_path, struct np_err *err)
{
    if (index->raw.kind == NP_RAW_SYNTH)
        return np_err_set(err, -EINVAL, "a `synth` set has no files, and needs no index");
    if (is_set(options->path) && np_is_url(options->path))
        return np_err_set(err, -ENOTSUP,
            "%s: nnpipe writes nothing to servers; the index is in the cache folder",
            options->path);
    return save_somewhere(options, index, true, ret_path, err);
}

void np_source_forget(const struct np_source_options *options)
{
    struct places places;
    struct stat st;

    if (find_places(options, false, NULL, &places, NULL))
        return;
    if (!np_is_url(places.beside) && stat(places.beside, &st) == 0 && st.st_uid == geteuid())
        unlink(places.beside);
    if (places.cached) {
        unlink(places.cached);
        np_entries_remove(places.cached);
    }
    places_fini(&places);
}

static int no_samples(const struct np_source_options *options, struct np_err *err)
{
    bool by_name = strcmp(options->source, "folder") == 0 || strcmp(options->source, "tar") == 0;

    if (is_set(options->match))
        return np_err_set(
            err, -ENODATA, "%s: no samples that match '%s'", options->path, options->match);
    return np_err_set(err, -ENODATA, "%s: no samples%s", options->path,
        by_name ? ": no file in it is named .jpg, .png or .ppm" : "");
}

static int scan(const struct np_source_options *options, const struct np_source_progress *progress,
    struct np_index **ret_index, struct np_err *err)
{
    const struct np_source *source = np_source_find(options->source);
    struct np_source_progress own = progress ? *progress : (struct np_source_progress){0};
    struct np_index *index = np_index_new(err);
    char shown[PATH_MAX];
    int code;

    snprintf(shown, sizeof(shown), "%s", options->path ? options->path : "");
    np_text_hide(shown);
    own.path = shown;

    if (!source)
        code = np_err_set(err, -EINVAL, "there is no source '%s'", options->source);
    else if (!index)
        code = -ENOMEM;
    else {
        np_source_count(&own, index);
        code = source->scan(options, index, &own, err);
    }
    if (!code)
        code = np_index_finish(index, err);
    if (!code && np_index_samples(index) == 0)
        code = no_samples(options, err);
    if (code) {
        np_index_free(index);
        return code;
    }
    *ret_index = index;
    return 0;
}

static int open_stored(const struct np_source_options *options,
    const struct np_source_progress *progress, struct np_index **ret_index, struct np_err *err)
{
    struct np_index *index = NULL;
    struct np_err unsaved = {0};
    struct places places;
    /* Before the scan: a change during it leaves a stale key, never a wrong index. */
    int code = find_places(options, true, progress, &places, err);

    if (code)
        return code;
    if (open_saved(&places, &index) != 0) {
        if (open_on_server(options, progress, &index))
            code = scan(options, progress, &index, err);
        if (!code && save(&places, index, false, &unsaved))
            np_source_note(progress, "the index is not saved: %s", unsaved.text);
    }
    if (!code)
        code = np_index_set_key(index, places.key, err);
    if (!code) {
        index->cached = places.cached;
        places.cached = NULL;
    }
    places_fini(&places);
    if (code)
        np_index_free(index);
    else
        *ret_index = index;
    return code;
}

int np_source_open(const struct np_source_options *options,
    const struct np_source_progress *progress, struct np_index **ret_index, struct np_err *err)
{
    const bool has_files = options->path && *options->path;

    int code = has_files ? open_stored(options, progress, ret_index, err)
                         : scan(options, progress, ret_index, err);

    if (code == 0)
        (*ret_index)->label_type = (enum np_label_type)options->label_type;
    return code;
}
