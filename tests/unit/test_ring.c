/* The ring: order, brakes, waking and stopping, with real threads. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/ring.h"

#include "tests/test.h"

enum { ROWS = 7, READERS = 5, BATCHES = 400 };

static const struct np_batch_shape shape = {.rows = ROWS, .height = 2, .width = 3, .channels = 1};

struct party {
    struct np_ring *ring;
    struct np_stat *stat;
    uint64_t next; /* atomic: ticket */
    uint64_t first_seq, nr_batches;
    int nr_null; /* atomic: readers that were stopped */
    const char *name;
};

static struct np_ring *make(int nr_slots, uint64_t first_seq)
{
    struct np_ring *ring = NULL;
    struct np_err err = {0};

    if (np_ring_new(&shape, nr_slots, &np_page_allocator, &ring, &err))
        fprintf(stderr, "%s\n", err.text);
    else
        np_ring_start(ring, first_seq);
    return ring;
}

static void write_row(struct np_ring *ring, struct np_batch *batch, int row, uint64_t seq)
{
    memset(np_ring_row(ring, batch, 6, row), (int)(seq * ROWS + (uint64_t)row) & 255, 6);
    batch->labels[row] = (int32_t)(seq * 100) + row;
    batch->about[row].sample = seq * ROWS + (uint64_t)row;
    if (row == 0) {
        batch->kind = seq % 3 == 2 ? NP_BATCH_EVAL : NP_BATCH_TRAIN;
        batch->step = seq * 2;
    }
    np_ring_commit(ring, batch, NULL);
}

static void *reader(void *context)
{
    struct party *party = context;
    struct np_block *block = np_stat_join(party->stat, "reader", NULL);

    for (;;) {
        uint64_t ticket = __atomic_fetch_add(&party->next, 1, __ATOMIC_RELAXED);
        uint64_t seq = party->first_seq + ticket / ROWS;
        struct np_batch *batch;

        if (ticket / ROWS >= party->nr_batches)
            return NULL;
        batch = np_ring_claim(party->ring, seq, block);
        if (!batch) {
            __atomic_fetch_add(&party->nr_null, 1, __ATOMIC_RELAXED);
            return NULL;
        }
        write_row(party->ring, batch, (int)(ticket % ROWS), seq);
    }
}

static int check_batch(const struct np_batch *batch, uint64_t seq)
{
    int wrong = batch->seq != seq || batch->step != seq * 2;

    wrong += batch->kind != (seq % 3 == 2 ? NP_BATCH_EVAL : NP_BATCH_TRAIN);
    for (int row = 0; row < ROWS; row++) {
        wrong += batch->labels[row] != (int32_t)(seq * 100) + row;
        wrong += batch->about[row].sample != seq * ROWS + (uint64_t)row;
        for (int i = 0; i < 6; i++)
            wrong += batch->images[row * 6 + i] != ((seq * ROWS + (uint64_t)row) & 255);
    }
    return wrong;
}

Test(ring, batches_come_whole_and_in_order_from_many_readers, .timeout = 120)
{
    for (int nr_slots = 2; nr_slots <= 5; nr_slots++) {
        struct np_stat *stat = np_stat_new(NULL);
        struct party party = {
            .ring = make(nr_slots, 1000), .stat = stat, .first_seq = 1000, .nr_batches = BATCHES};
        struct np_block *block = np_stat_join(stat, "trainer", NULL);
        struct np_batch *held = NULL;
        pthread_t threads[READERS];
        int wrong = 0;

        for (int i = 0; i < READERS; i++)
            pthread_create(&threads[i], NULL, reader, &party);
        for (uint64_t i = 0; i < BATCHES; i++) {
            struct np_batch *batch = np_ring_take(party.ring, block, NULL);

            cr_assert_not_null(batch);
            wrong += check_batch(batch, 1000 + i);
            if (i % 5 == 0 && !held) { /* hold one back, release out of order */
                held = batch;
                continue;
            }
            np_ring_release(party.ring, batch);
            if (held)
                np_ring_release(party.ring, held);
            held = NULL;
        }
        for (int i = 0; i < READERS; i++)
            pthread_join(threads[i], NULL);
        cr_assert_eq(wrong, 0);
        cr_assert_eq(party.nr_null, 0);
        np_ring_free(party.ring);
        np_stat_free(stat);
    }
}

