/* Where a device's time goes for want of batches: what feed.c sees, added up. Trainer thread; private
 * to the feed. */
#ifndef NP_FEED_ACCOUNT_H
#define NP_FEED_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/span.h"
#include "loader/base/stat.h"

#define NP_FEED_BRIDGES 5 /* rings with 1, 2, 4, 8, 16 more slots */

/* What the device's own clock says of the batches that have passed, on a device with memory of its own
 * (else 0): from the four events of each, read when it has passed. */
struct np_feed_times {
    uint64_t nr_batches;
    uint64_t copy_ns;    /* copies under way */
    uint64_t compute_ns; /* the calls between upload and release, from their start to their end */
    /* Between one batch's and the next one's: the device had nothing to compute. */
    uint64_t idle_ns;
};

struct np_account {
    struct np_block *block; /* borrowed */
    struct np_feed_times times;
    uint64_t last_consumed_ns; /* of the batches that have passed; 0: none has */
    uint64_t stall_ns;
    uint64_t blame_ns[NP_NR_STAGES];      /* adds up to stall_ns */
    uint64_t bridged_ns[NP_FEED_BRIDGES]; /* of the waits for readers */
    struct np_spans *copies, *computes;   /* of a trace; NULL: there is none */
};

/* The device waited for a batch that readers had not done. batch_ns: what it takes for one; did_ns: as of
 * np_ring_late(). */
struct np_account_wait {
    uint64_t start_ns, end_ns, batch_ns, did_ns[NP_NR_STAGES];
};
void np_account_wait(struct np_account *account, const struct np_account_wait *wait);
/* A batch's copy has passed (copied), or the calls that read it, or both: what is not is left aside. The
 * copy ran from copying_ns to copied_ns; the calls were queued at queued_ns and ran from start_ns to
 * end_ns. What of the copy nothing else was left to do in is the copy's stall. */
struct np_account_step {
    bool copied, consumed;
    uint64_t copying_ns, copied_ns, bytes, queued_ns, start_ns, end_ns, seq;
};
void np_account_step(struct np_account *account, const struct np_account_step *step);
/* The mean of what the device takes for a batch; 0: none has passed. */
uint64_t np_account_batch_ns(const struct np_account *account);

#endif
