/* A run's folder, runs/NAME-ID/: creates, locks and finds it, and the checkpoints in it. */
#ifndef NP_RUN_FOLDER_H
#define NP_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/node.h"
#include "loader/source/source.h"

bool np_is_folder(const char *path);
/* Makes runs/NAME-YYYYMMDD-HHMMSS-xxxx (UTC, four random hex digits). *ret_dir: np_free. */
int np_folder_create(const char *runs, const char *name, char **ret_dir, struct np_err *err);
/* Locks dir/lock until the descriptor is closed and writes this process's id into it. -EBUSY: a
 * run is running there; the error has its process id. */
int np_folder_lock(const char *dir, int *ret_fd, struct np_err *err);
/* Is the folder locked? Then text is "running, process 12". */
bool np_folder_running(const char *dir, char *text, size_t text_bytes);
/* Bytes on the disk of a folder and those below it, four levels deep; does not follow links. */
uint64_t np_folder_bytes(const char *dir);
/* Does dir hold a checkpoint, complete or not? */
bool np_folder_has_checkpoint(const char *dir);
/* Parses dir/config.yaml. Keys that did not exist when the file was written get the value that
 * describes that run: loader.pixels is pillow-12, for instance. np_node_free. */
int np_folder_config(const char *dir, struct np_node **ret_node, struct np_err *err);
/* Steps in result.json; -1 if the run is not finished. *ret_result (may be NULL): the object,
 * np_node_free. */
double np_folder_result(const char *dir, struct np_node **ret_result);
/* Finds the newest folder NAME-... below runs for which fits() is true; calls it for the newest
 * first. *ret_dir NULL: none. np_free. */
int np_folder_find(const char *runs, const char *name, bool (*fits)(void *context, const char *dir),
    void *context, char **ret_dir, struct np_err *err);

/* Reads the facts of a run's newest checkpoint whose facts are readable. -ENOENT: none.
 * np_node_free. */
int np_run_newest_facts(const char *dir, struct np_node **ret_facts, struct np_err *err);
/* Reads the facts of a checkpoint's folder, not its arrays. np_node_free. */
int np_facts_read(const char *checkpoint, struct np_node **ret_facts, struct np_err *err);
/* Finds weights. path: a file (np_weights_open()), a checkpoint's folder, a run's folder (its newest
 * one), or RUN:best, RUN:last, RUN:step-N. *ret_path: the weights file; *ret_checkpoint: the
 * checkpoint's folder, NULL for a bare file. np_free both. Checks a checkpoint's files against
 * its manifest; in a run's folder, skips damaged checkpoints with a note. */
int np_weights_find(const char *path, const struct np_source_progress *progress, char **ret_path,
    char **ret_checkpoint, struct np_err *err);

#endif
