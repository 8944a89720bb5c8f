/* Maps batch number and row to a ticket, which fixes everything about the row before any thread
 * starts. All functions but np_sampler_next() are pure functions of the options. A resumed run
 * starts at another position.
 *
 *   training: sample p = step * batch + row, epoch = p / n; a batch may span two epochs. Of W
 *   processes each has one stripe of every batch: p = (step * W + rank) * batch + row. With
 *   repeat = r each r positions in turn have one sample; their keys, and so their draws, differ.
 *   evaluation: the whole set in order, after each step that ends an evaluation period and after
 *   the last step; rows past the set's end are masked.
 *
 * Other programs (nnpipe.h) want epochs that end: each begins with a new batch, and its last one is
 * dropped or short. There every W-th stripe of `batch` rows is this process's, of W. Or they deal:
 * they say which sample and geometry each row has, before its batch is opened (np_ring_open()). */
#ifndef NP_SAMPLER_H
#define NP_SAMPLER_H

#include "loader/base/err.h"
#include "loader/balance.h"
#include "loader/pixels/augment.h"

enum np_shuffle { NP_SHUFFLE_FULL, NP_SHUFFLE_WINDOW, NP_SHUFFLE_NONE };
enum np_epochs { NP_EPOCHS_RUN_ON, NP_EPOCHS_DROP_LAST, NP_EPOCHS_SHORT_LAST };

/* A row that the program dealt. */
struct np_dealt {
    uint64_t sample;   /* UINT64_MAX: the row is masked */
    uint32_t position; /* in the epoch */
    struct np_drawn drawn;
    int32_t source_w, source_h; /* of the picture that it was drawn for */
};

struct np_sampler_options {
    uint64_t seed;
    uint64_t nr_train, nr_eval; /* samples; nr_eval 0: no evaluation */
    int batch;                  /* rows, of this process */
    uint64_t nr_steps;          /* of the whole run */
    uint64_t eval_steps;        /* training steps between evaluations; 0: by epochs */
    double eval_epochs;         /* epochs between evaluations; 0: only at the end */
    enum np_shuffle shuffle;
    uint64_t window;
    int repeat; /* of a sample in an epoch, which then has 1/repeat of the samples; 0: 1 */
    /* Classes come equally often. Needs NP_SHUFFLE_FULL, and `classes` for tickets of training;
     * np_loader_start() sets them. Borrowed. */
    bool balance;
    const struct np_balance *classes;
    /* data.split: (nr_eval + nr_train) samples of one set, those of the evaluation first (struct
     * np_split). Borrowed. NULL: training and evaluation have sets of their own. */
    const uint32_t *split;
    enum np_epochs epochs;
    /* A step has `world` stripes of `batch` rows, and this process the one at `rank`; world 0: one
     * process. */
    int rank, world;
    bool keep_bad; /* a bad training sample is not replaced but masked */
    /* Borrowed, (nr_dealt, batch): the rows of batch seq lie at seq % nr_dealt. NULL: none are
     * dealt. */
    const struct np_dealt *dealt;
    uint64_t nr_dealt;
};

struct np_ticket {
    enum np_batch_kind kind;
    uint64_t seq, step;
    int row;
    bool masked; /* past the end of the evaluation set */
    uint32_t epoch, position;
    uint64_t sample;
    uint32_t part, nr_parts;
    const struct np_dealt *dealt; /* NULL: the chain draws the geometry */
};

struct np_sampler {
    uint64_t first_seq;  /* set by np_sampler_start() */
    uint64_t nr_batches; /* of the whole run, both kinds */

    /* for sampler.c */
    struct np_sampler_options options;
    double period;     /* training steps between evaluations, >= 1 */
    uint64_t nr_evals; /* of the whole run */
    uint64_t nr_parts; /* batches of an evaluation; 0: none */
    uint64_t next;     /* atomic: number of tickets taken; all else is set before readers start */
};

int np_sampler_new(
    const struct np_sampler_options *options, struct np_sampler **ret_sampler, struct np_err *err);
void np_sampler_free(struct np_sampler *sampler);
/* Lets the run begin at training step `step`, or with eval_due at the evaluation that precedes it.
 * Call it before any reader starts. */
void np_sampler_start(struct np_sampler *sampler, uint64_t step, bool eval_due);
bool np_sampler_eval_after(const struct np_sampler *sampler, uint64_t nr_steps_done);
/* Takes the next `max` tickets; returns their number, which is smaller only at the end of the run.
 * Any reader thread; one atomic add. */
int np_sampler_next(struct np_sampler *sampler, struct np_ticket *ret_tickets, int max);
void np_sampler_ticket(
    const struct np_sampler *sampler, uint64_t seq, int row, struct np_ticket *ret_ticket);
/* Fills in a ticket whose row is dealt, once its batch is opened. */
void np_sampler_deal(const struct np_sampler *sampler, struct np_ticket *ticket);
/* Steps of an epoch that ends. */
uint64_t np_sampler_epoch_steps(const struct np_sampler_options *options);
/* Is a bad sample replaced by another? Else its row is masked. */
bool np_sampler_replaces(const struct np_sampler *sampler, const struct np_ticket *ticket);
/* The replacement for the ticket's sample after `attempt` samples (>= 1) at this position were
 * bad. */
uint64_t np_sampler_replacement(
    const struct np_sampler *sampler, const struct np_ticket *ticket, int attempt);

#endif
