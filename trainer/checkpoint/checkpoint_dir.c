#include "trainer/checkpoint/checkpoint_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/checkpoint_names.h"

static int no_whole_one(const char *dir, int nr_damaged, int nr_dropped, struct np_err *err)
{
    if (nr_dropped > 0)
        return np_err_set(err, -ENOENT,
            "%s: no checkpoint to continue from: %d damaged, %d without their optimizer's state "
            "(checkpoint.optimizer: newest)",
            dir, nr_damaged - nr_dropped, nr_dropped);
    if (nr_damaged > 0)
        return np_err_set(
            err, -ENOENT, "%s: no usable checkpoint: all %d are damaged", dir, nr_damaged);
    return np_err_set(err, -ENOENT, "%s: no checkpoint", dir);
}

/* checkpoint NULL: loads nothing, and a checkpoint without its optimizer's state counts as whole.
 * *ret_path: np_free. */
static int find_newest(const char *dir, struct np_checkpoint *checkpoint, char **ret_facts_json,
    char **ret_path, np_damaged_fn damaged, void *context, struct np_err *err)
{
    struct np_checkpoint_name *names = NULL;
    int nr_damaged = 0, nr_dropped = 0, n = 0, code = np_checkpoint_names(dir, &names, &n, err);
    char *path = NULL;

    for (int i = 0; code == 0 && i < n && !path; i++) {
        struct np_err why = {0};
        int tried;

        if (names[i].kind == NP_CHECKPOINT_INCOMPLETE)
            continue;
        path = np_format("%s/%s", dir, names[i].text);
        tried = checkpoint ? np_checkpoint_read(path, checkpoint, ret_facts_json, &why)
                           : np_checkpoint_check(path, &why);
        if (tried == 0 || (tried == -ENODATA && !checkpoint))
            break;
        np_free(path);
        path = NULL;
        nr_dropped += tried == -ENODATA;
        nr_damaged++;
        if (tried == -ENOMEM)
            code = np_err_set(err, tried, "%s", why.text);
        else if (damaged)
            damaged(context, why.text);
    }
    np_free(names);
    if (code == 0 && !path)
        code = no_whole_one(dir, nr_damaged, nr_dropped, err);
    *ret_path = path;
    return code;
}

int np_checkpoint_latest(const char *dir, struct np_checkpoint *checkpoint, char **ret_facts_json,
    np_damaged_fn damaged, void *context, struct np_err *err)
{
    char *path;
    int code = find_newest(dir, checkpoint, ret_facts_json, &path, damaged, context, err);

    np_free(path);
    return code;
}

int np_checkpoint_newest(
    const char *dir, char **ret_path, np_damaged_fn damaged, void *context, struct np_err *err)
{
    char *path;
    int code = find_newest(dir, NULL, NULL, &path, damaged, context, err);

    if (code == 0)
        *ret_path = path;
    return code;
}

int np_checkpoint_name_best(
    struct np_io *io, const char *dir, uint64_t best_step, struct np_err *err)
{
    char name[32], path[PATH_MAX], made[PATH_MAX], now[64];

    snprintf(name, sizeof(name), "step-%" PRIu64, best_step);
    snprintf(made, sizeof(made), "%s/%s", dir, name);
    if (best_step == 0 || access(made, F_OK) < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/best", dir);
    const ssize_t length = readlink(path, now, sizeof(now));

    if (length == (ssize_t)strlen(name) && memcmp(now, name, (size_t)length) == 0)
        return 0;
    snprintf(made, sizeof(made), "%s/.best.new", dir);
    unlink(made);
    if (symlink(name, made) < 0)
        return np_err_set(err, -errno, "cannot create %s: %s", path, strerror(errno));
    const int code = np_io_rename(io, made, path, err);

    if (code < 0)
        unlink(made);
    return code == 0 ? np_io_sync_dir(io, dir, err) : code;
}

/* Renames the checkpoint before removing its files, so that no reader finds only some of them. */
static int remove_one(const char *dir, const struct np_checkpoint_name *name, struct np_err *err)
{
    char path[PATH_MAX], doomed[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name->text);
    if (name->kind == NP_CHECKPOINT_INCOMPLETE) {
        np_remove_folder(path);
        return 0;
    }
    snprintf(doomed, sizeof(doomed), "%s/.step-%" PRIu64 ".tmp", dir, name->step);
    np_remove_folder(doomed);
    if (rename(path, doomed) < 0)
        return np_err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    np_remove_folder(doomed);
    return 0;
}

int np_checkpoint_drop_optimizers(const char *dir, uint64_t newest, struct np_err *err)
{
    struct np_checkpoint_name *names = NULL;
    int n = 0, code = np_checkpoint_names(dir, &names, &n, err);

    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s/%s", dir, names[i].text,
            np_manifest_files[NP_FILE_OPTIMIZER]);
        if (names[i].kind == NP_CHECKPOINT_FINAL && names[i].step != newest && unlink(path) < 0 &&
            errno != ENOENT && code == 0)
            code = np_err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    }
    np_free(names);
    return code;
}

int np_checkpoint_prune(
    const char *dir, int keep, uint64_t newest, uint64_t best_step, struct np_err *err)
{
    struct np_checkpoint_name *names = NULL;
    int nr_kept = 0, n = 0, code = np_checkpoint_names(dir, &names, &n, err);

    for (int i = 0; i < n; i++) {
        const struct np_checkpoint_name *name = &names[i];

        if (name->kind == NP_CHECKPOINT_FINAL && name->step <= newest &&
            (nr_kept++ < keep || name->step == best_step))
            continue;
        const int removed = remove_one(dir, name, err);

        code = code ? code : removed; /* the others are still removed */
    }
    np_free(names);
    return code;
}
