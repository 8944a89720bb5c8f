/* Epochs that end, over several processes: who has which sample, and when. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/sampler.h"

#include "tests/test.h"

#define MAX_SAMPLES 64

static struct np_sampler *make(const struct np_sampler_options *options)
{
    struct np_sampler *sampler = NULL;
    struct np_err err = {0};

    if (np_sampler_new(options, &sampler, &err))
        fprintf(stderr, "%s\n", err.text);
    return sampler;
}

/* What all ranks together take in one epoch, in the order of the epoch. */
struct epoch {
    int nr_rows, nr_batches;
    uint64_t samples[2 * MAX_SAMPLES];
    int rows[MAX_SAMPLES]; /* by step: of a rank */
    bool unequal;          /* a rank has another number of rows */
};

static bool is_padding(const struct np_ticket *ticket, uint32_t epoch)
{
    return ticket->masked && ticket->sample == UINT64_MAX && ticket->epoch == epoch;
}

/* The rows of one rank's batch; masked ones are the last. -1: they are not. */
static int batch_rows(
    const struct np_sampler *sampler, uint64_t step, uint32_t epoch, uint64_t *ret_samples)
{
    const int batch = sampler->options.batch;
    int rows = 0;

    for (int r = 0; r < batch; r++) {
        struct np_ticket ticket;

        np_sampler_ticket(sampler, step, r, &ticket);
        if (ticket.kind != NP_BATCH_TRAIN || ticket.step != step || ticket.epoch != epoch)
            return -1;
        if (is_padding(&ticket, epoch))
            continue;
        if (ticket.masked || rows < r || ticket.position >= sampler->options.nr_train)
            return -1;
        ret_samples[rows++] = ticket.sample;
    }
    return rows;
}

static struct epoch take_epoch(struct np_sampler_options options, uint32_t number)
{
    const int world = options.world ? options.world : 1;
    struct np_sampler *ranks[8];
    struct epoch epoch = {.nr_batches = (int)np_sampler_epoch_steps(&options)};

    for (int r = 0; r < world; r++) {
        options.rank = r;
        ranks[r] = make(&options);
    }
    for (int step = 0; step < epoch.nr_batches; step++)
        for (int r = 0; r < world; r++) {
            const uint64_t at = number * (uint64_t)epoch.nr_batches + (uint64_t)step;
            int rows = batch_rows(ranks[r], at, number, &epoch.samples[epoch.nr_rows]);

            epoch.unequal |= rows < 1 || (r > 0 && rows != epoch.rows[step]);
            epoch.rows[step] = rows;
            epoch.nr_rows += rows > 0 ? rows : 0;
        }
    for (int r = 0; r < world; r++)
        np_sampler_free(ranks[r]);
    return epoch;
}

/* The number of samples taken nr times. */
static int nr_taken(const struct epoch *epoch, int nr)
{
    int counts[MAX_SAMPLES] = {0}, n = 0;

    for (int i = 0; i < epoch->nr_rows; i++)
        counts[epoch->samples[i]]++;
    for (int i = 0; i < MAX_SAMPLES; i++)
        n += counts[i] == nr;
    return n;
}

static struct np_sampler_options options_of(int n, int batch, int world, enum np_epochs epochs)
{
    return (struct np_sampler_options){.seed = 5,
        .nr_train = (uint64_t)n,
        .batch = batch,
        .nr_steps = 1u << 30,
        .shuffle = (enum np_shuffle)(n % 3),
        .window = 7,
        .epochs = epochs,
        .world = world};
}

/* Runs `check` for many sizes of set, batch and world. */
static void for_each_size(
    enum np_epochs epochs, void (*check)(const struct np_sampler_options *options, uint32_t epoch))
{
    static const int sizes[] = {1, 2, 7, 12, 31, 64}, batches[] = {1, 2, 5, 8},
                     worlds[] = {0, 1, 2, 3, 8};

    for (size_t n = 0; n < sizeof(sizes) / sizeof(*sizes); n++)
        for (size_t b = 0; b < sizeof(batches) / sizeof(*batches); b++)
            for (size_t w = 0; w < sizeof(worlds) / sizeof(*worlds); w++)
                for (uint32_t epoch = 0; epoch < 3; epoch++) {
                    const struct np_sampler_options options =
                        options_of(sizes[n], batches[b], worlds[w], epochs);

                    if (np_sampler_epoch_steps(&options) > 0)
                        check(&options, epoch);
                }
}

