/* `--trace FILE`: writes the spans of a run's threads and of its device's streams while it runs,
 * in Perfetto's format (ui.perfetto.dev opens it). At the size limit or on a full disk the file
 * ends, not the run. Missing spans are counted, in the file and in struct np_trace_end. */
#ifndef NP_TRACE_H
#define NP_TRACE_H

#include "loader/base/err.h"
#include "loader/base/span.h"
#include "loader/ring.h"

#define NP_TRACE_MIB 256 /* default limit of the file */

struct np_trace;
/* Creates or truncates the file and starts the thread that writes it. limit_text: MiB in digits,
 * NULL: NP_TRACE_MIB. -EINVAL: not such a number; else the error of creating the file. */
int np_trace_open(
    const char *path, const char *limit_text, struct np_trace **ret_trace, struct np_err *err);
/* For np_stat_trace(). */
struct np_tracks *np_trace_tracks(struct np_trace *trace);
/* Records the ring's occupancy and the rate (with `batch` images per step) as counters from now
 * on. NULL: stops before the ring is freed. Any thread. */
void np_trace_watch(struct np_trace *trace, const struct np_ring *ring, int batch);

struct np_trace_end {
    uint64_t spans, bytes;  /* in the file */
    uint64_t dropped, left; /* missing: a ring was full; the file or the disk was full */
    int code;               /* -errno if writing failed, else 0, also at the limit */
    char text[512];         /* the same in a sentence or two */
};
/* Writes the remaining spans and closes the file. No thread may write spans any more. */
void np_trace_finish(struct np_trace *trace, struct np_trace_end *ret_end);
void np_trace_free(struct np_trace *trace); /* NULL works */

#endif
