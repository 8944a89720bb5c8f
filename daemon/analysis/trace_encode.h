/* Writes Perfetto's TrackEvent format: each call writes whole TracePackets at `at`, so that its
 * bytes may follow any others of a trace, and returns their end. Each track is a packet sequence
 * of its own (its timestamps ascend), with its own table of names. Times are np_now_ns(). Pure;
 * any thread. Format: protos/perfetto/trace/trace_packet.proto of github.com/google/perfetto. */
#ifndef NP_TRACE_ENCODE_H
#define NP_TRACE_ENCODE_H

#include "loader/base/span.h"

#define NP_TRACE_MAX 1024 /* bytes that one call writes at most; texts are cut */

/* Common to all packets of a file. Tracks have numbers 0, 1, ... */
struct np_trace_file {
    uint64_t uuid; /* of the process's track; the other tracks have the next ones */
    int pid;
};
enum np_trace_gauge { NP_TRACE_READY, NP_TRACE_RATE, NP_NR_TRACE_GAUGES }; /* batches, images/s */
struct np_trace_sums {
    uint64_t spans;   /* in the file */
    uint64_t dropped; /* missing: a ring was full */
    uint64_t left;    /* missing: the file or the disk was full */
};

/* Begins a trace: the clocks, the process, the two counters. boot_ns: CLOCK_BOOTTIME at now_ns. */
uint8_t *np_trace_head(
    uint8_t *at, const struct np_trace_file *file, uint64_t now_ns, uint64_t boot_ns);
/* Begins a track, before its first span. Tracks with the same `shown` number share a row. tid 0:
 * no thread. */
uint8_t *np_trace_track(uint8_t *at, const struct np_trace_file *file, int number, int shown,
    const char *name, int tid);
uint8_t *np_trace_span(uint8_t *at, int number, const struct np_span *span);
/* Marks that nr_dropped spans are missing from here on. */
uint8_t *np_trace_gap(uint8_t *at, int number, uint64_t now_ns, uint64_t nr_dropped);
uint8_t *np_trace_gauge(uint8_t *at, enum np_trace_gauge gauge, uint64_t now_ns, double value);
/* Ends a trace: a mark with the sums. */
uint8_t *np_trace_tail(uint8_t *at, uint64_t now_ns, const struct np_trace_sums *sums);

#endif
