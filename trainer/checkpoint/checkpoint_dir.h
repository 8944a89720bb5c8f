/* The folder of a run's checkpoints: which is the newest whole one, which may go. best is a link to a step-N.
 * Trainer thread. */
#ifndef NP_CHECKPOINT_DIR_H
#define NP_CHECKPOINT_DIR_H

#include "trainer/checkpoint/checkpoint.h"

/* Called for each damaged checkpoint that is passed over; text names it and is borrowed. */
typedef void (*np_damaged_fn)(void *context, const char *text);

/* Loads the newest whole checkpoint of dir. damaged may be NULL. -ENOENT: there is none. */
int np_checkpoint_latest(const char *dir, struct np_checkpoint *checkpoint, char **ret_facts_json,
    np_damaged_fn damaged, void *context, struct np_err *err);
/* The newest of dir whose weights are whole (its optimizer's state may have been dropped); nothing is loaded.
 * *ret_path: np_free. -ENOENT: there is none. */
int np_checkpoint_newest(
    const char *dir, char **ret_path, np_damaged_fn damaged, void *context, struct np_err *err);
/* Removes the optimizer's state of all checkpoints but that of step `newest`: no run continues from them any
 * more, their weights stay. Call it after a write: the newest one is on the disk then. */
int np_checkpoint_drop_optimizers(const char *dir, uint64_t newest, struct np_err *err);
/* Makes dir/best a link to step-N, replaced whole; that it is there is on the disk afterwards. Nothing
 * to do where step-N is not there, or N is 0. Call it before np_checkpoint_prune(), which removes what
 * was the best before. -EPERM ...: a file system without links. */
int np_checkpoint_name_best(
    struct np_io *io, const char *dir, uint64_t best_step, struct np_err *err);
/* Keeps the newest `keep` up to step `newest` and the best one. Removes torn leftovers, and what is
 * newer: damaged ones, which the run that wrote `newest` passed over when it was resumed, and which
 * would take the places of whole ones. Call it after a write: what it removes is older than that, or
 * in pieces. */
int np_checkpoint_prune(
    const char *dir, int keep, uint64_t newest, uint64_t best_step, struct np_err *err);

#endif