static void check_short(const struct np_sampler_options *options, uint32_t number)
{
    const struct epoch epoch = take_epoch(*options, number);
    const int n = (int)options->nr_train, world = options->world ? options->world : 1;
    const int rows = options->batch * world, twice = epoch.nr_rows - n;

    cr_assert_not(epoch.unequal, "n %d batch %d world %d", n, options->batch, world);
    cr_assert_eq(epoch.nr_batches, (n + rows - 1) / rows);
    for (int step = 0; step + 1 < epoch.nr_batches; step++)
        cr_assert_eq(epoch.rows[step], options->batch);
    cr_assert(twice >= 0 && twice < world, "n %d batch %d world %d", n, options->batch, world);
    if (n >= world) {
        cr_assert_eq(nr_taken(&epoch, 1), n - twice);
        cr_assert_eq(nr_taken(&epoch, 2), twice);
    }
    for (int i = n; i < epoch.nr_rows; i++) /* the first samples fill up */
        cr_assert_eq(epoch.samples[i], epoch.samples[i - n]);
}

Test(sampler_epochs, all_ranks_take_each_sample_once_and_fill_up_with_the_first)
{
    for_each_size(NP_EPOCHS_SHORT_LAST, check_short);
}

static void check_dropped(const struct np_sampler_options *options, uint32_t number)
{
    const struct epoch epoch = take_epoch(*options, number);
    const int n = (int)options->nr_train, world = options->world ? options->world : 1;

    cr_assert_not(epoch.unequal, "n %d batch %d world %d", n, options->batch, world);
    cr_assert_eq(epoch.nr_batches, n / (options->batch * world));
    for (int step = 0; step < epoch.nr_batches; step++)
        cr_assert_eq(epoch.rows[step], options->batch);
    cr_assert_eq(nr_taken(&epoch, 1), epoch.nr_rows);
}

Test(sampler_epochs, a_dropped_last_batch_leaves_full_ones_alone)
{
    for_each_size(NP_EPOCHS_DROP_LAST, check_dropped);
}

/* The same samples in the same order as one process with the batches of all. */
static void check_order(const struct np_sampler_options *options, uint32_t number)
{
    const int world = options->world ? options->world : 1;
    const struct epoch epoch = take_epoch(*options, number);
    struct np_sampler_options one = *options;
    struct epoch whole;

    one.world = 0;
    one.batch *= world;
    whole = take_epoch(one, number);
    cr_assert_eq(whole.nr_batches, epoch.nr_batches);
    cr_assert_leq(whole.nr_rows, epoch.nr_rows);
    cr_assert_arr_eq(whole.samples, epoch.samples, (size_t)whole.nr_rows * sizeof(uint64_t));
}

Test(sampler_epochs, the_order_is_that_of_one_process)
{
    for_each_size(NP_EPOCHS_SHORT_LAST, check_order);
    for_each_size(NP_EPOCHS_DROP_LAST, check_order);
}

/* Of each epoch alone: the same set of samples, in the order of the epoch's number. */
Test(sampler_epochs, epochs_that_end_have_the_order_of_a_run_that_goes_on)
{
    struct np_sampler_options options = options_of(63, 7, 0, NP_EPOCHS_SHORT_LAST);
    struct np_sampler *ends = make(&options), *goes_on;

    options.epochs = NP_EPOCHS_RUN_ON; /* 9 batches of 7: its epochs end with a batch, too */
    goes_on = make(&options);
    for (uint64_t step = 0; step < 30; step++)
        for (int row = 0; row < 7; row++) {
            struct np_ticket a, b;

            np_sampler_ticket(ends, step, row, &a);
            np_sampler_ticket(goes_on, step, row, &b);
            cr_assert(a.sample == b.sample && a.epoch == b.epoch && a.position == b.position);
        }
    np_sampler_free(ends);
    np_sampler_free(goes_on);
}

Test(sampler_epochs, epochs_differ_in_their_order)
{
    const struct np_sampler_options options = options_of(60, 8, 2, NP_EPOCHS_SHORT_LAST);
    const struct epoch first = take_epoch(options, 0), second = take_epoch(options, 1);

    cr_assert_eq(options.shuffle, NP_SHUFFLE_FULL);
    cr_assert_neq(memcmp(first.samples, second.samples, 60 * sizeof(uint64_t)), 0);
}

