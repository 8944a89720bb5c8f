#include "daemon/service/environment.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 128

extern char **environ;

/* Paths and options of the system, GPU libraries, OpenMP, nnpipe and sanitizers. HOME and the like
 * are replaced for another user (as_user.c). */
static const char *const kept[] = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE",
    "LC_*", "TZ", "TMPDIR", "XDG_*", "LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "VIRTUAL_ENV",
    "CONDA_PREFIX", "OMP_*", "NNPIPE_*", "*SAN_OPTIONS"};

static bool is_kept(const char *name)
{
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        if (fnmatch(kept[i], name, 0) == 0)
            return true;
    return false;
}

void np_environment_reduce(void)
{
    char name[MAX_NAME];

    if (!environ) /* after clearenv() */
        return;
    for (char **at = environ; *at;) {
        const size_t bytes = strcspn(*at, "=");

        snprintf(name, sizeof(name), "%.*s", (int)bytes, *at);
        if (bytes > 0 && bytes < sizeof(name) && is_kept(name)) {
            at++;
            continue;
        }
        for (char **to = at; *to;
             to++) /* entries without a name, too, which unsetenv() does not find */
            to[0] = to[1];
    }
}

bool np_environment_next(const char **at, char *ret_name, size_t bytes)
{
    while ((*at = strstr(*at, "${"))) {
        const char *name = *at + 2;
        size_t nr = 0;

        while (isalnum((unsigned char)name[nr]) || name[nr] == '_')
            nr++;
        *at = name + nr;
        if (nr == 0 || nr >= bytes || isdigit((unsigned char)*name) ||
            (**at != '}' && strncmp(*at, ":-", 2) != 0))
            continue;
        snprintf(ret_name, bytes, "%.*s", (int)nr, name);
        return true;
    }
    return false;
}

bool np_environment_is_named(const char *name, const char *text)
{
    char found[MAX_NAME];

    while (np_environment_next(&text, found, sizeof(found)))
        if (strcmp(found, name) == 0)
            return true;
    return false;
}

void np_environment_set(const char *lines)
{
    char name[MAX_NAME];

    while (*lines) {
        const size_t bytes = strcspn(lines, "\n"), of_name = strcspn(lines, "=\n");
        char *value = of_name < bytes ? strndup(lines + of_name + 1, bytes - of_name - 1) : NULL;

        snprintf(name, sizeof(name), "%.*s", (int)of_name, lines);
        if (value && of_name > 0 && of_name < sizeof(name))
            setenv(name, value, 1);
        free(value);
        lines += bytes + (lines[bytes] == '\n');
    }
}
