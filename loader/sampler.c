/* (seq, row) -> ticket, by arithmetic on the options alone, so that a run resumes at any position
 * without a replay of the earlier ones.
 *
 * The run is a sequence of blocks: the training steps of one evaluation period, then the batches of
 * the evaluation. Block e starts with training step point(e); the last block ends with the run's
 * last step. Any reader thread; they share one counter, which an atomic add advances. */
#include "loader/sampler.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"

/* Keeps the permutation's key apart from those of replacement attempts. */
#define WINDOW_BLOCKS 0x80000000u

/* The training step at which block e starts. A tolerance far below one sample prevents that 0.1
 * epochs x 10 is a step late. */
static uint64_t point(const struct np_sampler *sampler, uint64_t e)
{
    if (e >= sampler->nr_evals)
        return sampler->options.nr_steps;
    return (uint64_t)ceil((double)e * sampler->period - 1e-6);
}

/* Number of blocks that start at or before `step` (< nr_steps), without the first one. */
static uint64_t blocks_before(const struct np_sampler *sampler, uint64_t step)
{
    uint64_t e = (uint64_t)((double)step / sampler->period);

    while (e + 1 < sampler->nr_evals && point(sampler, e + 1) <= step)
        e++;
    while (e > 0 && (e >= sampler->nr_evals || point(sampler, e) > step))
        e--;
    return e;
}

static uint64_t world(const struct np_sampler_options *options)
{
    return options->world > 0 ? (uint64_t)options->world : 1;
}

/* Rows of a step, of all processes. */
static uint64_t step_rows(const struct np_sampler_options *options)
{
    return (uint64_t)options->batch * world(options);
}

static double eval_period(const struct np_sampler_options *options)
{
    double period = (double)options->nr_steps;

    if (options->eval_steps)
        period = (double)options->eval_steps;
    else if (options->eval_epochs > 0)
        period = options->eval_epochs * (double)options->nr_train / (double)step_rows(options);
    return period < 1 ? 1 : period;
}

uint64_t np_sampler_epoch_steps(const struct np_sampler_options *options)
{
    const uint64_t rows = step_rows(options);

    return (options->nr_train + (options->epochs == NP_EPOCHS_SHORT_LAST ? rows - 1 : 0)) / rows;
}

static int check_options(const struct np_sampler_options *options, struct np_err *err)
{
    if (options->nr_train == 0 && options->nr_steps > 0)
        return np_err_set(err, -EINVAL, "the training set has no samples");
    if (options->nr_train > UINT32_MAX || options->nr_eval > UINT32_MAX)
        return np_err_set(err, -EOVERFLOW, "a set has more than 4294967295 samples");
    if (options->batch < 1)
        return np_err_set(err, -EINVAL, "batch must be at least 1");
    if (options->epochs != NP_EPOCHS_RUN_ON && options->nr_train &&
        np_sampler_epoch_steps(options) == 0)
        return np_err_set(err, -EINVAL,
            "the set has %llu samples, and a batch takes %llu, so that drop_last leaves none: make "
            "loader.batch smaller, or keep the last batch",
            (unsigned long long)options->nr_train, (unsigned long long)step_rows(options));
    if (options->epochs == NP_EPOCHS_RUN_ON && options->nr_train &&
        options->nr_steps > UINT32_MAX * options->nr_train / step_rows(options))
        return np_err_set(err, -EOVERFLOW, "the run has more than 4294967295 epochs");
    return 0;
}

int np_sampler_new(
    const struct np_sampler_options *options, struct np_sampler **ret_sampler, struct np_err *err)
{
    struct np_sampler *sampler;
    int code = check_options(options, err);

    if (code)
        return code;
    sampler = np_try_alloc(sizeof *sampler, err);
    if (!sampler)
        return -ENOMEM;
    sampler->options = *options;
    sampler->nr_parts = (options->nr_eval + step_rows(options) - 1) / step_rows(options);
    sampler->period = eval_period(options);
    sampler->nr_evals = UINT64_MAX; /* no limit, for the next line */
    sampler->nr_evals = options->nr_steps ? blocks_before(sampler, options->nr_steps - 1) + 1
                                          : sampler->nr_parts != 0;
    sampler->nr_batches = options->nr_steps + sampler->nr_evals * sampler->nr_parts;
    *ret_sampler = sampler;
    return 0;
}

void np_sampler_free(struct np_sampler *sampler)
{
    np_free(sampler);
}

static uint64_t evals_before(const struct np_sampler *sampler, uint64_t step)
{
    if (!sampler->nr_parts)
        return 0;
    return step < sampler->options.nr_steps ? blocks_before(sampler, step) : sampler->nr_evals;
}

