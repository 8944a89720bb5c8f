/* Checkpoints of a run, found again: by its folder, by their names; what stands in their facts.
 * Reads only; any thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/run/run_folder.h"
#include "loader/base/mem.h"
#include "trainer/checkpoint/checkpoint_dir.h"
#include "trainer/checkpoint/checkpoint_names.h"

static bool is_file(const char *path)
{
    struct stat stat_;

    return stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode);
}

/* --- facts ----------------------------------------------------------------------------------- */

int np_facts_read(const char *checkpoint, struct np_node **ret_facts, struct np_err *err)
{
    char *path = np_format("%s/manifest.json", checkpoint), *facts = NULL;
    struct np_manifest manifest;
    struct np_node *node = NULL;
    int code = path ? np_manifest_read(path, &manifest, &facts, err)
                    : np_err_set(err, -ENOMEM, "out of memory");

    if (code == 0 && (code = np_json_parse(facts, strlen(facts), &node, err)) < 0)
        np_err_context(err, "%s", path);
    if (code == 0 && node->kind != NP_NODE_MAP) {
        code = np_err_set(err, -EBADMSG, "%s: it has no facts", path);
        np_node_free(node);
    }
    if (code == 0)
        *ret_facts = node;
    np_free(facts);
    np_free(path);
    return code;
}

int np_run_newest_facts(const char *dir, struct np_node **ret_facts, struct np_err *err)
{
    char *below = np_format("%s/checkpoints", dir);
    struct np_checkpoint_name *names = NULL;
    struct np_node *facts = NULL;
    struct np_err last = {0};
    int n = 0, code = np_checkpoint_names(below, &names, &n, err);

    /* A damaged one is passed over; np_checkpoint_latest() names it. */
    for (int i = 0; i < n && !facts; i++) {
        if (names[i].kind == NP_CHECKPOINT_TORN)
            continue;
        char *path = np_format("%s/%s", below, names[i].text);

        last = (struct np_err){0};
        np_facts_read(path, &facts, &last);
        np_free(path);
    }
    np_free(names);
    np_free(below);
    if (code < 0)
        return code;
    if (!facts)
        return np_err_set(err, -ENOENT, "%s: no checkpoint to go on from%s%s", dir,
            last.code ? ": " : "", last.code ? last.text : "");
    *ret_facts = facts;
    return 0;
}

/* --- weights --------------------------------------------------------------------------------- */

/* The newest whole checkpoint of a run; damaged ones are named and passed over. NULL: none. */
static char *newest_whole(const char *run, const struct np_source_progress *progress)
{
    char *below = np_format("%s/checkpoints", run), *newest = NULL;

    np_checkpoint_newest(below, &newest, progress->note, progress->context, NULL);
    np_free(below);
    return newest;
}

static bool is_folder(const char *path)
{
    struct stat stat_;

    return stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode);
}

static bool is_step(const char *word)
{
    struct np_checkpoint_name name;

    return np_checkpoint_name_parse(word, &name) && name.kind == NP_CHECKPOINT_FINAL;
}

/* One checkpoint of a run by its name: last, best, step-N. np_free. */
static char *named_checkpoint(const char *run, const char *name,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct np_manifest manifest = {0};

    if (is_step(name))
        return np_format("%s/checkpoints/%s", run, name);
    char *newest = newest_whole(run, progress);
    if (!newest) {
        np_err_set(err, -ENOENT, "%s: no whole checkpoint in it", run);
        return NULL;
    }
    if (strcmp(name, "last") == 0)
        return newest;
    char *path = np_format("%s/manifest.json", newest), *facts = NULL, *best = NULL;
    np_free(newest);
    if (path && np_manifest_read(path, &manifest, &facts, err) == 0 &&
        manifest.position.best_step == 0)
        np_err_set(
            err, -ENOENT, "%s: the run was never evaluated, so it has no best checkpoint", run);
    else if (!err->code)
        best = np_format(
            "%s/checkpoints/step-%llu", run, (unsigned long long)manifest.position.best_step);
    np_free(path);
    np_free(facts);
    return best;
}

/* "RUN:best" and the like, where no file has that name: the checkpoint's folder; NULL without a
 * mistake in err: it is no such word. */
static char *by_name(
    const char *word, const struct np_source_progress *progress, struct np_err *err)
{
    const char *colon = strrchr(word, ':');

    if (!colon || access(word, F_OK) == 0 ||
        (strcmp(colon, ":best") != 0 && strcmp(colon, ":last") != 0 && !is_step(colon + 1)))
        return NULL;
    char *run = np_format("%.*s", (int)(colon - word), word), *path = NULL;
    if (run && is_folder(run))
        path = named_checkpoint(run, colon + 1, progress, err);
    np_free(run);
    return path;
}

/* A folder that holds weights: a checkpoint's, or the newest whole one of a run's. */
static int checkpoint_of(const char *path, const struct np_source_progress *progress,
    char **ret_checkpoint, struct np_err *err)
{
    char *weights = np_format("%s/weights.safetensors", path);
    bool is_checkpoint = weights && is_file(weights);

    np_free(weights);
    if (is_checkpoint) {
        *ret_checkpoint = np_strdup(path);
        struct np_err damage = {0};
        const int code = np_checkpoint_check(path, &damage);

        if (code == 0 || code == -ENODATA)
            return 0;
        *err = damage;
        return code;
    }
    *ret_checkpoint = newest_whole(path, progress);
    if (*ret_checkpoint)
        return 0;
    return np_err_set(err, -ENOENT,
        "%s: no whole weights in it: expected a safetensors file, a checkpoint's folder or a "
        "run's folder",
        path);
}

int np_weights_find(const char *path, const struct np_source_progress *progress, char **ret_path,
    char **ret_checkpoint, struct np_err *err)
{
    char *named = by_name(path, progress, err);
    const char *at = named ? named : path;
    int code = err->code;

    *ret_path = *ret_checkpoint = NULL;
    if (code == 0 && access(at, F_OK) < 0)
        code = np_err_set(err, -errno, "%s: cannot be opened: %s", at, strerror(errno));
    if (code == 0 && !is_folder(at)) {
        *ret_path = np_strdup(at);
    } else if (code == 0 && (code = checkpoint_of(at, progress, ret_checkpoint, err)) == 0) {
        *ret_path = np_format("%s/weights.safetensors", *ret_checkpoint);
    }
    np_free(named);
    return code;
}
