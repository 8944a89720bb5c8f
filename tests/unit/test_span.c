/* Spans: what a track keeps, what it drops when it is full, and one thread that writes beside one
 * that reads. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/base/span.h"
#include "loader/base/stat.h"

#include "tests/test.h"

Test(span, is_32_bytes)
{
    cr_assert_eq(sizeof(struct np_span), 32u);
}

Test(span, a_track_returns_its_spans)
{
    struct np_tracks *tracks = np_tracks_new(NULL);
    struct np_spans *spans = np_tracks_join(tracks, "reader 0", 7);
    struct np_span out[4];

    np_spans_put_at(spans, NP_SPAN_COMPUTE, 1000, 1500, 3, 64);
    np_spans_about(spans, 12345678901, 77);
    np_spans_put(spans, NP_STAGE_DECODE, 1ull << 40, 400, 2000);
    cr_assert_eq(np_spans_take(spans, out, 4), 2);
    cr_assert_eq(out[0].start_ns, 1000u);
    cr_assert_eq(out[0].ns, 500u);
    cr_assert_eq(out[0].kind, (unsigned)NP_SPAN_COMPUTE);
    cr_assert_eq(out[0].batch, 3u);
    cr_assert_eq(out[0].row, NP_SPAN_NO_ROW);
    cr_assert_eq(out[0].bytes, 64u);
    cr_assert_eq(out[1].batch, 12345678901u);
    cr_assert_eq(out[1].row, 77u);
    cr_assert_eq(out[1].bytes, 1ull << 40);
    cr_assert(out[1].start_ns == 1600 && out[1].ns == 400);
    cr_assert_eq(np_spans_take(spans, out, 4), 0);
    cr_assert_str_eq(spans->name, "reader 0");
    cr_assert_eq(spans->tid, 7);
    cr_assert_eq(np_tracks_newest(tracks), spans);
    cr_assert_null(spans->older);
    np_tracks_free(tracks);
}

Test(span, spans_of_a_track_do_not_overlap)
{
    struct np_tracks *tracks = np_tracks_new(NULL);
    struct np_spans *spans = np_tracks_join(tracks, "x", 0);
    struct np_span out[4];

    np_spans_put_at(spans, 0, 100, 200, 0, 0);
    np_spans_put_at(spans, 0, 150, 300, 1, 0); /* begins too early */
    np_spans_put_at(spans, 0, 120, 250, 2, 0); /* is over already */
    np_spans_put_at(spans, 0, 500, 400, 3, 0); /* turned round */
    cr_assert_eq(np_spans_take(spans, out, 4), 4);
    cr_assert(out[1].start_ns == 200 && out[1].ns == 100);
    cr_assert(out[2].start_ns == 300 && out[2].ns == 0);
    cr_assert(out[3].start_ns == 400 && out[3].ns == 0);
    np_tracks_free(tracks);
}

Test(span, a_full_ring_drops_the_newest_and_counts)
{
    struct np_tracks *tracks = np_tracks_new(NULL);
    struct np_spans *spans = np_tracks_join(tracks, "x", 0);
    struct np_span out[3];

    for (uint64_t i = 0; i < NP_SPAN_SLOTS + 5; i++)
        np_spans_put_at(spans, 0, i, i + 1, i, 0);
    cr_assert_eq(np_spans_dropped(spans), 5u);
    cr_assert_eq(np_spans_take(spans, out, 3), 3);
    cr_assert_eq(out[0].batch, 0u);
    np_spans_put_at(
        spans, 0, NP_SPAN_SLOTS + 9, NP_SPAN_SLOTS + 10, 99, 0); /* there is room again */
    cr_assert_eq(np_spans_dropped(spans), 5u);
    for (int i = 0; i < NP_SPAN_SLOTS - 3; i++)
        cr_assert_eq(np_spans_take(spans, out, 1), 1);
    cr_assert_eq(out[0].batch, NP_SPAN_SLOTS - 1u);
    cr_assert_eq(np_spans_take(spans, out, 3), 1);
    cr_assert_eq(out[0].batch, 99u);
    np_tracks_free(tracks);
}

Test(span, nothing_is_written_without_a_track)
{
    np_spans_about(NULL, 1, 1);
    np_spans_put(NULL, 0, 0, 0, 0);
    np_spans_put_at(NULL, 0, 0, 0, 0, 0);
    np_tracks_free(NULL);
}

