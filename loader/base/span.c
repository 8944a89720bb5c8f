/* One ring a track: the writer owns head, the drain owns tail, each on its own cache line. The
 * writer reads tail only when the ring was full by the last value it read. */
#include "loader/base/span.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "loader/base/mem.h"

struct np_tracks {
    _Atomic(struct np_spans *) newest;
    _Atomic int nr;
};

struct np_tracks *np_tracks_new(struct np_err *err)
{
    return np_try_alloc(sizeof(struct np_tracks), err);
}

void np_tracks_free(struct np_tracks *tracks)
{
    struct np_spans *spans, *older;

    if (!tracks)
        return;
    for (spans = atomic_load(&tracks->newest); spans; spans = older) {
        older = spans->older;
        np_free(spans);
    }
    np_free(tracks);
}

struct np_spans *np_tracks_join(struct np_tracks *tracks, const char *name, int tid)
{
    struct np_spans *spans = np_try_alloc(sizeof(*spans), NULL), *newest;

    if (!spans)
        return NULL;
    snprintf(spans->name, sizeof(spans->name), "%s", name);
    spans->tid = tid;
    spans->number = atomic_fetch_add_explicit(&tracks->nr, 1, memory_order_relaxed);
    np_spans_about(spans, NP_SPAN_NO_BATCH, -1);
    newest = atomic_load_explicit(&tracks->newest, memory_order_relaxed);
    do
        spans->older = newest;
    while (!atomic_compare_exchange_weak_explicit(
        &tracks->newest, &newest, spans, memory_order_release, memory_order_relaxed));
    return spans;
}

/* --- the writer ------------------------------------------------------------------------------ */

static void put(struct np_spans *spans, const struct np_span *span)
{
    const uint64_t head = atomic_load_explicit(&spans->head, memory_order_relaxed);

    if (head - spans->seen_tail == NP_SPAN_SLOTS) {
        /* Pairs with the release in np_spans_take(): the slots are free. */
        spans->seen_tail = atomic_load_explicit(&spans->tail, memory_order_acquire);
        if (head - spans->seen_tail == NP_SPAN_SLOTS) {
            atomic_store_explicit(&spans->dropped,
                atomic_load_explicit(&spans->dropped, memory_order_relaxed) + 1,
                memory_order_relaxed);
            return;
        }
    }
    spans->slots[head % NP_SPAN_SLOTS] = *span;
    atomic_store_explicit(&spans->head, head + 1, memory_order_release);
}

void np_spans_about(struct np_spans *spans, uint64_t batch, int row)
{
    if (!spans)
        return;
    spans->batch = batch;
    spans->row = row < 0 ? NP_SPAN_NO_ROW : (unsigned)row;
}

static void put_between(struct np_spans *spans, int kind, uint64_t start_ns, uint64_t end_ns,
    uint64_t batch, uint64_t row, uint64_t bytes)
{
    if (end_ns < spans->end_ns)
        end_ns = spans->end_ns;
    if (start_ns < spans->end_ns)
        start_ns = spans->end_ns;
    if (start_ns > end_ns)
        start_ns = end_ns;
    const struct np_span span = {
        .start_ns = start_ns,
        .ns = end_ns - start_ns,
        .kind = (unsigned)kind,
        .batch = batch & NP_SPAN_NO_BATCH,
        .row = row & NP_SPAN_NO_ROW,
        .bytes = bytes,
    };
    spans->end_ns = end_ns;
    put(spans, &span);
}

void np_spans_put(struct np_spans *spans, int kind, uint64_t bytes, uint64_t ns, uint64_t end_ns)
{
    if (spans)
        put_between(
            spans, kind, end_ns > ns ? end_ns - ns : 0, end_ns, spans->batch, spans->row, bytes);
}

void np_spans_put_at(struct np_spans *spans, int kind, uint64_t start_ns, uint64_t end_ns,
    uint64_t batch, uint64_t bytes)
{
    if (spans)
        put_between(spans, kind, start_ns, end_ns, batch, NP_SPAN_NO_ROW, bytes);
}

/* --- the drain ------------------------------------------------------------------------------- */

/* Pairs with the release in np_tracks_join(). */
struct np_spans *np_tracks_newest(const struct np_tracks *tracks)
{
    return atomic_load_explicit(&((struct np_tracks *)tracks)->newest, memory_order_acquire);
}

int np_spans_take(struct np_spans *spans, struct np_span *out, int room)
{
    const uint64_t tail = atomic_load_explicit(&spans->tail, memory_order_relaxed);
    /* Pairs with the release in put(). */
    const uint64_t ready = atomic_load_explicit(&spans->head, memory_order_acquire) - tail;
    const int nr = ready < (uint64_t)room ? (int)ready : room;

    for (int i = 0; i < nr; i++)
        out[i] = spans->slots[(tail + (uint64_t)i) % NP_SPAN_SLOTS];
    atomic_store_explicit(&spans->tail, tail + (uint64_t)nr, memory_order_release);
    return nr;
}

uint64_t np_spans_dropped(const struct np_spans *spans)
{
    return atomic_load_explicit(&((struct np_spans *)spans)->dropped, memory_order_relaxed);
}