bool np_sampler_eval_after(const struct np_sampler *sampler, uint64_t nr_steps_done)
{
    const uint64_t nr_steps = sampler->options.nr_steps;

    if (!sampler->nr_parts || nr_steps_done > nr_steps)
        return false;
    if (nr_steps_done == nr_steps)
        return true;
    return nr_steps_done > 0 &&
           point(sampler, blocks_before(sampler, nr_steps_done)) == nr_steps_done;
}

void np_sampler_start(struct np_sampler *sampler, uint64_t step, bool eval_due)
{
    uint64_t evals = evals_before(sampler, step);

    assert(step <= sampler->options.nr_steps);
    if (eval_due && np_sampler_eval_after(sampler, step))
        evals--;
    sampler->first_seq = step + evals * sampler->nr_parts;
    __atomic_store_n(&sampler->next, 0, __ATOMIC_RELAXED);
}

static uint64_t block_seq(const struct np_sampler *sampler, uint64_t e)
{
    return point(sampler, e) + e * sampler->nr_parts;
}

/* Sequence number -> training step, or part of the evaluation after `step` training steps. */
static void locate(const struct np_sampler *sampler, uint64_t seq, struct np_ticket *ticket)
{
    uint64_t e = (uint64_t)((double)seq / (sampler->period + (double)sampler->nr_parts));
    uint64_t offset, length;

    while (e + 1 < sampler->nr_evals && block_seq(sampler, e + 1) <= seq)
        e++;
    while (e > 0 && (e >= sampler->nr_evals || block_seq(sampler, e) > seq))
        e--;
    offset = seq - block_seq(sampler, e);
    length = point(sampler, e + 1) - point(sampler, e);
    ticket->kind = offset < length ? NP_BATCH_TRAIN : NP_BATCH_EVAL;
    ticket->step = point(sampler, e) + (offset < length ? offset : length);
    ticket->part = offset < length ? 0 : (uint32_t)(offset - length);
    ticket->nr_parts = offset < length ? 0 : (uint32_t)sampler->nr_parts;
}

/* Blocks of `window` samples in shuffled order, each shuffled within. Each epoch rotates the set by
 * a random amount, so that other samples fall into the short last block. */
static uint64_t windowed(const struct np_sampler *sampler, uint32_t epoch, uint64_t position)
{
    const struct np_sampler_options *o = &sampler->options;
    const uint64_t n = o->nr_train, window = o->window && o->window < n ? o->window : n;
    const uint64_t nr_full = n / window, place = position / window;
    const uint64_t length = place < nr_full ? window : n - place * window;
    uint64_t block = place;
    struct np_draws draws;
    uint64_t turn;

    np_draws_init(&draws, o->seed, NP_STREAM_ORDER, epoch, UINT32_MAX, 0);
    turn = np_draw_below(&draws, (uint32_t)n);
    if (place < nr_full)
        block = np_permute(nr_full, o->seed, NP_STREAM_ORDER, epoch, 0, place);
    return (turn + block * window +
               np_permute(length, o->seed, NP_STREAM_ORDER, epoch, WINDOW_BLOCKS | (uint32_t)block,
                   position % window)) %
           n;
}

/* The draws of all epochs are one sequence, so that the classes are in balance across epochs, too:
 * each epoch has its own part of it, shuffled. */
static uint64_t balanced(
    const struct np_sampler_options *o, uint32_t epoch, uint64_t nr_draws, uint64_t position)
{
    const uint64_t draw = np_permute(nr_draws, o->seed, NP_STREAM_ORDER, epoch, 0, position);

    assert(o->classes && o->shuffle == NP_SHUFFLE_FULL);
    return np_balance_sample(o->classes, o->seed, epoch * nr_draws + draw);
}

/* The sample at a training position, before the split. */
static uint64_t ordered(const struct np_sampler *sampler, uint32_t epoch, uint64_t position)
{
    const struct np_sampler_options *o = &sampler->options;
    const uint64_t repeat = o->repeat > 1 ? (uint64_t)o->repeat : 1;

    position /= repeat;
    if (o->balance)
        return balanced(o, epoch, (o->nr_train + repeat - 1) / repeat, position);
    switch (o->shuffle) {
    case NP_SHUFFLE_FULL:
        return np_permute(o->nr_train, o->seed, NP_STREAM_ORDER, epoch, 0, position);
    case NP_SHUFFLE_WINDOW: return windowed(sampler, epoch, position);
    case NP_SHUFFLE_NONE: break;
    }
    return position;
}

static uint64_t split(const struct np_sampler *sampler, enum np_batch_kind kind, uint64_t i)
{
    const struct np_sampler_options *o = &sampler->options;

    return o->split ? o->split[kind == NP_BATCH_TRAIN ? o->nr_eval + i : i] : i;
}

