/* See feed_account.h. Every nanosecond of stall is charged to one stage. */
#include "trainer/feed_account.h"

#include "loader/base/span.h"

static uint64_t between(uint64_t start_ns, uint64_t end_ns)
{
    return end_ns > start_ns ? end_ns - start_ns : 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void charge(struct np_account *account, enum np_stage stage, uint64_t ns)
{
    account->blame_ns[stage] += ns;
    account->stall_ns += ns;
    np_stat_blame(account->block, stage, ns);
}

/* Shared out as the reader of the late batch's last row spent the time that was waited; what rounding
 * leaves goes to the largest share. Nothing known of it: it was as good as there. */
static void blame_reader(
    struct np_account *account, const struct np_batch *batch, uint64_t stall_ns)
{
    uint64_t did_ns[NP_NR_STAGES], total_ns = 0, left_ns = stall_ns;
    enum np_stage largest = NP_STAGE_BATCH;

    np_ring_late(account->ring, batch, did_ns);
    for (int i = 0; i < NP_NR_STAGES; i++) {
        total_ns += did_ns[i];
        largest = did_ns[i] > did_ns[largest] ? (enum np_stage)i : largest;
    }
    for (int i = 0; i < NP_NR_STAGES && total_ns > 0; i++) {
        const double share = (double)did_ns[i] / (double)total_ns;
        uint64_t ns = (uint64_t)((double)stall_ns * share);

        ns = ns < left_ns ? ns : left_ns;
        left_ns -= ns;
        charge(account, (enum np_stage)i, ns);
    }
    charge(account, largest, left_ns);
}

void np_account_wait(
    struct np_account *account, const struct np_batch *batch, uint64_t stall_ns, uint64_t batch_ns)
{
    blame_reader(account, batch, stall_ns);
    for (int i = 0; i < NP_FEED_BRIDGES; i++) {
        const uint64_t ahead_ns = batch_ns << i;

        account->bridged_ns[i] += stall_ns < ahead_ns ? stall_ns : ahead_ns;
    }
}

void np_account_copy(
    struct np_account *account, uint64_t start_ns, uint64_t end_ns, uint64_t seq, uint64_t bytes)
{
    const uint64_t took = between(start_ns, end_ns);

    np_stat_item(account->block, NP_STAGE_COPY, bytes, took);
    account->times.copy_ns += took;
    np_spans_put_at(account->copies, NP_STAGE_COPY, start_ns, end_ns, seq, bytes);
}

/* The step was queued, nothing before it was left to do, and its batch was on the way. */
static void blame_copy(struct np_account *account, const struct np_account_step *step)
{
    const uint64_t since_ns =
        later(later(account->last_consumed_ns, step->queued_ns), step->copying_ns);

    if (account->last_consumed_ns > 0)
        charge(account, NP_STAGE_COPY, between(since_ns, step->copied_ns));
}

void np_account_compute(struct np_account *account, const struct np_account_step *step)
{
    struct np_feed_times *times = &account->times;

    blame_copy(account, step);
    times->nr_batches++;
    times->compute_ns += between(step->start_ns, step->end_ns);
    if (account->last_consumed_ns > 0)
        times->idle_ns += between(account->last_consumed_ns, step->start_ns);
    account->last_consumed_ns = step->end_ns;
    np_spans_put_at(account->computes, NP_SPAN_COMPUTE, step->start_ns, step->end_ns, step->seq, 0);
}

uint64_t np_account_batch_ns(const struct np_account *account)
{
    const struct np_feed_times *times = &account->times;

    return times->nr_batches > 0 ? times->compute_ns / times->nr_batches : 0;
}