Test(ring, a_slot_has_room_for_rows_of_either_kind)
{
    static const struct np_batch_shape shapes[] = {
        {.rows = ROWS, .height = 2, .width = 3, .channels = 1, .eval_height = 90, .eval_width = 80},
        {.rows = ROWS, .height = 90, .width = 80, .channels = 1, .eval_height = 2, .eval_width = 3},
    };

    for (int s = 0; s < 2; s++) {
        struct np_ring *ring = NULL;
        struct np_batch *first, *second;

        cr_assert_eq(np_ring_new(&shapes[s], 2, &np_page_allocator, &ring, NULL), 0);
        np_ring_start(ring, 0);
        first = np_ring_claim(ring, 0, NULL);
        second = np_ring_claim(ring, 1, NULL);
        for (int row = 0; row < ROWS; row++)
            memset(np_ring_row(ring, first, 90 * 80, row), row + 1, 90 * 80);
        memset(np_ring_row(ring, second, 2 * 3, 0), 99, ROWS * 2 * 3);
        for (int row = 0; row < ROWS; row++)
            cr_expect(first->images[row * 90 * 80] == row + 1 &&
                      first->images[(row + 1) * 90 * 80 - 1] == row + 1);
        cr_expect_eq(np_ring_row(ring, second, 2 * 3, 1) - second->images, 2 * 3);
        np_ring_free(ring);
    }
}

Test(ring, take_waits_for_last_row)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "main", NULL);
    struct np_ring *ring = make(2, 0);
    struct np_batch *batch = np_ring_claim(ring, 0, block);

    for (int row = 0; row < ROWS; row++) {
        cr_assert_not(np_ring_ready(ring));
        cr_assert_eq(np_ring_full(ring), 0);
        write_row(ring, batch, row, 0);
    }
    cr_assert(np_ring_ready(ring));
    cr_assert_eq(np_ring_full(ring), 1);
    cr_assert_eq(np_ring_take(ring, block, NULL), batch);
    cr_assert_eq(np_ring_full(ring), 0);
    cr_assert_not(np_ring_ready(ring));
    np_ring_free(ring);
    np_stat_free(stat);
}

Test(ring, a_slot_is_claimed_again_only_after_its_release)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "main", NULL);
    struct np_ring *ring = make(2, 5);
    struct np_batch *batch = np_ring_claim(ring, 5, block);

    cr_assert_not_null(np_ring_try_claim(ring, 6));
    cr_assert_null(np_ring_try_claim(ring, 7));
    for (int row = 0; row < ROWS; row++)
        write_row(ring, batch, row, 5);
    cr_assert_null(np_ring_try_claim(ring, 7));
    cr_assert_eq(np_ring_take(ring, block, NULL), batch);
    cr_assert_null(np_ring_try_claim(ring, 7));
    np_ring_release(ring, batch);
    cr_assert_eq(np_ring_try_claim(ring, 7), batch);
    cr_assert_eq(batch->seq, 7);
    np_ring_free(ring);
    np_stat_free(stat);
}

static void *stop_later(void *context)
{
    struct party *party = context;
    struct np_err err = {0};

    np_sleep_until_ns(np_now_ns() + 30000000);
    if (party->name)
        np_err_set(&err, -EIO, "%s", party->name);
    np_ring_stop(party->ring, party->name ? &err : NULL);
    return NULL;
}