/* The last batches of all processes have equally many rows, so that none waits for another: the
 * epoch's first samples fill them up. */
static void place_in_epoch(const struct np_sampler_options *options, struct np_ticket *ticket)
{
    const uint64_t n = options->nr_train, steps = np_sampler_epoch_steps(options);
    const uint64_t rows = step_rows(options);
    const uint64_t first = ticket->step % steps * rows;
    const uint64_t left = n - first < rows ? n - first : rows;
    const uint64_t own = (left + world(options) - 1) / world(options);
    const uint64_t p = first + (uint64_t)options->rank * own + (uint64_t)ticket->row;

    ticket->epoch = (uint32_t)(ticket->step / steps);
    ticket->masked = (uint64_t)ticket->row >= own;
    ticket->position = (uint32_t)(p % n);
}

/* The row's number among those of all batches and processes. */
static uint64_t own_row(const struct np_sampler_options *options, uint64_t batch, int row)
{
    return batch * step_rows(options) + (uint64_t)options->rank * (uint64_t)options->batch +
           (uint64_t)row;
}

static void train_row(const struct np_sampler *sampler, struct np_ticket *ticket)
{
    const struct np_sampler_options *o = &sampler->options;
    const uint64_t p = own_row(o, ticket->step, ticket->row);

    if (o->dealt)
        return;
    if (o->epochs == NP_EPOCHS_RUN_ON) {
        ticket->epoch = (uint32_t)(p / o->nr_train);
        ticket->position = (uint32_t)(p % o->nr_train);
    } else {
        place_in_epoch(o, ticket);
    }
    ticket->sample = ticket->masked ? UINT64_MAX
                                    : split(sampler, NP_BATCH_TRAIN,
                                          ordered(sampler, ticket->epoch, ticket->position));
}

void np_sampler_deal(const struct np_sampler *sampler, struct np_ticket *ticket)
{
    const struct np_sampler_options *o = &sampler->options;
    const uint64_t place = ticket->seq % (o->nr_dealt ? o->nr_dealt : 1);

    if (!o->dealt)
        return;
    ticket->dealt = &o->dealt[place * (uint64_t)o->batch + (uint64_t)ticket->row];
    ticket->sample = ticket->dealt->sample;
    ticket->position = ticket->dealt->position;
    ticket->masked = ticket->sample == UINT64_MAX;
}

static void eval_row(const struct np_sampler *sampler, struct np_ticket *ticket)
{
    const struct np_sampler_options *o = &sampler->options;
    const uint64_t i = own_row(o, ticket->part, ticket->row);

    ticket->masked = i >= o->nr_eval;
    ticket->position = (uint32_t)i;
    ticket->sample = ticket->masked ? UINT64_MAX : split(sampler, NP_BATCH_EVAL, i);
}

void np_sampler_ticket(
    const struct np_sampler *sampler, uint64_t seq, int row, struct np_ticket *ret_ticket)
{
    struct np_ticket ticket = {.seq = seq, .row = row};

    assert(seq < sampler->nr_batches && row >= 0 && row < sampler->options.batch);
    locate(sampler, seq, &ticket);
    if (ticket.kind == NP_BATCH_TRAIN)
        train_row(sampler, &ticket);
    else
        eval_row(sampler, &ticket);
    *ret_ticket = ticket;
}

int np_sampler_next(struct np_sampler *sampler, struct np_ticket *ret_tickets, int max)
{
    const uint64_t batch = (uint64_t)sampler->options.batch;
    /* Relaxed: threads share only this number; all else was set before they began. */
    const uint64_t first = __atomic_fetch_add(&sampler->next, (uint64_t)max, __ATOMIC_RELAXED);

    for (int i = 0; i < max; i++) {
        const uint64_t ticket = first + (uint64_t)i, seq = sampler->first_seq + ticket / batch;

        if (seq >= sampler->nr_batches)
            return i;
        np_sampler_ticket(sampler, seq, (int)(ticket % batch), &ret_tickets[i]);
    }
    return max;
}

bool np_sampler_replaces(const struct np_sampler *sampler, const struct np_ticket *ticket)
{
    return ticket->kind == NP_BATCH_TRAIN && !sampler->options.keep_bad;
}

uint64_t np_sampler_replacement(
    const struct np_sampler *sampler, const struct np_ticket *ticket, int attempt)
{
    const struct np_sampler_options *o = &sampler->options;

    assert(ticket->kind == NP_BATCH_TRAIN && attempt >= 1);
    return split(sampler, NP_BATCH_TRAIN,
        np_permute(o->nr_train, o->seed, NP_STREAM_ORDER, ticket->epoch, (uint32_t)attempt,
            ticket->position));
}