Test(span, counters_write_spans_only_if_a_run_is_traced)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_tracks *tracks = np_tracks_new(NULL);
    struct np_block *before = np_stat_join(stat, "main", NULL), *block;
    struct np_span out[8];
    uint64_t now_ns;

    cr_assert_null(np_stat_track(before, "device"));
    np_stat_trace(stat, tracks);
    block = np_stat_join(stat, "reader 0", NULL);
    np_stat_item(before, NP_STAGE_READ, 1, 1);
    np_stat_about(before, 1, 1);
    np_stat_about(block, 5, 6);
    np_stat_item(block, NP_STAGE_AUGMENT, 10, 3);
    np_stat_pass(block, NP_STAGE_READ);
    now_ns = np_now_ns();
    np_stat_lap(block, NP_STAGE_DECODE, 20, 0);
    np_stat_wait(block, NP_STATE_BLOCKED, "claim", "here", 0);
    np_stat_done(block);
    np_stat_item(block, NP_STAGE_COPY, 10, 3); /* the feed writes it, on the device's track */
    cr_assert_not_null(np_tracks_newest(tracks));
    cr_assert_null(np_tracks_newest(tracks)->older);
    cr_assert_eq(np_spans_take(np_tracks_newest(tracks), out, 8), 4);
    cr_assert(out[0].kind == NP_STAGE_AUGMENT && out[0].batch == 5 && out[0].row == 6);
    cr_assert(out[1].kind == NP_SPAN_PART + NP_STAGE_READ && out[1].bytes == 0);
    cr_assert(out[2].kind == NP_STAGE_DECODE && out[2].bytes == 20);
    cr_assert(out[2].start_ns <= now_ns && out[2].start_ns + out[2].ns >= now_ns);
    cr_assert_eq(out[2].start_ns, out[1].start_ns + out[1].ns); /* laps leave no gap */
    cr_assert_eq(out[3].kind, NP_SPAN_STATE + NP_STATE_BLOCKED);
    cr_assert_not_null(np_stat_track(block, "device"));
    cr_assert_str_eq(np_tracks_newest(tracks)->name, "device");
    cr_assert_eq(np_tracks_newest(tracks)->number, 1);
    np_stat_free(stat);
    np_tracks_free(tracks);
}

/* --- beside one another -------------------------------------------------------------------------- */

#define NR_PUT 200000

static void *write_many(void *context)
{
    struct np_tracks *tracks = context;
    struct np_spans *spans = np_tracks_join(tracks, "writer", 1);

    for (uint64_t i = 0; i < NR_PUT; i++)
        np_spans_put_at(spans, (int)(i % NP_NR_SPANS), i * 10, i * 10 + 5, i, i * 3);
    return NULL;
}

static uint64_t dropped_of(const struct np_tracks *tracks)
{
    uint64_t dropped = 0;

    for (struct np_spans *at = np_tracks_newest(tracks); at; at = at->older)
        dropped += np_spans_dropped(at);
    return dropped;
}

/* Takes some of a track's spans: each is whole, and later than the ones before. Returns how many. */
static int take_some(struct np_spans *spans, uint64_t *next, bool *ret_whole)
{
    struct np_span out[100];
    const int nr = np_spans_take(spans, out, 100);

    for (int i = 0; i < nr; i++) {
        const uint64_t batch = out[i].batch;

        *ret_whole &= batch >= *next && batch < NR_PUT && out[i].start_ns == batch * 10 &&
                      out[i].ns == 5 && out[i].bytes == batch * 3 &&
                      out[i].kind == batch % NP_NR_SPANS;
        *next = batch + 1;
    }
    return nr;
}

/* With what was dropped it is all that was put in. */
Test(span, a_reader_during_writes_sees_whole_spans, .timeout = 120)
{
    struct np_tracks *tracks = np_tracks_new(NULL);
    pthread_t threads[2];
    uint64_t next[2] = {0}, taken = 0;
    bool whole = true;

    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, write_many, tracks), 0);
    while (whole && taken + dropped_of(tracks) < 2 * NR_PUT)
        for (struct np_spans *at = np_tracks_newest(tracks); at; at = at->older)
            taken += (uint64_t)take_some(at, &next[at->number], &whole);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cr_assert(whole);
    cr_assert_eq(taken + dropped_of(tracks), 2u * NR_PUT);
    cr_assert_gt(taken, 0u);
    np_tracks_free(tracks);
}