Test(ring, stop_wakes_readers_and_the_trainer_with_the_reason, .timeout = 120)
{
    for (int plain = 0; plain <= 1; plain++) {
        struct np_stat *stat = np_stat_new(NULL);
        struct party party = {.ring = make(2, 0),
            .stat = stat,
            .nr_batches = 100,
            .name = plain ? NULL : "disk gone"};
        struct np_block *block = np_stat_join(stat, "trainer", NULL);
        struct np_stat_sum sum;
        struct np_err err = {0};
        pthread_t threads[READERS], stopper;

        for (int i = 0; i < READERS; i++)
            pthread_create(&threads[i], NULL, reader, &party);
        for (int i = 0; i < 2; i++) /* not released: the readers wait, and so does the third take */
            cr_assert_not_null(np_ring_take(party.ring, block, NULL));
        pthread_create(&stopper, NULL, stop_later, &party);
        cr_assert_null(np_ring_take(party.ring, block, &err));
        for (int i = 0; i < READERS; i++)
            pthread_join(threads[i], NULL);
        pthread_join(stopper, NULL);
        cr_assert_eq(party.nr_null, READERS);
        cr_assert_eq(err.code, plain ? 0 : -EIO);
        cr_assert_str_eq(err.text, plain ? "" : "disk gone");
        cr_assert_null(np_ring_claim(party.ring, 50, block));
        cr_assert(np_ring_stopped(party.ring));
        np_stat_read(stat, "trainer", &sum);
        cr_assert_gt(sum.state_ns[NP_STATE_STARVED], 10000000u);
        np_stat_read(stat, "reader", &sum);
        cr_assert_gt(sum.state_ns[NP_STATE_BLOCKED], 10000000u);
        np_ring_free(party.ring);
        np_stat_free(stat);
    }
}

Test(ring, the_first_error_is_kept)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "main", NULL);
    struct np_ring *ring = make(2, 0);
    struct np_err first = {0}, second = {0}, got = {0};

    np_err_set(&first, -EIO, "first");
    np_err_set(&second, -EINVAL, "second");
    np_ring_stop(ring, &first);
    np_ring_stop(ring, &second);
    cr_assert_null(np_ring_take(ring, block, &got));
    cr_assert_str_eq(got.text, "first");
    np_ring_free(ring);
    np_stat_free(stat);
}

static void *no_memory(void *context, size_t bytes)
{
    (void)context;
    (void)bytes;
    return NULL;
}

static void no_free(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)memory;
    (void)bytes;
    abort();
}

Test(ring, want_of_memory_is_an_error_with_advice)
{
    static const struct np_allocator none = {.alloc = no_memory, .free = no_free};
    struct np_ring *ring = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_ring_new(&shape, 4, &none, &ring, &err), -ENOMEM);
    cr_assert_not_null(strstr(err.text, "loader.batch"));
    cr_assert_null(ring);
}

Test(ring, slots_are_apart_and_aligned)
{
    struct np_stat *stat = np_stat_new(NULL);
    struct np_block *block = np_stat_join(stat, "main", NULL);
    struct np_ring *ring = make(3, 0);
    struct np_batch *a = np_ring_claim(ring, 0, block), *b = np_ring_claim(ring, 1, block);

    cr_assert_eq((uintptr_t)a->images % 4096, 0);
    cr_assert_eq((uintptr_t)a->labels % 64, 0);
    cr_assert_geq(b->images - a->images, ROWS * 6);
    cr_assert_geq((uint8_t *)b->labels - (uint8_t *)a->labels, (ptrdiff_t)(ROWS * sizeof(int32_t)));
    cr_assert_eq(np_ring_slots(ring), 3);
    np_ring_free(ring);
    np_stat_free(stat);
}

/* --- waits without end -------------------------------------------------------------------------- */

struct trainer {
    struct np_ring *ring;
    pthread_t thread;
    struct np_batch *batch;
    struct np_err err;
};

static void *take_one(void *context)
{
    struct trainer *trainer = context;

    trainer->batch = np_ring_take(trainer->ring, NULL, &trainer->err);
    return NULL;
}

/* It sleeps for its batch when this returns, most times; both ways must work. */
static void start_trainer(struct trainer *trainer, struct np_ring *ring)
{
    *trainer = (struct trainer){.ring = ring};
    pthread_create(&trainer->thread, NULL, take_one, trainer);
    np_sleep_until_ns(np_now_ns() + 20000000);
}

