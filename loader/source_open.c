/* From a split's options to its index: the saved one while it is fresh, else a scan. Also where
 * indexes are kept. One thread. */
#include "loader/source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/base/mem.h"
#include "loader/source_scan.h"

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
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *tmp = getenv("TMPDIR");
    char *dir;
    int code = 0;

    if (options && options->cache_dir && *options->cache_dir)
        dir = np_strdup(options->cache_dir);
    else if (xdg && *xdg == '/')
        dir = np_format("%s/nnpipe", xdg);
    else if (home && *home == '/')
        dir = np_format("%s/.cache/nnpipe", home);
    else {
        dir = np_format("%s/nnpipe-%ld", tmp && *tmp == '/' ? tmp : "/tmp", (long)geteuid());
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

/* Where an index may be. Beside the data it is `.BASE.HASH.npidx`: BASE is the last part of the
 * path with what a glob has in it as '_', HASH of all that was asked for but the folder, so that
 * folder and index can be moved together. In the cache folder: index/BASE.HASH.npidx, HASH with
 * the folder. key is what was asked for, with name, size and mtime of each file. */
struct places {
    char *beside, *cached, *key; /* beside, cached: NULL where it may not be */
    struct np_err no_cache;      /* why there is no cached */
};

static void places_fini(struct places *places)
{
    np_free(places->beside);
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
    return np_format("nnpipe index %d\nsource=%s\npath=%s\nlabels=%s\nmatch=%s\n", SCAN_VERSION,
        options->source, base_of(options->path), options->labels ? base_of(options->labels) : "",
        options->match ? options->match : "");
}

/* asked, and a line a file; a set may have tens of thousands of them. */
static char *describe_files(const char *asked, const struct np_paths *paths)
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
        fprintf(out, "%s %llu %lld.%09ld\n", base_of(paths->paths[i]),
            S_ISREG(st.st_mode) ? (unsigned long long)st.st_size : 0ull,
            (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    key = fclose(out) == 0 ? np_strdup(text) : NULL;
    free(text);
    return key;
}

/* May a new file be put there? Root may anywhere, so the mode's word counts too. */
static bool is_writable(const char *folder)
{
    struct stat st;

    return stat(folder, &st) == 0 && (st.st_mode & 0222) && access(folder, W_OK) == 0;
}

static char *clean_base(const char *path)
{
    char *base = np_strdup(base_of(path));

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
    char *folder = np_strdup(paths->paths[0]), *slash = folder ? strrchr(folder, '/') : NULL;

    if (slash)
        slash[slash == folder] = '\0';
    return folder;
}

static int find_places(const struct np_source_options *options, const struct np_paths *paths,
    struct places *ret_places, struct np_err *err)
{
    struct places places = {0};
    char *asked = describe(options), *base = clean_base(options->path);
    char *folder = folder_beside(paths), *cache = NULL;
    char *far = asked && folder ? np_format("%s%s\n", asked, folder) : NULL;

    np_cache_dir(options, &cache, &places.no_cache);
    if (asked && base && folder && far) {
        if (is_writable(folder))
            places.beside = np_format("%s/.%s.%016llx.npidx", folder, base,
                (unsigned long long)XXH64(asked, strlen(asked), 0));
        if (cache)
            places.cached = np_format("%s/index/%s.%016llx.npidx", cache, base,
                (unsigned long long)XXH64(far, strlen(far), 0));
        places.key = describe_files(asked, paths);
    }
    np_free(asked);
    np_free(base);
    np_free(folder);
    np_free(far);
    if ((cache && !places.cached) || !places.key) {
        np_free(cache);
        places_fini(&places);
        return np_err_set(err, -ENOMEM, "%s: out of memory to look for its index", options->path);
    }
    np_free(cache);
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
    both.paths = np_alloc_array((size_t)both.nr_paths, sizeof(char *));
    if (!both.paths) {
        np_paths_fini(&paths);
        np_paths_fini(&labels);
        return np_err_set(err, -ENOMEM, "out of memory for the list of files");
    }
    memcpy(both.paths, paths.paths, (size_t)paths.nr_paths * sizeof(char *));
    if (labels.nr_paths)
        memcpy(both.paths + paths.nr_paths, labels.paths, (size_t)labels.nr_paths * sizeof(char *));
    np_free(paths.paths); /* the names have moved */
    np_free(labels.paths);
    *ret_paths = both;
    return 0;
}

static int open_saved(const struct places *places, struct np_index **ret_index)
{
    int code = -ENOENT;

    if (places->beside)
        code = np_index_open(places->beside, places->key, ret_index, NULL);
    if (code && places->cached)
        code = np_index_open(places->cached, places->key, ret_index, NULL);
    return code;
}

static int save_at(
    struct np_io *io, const struct places *places, const struct np_index *index, struct np_err *err)
{
    char *folder;
    int code =
        places->beside ? np_index_save(index, io, places->beside, places->key, NULL) : -EROFS;

    if (code == 0)
        return 0;
    if (!places->cached)
        return np_err_set(err, places->no_cache.code, "%s", places->no_cache.text);
    folder = np_strdup(places->cached);
    if (!folder)
        return np_err_set(err, -ENOMEM, "out of memory to save an index");
    *strrchr(folder, '/') = '\0';
    code = np_make_dirs(folder, err);
    np_free(folder);
    return code ? code : np_index_save(index, io, places->cached, places->key, err);
}

static int save(const struct places *places, const struct np_index *index, struct np_err *err)
{
    struct np_io io;
    int code = np_io_open(&io, "pread", 1, err);

    if (code)
        return code;
    code = save_at(&io, places, index, err);
    np_io_close(&io);
    return code;
}

int np_source_save(
    const struct np_source_options *options, const struct np_index *index, struct np_err *err)
{
    struct np_paths paths;
    struct places places;
    int code;

    if (np_index_raw(index)->kind == NP_RAW_SYNTH)
        return 0; /* nothing to keep: it is drawn, not read */
    code = find_files(options, &paths, err);
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
        code = save(&places, index, err);
    places_fini(&places);
    return code;
}

void np_source_forget(const struct np_source_options *options)
{
    struct np_paths paths;
    struct places places;

    if (find_files(options, &paths, NULL))
        return;
    if (find_places(options, &paths, &places, NULL) == 0) {
        if (places.beside)
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
    struct np_index *index = np_index_new();
    int code;

    own.path = options->path ? options->path : "";

    if (!source)
        code = np_err_set(err, -EINVAL, "there is no source '%s'", options->source);
    else if (!index)
        code = np_err_set(err, -ENOMEM, "out of memory to list the set");
    else {
        np_source_count(&own, index);
        code = source->scan(options, index, &own, err);
    }
    if (!code && np_index_finish(index))
        code = np_err_set(err, -ENOMEM, "%s: out of memory to list the set", options->path);
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
        if (!code && save(&places, index, &unsaved))
            np_source_note(progress, "the index is not kept: %s", unsaved.text);
    }
    if (!code && np_index_set_key(index, places.key))
        code = np_err_set(err, -ENOMEM, "%s: out of memory to list the set", options->path);
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
