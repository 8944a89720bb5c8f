/* Into the folder of a run of the service, which lies below a folder where others may be able to write. Once
 * inside, the run opens everything relative to the working directory, so that nobody can put another folder in its
 * place; and nobody but the run's user (and root) can have put anything into it. */
#ifndef NP_RUN_ENTER_H
#define NP_RUN_ENTER_H

#include <stdbool.h>

#include "loader/base/err.h"

/* Makes the folder dir, 0755 less the umask, and the folders above it. first: it must not be there yet (-EEXIST:
 * somebody else has made it); else an existing one is taken. Blocks on the disk. */
int np_folder_make(const char *dir, bool first, struct np_err *err);
/* Makes dir the working directory of the process and checks all that is in it; main thread, before there are others.
 * Folders lose the right of group and others to write. -EPERM: dir is a link, or it or something in it belongs to
 * another user, or a file that the run writes to has a second name, or is none. Owners are the caller's user and
 * root: file systems that do not keep owners (some network mounts) are refused. */
int np_folder_enter(const char *dir, struct np_err *err);

#endif
