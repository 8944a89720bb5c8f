/* From a split's options to its index: the saved one while it is fresh, else a scan. Also where
 * indexes are kept. One thread. */
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
#include "loader/base/text.h"
#include "loader/source/source_scan.h"

#define SCAN_VERSION 2 /* of the rules by which sources list: a change makes indexes stale */

/* Without a home: a folder in /tmp, where others could have put one of that name before us, with labels
 * of their choice in its indexes. */
static int private_dir(const char *path, struct np_err *err)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return np_err_set(err, -errno, "%s: cannot be made: %s", path, strerror(errno));
    if (lstat(path, &st) < 0)
        return np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0077))
        return np_err_set(err, -EPERM,
            "%s: others can write to it or own it, so it is not used as a cache: make it yours, "
            "with "
            "mode 700, or set HOME, XDG_CACHE_HOME or the set's cache_dir",
            path);
    return 0;
}

int np_cache_dir(const struct np_source_options *options, char **ret_dir, struct np_err *err)
{
    const char *home = getenv("HOME"), *tmp = getenv("TMPDIR"), *xdg = getenv("XDG_CACHE_HOME");
    char *dir;
    int code = 0;

    if (options && options->cache_dir && *options->cache_dir)
        dir = np_try_strdup(options->cache_dir, err);
    else if ((xdg && *xdg == '/') || (home && *home == '/'))
        dir = np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe");
    else {
        dir = np_try_format(
            NULL, "%s/nnpipe-%ld", tmp && *tmp == '/' ? tmp : "/tmp", (long)geteuid());
        code = dir ? private_dir(dir, err) : 0;
    }
    if (!dir)
        code = np_err_set(err, -ENOMEM, "out of memory to look for the cache");
    if (code)
        np_free(dir);
    else
        *ret_dir = dir;
    return code;
}

#define UNUSED_DAYS 90 /* an index that nobody has opened for so long is removed */

/* Where an index may be. In the cache folder it is index/BASE.HASH.npidx: BASE is the last part of the
 * path with what a glob has in it as '_', HASH of the real path and all that was asked for. What is in
 * it is believed where its key agrees: what was asked for, the device and inode of what is listed,
 * and name, size and mtime of each file. Beside the data, where somebody has put it on purpose
 * (`data index --beside`, `data pack`), it is BASE.npidx, or BASE-HASH.npidx with `match` or `labels`; its key
 * has no folder, so that data and index can be moved together. */
