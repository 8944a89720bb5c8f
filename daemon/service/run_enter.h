/* Enters the folder of a run, which may lie below a folder that others can write. Then the run
 * opens everything relative to the working directory, so no other user can replace the folder,
 * and only the run's user and root can have put files into it. */
#ifndef NP_RUN_ENTER_H
#define NP_RUN_ENTER_H

#include <stdbool.h>

#include "loader/base/err.h"

/* Creates dir, 0755 less the umask, and the folders above it; blocks on the disk. first: -EEXIST
 * if it exists already; else an existing folder is accepted. */
int np_folder_make(const char *dir, bool first, struct np_err *err);
/* Checks all that is in dir, takes the right to write from group and others in its folders, and
 * makes dir the working directory. Main thread, before there are others; blocks on the disk.
 * -EPERM: dir is a link; or it or something in it belongs to a user other than the caller or
 * root; or a file that the run writes has a second name or is not a regular file. So file
 * systems that do not keep owners (some network mounts) are refused. */
int np_folder_enter(const char *dir, struct np_err *err);

/* The run's output: numbered segments in output/ of its folder, which is the working directory.
 * All calls block on the disk. The number of the newest segment; 0: none. */
int np_output_last(void);
/* Opens a segment for appending, and creates it if missing; follows no link. Returns the
 * descriptor or -errno. */
int np_output_open(int segment);
/* Removes the segment, if it exists. */
void np_output_remove(int segment);

#endif
