/* One pipeline for many jobs: decides, batch by batch, whether this process makes a batch or
 * takes it from another process of the user that wants the same ones (share/peers.h). It deals
 * the readers' tickets in place of np_sampler_next(). A batch is the same wherever it is made,
 * so whatever the decision, the run does not notice; and nobody waits for a peer longer than the
 * limit, so a peer that is killed or stopped costs the others that much, once. docs/SHARING.md
 * has the picture. */
#ifndef NP_EXCHANGE_H
#define NP_EXCHANGE_H

#include "loader/bad.h"
#include "loader/ring.h"
#include "loader/sampler.h"

struct np_exchange_options {
    const struct np_sampler *sampler; /* started; borrowed, as the next two */
    struct np_ring *ring;             /* started */
    struct np_bad *bad;
    struct np_batch_shape shape;
    uint64_t hash;         /* of all that a batch is a function of, but the sampler and the shape */
    uint64_t wait_ns;      /* for a row of a batch that a peer makes */
    uint64_t memory_bytes; /* max; of batches offered to others */
};

/* Batches since the start. */
struct np_exchanged {
    uint64_t made, taken; /* here; by copying from a peer */
    uint64_t given_up;    /* made here because a peer was too slow, or has ended */
    uint64_t waits;       /* batches that a peer was making when they were wanted */
    int nr_peers;         /* now */
};

struct np_exchange;
/* Errors: there is no place to meet, or no memory that can be shared; -ENOMEM. */
int np_exchange_new(const struct np_exchange_options *options, struct np_exchange **ret_exchange,
    struct np_err *err);
void np_exchange_free(struct np_exchange *exchange); /* after the readers */

/* As np_sampler_next(), but the slots of all tickets are free. With wait it returns tickets, or
 * 0 at the end of the run or when the ring was stopped; without it also -EAGAIN: there are none
 * now. Readers. */
int np_exchange_next(struct np_exchange *exchange, struct np_ticket *ret_tickets, int max,
    bool wait, struct np_block *block);
/* Call it before np_ring_commit() for every row that is made. The last row of a batch is the
 * time at which the batch is offered to peers. Readers. */
void np_exchange_commit(struct np_exchange *exchange, const struct np_batch *batch);
/* Batch seq has a row that another run might make otherwise, since the bad-sample policy of this
 * one will end it: it is not offered. Call it before the row's commit. Readers. */
void np_exchange_keep(struct np_exchange *exchange, uint64_t seq);
void np_exchange_read(const struct np_exchange *exchange, struct np_exchanged *ret_exchanged);

#endif