struct places {
    char *beside, *beside_key;
    char *cached, *key;     /* cached: NULL where there is no cache folder */
    struct np_err no_cache; /* why */
    uid_t owner;            /* of the data: whose index beside them is as good as they are */
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

/* What was asked for, without the folder. */
static char *describe(const struct np_source_options *options)
{
    return np_try_format(NULL, "nnpipe index %d\nsource=%s\npath=%s\nlabels=%s\nmatch=%s\n",
        SCAN_VERSION, options->source, base_of(options->path),
        options->labels ? base_of(options->labels) : "", options->match ? options->match : "");
}

/* asked, and one line per file, whose folder is left out where only `base` counts; a set may have tens
 * of thousands of them. */
static char *describe_files(const char *asked, const struct np_paths *paths, bool base)
{
    char *text = NULL, *key;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return NULL;
    fputs(asked, out);
    for (int i = 0; i < paths->nr_paths; i++) {
        struct stat st = {0};

        stat(paths->paths[i], &st); /* a file that is gone now fails in the scan */
        if (!base && i == 0)
            fprintf(out, "at %llx:%llx\n", (unsigned long long)st.st_dev,
                (unsigned long long)st.st_ino);
        fprintf(out, "%s %llu %lld.%09ld\n", base ? base_of(paths->paths[i]) : paths->paths[i],
            S_ISREG(st.st_mode) ? (unsigned long long)st.st_size : 0ull,
            (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    key = fclose(out) == 0 ? np_try_strdup(text, NULL) : NULL;
    free(text);
    return key;
}

static char *clean_base(const char *path)
{
    char *base = np_try_strdup(base_of(path), NULL);

    for (char *at = base; at && *at; at++)
        if (strchr("*?[]{},: ", *at))
            *at = '_';
    if (base && strlen(base) > 100)
        base[100] = '\0';
    return base;
}

/* The folder in which an index may lie beside the first path; np_free. For a folder of images that
 * is the one above: inside it the index would change what it describes. */
static char *folder_beside(const struct np_paths *paths)
{
    char *folder = np_try_strdup(paths->paths[0], NULL),
         *slash = folder ? strrchr(folder, '/') : NULL;

    if (slash)
        slash[slash == folder] = '\0';
    return folder;
}

/* The folder for indexes: in a cache that others have made, and perhaps use, one of our own. */
static char *index_folder(const char *cache)
{
    struct stat st;

    if (stat(cache, &st) == 0 && st.st_uid != geteuid())
        return np_try_format(NULL, "%s/index-%ld", cache, (long)geteuid());
    return np_try_format(NULL, "%s/index", cache);
}

static bool is_set(const char *text)
{
    return text && *text;
}

static char *name_beside(
    const struct np_source_options *options, const char *folder, const char *asked)
{
    char *base = clean_base(options->path), *name = NULL;

    if (base && (is_set(options->match) || is_set(options->labels)))
        name = np_try_format(
            NULL, "%s/%s-%08x.npidx", folder, base, (unsigned)XXH64(asked, strlen(asked), 0));
    else if (base)
        name = np_try_format(NULL, "%s/%s.npidx", folder, base);
    np_free(base);
    return name;
}

static char *name_cached(
    const struct np_source_options *options, const char *folder, const char *asked)
{
    char *base = clean_base(options->path), *far = np_try_format(NULL, "%s%s\n", asked, folder);
    char *cache = NULL, *in = NULL, *name = NULL;

    if (base && far && np_cache_dir(options, &cache, NULL) == 0 && (in = index_folder(cache)))
        name = np_try_format(
            NULL, "%s/%s.%016llx.npidx", in, base, (unsigned long long)XXH64(far, strlen(far), 0));
    np_free(base);
    np_free(far);
    np_free(cache);
    np_free(in);
    return name;
}

static int find_places(const struct np_source_options *options, const struct np_paths *paths,
    struct places *ret_places, struct np_err *err)
{
    struct places places = {0};
    char *asked = describe(options), *folder = folder_beside(paths), *cache = NULL;
    struct stat st;
    const bool has_cache = np_cache_dir(options, &cache, &places.no_cache) == 0;

    np_free(cache);
    places.owner = stat(paths->paths[0], &st) == 0 ? st.st_uid : geteuid();
    if (asked && folder) {
        places.beside = name_beside(options, folder, asked);
        places.beside_key = describe_files(asked, paths, true);
        places.cached = has_cache ? name_cached(options, folder, asked) : NULL;
        places.key = describe_files(asked, paths, false);
    }
    np_free(asked);
    np_free(folder);
    if (!places.beside || !places.beside_key || (has_cache && !places.cached) || !places.key) {
        places_fini(&places);
        return np_err_set(err, -ENOMEM, "%s: out of memory to look for its index", options->path);
    }
    *ret_places = places;
    return 0;
}

/* All files a split is made of. */
static int find_files(
    const struct np_source_options *options, struct np_paths *ret_paths, struct np_err *err)
{
    struct np_paths labels = {NULL, 0}, paths, both;
    int code = np_paths_find(options->path, &paths, err);

    if (!code && options->labels && *options->labels) {
        code = np_paths_find(options->labels, &labels, err);
        if (code)
            np_paths_fini(&paths);
    }
    if (code)
        return code;
    both.nr_paths = paths.nr_paths + labels.nr_paths;
    both.paths = np_try_array((size_t)both.nr_paths, sizeof(char *), err);
    if (!both.paths) {
        np_paths_fini(&paths);
        np_paths_fini(&labels);
        return -ENOMEM;
    }
    memcpy(both.paths, paths.paths, (size_t)paths.nr_paths * sizeof(char *));
    if (labels.nr_paths)
        memcpy(both.paths + paths.nr_paths, labels.paths, (size_t)labels.nr_paths * sizeof(char *));
    np_free(paths.paths); /* the names have moved */
    np_free(labels.paths);
    *ret_paths = both;
    return 0;
}

/* The user's own first: it has the checksums that were found since. */
static int open_saved(const struct places *places, struct np_index **ret_index)
{
    int code = -ENOENT;

    if (places->cached)
        code = np_index_open(places->cached, places->key, geteuid(), ret_index, NULL);
    if (code == 0)
        utimensat(AT_FDCWD, places->cached, NULL, 0); /* it is in use: remove_unused() */
    else
        code = np_index_open(places->beside, places->beside_key, places->owner, ret_index, NULL);
    return code;
}

/* Keeps the cache folder from growing for ever: indexes of data that were moved or are not used. */
static void remove_unused(const char *folder)
{
    DIR *dir = opendir(folder);
    const time_t oldest = time(NULL) - (time_t)UNUSED_DAYS * 24 * 3600;
    struct stat st;

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (strstr(entry->d_name, ".npidx") &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mtime < oldest)
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
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

/* ret_path: NULL, or where it lies then; np_free. */
static int save_somewhere(const struct np_source_options *options, const struct np_index *index,
    bool beside, char **ret_path, struct np_err *err)
{
    struct np_paths paths;
    struct places places;
    int code = find_files(options, &paths, err);

    if (code)
        return code;
    code = find_places(options, &paths, &places, err);
    np_paths_fini(&paths);
    if (code)
        return code;
    if (np_index_key(index) && strcmp(np_index_key(index), places.key) != 0)
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
    if (np_index_raw(index)->kind == NP_RAW_SYNTH)
        return 0; /* nothing to keep: it is drawn, not read */
    return save_somewhere(options, index, false, NULL, err);
}

int np_source_save_beside(const struct np_source_options *options, const struct np_index *index,
    char **ret_path, struct np_err *err)
{
    if (np_index_raw(index)->kind == NP_RAW_SYNTH)
        return np_err_set(err, -EINVAL, "a set that is drawn has no files, and needs no index");
    return save_somewhere(options, index, true, ret_path, err);
}

void np_source_forget(const struct np_source_options *options)
{
    struct np_paths paths;
    struct places places;
    struct stat st;

    if (find_files(options, &paths, NULL))
        return;
    if (find_places(options, &paths, &places, NULL) == 0) {
        if (stat(places.beside, &st) == 0 && st.st_uid == geteuid())
            unlink(places.beside);
        if (places.cached)
            unlink(places.cached);
        places_fini(&places);
    }
    np_paths_fini(&paths);
}

static int scan(const struct np_source_options *options, const struct np_source_progress *progress,
    struct np_index **ret_index, struct np_err *err)
{
    const struct np_source *source = np_source_find(options->source);
    struct np_source_progress own = progress ? *progress : (struct np_source_progress){0};
    struct np_index *index = np_index_new(err);
    int code;

    own.path = options->path ? options->path : "";

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
        code = np_err_set(err, -ENODATA, "%s: no samples%s%s%s", options->path,
            options->match && *options->match ? " that match '" : "",
            options->match ? options->match : "", options->match && *options->match ? "'" : "");
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
    struct np_paths paths;
    struct places places;
    int code = find_files(options, &paths, err);

    if (code)
        return code;
    code = find_places(options, &paths, &places, err); /* before the scan: a change during it */
    np_paths_fini(&paths);                             /* leaves a stale key, never a wrong index */
    if (code)
        return code;
    if (open_saved(&places, &index) != 0) {
        code = scan(options, progress, &index, err);
        if (!code && save(&places, index, false, &unsaved))
            np_source_note(progress, "the index is not kept: %s", unsaved.text);
    }
    if (!code)
        code = np_index_set_key(index, places.key, err);
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

    return has_files ? open_stored(options, progress, ret_index, err)
                     : scan(options, progress, ret_index, err);
}
