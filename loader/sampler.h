/* The sequencer: batch number and row -> a ticket that decides everything about a row
 * before any thread starts. All pure functions of the options but np_sampler_next(),
 * which hands the next ticket to whichever reader asks. Resume is a position.
 *
 *   training: sample p = step * batch + row, epoch = p / n; batches run across the edge.
 *   evaluation: whole set in order, after each step that ends an eval period and after
 *   the last one; rows past its end are masked. */
#ifndef NP_SAMPLER_H
#define NP_SAMPLER_H

#include "loader/base/err.h"
#include "loader/batch.h"

enum np_shuffle { NP_SHUFFLE_FULL, NP_SHUFFLE_WINDOW, NP_SHUFFLE_NONE };

struct np_sampler_options {
    uint64_t seed;
    uint64_t nr_train, nr_eval; /* samples; nr_eval 0: no evaluation */
    int batch;                  /* rows */
    uint64_t nr_steps;          /* of the whole run */
    uint64_t eval_steps;        /* evaluate after every so many steps; 0: by epochs */
    double eval_epochs;         /* after every so many epochs; 0: only at the end */
    enum np_shuffle shuffle;
    uint64_t window; /* positions, for NP_SHUFFLE_WINDOW */
    /* Both parts are of one set: (nr_eval + nr_train) samples, evaluation's first (struct np_split).
     * Borrowed; NULL: two sets, or one. */
    const uint32_t *split;
};

struct np_ticket {
    enum np_batch_kind kind;
    uint64_t seq, step;
    int row;
    bool masked;              /* past the end of the evaluation set */
    uint32_t epoch, position; /* position in the epoch */
    uint64_t sample;          /* index in its set */
    uint32_t part, nr_parts;
};

struct np_sampler;

int np_sampler_new(
    const struct np_sampler_options *options, struct np_sampler **ret_sampler, struct np_err *err);
void np_sampler_free(struct np_sampler *sampler);
/* First batch to hand out: the one of training step `step`, or the evaluation due before it when
 * eval_due. Before any reader starts. */
void np_sampler_start(struct np_sampler *sampler, uint64_t step, bool eval_due);
uint64_t np_sampler_first_seq(const struct np_sampler *sampler);
uint64_t np_sampler_nr_batches(const struct np_sampler *sampler); /* of the whole run, both kinds */
bool np_sampler_eval_after(const struct np_sampler *sampler, uint64_t nr_steps_done);
/* The next ticket, false at the end of the run. Any reader thread; one atomic add. */
bool np_sampler_next(struct np_sampler *sampler, struct np_ticket *ret_ticket);
/* Ticket of (seq, row). Pure. */
void np_sampler_ticket(
    const struct np_sampler *sampler, uint64_t seq, int row, struct np_ticket *ret_ticket);
/* Sample that stands in when attempts 0..k-1 at this position were bad. Pure. */
uint64_t np_sampler_replacement(
    const struct np_sampler *sampler, const struct np_ticket *ticket, int attempt);

#endif
