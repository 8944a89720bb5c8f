#include "loader/base/path.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"

/* Returns text with n bytes of `more` added, and frees text. text NULL: NULL. */
static char *append(char *text, const char *more, size_t n, struct np_err *err)
{
    char *longer = text ? np_try_format(err, "%s%.*s", text, (int)n, more) : NULL;

    np_free(text);
    return longer;
}

/* Appends the value of the variable at "${"; *ret_after: behind its '}'. */
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

/* Makes path absolute from the working directory, and frees path. */
static char *from_here(char *path, struct np_err *err)
{
    char folder[PATH_MAX], *whole;

    if (!getcwd(folder, sizeof(folder)))
        return path;
    whole = np_try_format(err, "%s/%s", folder, path);
    np_free(path);
    return whole;
}

char *np_resolve_path(const char *text, const char *dir, struct np_err *err)
{
    char *path = np_expand(text, err), *beside;

    if (!path || !*path || *path == '/' || np_is_url(path) || !dir || !*dir)
        return path;
    if (!(beside = np_try_format(err, "%s/%s", dir, path))) {
        np_free(path);
        return NULL;
    }
    if (matches_some(beside) || !matches_some(path)) {
        np_free(path);
        return beside;
    }
    np_free(beside);
    return from_here(path, err);
}
