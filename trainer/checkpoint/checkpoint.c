/* Writes a checkpoint whole or not at all; verifies and reads it. One thread at a time. The order of a
 * write makes it safe: sync every file, sync their folder, rename it, sync the outer folder; only
 * then remove an older checkpoint of the same step. */
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/checkpoint_names.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/weights.h"

/* --- writing ------------------------------------------------------------------------------- */

/* Tensors to write; owns the names. */
struct list {
    struct np_st_tensor *tensors;
    int n;
};

static void list_fini(struct list *list)
{
    for (int i = 0; i < list->n; i++)
        np_free((char *)list->tensors[i].name);
    np_free(list->tensors);
}

/* Takes name. */
static void list_add(
    struct list *list, char *name, const struct np_tensor *tensor, const float *data)
{
    struct np_st_tensor *entry = &list->tensors[list->n++];

    *entry = (struct np_st_tensor){.name = name,
        .dtype = "F32",
        .nr_dims = tensor->nr_dims,
        .data = data + tensor->offset,
        .bytes = np_tensor_elements(tensor) * sizeof(float)};
    for (int i = 0; i < tensor->nr_dims; i++)
        entry->dims[i] = tensor->dims[i];
}

/* Returns the name of the batch count that torch keeps beside a batchnorm's buffer:
 * "bn1.num_batches_tracked" for "bn1.running_mean", NULL for other names. np_free. */
static char *batch_count_of(const struct np_tensor *tensor)
{
    static const char suffix[] = ".running_mean";
    const size_t length = strlen(tensor->name), tail = sizeof(suffix) - 1;

    if (tensor->role != NP_ROLE_BUFFER || length < tail ||
        strcmp(tensor->name + length - tail, suffix) != 0)
        return NULL;
    return np_format("%.*s.num_batches_tracked", (int)(length - tail), tensor->name);
}

static void list_weights(
    struct list *list, const struct np_checkpoint *checkpoint, const int64_t *nr_batches)
{
    const struct np_graph *graph = checkpoint->graph;

    for (int i = 0; i < graph->nr_tensors; i++) {
        const struct np_tensor *tensor = &graph->tensors[i];

        if (!np_tensor_is_weight(tensor))
            continue;
        list_add(list, np_strdup(tensor->name), tensor,
            tensor->role == NP_ROLE_PARAM ? checkpoint->params : checkpoint->buffers);
        char *name = batch_count_of(tensor);

        if (name)
            list->tensors[list->n++] =
                (struct np_st_tensor){.name = name, .dtype = "I64", .data = nr_batches, .bytes = 8};
    }
}

static void list_optimizer(struct list *list, const struct np_checkpoint *checkpoint)
{
    const struct np_graph *graph = checkpoint->graph;

    for (int s = 0; s < 2; s++)
        for (int i = 0; i < graph->nr_tensors && checkpoint->state[s]; i++)
            if (graph->tensors[i].role == NP_ROLE_PARAM)
                list_add(list, np_format("state%d.%s", s, graph->tensors[i].name),
                    &graph->tensors[i], checkpoint->state[s]);
    for (int i = 0; i < graph->nr_tensors && checkpoint->raw_params; i++)
        if (np_tensor_is_weight(&graph->tensors[i]))
            list_add(list, np_format("raw.%s", graph->tensors[i].name), &graph->tensors[i],
                graph->tensors[i].role == NP_ROLE_PARAM ? checkpoint->raw_params
                                                        : checkpoint->raw_buffers);
}

static int write_tensors(struct np_io *io, const char *folder, int which,
    const struct np_checkpoint *checkpoint, struct np_manifest *manifest, struct np_err *err)
{
    const int64_t nr_batches = (int64_t)checkpoint->position.step;
    const int room = 3 * checkpoint->graph->nr_tensors;
    struct list list = {.tensors = np_alloc_array((size_t)room, sizeof(*list.tensors))};
    char path[PATH_MAX];

    if (which == NP_FILE_WEIGHTS)
        list_weights(&list, checkpoint, &nr_batches);
    else
        list_optimizer(&list, checkpoint);
    snprintf(path, sizeof(path), "%s/%s", folder, np_manifest_files[which]);
    const int code = np_st_write(io, path, list.tensors, list.n, &manifest->files[which].bytes,
        &manifest->files[which].xxh3, err);

    list_fini(&list);
    return code;
}

