/* A run's folder, runs/NAME-ID/: made, locked while the run lasts, found again; the checkpoints in it. */
#ifndef NP_RUN_FOLDER_H
#define NP_RUN_FOLDER_H

#include <stdbool.h>

#include "loader/base/err.h"
#include "loader/base/node.h"
#include "loader/source/source.h"

bool np_is_folder(const char *path);
/* Makes runs/NAME-YYYYMMDD-HHMMSS-xxxx (UTC, four random hex digits). *ret_dir: np_free. */
int np_folder_create(const char *runs, const char *name, char **ret_dir, struct np_err *err);
/* Locks dir/lock until the descriptor is closed; writes this process's number into it. -EBUSY: a
 * run is running there, named by its process. */
int np_folder_lock(const char *dir, int *ret_fd, struct np_err *err);
/* Is its lock held? Then "running, process 12" is in text. */
bool np_folder_running(const char *dir, char *text, size_t text_bytes);
/* Is there anything to go on from, whole or not? */
bool np_folder_has_checkpoint(const char *dir);
/* dir/config.yaml as a node. Keys that are younger than the file have the value they stand for:
 * loader.pixels is pillow-12, for instance. np_node_free. */
int np_folder_config(const char *dir, struct np_node **ret_node, struct np_err *err);
/* Steps of its result.json when the run was finished; -1: it was not. */
double np_folder_result(const char *dir);
/* The newest folder below runs called NAME-... for which fits() is true; the newest is asked first.
 * *ret_dir NULL: none. np_free. */
int np_folder_find(const char *runs, const char *name, bool (*fits)(void *context, const char *dir),
    void *context, char **ret_dir, struct np_err *err);

/* The facts of a run's newest checkpoint that has readable ones. -ENOENT: none. np_node_free. */
int np_run_newest_facts(const char *dir, struct np_node **ret_facts, struct np_err *err);
/* The facts of a checkpoint's folder, without its arrays. np_node_free. */
int np_facts_read(const char *checkpoint, struct np_node **ret_facts, struct np_err *err);
/* From a safetensors file, a checkpoint's folder, a run's folder (the newest one), or RUN:best,
 * RUN:last, RUN:step-N: the weights file (*ret_path) and the checkpoint's folder (*ret_checkpoint, NULL
 * for a bare file). np_free both. A checkpoint's files are held against its manifest; of a run, damaged
 * ones are named in a note and passed over. */
int np_weights_find(const char *path, const struct np_source_progress *progress, char **ret_path,
    char **ret_checkpoint, struct np_err *err);

#endif
