/* Writes Perfetto's TrackEvent format: each call appends whole TracePackets to a buffer, so that its
 * contents are always a valid trace. Each track is a packet sequence of its own (its timestamps ascend),
 * with its own table of names. Times are np_now_ns(). Pure; any thread.
 * Format: protos/perfetto/trace/trace_packet.proto of github.com/google/perfetto. */
#ifndef NP_TRACE_ENCODE_H
#define NP_TRACE_ENCODE_H

#include <stddef.h>

#include "loader/base/span.h"

#define NP_TRACE_MAX 1024 /* bytes that one call appends at most; texts are cut */

struct np_trace_buffer {
    uint8_t *bytes;
    size_t nr, room; /* room - nr >= NP_TRACE_MAX before each call */
};

/* Common to all packets of a file. Tracks have numbers 0, 1, ... */
struct np_trace_file {
    uint64_t uuid; /* of the process's track; the other tracks have the next ones */
    int pid;
};
enum np_trace_gauge {
    NP_TRACE_READY,
    NP_TRACE_RATE,
    NP_NR_TRACE_GAUGES
}; /* batches, images a second */

/* Begins a trace: the clocks, the process, the two counters. boot_ns: CLOCK_BOOTTIME at now_ns. */
void np_trace_head(struct np_trace_buffer *out, const struct np_trace_file *file, uint64_t now_ns,
    uint64_t boot_ns);
/* Begins a track, before its first span. Tracks with the same `shown` number share a row. */
void np_trace_track(struct np_trace_buffer *out, const struct np_trace_file *file, int number,
    int shown, const char *name, int tid);
void np_trace_span(struct np_trace_buffer *out, int number, const struct np_span *span);
/* Marks that nr_dropped spans are missing from here on. */
void np_trace_gap(struct np_trace_buffer *out, int number, uint64_t now_ns, uint64_t nr_dropped);
void np_trace_gauge(
    struct np_trace_buffer *out, enum np_trace_gauge gauge, uint64_t now_ns, double value);
/* Ends a trace: a mark with the sums. */
struct np_trace_sums {
    uint64_t spans;   /* in the file */
    uint64_t dropped; /* missing: a ring was full */
    uint64_t left;    /* missing: the file or the disk was full */
};
void np_trace_tail(struct np_trace_buffer *out, uint64_t now_ns, const struct np_trace_sums *sums);

#endif