static int write_manifest(struct np_io *io, const char *folder, const struct np_manifest *manifest,
    const char *facts_json, struct np_err *err)
{
    char path[PATH_MAX], *text = NULL;
    int fd, code = np_manifest_dump(manifest, facts_json, &text, err);

    if (code < 0)
        return code;
    snprintf(path, sizeof(path), "%s/" NP_MANIFEST, folder);
    code = np_io_create(io, path, &fd, err);
    if (code == 0) {
        code = np_io_append(io, fd, text, strlen(text), err);
        const int closed = np_io_sync_close(io, fd, err); /* the first error stays */
        code = code < 0 ? code : closed;
    }
    free(text);
    return code;
}

static int write_folder(struct np_io *io, const char *folder,
    const struct np_checkpoint *checkpoint, struct np_err *err)
{
    struct np_manifest manifest = {.position = checkpoint->position};
    int code = 0;

    if (mkdir(folder, 0777) < 0)
        return np_err_set(err, -errno, "cannot create %s: %s", folder, strerror(errno));
    for (int which = 0; which < NP_NR_FILES && code == 0; which++)
        code = write_tensors(io, folder, which, checkpoint, &manifest, err);
    if (code == 0)
        code = write_manifest(io, folder, &manifest, checkpoint->facts_json, err);
    return code == 0 ? np_io_sync_dir(io, folder, err) : code;
}

/* Renames folder to final. An existing checkpoint of the same step is first renamed to a name
 * that np_checkpoint_latest() knows too, so that there is a whole one at every moment. */
static int put_in_place(
    struct np_io *io, const char *folder, const char *final, const char *old, struct np_err *err)
{
    bool replaces = access(final, F_OK) == 0;
    int code = replaces ? np_io_rename(io, final, old, err) : 0;

    if (code < 0)
        return code;
    code = np_io_rename(io, folder, final, err);
    if (code < 0 && replaces)
        np_io_rename(io, old, final, NULL);
    return code;
}

/* Weights that are not finite would evict good checkpoints from the folder, and no run can resume
 * from them. An update can produce them while the loss before it was finite. */
static int check_numbers(const struct np_checkpoint *checkpoint, const float *params,
    const float *buffers, struct np_err *err)
{
    const struct np_graph *graph = checkpoint->graph;

    for (int i = 0; i < graph->nr_tensors; i++) {
        const struct np_tensor *tensor = &graph->tensors[i];
        const float *values = tensor->role == NP_ROLE_PARAM ? params : buffers;
        bool good = true;

        if (!np_tensor_is_weight(tensor))
            continue;
        values += tensor->offset;
        for (uint64_t k = 0; k < np_tensor_elements(tensor); k++)
            good &= isfinite(values[k]) != 0;
        if (!good)
            return np_err_set(err, -EDOM,
                "step %" PRIu64 ": %s is no longer finite and is not saved; a smaller optimizer "
                "lr, a longer warm-up or train.clip_norm may help",
                checkpoint->position.step, tensor->name);
    }
    return 0;
}

int np_checkpoint_write(
    struct np_io *io, const char *dir, const struct np_checkpoint *checkpoint, struct np_err *err)
{
    char folder[PATH_MAX], final[PATH_MAX], old[PATH_MAX];
    uint64_t step = checkpoint->position.step;
    bool is_new = access(dir, F_OK) != 0;
    int code = check_numbers(checkpoint, checkpoint->params, checkpoint->buffers, err);

