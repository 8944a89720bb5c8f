/* The folder of checkpoints: which is the newest whole one, which may go. Trainer thread. */
#include "trainer/checkpoint/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"

enum kind { FINAL, OLD, TORN };

struct entry {
    uint64_t step;
    enum kind kind;
    char name[40];
};

struct entries {
    struct entry *entries; /* newest first; of one step the final one first */
    int n, room;
};

/* "step-12", ".step-12.old", ".step-12.tmp"; false: somebody else's. */
static bool parse_name(const char *name, struct entry *ret_entry)
{
    char check[40], *end;
    bool hidden = name[0] == '.';

    if (strncmp(name + hidden, "step-", 5) != 0 || strlen(name) >= sizeof(check))
        return false;
    ret_entry->step = strtoull(name + hidden + 5, &end, 10);
    ret_entry->kind = !hidden ? FINAL : strcmp(end, ".old") == 0 ? OLD : TORN;
    snprintf(check, sizeof(check), "%sstep-%" PRIu64 "%s", hidden ? "." : "", ret_entry->step,
        !hidden                  ? ""
        : ret_entry->kind == OLD ? ".old"
                                 : ".tmp");
    snprintf(ret_entry->name, sizeof(ret_entry->name), "%s", name);
    return strcmp(check, name) == 0; /* no sign, no leading zero, no overflow */
}

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

static int add(struct entries *entries, const struct entry *entry)
{
    if (entries->n == entries->room) {
        int room = entries->room ? 2 * entries->room : 16;
        struct entry *more = realloc(entries->entries, (size_t)room * sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        entries->entries = more;
        entries->room = room;
    }
    entries->entries[entries->n++] = *entry;
    return 0;
}

/* Everything of ours in dir. free() the entries. A folder that is not there is empty. */
static int list(const char *dir, struct entries *ret_entries, struct np_err *err)
{
    struct entries entries = {0};
    DIR *folder = opendir(dir);
    int result = 0;

    if (folder == NULL && errno != ENOENT)
        return np_err_set(err, -errno, "cannot read the folder %s: %s", dir, strerror(errno));
    while (folder != NULL && result == 0) {
        struct entry entry;
        errno = 0;
        const struct dirent *item = readdir(folder);
        if (item == NULL) {
            result = -errno;
            break;
        }
        if (parse_name(item->d_name, &entry))
            result = add(&entries, &entry);
    }
    if (folder != NULL)
        closedir(folder);
    if (result < 0) {
        free(entries.entries);
        return np_err_set(err, result, "cannot read the folder %s: %s", dir, strerror(-result));
    }
    if (entries.n > 0)
        qsort(entries.entries, (size_t)entries.n, sizeof(*entries.entries), compare);
    *ret_entries = entries;
    return 0;
}

int np_checkpoint_latest(const char *dir, struct np_checkpoint *checkpoint, char **ret_facts_json,
    void (*damaged)(void *context, const char *text), void *context, struct np_err *err)
{
    struct entries entries;
    int nr_damaged = 0, nr_dropped = 0, result = list(dir, &entries, err);

    if (result < 0)
        return result;
    result = -ENOENT;
    for (int i = 0; i < entries.n && result != 0 && result != -ENOMEM; i++) {
        char path[PATH_MAX];
        struct np_err why = {0};
        if (entries.entries[i].kind == TORN)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, entries.entries[i].name);
        result = np_checkpoint_read(path, checkpoint, ret_facts_json, &why);
        if (result == 0)
            break;
        nr_dropped += result == -ENODATA;
        nr_damaged++;
        if (damaged != NULL)
            damaged(context, why.text);
    }
    free(entries.entries);
    if (result == 0)
        return 0;
    if (result == -ENOMEM)
        return np_err_set(err, result, "%s: out of memory", dir);
    if (nr_dropped > 0)
        return np_err_set(err, -ENOENT,
            "%s: no checkpoint to continue from: %d damaged, %d without their optimizer's state "
            "(checkpoint.optimizer: newest)",
            dir, nr_damaged - nr_dropped, nr_dropped);
    if (nr_damaged > 0)
        return np_err_set(
            err, -ENOENT, "%s: no whole checkpoint, all %d are damaged", dir, nr_damaged);
    return np_err_set(err, -ENOENT, "%s: no checkpoint", dir);
}

void np_remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *item;
    char file[PATH_MAX];

    while (folder != NULL && (item = readdir(folder)) != NULL)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 &&
            snprintf(file, sizeof(file), "%s/%s", path, item->d_name) < (int)sizeof(file))
            unlink(file);
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
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
    ssize_t length = readlink(path, now, sizeof(now));
    if (length == (ssize_t)strlen(name) && memcmp(now, name, (size_t)length) == 0)
        return 0;
    snprintf(made, sizeof(made), "%s/.best.new", dir);
    unlink(made);
    if (symlink(name, made) < 0)
        return np_err_set(err, -errno, "%s: cannot be made: %s", path, strerror(errno));
    int result = np_io_rename(io, made, path, err);
    if (result < 0)
        unlink(made);
    return result == 0 ? np_io_sync_dir(io, dir, err) : result;
}

/* A checkpoint is renamed before its files go, so that none is ever seen in pieces. */
static int remove_one(const char *dir, const struct entry *entry, struct np_err *err)
{
    char path[PATH_MAX], torn[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, entry->name);
    if (entry->kind == TORN) {
        np_remove_folder(path);
        return 0;
    }
    snprintf(torn, sizeof(torn), "%s/.step-%" PRIu64 ".tmp", dir, entry->step);
    np_remove_folder(torn);
    if (rename(path, torn) < 0)
        return np_err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    np_remove_folder(torn);
    return 0;
}

int np_checkpoint_drop_optimizers(const char *dir, uint64_t newest, struct np_err *err)
{
    struct entries entries;
    int result = list(dir, &entries, err);

    if (result < 0)
        return result;
    for (int i = 0; i < entries.n; i++) {
        const struct entry *entry = &entries.entries[i];
        char path[PATH_MAX];

        snprintf(
            path, sizeof(path), "%s/%s/%s", dir, entry->name, np_manifest_files[NP_FILE_OPTIMIZER]);
        if (entry->kind == FINAL && entry->step != newest && unlink(path) < 0 && errno != ENOENT &&
            result == 0)
            result = np_err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    }
    free(entries.entries);
    return result;
}

int np_checkpoint_prune(
    const char *dir, int keep, uint64_t newest, uint64_t best_step, struct np_err *err)
{
    struct entries entries;
    int nr_kept = 0, result = list(dir, &entries, err);

    if (result < 0)
        return result;
    for (int i = 0; i < entries.n; i++) {
        const struct entry *entry = &entries.entries[i];
        if (entry->kind == FINAL && entry->step <= newest &&
            (nr_kept++ < keep || entry->step == best_step))
            continue;
        int removed = remove_one(dir, entry, err);
        if (result == 0)
            result = removed; /* and on with the others */
    }
    free(entries.entries);
    return result;
}
