/* The thread that writes the segments of kept entries. For entries*.c alone. */
#ifndef NP_ENTRIES_WRITER_H
#define NP_ENTRIES_WRITER_H

#include "loader/source/entries_slots.h"

/* Starts it, in the process that holds the lock, when all segments are loaded. */
int np_entries_writer_start(struct np_entries *entries, struct np_err *err);
/* Writes what was put, and ends it. */
void np_entries_writer_stop(struct np_entries *entries);

#endif
