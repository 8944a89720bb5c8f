/* Where a device's time goes for want of batches: what feed.c sees, added up. Trainer thread; private
 * to the feed. */
#ifndef NP_FEED_ACCOUNT_H
#define NP_FEED_ACCOUNT_H

#include "trainer/feed.h"

struct np_account {
    struct np_block *block; /* borrowed */
    struct np_ring *ring;   /* borrowed */
    struct np_feed_times times;
    uint64_t last_consumed_ns; /* of the batches that have passed; 0: none has */
    uint64_t stall_ns;
    uint64_t blame_ns[NP_NR_STAGES];      /* adds up to stall_ns */
    uint64_t bridged_ns[NP_FEED_BRIDGES]; /* of the waits for readers */
    struct np_spans *copies, *computes;   /* of a trace; NULL: there is none */
};

/* The device waited so long for a batch that readers had not done; batch_ns: what it takes for one. */
void np_account_wait(
    struct np_account *account, const struct np_batch *batch, uint64_t stall_ns, uint64_t batch_ns);
/* The copy of batch `seq` was under way from start to end. */
void np_account_copy(
    struct np_account *account, uint64_t start_ns, uint64_t end_ns, uint64_t seq, uint64_t bytes);
/* The calls that read it likewise; they were queued at queued_ns, its copy began at copying_ns and had
 * passed at copied_ns: what of that nothing else was left to do in is the copy's stall. */
struct np_account_step {
    uint64_t start_ns, end_ns, queued_ns, copying_ns, copied_ns, seq;
};
void np_account_compute(struct np_account *account, const struct np_account_step *step);
/* The mean of what the device takes for a batch; 0: none has passed. */
uint64_t np_account_batch_ns(const struct np_account *account);

#endif
