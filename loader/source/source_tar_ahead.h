/* Lists the tar archives of a set ahead with a few threads, each into its own index. The caller
 * appends these in the order of the archives, so that the set's index does not depend on the
 * threads. For source_tar.c. */
#ifndef NP_SOURCE_TAR_AHEAD_H
#define NP_SOURCE_TAR_AHEAD_H

#include "loader/source/source_tar_list.h"

struct np_tar_ahead;
/* Lists the archive at path into scan. Any thread, each with its own scan. */
typedef int (*np_tar_list_fn)(struct np_tar_scan *scan, const char *path);

/* Starts to list paths[first] and the archives after it, with the settings of scan. scan and paths
 * are borrowed. The thread that calls this calls the next two. NULL: out of memory. */
struct np_tar_ahead *np_tar_ahead_new(
    struct np_tar_scan *scan, const struct np_paths *paths, int first, np_tar_list_fn list);
/* Waits for the next archive, listing others meanwhile, and appends it to the scan. Reports its
 * errors and notes now. */
int np_tar_ahead_take(struct np_tar_ahead *ahead);
/* Waits for the archives that are being listed. NULL is fine. */
void np_tar_ahead_free(struct np_tar_ahead *ahead);

#endif