Test(ring, a_batch_whose_readers_have_all_left_is_an_error_at_once, .timeout = 120)
{
    for (int early = 0; early <= 1; early++) { /* before or while the trainer waits */
        struct np_ring *ring = make(2, 7);
        struct trainer trainer;

        for (int i = 0; i < READERS; i++)
            np_ring_join(ring);
        write_row(ring, np_ring_claim(ring, 7, NULL), 0, 7); /* one row of it, the others never */
        for (int i = 0; i < READERS && early; i++)
            np_ring_leave(ring);
        start_trainer(&trainer, ring);
        for (int i = 0; i < READERS && !early; i++)
            np_ring_leave(ring);
        pthread_join(trainer.thread, NULL);
        cr_assert_null(trainer.batch);
        cr_assert_eq(trainer.err.code, -EDEADLK);
        cr_assert(strstr(trainer.err.text, "batch 7, which cannot come"), "%s", trainer.err.text);
        np_ring_free(ring);
    }
}

Test(ring, ready_batches_are_taken_after_all_readers_have_left, .timeout = 120)
{
    struct np_ring *ring = make(2, 0);
    struct np_err err = {0};

    np_ring_join(ring);
    for (uint64_t seq = 0; seq < 2; seq++)
        for (int row = 0; row < ROWS; row++)
            write_row(ring, np_ring_claim(ring, seq, NULL), row, seq);
    np_ring_leave(ring);
    cr_assert_not_null(np_ring_take(ring, NULL, &err));
    cr_assert_not_null(np_ring_take(ring, NULL, &err));
    cr_assert_null(np_ring_take(ring, NULL, &err));
    cr_assert_eq(err.code, -EDEADLK);
    np_ring_free(ring);
}

static void *claim_third(void *context)
{
    return np_ring_claim(context, 2, NULL);
}

Test(ring, waiting_readers_and_trainers_are_counted, .timeout = 120)
{
    struct np_ring *ring = make(2, 0);
    struct trainer trainer;
    pthread_t reader;
    void *got;

    np_ring_join(ring);
    pthread_create(
        &reader, NULL, claim_third, ring); /* its slot is batch 0's, which no reader makes */
    start_trainer(&trainer, ring);
    pthread_join(reader, &got);
    cr_assert_null(got);
    pthread_join(trainer.thread, NULL);
    cr_assert_null(trainer.batch);
    cr_assert_eq(trainer.err.code, -EDEADLK);
    np_ring_free(ring);
}

Test(ring, an_interrupted_trainer_takes_ready_batches_without_waiting, .timeout = 120)
{
    struct np_ring *ring = make(2, 0);
    struct np_err err = {0};
    struct trainer trainer;

    start_trainer(&trainer, ring);
    np_ring_interrupt(ring);
    pthread_join(trainer.thread, NULL);
    cr_assert_null(trainer.batch);
    cr_assert_eq(trainer.err.code, -EINTR);
    cr_assert_not(np_ring_stopped(ring));
    for (int row = 0; row < ROWS; row++)
        write_row(ring, np_ring_claim(ring, 0, NULL), row, 0);
    cr_assert_not_null(np_ring_take(ring, NULL, NULL));
    cr_assert_null(np_ring_take(ring, NULL, &err));
    cr_assert_eq(err.code, -EINTR);
    np_ring_free(ring);
}

static void *claim_late(void *context)
{
    const struct party *party = context;
    const uint64_t seq = __atomic_fetch_add(&((struct party *)context)->next, 1, __ATOMIC_RELAXED);

    return np_ring_claim(party->ring, seq, NULL);
}

Test(ring, a_released_slot_wakes_the_waiting_reader, .timeout = 120)
{
    struct party party = {.ring = make(3, 0), .next = 3};
    struct np_batch *taken[3];
    pthread_t readers[3];

    for (uint64_t seq = 0; seq < 3; seq++)
        for (int row = 0; row < ROWS; row++)
            write_row(party.ring, np_ring_claim(party.ring, seq, NULL), row, seq);
    for (int i = 0; i < 3; i++)
        taken[i] = np_ring_take(party.ring, NULL, NULL);
    for (int i = 0; i < 3; i++) /* of batches 3, 4 and 5 */
        pthread_create(&readers[i], NULL, claim_late, &party);
    np_sleep_until_ns(np_now_ns() + 20000000);
    for (int i = 2; i >= 0; i--)
        np_ring_release(party.ring, taken[i]);
    for (int i = 0; i < 3; i++) {
        void *got;

        pthread_join(readers[i], &got);
        cr_assert_not_null(got);
    }
    np_ring_free(party.ring);
}
