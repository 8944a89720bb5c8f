/* Paths of a config: ${NAME}, ~, relative ones, globs over files, and globs over member names. Knows
 * no source. Any thread. */
#include "loader/source/source.h"

#include <ctype.h>
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
#include "loader/source/source_scan.h"

/* Appends n bytes; the text before is freed. NULL stays NULL. */
static char *append(char *text, const char *more, size_t n, struct np_err *err)
{
    char *longer = text ? np_try_format(err, "%s%.*s", text, (int)n, more) : NULL;

    np_free(text);
    return longer;
}

/* The variable at "${": *ret_after is behind its '}'. */
static char *append_variable(
    char *text, const char *at, const char **ret_after, const char *whole, struct np_err *err)
{
    const char *name = at + 2, *end = name, *close = strchr(name, '}'), *value;
    char variable[128];

    while (isalnum((unsigned char)*end) || *end == '_')
        end++;
    if (!close || end == name || (*end != '}' && strncmp(end, ":-", 2) != 0) ||
        end - name >= (long)sizeof(variable)) {
        np_err_set(
            err, -EINVAL, "'%s': '${' begins a variable: ${NAME} or ${NAME:-default}", whole);
        np_free(text);
        return NULL;
    }
    snprintf(variable, sizeof(variable), "%.*s", (int)(end - name), name);
    value = getenv(variable);
    *ret_after = close + 1;
    if (value && *value)
        return append(text, value, strlen(value), err);
    if (*end == ':')
        return append(text, end + 2, (size_t)(close - end - 2), err);
    if (value)
        return text;
    np_err_set(err, -EINVAL, "'%s': the variable %s is not set; ${%s:-default} gives a default",
        whole, variable, variable);
    np_free(text);
    return NULL;
}

char *np_expand(const char *text, struct np_err *err)
{
    const char *home = text[0] == '~' && (text[1] == '/' || !text[1]) ? getenv("HOME") : NULL;
    char *result = np_try_strdup(home ? home : "", err);
    const char *at = home ? text + 1 : text;

    while (result && *at) {
        const char *next = strstr(at, "${");
        const size_t plain = next ? (size_t)(next - at) : strlen(at);

        result = append(result, at, plain, err);
        at += plain;
        if (result && next)
            result = append_variable(result, at, &at, text, err);
    }
    return result;
}

static bool matches_some(const char *pattern)
{
    struct stat st;
    glob_t found;
    bool some = stat(pattern, &st) == 0;

    if (!some) {
        some = glob(pattern, GLOB_NOSORT | GLOB_BRACE, NULL, &found) == 0;
        if (some)
            globfree(&found);
    }
    return some;
}

char *np_resolve_path(const char *text, const char *config_dir, struct np_err *err)
{
    char *path = np_expand(text, err), *beside;

    if (!path || !*path || *path == '/' || !config_dir || !*config_dir)
        return path;
    beside = np_try_format(err, "%s/%s", config_dir, path);
    if (!beside || matches_some(beside) || !matches_some(path)) {
        np_free(path);
        return beside;
    }
    np_free(beside);
    return path;
}

/* --- globs over files ---------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_path(struct np_paths *paths, const char *path, struct np_err *err)
{
    char real[PATH_MAX], *copy;

    if (!realpath(path, real))
        return np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    copy = np_try_strdup(real, err);
    if (!copy)
        return -ENOMEM;
    paths->paths[paths->nr_paths++] = copy;
    return 0;
}

/* What is there of a path that is not: the deepest folder that exists. */
static int say_missing(const char *pattern, struct np_err *err)
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
        return np_err_set(err, -ENOENT, "%s: no file matches (the folder %s is there)", pattern,
            *folder ? folder : "/");
    return np_err_set(err, -ENOENT, "%s: no such file or folder (the folder %s is there)", pattern,
        *folder ? folder : "/");
}

int np_paths_find(const char *pattern, struct np_paths *ret_paths, struct np_err *err)
{
    struct np_paths paths = {NULL, 0};
    glob_t found = {0};
    struct stat st;
    bool is_glob = false;
    int code = 0;

    if (stat(pattern, &st) < 0) {
        if (errno == EACCES)
            return np_err_set(err, -EACCES, "%s: %s", pattern, strerror(EACCES));
        if (glob(pattern, GLOB_NOSORT | GLOB_BRACE, NULL, &found) != 0)
            return say_missing(pattern, err);
        is_glob = true;
    }
    const size_t n = is_glob ? found.gl_pathc : 1;
    paths.paths = np_try_array(n, sizeof(char *), err);
    if (!paths.paths)
        code = -ENOMEM;
    if (!code && !is_glob)
        code = add_path(&paths, pattern, err);
    for (size_t i = 0; !code && i < found.gl_pathc; i++)
        if (!np_is_index_name(found.gl_pathv[i])) /* nnpipe's own index, beside the files */
            code = add_path(&paths, found.gl_pathv[i], err);
    if (is_glob)
        globfree(&found);
    if (!code && paths.nr_paths == 0)
        code = say_missing(pattern, err);
    if (code) {
        np_paths_fini(&paths);
        return code;
    }
    qsort(paths.paths, (size_t)paths.nr_paths, sizeof(char *), by_bytes);
    *ret_paths = paths;
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
