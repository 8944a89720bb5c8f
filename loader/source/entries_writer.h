/* The thread that writes the segments of the store of entries. For entries*.c alone. */
#ifndef NP_ENTRIES_WRITER_H
#define NP_ENTRIES_WRITER_H

#include "loader/source/entries_slots.h"

/* Starts the thread. The process holds the file lock, and all segments are loaded. */
int np_entries_writer_start(struct np_entries *entries, struct np_err *err);
/* Writes the batches that wait, and ends the thread. */
void np_entries_writer_stop(struct np_entries *entries);

#endif
