/* What the ring does for a program that keeps batches and opens slots itself: memory that changes
 * hands, gates, and waits with a limit. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/ring.h"

#include "tests/test.h"

enum { ROWS = 3, PIXELS = 4, READERS = 4, BATCHES = 300, SLOTS = 3 };

static const struct np_batch_shape shape = {.rows = ROWS, .height = 2, .width = 2, .channels = 1};

static struct np_ring *make(bool gated, uint64_t first_seq)
{
    struct np_ring *ring = NULL;
    struct np_err err = {0};

    if (np_ring_new(&shape, SLOTS, &np_page_allocator, &ring, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return NULL;
    }
    if (gated)
        np_ring_gate(ring);
    np_ring_start(ring, first_seq);
    return ring;
}

static int value_of(uint64_t seq, int row)
{
    return (int)((seq * ROWS + (uint64_t)row) % 251);
}

static void write_row(struct np_ring *ring, struct np_batch *batch, int row, uint64_t seq)
{
    memset(np_ring_row(ring, batch, PIXELS, row), value_of(seq, row), PIXELS);
    batch->labels[row] = (int32_t)seq * 10 + row;
    batch->about[row].sample = seq * ROWS + (uint64_t)row;
    np_ring_commit(ring, batch, NULL);
}

static void write_batch(struct np_ring *ring, uint64_t seq)
{
    for (int row = 0; row < ROWS; row++)
        write_row(ring, np_ring_claim(ring, seq, NULL), row, seq);
}

static bool has(const struct np_batch_memory *memory, uint64_t seq)
{
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < PIXELS; i++)
            if (memory->images[row * PIXELS + i] != value_of(seq, row))
                return false;
        if (memory->labels[row] != (int32_t)seq * 10 + row ||
            memory->about[row].sample != seq * ROWS + (uint64_t)row)
            return false;
    }
    return true;
}

static struct np_batch_memory memory_of(const struct np_batch *batch)
{
    return (struct np_batch_memory){batch->images, batch->labels, batch->about};
}

/* Memory of the program for one batch. */
struct kept {
    uint8_t images[ROWS * PIXELS];
    int32_t labels[ROWS];
    struct np_row about[ROWS];
};

static struct np_batch_memory memory_in(struct kept *kept)
{
    return (struct np_batch_memory){kept->images, kept->labels, kept->about};
}

/* --- swap ------------------------------------------------------------------------------------- */

Test(ring_program, swapped_memory_stays_as_it_was_while_its_slot_is_used_again)
{
    struct np_ring *ring = make(false, 0);
    struct kept kept;
    struct np_batch_memory first, second = memory_in(&kept);
    struct np_batch *batch;

    write_batch(ring, 0);
    batch = np_ring_take(ring, NULL, NULL);
    first = memory_of(batch);
    np_ring_swap(batch, &second);
    cr_assert_eq(second.images, first.images);
    cr_assert_eq(second.labels, first.labels);
    cr_assert_eq(second.about, first.about);
    cr_assert_eq(batch->images, kept.images);
    np_ring_release(ring, batch);
    for (uint64_t seq = 1; seq <= SLOTS; seq++) { /* the last one in the slot of the first */
        write_batch(ring, seq);
        batch = np_ring_take(ring, NULL, NULL);
        if (seq < SLOTS)
            np_ring_release(ring, batch);
    }
    cr_assert(has(&first, 0));
    cr_assert_eq(batch->images, kept.images);
    second = memory_of(batch);
    cr_assert(has(&second, SLOTS));
    np_ring_free(ring);
}

/* The program keeps each batch for a while and gives its memory back later. */
struct party {
    struct np_ring *ring;
    uint64_t next; /* atomic: ticket */
};

static void *reader(void *context)
{
    struct party *party = context;

    for (;;) {
        const uint64_t ticket = __atomic_fetch_add(&party->next, 1, __ATOMIC_RELAXED);
        struct np_batch *batch;

        if (ticket / ROWS >= BATCHES)
            return NULL;
        batch = np_ring_claim(party->ring, ticket / ROWS, NULL);
        if (!batch)
            return NULL;
        write_row(party->ring, batch, (int)(ticket % ROWS), ticket / ROWS);
    }
}

enum { HELD = 5 };

/* Takes all batches, and keeps the last HELD of them in the memory that they were written to.
 * Returns the number that had changed when they were given back. */
static int keep_batches(struct np_ring *ring, bool gated, struct kept *kept)
{
    struct np_batch_memory held[HELD];
    int wrong = 0;

    for (int i = 0; i < HELD; i++)
        held[i] = memory_in(&kept[i]);
    for (uint64_t seq = 0; seq < BATCHES; seq++) {
        struct np_batch_memory *memory = &held[seq % HELD];
        struct np_batch *batch = np_ring_take(ring, NULL, NULL);

        cr_assert_not_null(batch);
        wrong += seq >= HELD && !has(memory, seq - HELD);
        np_ring_swap(batch, memory);
        np_ring_release(ring, batch);
        if (gated && seq + SLOTS < BATCHES)
            np_ring_open(ring, seq + SLOTS);
    }
    for (uint64_t seq = BATCHES - HELD; seq < BATCHES; seq++)
        wrong += !has(&held[seq % HELD], seq);
    return wrong;
}

