/* Spans: what a thread or a stream of a device did from when to when, for a trace. Each track has
 * one ring: one thread writes it, one other (the drain) reads it. A writer never waits: where the
 * ring is full the span is dropped and counted. Nothing here runs in a run without a trace. */
#ifndef NP_SPAN_H
#define NP_SPAN_H

#include <stdint.h>

#include "loader/base/err.h"

#define NP_SPAN_SLOTS                                                                              \
    16384 /* of a ring: half a MiB, and a quarter of a second at 60 000 spans a second */
#define NP_SPAN_NO_BATCH ((1ull << 40) - 1)
#define NP_SPAN_NO_ROW   ((1u << 24) - 1)

struct np_span {
    uint64_t start_ns; /* np_now_ns() */
    uint64_t ns : 56, kind : 8;
    uint64_t batch : 40, row : 24; /* NP_SPAN_NO_BATCH, NP_SPAN_NO_ROW: of none */
    uint64_t bytes;
};

struct np_tracks; /* of one run */
struct np_spans;  /* one track */

struct np_tracks *np_tracks_new(struct np_err *err); /* NULL: out of memory */
void np_tracks_free(struct np_tracks *tracks);       /* no thread writes or reads any more */
/* A new track, the calling thread's to write; `name` (at most 31 bytes) is copied. tid 0: a stream of
 * the device. Any thread. NULL: no memory; the calls below take a NULL ring and do nothing. */
struct np_spans *np_tracks_join(struct np_tracks *tracks, const char *name, int tid);

/* --- the writer ---------------------------------------------------------------------------------- */

/* What the spans from now on belong to. row: -1: the whole batch. */
void np_spans_about(struct np_spans *spans, uint64_t batch, int row);
/* A span of so many ns up to end_ns, of the batch and row at hand. Spans of a track do not overlap:
 * its start is cut to the end of the last. */
void np_spans_put(struct np_spans *spans, int kind, uint64_t bytes, uint64_t ns, uint64_t end_ns);
/* One from start to end, told later; in order of their ends. */
void np_spans_put_at(struct np_spans *spans, int kind, uint64_t start_ns, uint64_t end_ns,
    uint64_t batch, uint64_t bytes);

/* --- the drain ----------------------------------------------------------------------------------- */

/* The newest track, then from each the one that joined before it; NULL: no more. */
struct np_spans *np_tracks_newest(const struct np_tracks *tracks);
struct np_spans *np_spans_older(const struct np_spans *spans);
const char *np_spans_name(const struct np_spans *spans);
int np_spans_tid(const struct np_spans *spans);
int np_spans_number(const struct np_spans *spans); /* 0, 1, ... in the order they joined */
/* Takes up to `room` spans out of the ring, the oldest first; returns how many. */
int np_spans_take(struct np_spans *spans, struct np_span *out, int room);
uint64_t np_spans_dropped(const struct np_spans *spans); /* so far */

#endif
