#include "trainer/checkpoint/checkpoint_names.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"

bool np_checkpoint_name_parse(const char *text, struct np_checkpoint_name *ret_name)
{
    static const char *const endings[] = {"", ".old", ".tmp"};
    const bool hidden = text[0] == '.';
    struct np_checkpoint_name name;
    char *end;

    if (strncmp(text + hidden, "step-", 5) != 0)
        return false;
    name.step = strtoull(text + hidden + 5, &end, 10);
    name.kind = !hidden                    ? NP_CHECKPOINT_FINAL
                : strcmp(end, ".old") == 0 ? NP_CHECKPOINT_OLD
                                           : NP_CHECKPOINT_INCOMPLETE;
    snprintf(name.text, sizeof(name.text), "%sstep-%" PRIu64 "%s", hidden ? "." : "", name.step,
        endings[name.kind]);
    if (strcmp(name.text, text) != 0)
        return false;
    *ret_name = name;
    return true;
}

static int newer_first(const void *a, const void *b)
{
    const struct np_checkpoint_name *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

/* Fills err only for -ENOMEM. */
static int read_names(DIR *folder, struct np_checkpoint_name **names, int *n, struct np_err *err)
{
    struct np_checkpoint_name name;
    const struct dirent *item;
    size_t room = 0;

    while (errno = 0, (item = readdir(folder))) {
        if (!np_checkpoint_name_parse(item->d_name, &name))
            continue;
        if (np_try_grow(names, &room, (size_t)*n + 1, sizeof(name), err) < 0)
            return -ENOMEM;
        (*names)[(*n)++] = name;
    }
    return -errno;
}

int np_checkpoint_names(
    const char *dir, struct np_checkpoint_name **ret_names, int *ret_n, struct np_err *err)
{
    struct np_checkpoint_name *names = NULL;
    DIR *folder = opendir(dir);
    int n = 0, code = folder ? read_names(folder, &names, &n, err) : -errno;

    if (folder)
        closedir(folder);
    else if (code == -ENOENT)
        code = 0;
    if (code < 0) {
        np_free(names);
        return np_err_set(err, code, "cannot read the folder %s: %s", dir, strerror(-code));
    }
    if (n > 0)
        qsort(names, (size_t)n, sizeof(*names), newer_first);
    *ret_names = names;
    *ret_n = n;
    return 0;
}

void np_remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *item;
    char file[PATH_MAX];

    while (folder && (item = readdir(folder)))
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 &&
            snprintf(file, sizeof(file), "%s/%s", path, item->d_name) < (int)sizeof(file))
            unlink(file);
    if (folder)
        closedir(folder);
    rmdir(path);
}