Test(ring_program, kept_batches_never_change_while_readers_go_on, .timeout = 120)
{
    for (int gated = 0; gated <= 1; gated++) {
        struct party party = {.ring = make(gated, 0)};
        struct kept *kept = calloc(HELD, sizeof(*kept));
        pthread_t threads[READERS];

        for (int i = 0; i < READERS; i++) {
            np_ring_join(party.ring);
            pthread_create(&threads[i], NULL, reader, &party);
        }
        for (uint64_t seq = 0; gated && seq < SLOTS; seq++)
            np_ring_open(party.ring, seq);
        cr_assert_eq(keep_batches(party.ring, gated, kept), 0);
        for (int i = 0; i < READERS; i++)
            pthread_join(threads[i], NULL);
        np_ring_free(party.ring);
        free(kept);
    }
}

/* --- gates ------------------------------------------------------------------------------------ */

Test(ring_program, a_gated_slot_is_claimed_only_after_it_was_opened)
{
    struct np_ring *ring = make(true, 9);
    struct np_batch *batch;

    for (uint64_t seq = 9; seq < 9 + SLOTS; seq++)
        cr_assert_null(np_ring_try_claim(ring, seq));
    np_ring_open(ring, 10); /* in any order */
    cr_assert_null(np_ring_try_claim(ring, 9));
    cr_assert_not_null(np_ring_try_claim(ring, 10));
    np_ring_open(ring, 9);
    write_batch(ring, 9);
    batch = np_ring_take(ring, NULL, NULL);
    np_ring_release(ring, batch);
    cr_assert_null(np_ring_try_claim(ring, 9 + SLOTS));
    np_ring_open(ring, 9 + SLOTS);
    cr_assert_eq(np_ring_try_claim(ring, 9 + SLOTS), batch);
    np_ring_free(ring);
}

Test(ring_program, a_gated_ring_that_starts_again_is_closed)
{
    struct np_ring *ring = make(true, 0);

    np_ring_open(ring, 0);
    cr_assert_not_null(np_ring_try_claim(ring, 0));
    np_ring_start(ring, 0);
    cr_assert_null(np_ring_try_claim(ring, 0));
    np_ring_free(ring);
}

static void *claim_first(void *context)
{
    return np_ring_claim(context, 0, NULL);
}

Test(ring_program, opening_a_slot_wakes_its_reader, .timeout = 120)
{
    struct np_ring *ring = make(true, 0);
    pthread_t thread;
    void *got;

    pthread_create(&thread, NULL, claim_first, ring);
    np_sleep_until_ns(np_now_ns() + 20000000); /* it sleeps, most times; both ways must work */
    np_ring_open(ring, 0);
    pthread_join(thread, &got);
    cr_assert_not_null(got);
    np_ring_free(ring);
}

/* --- waits with a limit ----------------------------------------------------------------------- */

Test(ring_program, a_wait_with_a_limit_ends_without_its_batch, .timeout = 120)
{
    struct np_ring *ring = make(false, 0);
    const uint64_t until_ns = np_now_ns() + 20000000;

    np_ring_expect(ring, NULL, until_ns);
    cr_assert_geq(np_now_ns(), until_ns);
    cr_assert_not(np_ring_ready(ring));
    cr_assert_not(np_ring_stopped(ring));
    np_ring_expect(ring, NULL, 0); /* past: does not wait */
    write_batch(ring, 0);
    np_ring_expect(ring, NULL, UINT64_MAX);
    cr_assert(np_ring_ready(ring));
    cr_assert_not_null(np_ring_take(ring, NULL, NULL));
    np_ring_free(ring);
}

static void *write_first(void *context)
{
    np_sleep_until_ns(np_now_ns() + 20000000);
    write_batch(context, 0);
    return NULL;
}

static void *stop_ring(void *context)
{
    np_sleep_until_ns(np_now_ns() + 20000000);
    np_ring_stop(context, NULL);
    return NULL;
}

/* Their waits have no limit that a test would live to see: only the other thread ends them. */
Test(ring_program, a_wait_ends_with_the_last_row_and_with_a_stop, .timeout = 120)
{
    static void *(*const others[])(void *) = {write_first, stop_ring};

    for (int i = 0; i < 2; i++) {
        struct np_ring *ring = make(false, 0);
        pthread_t thread;

        pthread_create(&thread, NULL, others[i], ring);
        np_ring_expect(ring, NULL, np_now_ns() + 3600000000000u);
        cr_assert_eq(np_ring_ready(ring), i == 0);
        cr_assert_eq(np_ring_stopped(ring), i == 1);
        pthread_join(thread, NULL);
        np_ring_free(ring);
    }
}