    if (code == 0 && checkpoint->raw_params)
        code = check_numbers(checkpoint, checkpoint->raw_params, checkpoint->raw_buffers, err);
    if (code == 0)
        code = np_make_dirs(dir, err);
    if (code < 0)
        return code;
    if (snprintf(folder, sizeof(folder), "%s/.step-%" PRIu64 ".tmp", dir, step) >=
        PATH_MAX - 32) /* leaves space for the files' names */
        return np_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    snprintf(final, sizeof(final), "%s/step-%" PRIu64, dir, step);
    snprintf(old, sizeof(old), "%s/.step-%" PRIu64 ".old", dir, step);
    np_remove_folder(folder);
    if (access(final, F_OK) == 0)
        np_remove_folder(old);
    code = write_folder(io, folder, checkpoint, err);
    if (code == 0)
        code = put_in_place(io, folder, final, old, err);
    if (code == 0)
        code = np_io_sync_dir(io, dir, err);
    if (code == 0 && is_new) { /* the folder's entry in its parent */
        snprintf(final, sizeof(final), "%s/..", dir);
        code = np_io_sync_dir(io, final, err);
    }
    if (code == 0)
        np_remove_folder(old);
    np_remove_folder(folder);
    if (code < 0)
        np_err_context(err, "no checkpoint of step %" PRIu64, step);
    return code;
}

/* --- reading ------------------------------------------------------------------------------- */

static int open_file(const char *folder, int which, const struct np_manifest *manifest,
    struct np_st_file **ret_file, struct np_err *err)
{
    struct np_st_file *file;
    char path[PATH_MAX];
    uint64_t xxh3;

    snprintf(path, sizeof(path), "%s/%s", folder, np_manifest_files[which]);
    if (which == NP_FILE_OPTIMIZER && access(path, F_OK) < 0 && errno == ENOENT)
        return np_err_set(err, -ENODATA,
            "%s: its optimizer's state was removed (checkpoint.optimizer: newest keeps only the "
            "newest one): --weights can start a run with its weights, --resume cannot continue "
            "from it",
            folder);
    int code = np_st_open(path, &file, err);
    if (code < 0)
        return code;
    if (file->nr_bytes != manifest->files[which].bytes)
        code = np_err_set(err, -EBADMSG,
            "%s: damaged: has %" PRIu64 " bytes, was written with %" PRIu64, path, file->nr_bytes,
            manifest->files[which].bytes);
    else if ((code = np_st_hash(file, &xxh3, err)) == 0 && xxh3 != manifest->files[which].xxh3)
        code = np_err_set(
            err, -EBADMSG, "%s: damaged: its XXH3 differs from the one it was written with", path);
    if (code < 0)
        np_st_close(file);
    else
        *ret_file = file;
    return code;
}

/* prefix: "" or "state0." */
static int find_tensor(const struct np_st_file *file, const char *prefix,
    const struct np_tensor *tensor, const struct np_st_tensor **ret_stored, struct np_err *err)
{
    char *name = np_format("%s%s", prefix, tensor->name);
    const struct np_st_tensor *stored = np_st_find(file, name);
    int code = 0;
    if (!stored)
        code = np_err_set(err, -EINVAL, "%s is missing: another network's checkpoint?", name);
    else if (!np_tensor_fits(tensor, stored) || strcmp(stored->dtype, "F32") != 0)
        code = np_err_set(
            err, -EINVAL, "%s has another shape or type: another network's checkpoint?", name);
    np_free(name);
    *ret_stored = stored;
    return code;
}

/* array NULL: only checks that the tensors exist and fit. */
static int read_role(const struct np_st_file *file, const char *prefix,
    const struct np_graph *graph, enum np_role role, float *array, int *nr_seen, struct np_err *err)
{
    for (int i = 0; i < graph->nr_tensors; i++) {
        const struct np_tensor *tensor = &graph->tensors[i];
        const struct np_st_tensor *stored = NULL;
        if (tensor->role != role)
            continue;
        int code = find_tensor(file, prefix, tensor, &stored, err);
        if (code < 0)
            return code;
        if (array &&
            (code = np_st_read(file, stored, 0, array + tensor->offset, stored->bytes, err)) < 0)
            return code;
        (*nr_seen)++;
    }
    return 0;
}

