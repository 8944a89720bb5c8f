/* A set's shards, open for reading: once for all readers. */
#ifndef NP_FILES_H
#define NP_FILES_H

#include "loader/source/index.h"

struct np_files;
/* Raises the limit of open files, as far as it goes, to so many and what the rest of a run needs. */
void np_files_allow(int nr_files);
/* Opens every shard, within the limit of open files (raised as far as it goes). Sets whose
 * samples are files of their own have none. Errors name the file. */
int np_files_open(const struct np_index *index, struct np_files **ret_files, struct np_err *err);
void np_files_close(struct np_files *files);
int np_files_fd(const struct np_files *files, uint32_t file); /* any thread */
/* Has a shard been written to since it was opened? Any thread. */
bool np_files_changed(const struct np_files *files, uint32_t file);

#endif
