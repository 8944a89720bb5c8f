/* Globs over files, and over member names. Any thread. */
#include "loader/source/source.h"

#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/missing.h"
#include "loader/base/remote.h"
#include "loader/remote/url.h"
#include "loader/source/source_scan.h"

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct folder {
    char given[PATH_MAX], real[PATH_MAX];
};

/* As realpath(), but resolves a folder once for all its shards, which may be thousands. */
static const char *find_real(const char *path, struct folder *last, char real[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    char link;

    if (n == 0 || n >= PATH_MAX || strcmp(slash, "/") == 0 || strcmp(slash, "/.") == 0 ||
        strcmp(slash, "/..") == 0)
        return realpath(path, real);
    if (strncmp(last->given, path, n) != 0 || last->given[n]) {
        memcpy(last->given, path, n);
        last->given[n] = '\0';
        if (!realpath(last->given, last->real)) {
            last->given[0] = '\0';
            return NULL;
        }
    }
    if (readlink(path, &link, 1) >= 0 || errno != EINVAL || /* a link, or missing */
        snprintf(real, PATH_MAX, "%s%s", strcmp(last->real, "/") ? last->real : "", slash) >=
            PATH_MAX)
        return realpath(path, real);
    return real;
}

static int add_path(
    struct np_paths *paths, const char *path, struct folder *last, struct np_err *err)
{
    char real[PATH_MAX], *copy;

    if (!find_real(path, last, real))
        return np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    copy = np_try_strdup(real, err);
    if (!copy)
        return -ENOMEM;
    paths->paths[paths->nr_paths++] = copy;
    return 0;
}

/* The error names the deepest folder of the path that exists. */
static int fail_missing(const char *pattern, struct np_err *err)
{
    char folder[2 * PATH_MAX + 2], cwd[PATH_MAX];
    const bool is_glob = strpbrk(pattern, "*?[{") != NULL;
    struct stat st;

    if (*pattern == '/' || !getcwd(cwd, sizeof(cwd)))
        snprintf(folder, sizeof(folder), "%s", pattern);
    else
        snprintf(folder, sizeof(folder), "%s/%s", cwd, pattern);
    for (char *slash = strrchr(folder, '/'); slash; slash = strrchr(folder, '/')) {
        *slash = '\0';
        if (stat(*folder ? folder : "/", &st) == 0)
            break;
    }
    if (is_glob)
        return np_err_set(err, -ENOENT, "%s: no file matches (the folder %s exists)", pattern,
            *folder ? folder : "/");
    return np_err_set(err, -ENOENT, "%s: no such file or folder (the folder %s exists)", pattern,
        *folder ? folder : "/");
}

/* In the order of the braces, so that shard-{9..10} is not sorted as text. */
static int find_urls(const char *pattern, struct np_paths *ret_paths, struct np_err *err)
{
    int code = np_remote_check(pattern, err);

    return code ? code : np_remote()->expand(pattern, &ret_paths->paths, &ret_paths->nr_paths, err);
}

/* As "train-{000..999}.tar" of local files: each must exist. */
static int find_range(const char *pattern, struct np_paths *ret_paths, struct np_err *err)
{
    struct np_paths paths = {NULL, 0};
    struct np_missing missing = {0};
    char **patterns;
    int nr, code = np_braces_expand(pattern, &patterns, &nr, err);
    bool more = true;

    if (code)
        return code;
    for (int i = 0; !code && more && i < nr; i++) {
        struct np_err why = {0};

        code = np_paths_add(patterns[i], &paths, &why);
        if (code == -ENOENT) {
            more = np_missing_add(&missing, i, &why);
            code = 0;
        } else if (code)
            np_err_set(err, code, "%s", why.text);
    }
    if (!code)
        code = np_missing_err(&missing, patterns, nr, err);
    for (int i = 0; i < nr; i++)
        np_free(patterns[i]);
    np_free(patterns);
    if (code)
        np_paths_fini(&paths);
    else
        *ret_paths = paths;
    return code;
}

/* True if it has "{0..", which glob() does not know. */
static bool has_range(const char *pattern)
{
    for (const char *at = strchr(pattern, '{'); at; at = strchr(at + 1, '{')) {
        const size_t digits = strspn(at + 1, "0123456789");

        if (digits > 0 && strncmp(at + 1 + digits, "..", 2) == 0)
            return true;
    }
    return false;
}

int np_paths_find(const char *pattern, struct np_paths *ret_paths, struct np_err *err)
{
    struct np_paths paths = {NULL, 0};
    struct folder last = {"", ""};
    glob_t found = {0};
    struct stat st;
    bool is_glob = false;
    int code = 0;

    if (np_is_url(pattern))
        return find_urls(pattern, ret_paths, err);
    if (stat(pattern, &st) < 0) {
        if (errno == EACCES)
            return np_err_set(err, -EACCES, "%s: %s", pattern, strerror(EACCES));
        if (has_range(pattern))
            return find_range(pattern, ret_paths, err);
        if (glob(pattern, GLOB_NOSORT | GLOB_BRACE, NULL, &found) != 0)
            return fail_missing(pattern, err);
        is_glob = true;
    }
    const size_t n = is_glob ? found.gl_pathc : 1;
    paths.paths = np_try_array(n, sizeof(char *), err);
    if (!paths.paths)
        code = -ENOMEM;
    if (!code && !is_glob)
        code = add_path(&paths, pattern, &last, err);
    for (size_t i = 0; !code && i < found.gl_pathc; i++)
        if (!np_is_index_name(found.gl_pathv[i]))
            code = add_path(&paths, found.gl_pathv[i], &last, err);
    if (is_glob)
        globfree(&found);
    if (!code && paths.nr_paths == 0)
        code = fail_missing(pattern, err);
    if (code) {
        np_paths_fini(&paths);
        return code;
    }
    qsort(paths.paths, (size_t)paths.nr_paths, sizeof(char *), by_bytes);
    *ret_paths = paths;
    return 0;
}

int np_paths_add(const char *pattern, struct np_paths *paths, struct np_err *err)
{
    struct np_paths more;
    int code = np_paths_find(pattern, &more, err);

    if (code)
        return code;
    const size_t n = (size_t)paths->nr_paths, nr_more = (size_t)more.nr_paths;
    char **both = np_try_array(n + nr_more, sizeof(char *), err);

    if (!both) {
        np_paths_fini(&more);
        return -ENOMEM;
    }
    memcpy(both, paths->paths, n * sizeof(char *));
    memcpy(both + n, more.paths, nr_more * sizeof(char *));
    np_free(paths->paths); /* `both` owns the names */
    np_free(more.paths);
    *paths = (struct np_paths){both, (int)(n + nr_more)};
    return 0;
}

void np_paths_fini(struct np_paths *paths)
{
    for (int i = 0; i < paths->nr_paths; i++)
        np_free(paths->paths[i]);
    np_free(paths->paths);
    *paths = (struct np_paths){NULL, 0};
}

bool np_match(const char *pattern, const char *text)
{
    return fnmatch(pattern, text, FNM_NOESCAPE) == 0;
}
