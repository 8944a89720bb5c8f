/* Enters a run's folder, which may lie below a folder that others can write. The run then opens
 * everything relative to the working directory, so no other user can replace the folder, and all
 * files in it are from the run's user or root. */
#ifndef NP_RUN_ENTER_H
#define NP_RUN_ENTER_H

#include <stdbool.h>

#include "loader/base/err.h"

/* Creates dir, 0755 less the umask, and the folders above it; blocks on the disk. first: fails with
 * -EEXIST if it exists. */
int np_folder_make(const char *dir, bool first, struct np_err *err);
/* Checks all that is in dir, revokes the right of group and others to write to its folders, and
 * makes dir the working directory. Main thread, before there are others; blocks on the disk.
 * -EPERM: dir is a link; or it or something in it belongs to a user other than the caller or root
 * (so file systems without owners, such as some network mounts, are refused); or a file that the
 * run writes has a second name or is not a regular file. */
int np_folder_enter(const char *dir, struct np_err *err);

/* The run's output: numbered segments in output/ of the working directory. These calls block on
 * the disk. np_output_last(): the newest segment; 0: none. */
int np_output_last(void);
/* Opens a segment for appending; creates it if missing; follows no link. Returns the descriptor or
 * -errno. */
int np_output_open(int segment);
void np_output_remove(int segment);

#endif
