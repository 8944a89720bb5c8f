/* Names in a folder of checkpoints: step-N; .step-N.tmp, one being written or removed; .step-N.old, one that
 * made room for another of the same step. The folder's one scan: who looks for checkpoints, looks here. Reads
 * only, np_remove_folder() apart; any thread. */
#ifndef NP_CHECKPOINT_NAMES_H
#define NP_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

enum np_checkpoint_kind { NP_CHECKPOINT_FINAL, NP_CHECKPOINT_OLD, NP_CHECKPOINT_TORN };
struct np_checkpoint_name {
    uint64_t step;
    enum np_checkpoint_kind kind;
    char text[40]; /* the folder's name */
};

/* False: a name of something else; a sign, a leading zero and a number above 2^64 - 1 make it one. */
bool np_checkpoint_name_parse(const char *text, struct np_checkpoint_name *ret_name);
/* All checkpoints of dir, newest first; of one step the final one first. np_free. A folder that is not there
 * has none. */
int np_checkpoint_names(
    const char *dir, struct np_checkpoint_name **ret_names, int *ret_n, struct np_err *err);

/* A folder and the files in it; best effort: what cannot be removed stays. */
void np_remove_folder(const char *path);

#endif
