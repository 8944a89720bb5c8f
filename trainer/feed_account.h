/* Adds up the time in which a device waits for batches, by cause. Trainer thread; only the feed
 * changes an account. */
#ifndef NP_FEED_ACCOUNT_H
#define NP_FEED_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/span.h"
#include "loader/base/stat.h"

#define NP_FEED_BRIDGES 5 /* rings with 1, 2, 4, 8, 16 more slots */

/* Times by the device's own clock over the batches that have passed, from four events each. 0 on
 * a device without its own memory. */
struct np_feed_times {
    uint64_t nr_batches;
    uint64_t copy_ns;    /* time in copies */
    uint64_t compute_ns; /* the calls between upload and release, from start to end */
    /* Between the calls of one batch and the next: no work. */
    uint64_t idle_ns;
};

struct np_account {
    struct np_block *block; /* borrowed */
    struct np_feed_times times;
    uint64_t last_consumed_ns; /* of the batches that have passed; 0: none yet */
    /* Time so far in which the device had no work because a batch was missing: in np_feed_next(),
     * or during a copy (counted when that has passed). */
    uint64_t stall_ns;
    /* Its parts by cause: the reader's stages on the late batch's last row while the trainer waited
     * for it (np_ring_late()), or the batch's copy. */
    uint64_t blame_ns[NP_NR_STAGES];
    /* The part that a longer ring would have prevented: with 1, 2, 4, 8, 16 more slots, had they
     * been full at each wait for readers. */
    uint64_t bridged_ns[NP_FEED_BRIDGES];
    struct np_spans *copies, *computes; /* of a trace; NULL: no trace */
};

/* Records that the device waited for a batch that readers had not finished. batch_ns: the
 * device's time for one batch; did_ns: from np_ring_late(). */
struct np_account_wait {
    uint64_t start_ns, end_ns, batch_ns, did_ns[NP_NR_STAGES];
};
void np_account_wait(struct np_account *account, const struct np_account_wait *wait);
/* Records that a batch's copy has passed (copied), or the calls that read it (consumed), or both;
 * times of the other are ignored. The copy ran from copying_ns to copied_ns; the calls were queued
 * at queued_ns and ran from start_ns to end_ns. The part of the copy in which the device had no
 * other work is charged to the copy. */
struct np_account_step {
    bool copied, consumed;
    uint64_t copying_ns, copied_ns, bytes, queued_ns, start_ns, end_ns, seq;
};
void np_account_step(struct np_account *account, const struct np_account_step *step);
/* Returns the device's mean time for a batch; 0: none has passed. */
uint64_t np_account_batch_ns(const struct np_account *account);

#endif
