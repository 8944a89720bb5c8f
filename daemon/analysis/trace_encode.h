/* Perfetto's TrackEvent format by hand: each call appends whole TracePackets to a buffer, so that what
 * has been written is a trace at any time. A track is a packet sequence of its own (its timestamps
 * ascend), with the names it refers to by number. Times are np_now_ns(). Pure; any thread.
 * Format: protos/perfetto/trace/trace_packet.proto of github.com/google/perfetto. */
#ifndef NP_TRACE_ENCODE_H
#define NP_TRACE_ENCODE_H

#include <stddef.h>

#include "loader/base/span.h"

#define NP_TRACE_MOST 1024 /* bytes that one call appends at most; texts are cut */

struct np_trace_buffer {
    uint8_t *bytes;
    size_t nr, room; /* room - nr >= NP_TRACE_MOST before each call */
};

/* What all of a file's packets have in common. Tracks are known by number: 0, 1, ... */
struct np_trace_file {
    uint64_t uuid; /* of the process' track; those of the others follow it */
    int pid;
};
enum np_trace_gauge {
    NP_TRACE_READY,
    NP_TRACE_RATE,
    NP_NR_TRACE_GAUGES
}; /* batches, images a second */

/* First of all: the clocks, the process, the two counters. boot_ns: CLOCK_BOOTTIME at now_ns. */
void np_trace_head(struct np_trace_buffer *out, const struct np_trace_file *file, uint64_t now_ns,
    uint64_t boot_ns);
/* Before a track's first span. Tracks with one `shown` number stand in one row. */
void np_trace_track(struct np_trace_buffer *out, const struct np_trace_file *file, int number,
    int shown, const char *name, int tid);
void np_trace_span(struct np_trace_buffer *out, int number, const struct np_span *span);
/* A mark in the track: so many spans are missing from here on. */
void np_trace_gap(struct np_trace_buffer *out, int number, uint64_t now_ns, uint64_t nr_dropped);
void np_trace_gauge(
    struct np_trace_buffer *out, enum np_trace_gauge gauge, uint64_t now_ns, double value);
/* Last of all: a mark that holds the sums. */
struct np_trace_sums {
    uint64_t spans;   /* in the file */
    uint64_t dropped; /* a ring was full */
    uint64_t left;    /* the file was, or its disk */
};
void np_trace_tail(struct np_trace_buffer *out, uint64_t now_ns, const struct np_trace_sums *sums);

#endif