Test(sampler_epochs, tickets_come_in_turn_from_any_step)
{
    struct np_sampler_options options = options_of(31, 4, 2, NP_EPOCHS_SHORT_LAST);
    struct np_sampler *sampler;

    options.rank = 1;
    sampler = make(&options);
    for (uint64_t step = 0; step < 12; step++) {
        struct np_ticket tickets[4], want;

        np_sampler_start(sampler, step, false);
        cr_assert_eq(sampler->first_seq, step);
        cr_assert_eq(np_sampler_next(sampler, tickets, 4), 4);
        for (int r = 0; r < 4; r++) {
            np_sampler_ticket(sampler, step, r, &want);
            cr_assert(tickets[r].seq == step && tickets[r].row == r);
            cr_assert(tickets[r].sample == want.sample && tickets[r].masked == want.masked);
        }
    }
    np_sampler_free(sampler);
}

Test(sampler_epochs, a_set_below_one_batch_of_all_is_refused_with_drop_last)
{
    struct np_sampler_options options = options_of(31, 16, 2, NP_EPOCHS_DROP_LAST);
    struct np_sampler *sampler = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_sampler_new(&options, &sampler, &err), -EINVAL);
    cr_assert(strstr(err.text, "31 samples") && strstr(err.text, "takes 32"), "%s", err.text);
    options.nr_train = 32;
    cr_assert_eq(np_sampler_new(&options, &sampler, NULL), 0);
    np_sampler_free(sampler);
}

/* --- dealt rows, and bad samples -------------------------------------------------------------- */

Test(sampler_epochs, dealt_rows_are_taken_from_the_place_of_their_batch)
{
    struct np_sampler_options options = options_of(1, 3, 0, NP_EPOCHS_RUN_ON);
    struct np_dealt dealt[2 * 3] = {{0}};
    struct np_sampler *sampler;

    for (int i = 0; i < 6; i++) {
        dealt[i].sample = i == 5 ? UINT64_MAX : 100 + (uint64_t)i;
        dealt[i].position = 10 + (uint32_t)i;
    }
    options.dealt = dealt;
    options.nr_dealt = 2;
    sampler = make(&options);
    for (uint64_t seq = 0; seq < 6; seq++)
        for (int row = 0; row < 3; row++) {
            const int at = (int)(seq % 2) * 3 + row;
            struct np_ticket ticket;

            np_sampler_ticket(sampler, seq, row, &ticket);
            np_sampler_deal(sampler, &ticket);
            cr_assert_eq(ticket.dealt, &dealt[at]);
            cr_assert_eq(ticket.sample, dealt[at].sample);
            cr_assert_eq(ticket.position, dealt[at].position);
            cr_assert_eq(ticket.masked, at == 5);
        }
    np_sampler_free(sampler);
}

Test(sampler_epochs, a_ticket_that_is_not_dealt_is_left_alone)
{
    const struct np_sampler_options options = options_of(31, 4, 2, NP_EPOCHS_SHORT_LAST);
    struct np_sampler *sampler = make(&options);
    struct np_ticket ticket, before;

    np_sampler_ticket(sampler, 3, 1, &before);
    ticket = before;
    np_sampler_deal(sampler, &ticket);
    cr_assert(!ticket.dealt && ticket.sample == before.sample &&
              ticket.position == before.position && ticket.masked == before.masked);
    np_sampler_free(sampler);
}

Test(sampler_epochs, bad_samples_are_replaced_only_where_the_options_say)
{
    struct np_sampler_options options = options_of(31, 4, 0, NP_EPOCHS_SHORT_LAST);

    for (int keep = 0; keep <= 1; keep++) {
        struct np_sampler *sampler;
        struct np_ticket ticket;

        options.keep_bad = keep;
        sampler = make(&options);
        np_sampler_ticket(sampler, 0, 0, &ticket);
        cr_assert_eq(np_sampler_replaces(sampler, &ticket), !keep);
        ticket.kind = NP_BATCH_EVAL;
        cr_assert_not(np_sampler_replaces(sampler, &ticket));
        np_sampler_free(sampler);
    }
}
