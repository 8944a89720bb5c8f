/* Charges every nanosecond of stall to one stage. */
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

/* Splits the wait in the proportions in which the reader of the late batch's last row spent it;
 * the rounding remainder goes to the largest share. If nothing is known, the batch was nearly
 * ready. */
void np_account_wait(struct np_account *account, const struct np_account_wait *wait)
{
    const uint64_t stall_ns = between(wait->start_ns, wait->end_ns);
    uint64_t share_ns[NP_NR_STAGES] = {0}, total_ns = 0, left_ns = stall_ns;
    enum np_stage largest = NP_STAGE_BATCH;

    for (int i = 0; i < NP_FEED_BRIDGES; i++) {
        const uint64_t ahead_ns = wait->batch_ns << i;

        account->bridged_ns[i] += stall_ns < ahead_ns ? stall_ns : ahead_ns;
    }
    for (int i = 0; i < NP_NR_STAGES; i++) {
        total_ns += wait->did_ns[i];
        largest = wait->did_ns[i] > wait->did_ns[largest] ? (enum np_stage)i : largest;
    }
    for (int i = 0; i < NP_NR_STAGES && total_ns > 0; i++) {
        const double share = (double)wait->did_ns[i] / (double)total_ns;
        const uint64_t ns = (uint64_t)((double)stall_ns * share);

        share_ns[i] = ns < left_ns ? ns : left_ns;
        left_ns -= share_ns[i];
    }
    share_ns[largest] += left_ns;
    for (int i = 0; i < NP_NR_STAGES; i++)
        charge(account, (enum np_stage)i, share_ns[i]);
}

void np_account_step(struct np_account *account, const struct np_account_step *step)
{
    struct np_feed_times *times = &account->times;
    const uint64_t last_ns = account->last_consumed_ns;
    const uint64_t took_ns = between(step->copying_ns, step->copied_ns);
    uint64_t stall_ns = 0;

    if (step->copied)
        times->copy_ns += took_ns;
    if (step->consumed) {
        times->nr_batches++;
        times->compute_ns += between(step->start_ns, step->end_ns);
        account->last_consumed_ns = step->end_ns;
    }
    if (step->consumed && last_ns > 0) {
        times->idle_ns += between(last_ns, step->start_ns);
        /* Stall: the calls were queued, all calls before them had ended, and their batch was
         * still being copied. */
        stall_ns =
            between(later(later(last_ns, step->queued_ns), step->copying_ns), step->copied_ns);
    }
    charge(account, NP_STAGE_COPY, stall_ns);
    if (step->consumed)
        np_spans_put_at(
            account->computes, NP_SPAN_COMPUTE, step->start_ns, step->end_ns, step->seq, 0);
    if (!step->copied)
        return;
    np_stat_item(account->block, NP_STAGE_COPY, step->bytes, took_ns);
    np_spans_put_at(
        account->copies, NP_STAGE_COPY, step->copying_ns, step->copied_ns, step->seq, step->bytes);
}

uint64_t np_account_batch_ns(const struct np_account *account)
{
    const struct np_feed_times *times = &account->times;

    return times->nr_batches > 0 ? times->compute_ns / times->nr_batches : 0;
}
