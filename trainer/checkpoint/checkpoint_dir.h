/* The folder of a run's checkpoints: finds the newest whole one and prunes. best is a link to a
 * step-N. One thread at a time. */
#ifndef NP_CHECKPOINT_DIR_H
#define NP_CHECKPOINT_DIR_H

#include "trainer/checkpoint/checkpoint.h"

/* Called for each damaged checkpoint that is skipped; text names it and is borrowed. */
typedef void (*np_damaged_fn)(void *context, const char *text);

/* Loads the newest whole checkpoint of dir. damaged may be NULL. -ENOENT: there is none. */
int np_checkpoint_latest(const char *dir, struct np_checkpoint *checkpoint, char **ret_facts_json,
    np_damaged_fn damaged, void *context, struct np_err *err);
/* Finds the newest checkpoint of dir with whole weights (its optimizer's state may have been
 * removed); loads nothing. *ret_path: np_free. -ENOENT: there is none. */
int np_checkpoint_newest(
    const char *dir, char **ret_path, np_damaged_fn damaged, void *context, struct np_err *err);
/* Removes the optimizer's state of all checkpoints but that of step `newest`: their weights
 * stay, but no run can resume from them. Call it after a write, when the newest one is on the
 * disk. */
int np_checkpoint_drop_optimizers(const char *dir, uint64_t newest, struct np_err *err);
/* Makes dir/best a link to step-N, atomically and durably. Does nothing when N is 0 or step-N does
 * not exist. Call it before np_checkpoint_prune(), which removes the previous best. -EPERM and
 * others: the file system has no links. */
int np_checkpoint_name_best(
    struct np_io *io, const char *dir, uint64_t best_step, struct np_err *err);
/* Keeps the newest `keep` checkpoints up to step `newest`, and the best one. Removes the others,
 * incomplete ones, and those after `newest`, which the run skipped as damaged when it resumed. Call
 * it after a write: everything that it removes is older or damaged. */
int np_checkpoint_prune(
    const char *dir, int keep, uint64_t newest, uint64_t best_step, struct np_err *err);

#endif