static int check_unexpected(const struct np_st_file *file, int nr_seen, struct np_err *err)
{
    for (int i = 0; i < file->n; i++)
        nr_seen += np_is_batch_count(file->tensors[i].name);
    if (nr_seen != file->n)
        return np_err_set(err, -EINVAL,
            "holds %d tensors that the network does not have: another network's checkpoint?",
            file->n - nr_seen);
    return 0;
}

/* Two rounds: the first checks, the second reads into place, so that a checkpoint that does not fit
 * leaves the arrays unchanged, and nothing is in memory twice. */
static int read_arrays(const struct np_st_file *const files[NP_NR_FILES],
    struct np_checkpoint *checkpoint, struct np_err *err)
{
    static const char *const prefixes[] = {"state0.", "state1."};
    const struct np_st_file *weights = files[NP_FILE_WEIGHTS];
    const struct np_graph *graph = checkpoint->graph;
    int code = 0;

    for (int round = 0; round < 2 && code == 0; round++) {
        int nr_seen = 0, nr_states = 0;
        code = read_role(
            weights, "", graph, NP_ROLE_PARAM, round ? checkpoint->params : NULL, &nr_seen, err);
        if (code == 0)
            code = read_role(weights, "", graph, NP_ROLE_BUFFER, round ? checkpoint->buffers : NULL,
                &nr_seen, err);
        if (code == 0)
            code = check_unexpected(weights, nr_seen, err);
        for (int s = 0; s < 2 && code == 0; s++)
            if (checkpoint->state[s])
                code = read_role(files[NP_FILE_OPTIMIZER], prefixes[s], graph, NP_ROLE_PARAM,
                    round ? checkpoint->state[s] : NULL, &nr_states, err);
        if (code == 0 && checkpoint->raw_params)
            code = read_role(files[NP_FILE_OPTIMIZER], "raw.", graph, NP_ROLE_PARAM,
                round ? checkpoint->raw_params : NULL, &nr_states, err);
        if (code == 0 && checkpoint->raw_params)
            code = read_role(files[NP_FILE_OPTIMIZER], "raw.", graph, NP_ROLE_BUFFER,
                round ? checkpoint->raw_buffers : NULL, &nr_states, err);
    }
    return code;
}

/* Call close_all(), also after an error. *ret_facts_json: free(). */
static int open_all(const char *path, struct np_manifest *ret_manifest, char **ret_facts_json,
    struct np_st_file *files[NP_NR_FILES], struct np_err *err)
{
    char manifest_path[PATH_MAX];

    if (snprintf(manifest_path, sizeof(manifest_path), "%s/" NP_MANIFEST, path) >= PATH_MAX - 32)
        return np_err_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    int code = np_manifest_read(manifest_path, ret_manifest, ret_facts_json, err);
    for (int which = 0; which < NP_NR_FILES && code == 0; which++)
        code = open_file(path, which, ret_manifest, &files[which], err);
    return code;
}

static void close_all(struct np_st_file *files[NP_NR_FILES])
{
    for (int which = 0; which < NP_NR_FILES; which++)
        np_st_close(files[which]);
}

int np_checkpoint_read(
    const char *path, struct np_checkpoint *checkpoint, char **ret_facts_json, struct np_err *err)
{
    struct np_st_file *files[NP_NR_FILES] = {NULL};
    struct np_manifest manifest;
    char *facts = NULL;
    int code = open_all(path, &manifest, &facts, files, err);

    if (code == 0) {
        code = read_arrays((const struct np_st_file *const *)files, checkpoint, err);
        if (code < 0)
            np_err_context(err, "%s", path);
    }
    close_all(files);
    if (code < 0) {
        free(facts);
        return code;
    }
    checkpoint->position = manifest.position;
    *ret_facts_json = facts;
    return 0;
}

int np_checkpoint_check(const char *path, struct np_err *err)
{
    struct np_st_file *files[NP_NR_FILES] = {NULL};
    struct np_manifest manifest;
    char *facts = NULL;
    const int code = open_all(path, &manifest, &facts, files, err);

    close_all(files);
    free(facts);
    return code;
}
