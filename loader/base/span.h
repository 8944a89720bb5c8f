/* Spans for a trace: the work of a thread or of a device's stream, each with start and length. Each
 * track has one ring: one thread writes it, another (the drain) reads it. A writer never waits: if
 * the ring is full the span is dropped and counted. A run without a trace runs none of this. */
#ifndef NP_SPAN_H
#define NP_SPAN_H

#include <stdint.h>

#include "loader/base/mem.h"

#include "loader/base/err.h"

/* Of a ring: half a MiB, or a quarter of a second at 60,000 spans a second. */
#define NP_SPAN_SLOTS    16384
#define NP_SPAN_NO_BATCH ((1ull << 40) - 1)
#define NP_SPAN_NO_ROW   ((1u << 24) - 1)

struct np_span {
    uint64_t start_ns; /* np_now_ns() */
    uint64_t ns : 56, kind : 8;
    uint64_t batch : 40, row : 24; /* or NP_SPAN_NO_BATCH, NP_SPAN_NO_ROW */
    uint64_t bytes;
};

struct np_tracks; /* of one run */

struct np_spans {
    /* writer only */
    _Alignas(NP_ALIGN) _Atomic uint64_t head; /* spans written */
    uint64_t seen_tail;                       /* the value of tail read last */
    uint64_t end_ns;                          /* of the last span */
    uint64_t batch, row;
    _Atomic uint64_t dropped;

    /* drain only */
    _Alignas(NP_ALIGN) _Atomic uint64_t tail; /* spans taken */

    /* set once */
    _Alignas(NP_ALIGN) char name[32];
    int tid, number;        /* number: 0, 1, ... in the order of joining */
    struct np_spans *older; /* the track that joined before; NULL: none */
    struct np_span slots[NP_SPAN_SLOTS];
};

struct np_tracks *np_tracks_new(struct np_err *err); /* NULL: out of memory */
void np_tracks_free(struct np_tracks *tracks);       /* call it when no thread uses a track */
/* A new track for the calling thread to write; `name` (at most 31 bytes) is copied. tid 0: a stream
 * of the device. Any thread. NULL: no memory; the calls below accept NULL and do nothing. */
struct np_spans *np_tracks_join(struct np_tracks *tracks, const char *name, int tid);

/* --- the writer ------------------------------------------------------------------------------ */

/* Sets batch and row of the next spans; row -1: the whole batch. */
void np_spans_about(struct np_spans *spans, uint64_t batch, int row);
/* Writes a span of ns that ends at end_ns, with the batch and row of np_spans_about(). Spans of a
 * track do not overlap: a span begins no earlier than the end of the previous one. */
void np_spans_put(struct np_spans *spans, int kind, uint64_t bytes, uint64_t ns, uint64_t end_ns);
/* Writes a span of the past; the calls come in the order of the ends. */
void np_spans_put_at(struct np_spans *spans, int kind, uint64_t start_ns, uint64_t end_ns,
    uint64_t batch, uint64_t bytes);

/* --- the drain ------------------------------------------------------------------------------- */

/* The newest track, which links to the older ones; NULL: none. */
struct np_spans *np_tracks_newest(const struct np_tracks *tracks);
/* Takes up to `room` spans from the ring, the oldest first; returns their number. */
int np_spans_take(struct np_spans *spans, struct np_span *out, int room);
uint64_t np_spans_dropped(const struct np_spans *spans);

#endif
