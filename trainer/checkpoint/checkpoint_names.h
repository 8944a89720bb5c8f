/* Names in a folder of checkpoints: step-N; .step-N.tmp, being written or removed; .step-N.old,
 * replaced by another of the same step. The only scan of such a folder. Only np_remove_folder()
 * writes. Any thread. */
#ifndef NP_CHECKPOINT_NAMES_H
#define NP_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

enum np_checkpoint_kind { NP_CHECKPOINT_FINAL, NP_CHECKPOINT_OLD, NP_CHECKPOINT_INCOMPLETE };
struct np_checkpoint_name {
    uint64_t step;
    enum np_checkpoint_kind kind;
    char text[40];
};

/* False: not a checkpoint's name; also for a sign, a leading zero or a number above 2^64 - 1. */
bool np_checkpoint_name_parse(const char *text, struct np_checkpoint_name *ret_name);
/* Lists the checkpoints of dir, newest first; for one step the final one first. np_free. A
 * missing folder has none. */
int np_checkpoint_names(
    const char *dir, struct np_checkpoint_name **ret_names, int *ret_n, struct np_err *err);

/* Removes a folder and its files; ignores errors. */
void np_remove_folder(const char *path);

#endif
