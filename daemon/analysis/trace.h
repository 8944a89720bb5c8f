/* `--trace FILE`: the spans of a run's threads and of its device's streams, written while it runs, in
 * Perfetto's format (ui.perfetto.dev opens it). The file ends at its limit, or where the disk is full;
 * the run goes on. What is not in the file is counted, in it and by np_trace_text(). */
#ifndef NP_TRACE_H
#define NP_TRACE_H

#include "loader/base/err.h"
#include "loader/base/span.h"
#include "loader/ring.h"

#define NP_TRACE_MIB 256 /* the file's limit, where none is given */

struct np_trace;
/* Makes the file (what was there is gone) and starts the thread that writes it. limit_text: MiB in
 * digits, NULL: NP_TRACE_MIB. -EINVAL: it is no such number; or why the file cannot be made. */
int np_trace_open(
    const char *path, const char *limit_text, struct np_trace **ret_trace, struct np_err *err);
/* For np_stat_trace(). */
struct np_tracks *np_trace_tracks(struct np_trace *trace);
/* From now on the ring's occupancy is a counter in the trace, and batches of so many images a second
 * are; NULL: the ring is about to go. Any thread. */
void np_trace_watch(struct np_trace *trace, const struct np_ring *ring, int batch);

/* Once nobody writes spans any more: what is left is written, the file closed. */
struct np_trace_end {
    uint64_t spans, bytes;  /* in the file */
    uint64_t dropped, left; /* not in it: a ring was full; the file or its disk was */
    int code;               /* why it ends early: -errno; 0: it does not, or at its limit */
};
void np_trace_finish(struct np_trace *trace, struct np_trace_end *ret_end);
/* The same in a sentence or two. */
void np_trace_text(
    const struct np_trace *trace, const struct np_trace_end *end, char *text, size_t text_bytes);
void np_trace_free(struct np_trace *trace); /* NULL works */

#endif
