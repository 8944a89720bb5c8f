/* See lib_deal.h. Batch k of an epoch is made by worker k % W, whose generator draws for its rows in
 * order. So dealing a batch moves one generator; its state before the batch is kept until the batch
 * is taken, so that what was dealt too far can be taken back.
 *
 * Without workers the draws come from the program's own generator, which the program may use between
 * two batches. Batches ahead are dealt from the state behind the last one; if the program's state is
 * another, they are void: the ring still delivers them, and they are dropped. */
#include "loader/lib/lib_deal.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/torch_rng.h"
#include "loader/lib/lib_sizes.h"

#define MAX_WORKERS 1024
#define MAX_LOGS    8
#define AGREE       3 /* batches whose guess was right, before twice as many are guessed */

struct dealt_batch {
    struct np_torch_rng before; /* its generator's state */
    int rows;
    bool is_void;
};

struct np_dealer {
    const struct nnp_loader *loader;
    struct nnp_deal deal;
    struct np_sizes *sizes;      /* of the pictures; NULL: all have the set's */
    int nr_batches;              /* that fit into the ring */
    struct np_dealt *rows;       /* (nr_batches, batch) */
    struct np_step *steps;       /* of each row; NULL: the chain is geometry alone */
    struct dealt_batch *batches; /* (nr_batches) */
    struct np_torch_rng *rngs;   /* (workers), or (1) */
    bool seeded, fused;          /* rngs have begun; as np_torch_uniform() */
    struct logarithm {
        float x, log;
    } logs[MAX_LOGS]; /* of torch, by the argument */
    int nr_logs;
    bool unanswered; /* the program's exp() or log() failed since a batch was begun */

    /* the epoch */
    int64_t *samples;
    uint64_t nr_samples;
    uint64_t nr_dealt; /* batches of the epoch */
    bool has_epoch;    /* it has not ended */

    uint64_t next_seq, first_ready; /* ring: the batch to deal next; the one that is taken next */
    int ahead, nr_agreed;           /* without workers: batches to guess; guesses that were right */
};

static int batch_rows(const struct np_dealer *dealer)
{
    return dealer->loader->shape.rows;
}

static struct dealt_batch *at(const struct np_dealer *dealer, uint64_t seq)
{
    return &dealer->batches[seq % (uint64_t)dealer->nr_batches];
}

/* Batches of the epoch that the program has taken; nnp_next() begins to count anew at its end. */
static uint64_t nr_taken(const struct np_dealer *dealer)
{
    return dealer->has_epoch ? dealer->loader->taken : dealer->nr_dealt;
}

static int nr_rngs(const struct np_dealer *dealer)
{
    return dealer->deal.workers > 0 ? dealer->deal.workers : 1;
}

/* Gives each row room for its steps. */
static int new_steps(struct np_dealer *dealer, struct np_err *err)
{
    const size_t nr_rows = (size_t)dealer->nr_batches * (size_t)batch_rows(dealer);
    const size_t max_steps = (size_t)np_chain_max_steps(dealer->loader->chain);

    if (max_steps == 0)
        return 0;
    dealer->steps = np_try_array(nr_rows * max_steps, sizeof(*dealer->steps), err);
    if (!dealer->steps)
        return -ENOMEM;
    for (size_t i = 0; i < nr_rows; i++)
        dealer->rows[i].drawn.steps = &dealer->steps[i * max_steps];
    return 0;
}

struct np_dealer *np_dealer_new(const struct nnp_loader *loader, int nr_batches, struct np_err *err)
{
    struct np_dealer *dealer = np_try_alloc(sizeof(*dealer), err);
    const size_t n = (size_t)nr_batches;

    if (!dealer)
        return NULL;
    dealer->loader = loader;
    dealer->nr_batches = dealer->ahead = nr_batches;
    dealer->rows = np_try_array(n * (size_t)loader->shape.rows, sizeof(*dealer->rows), err);
    dealer->batches = np_try_array(n, sizeof(*dealer->batches), err);
    if (dealer->rows && dealer->batches && new_steps(dealer, err) == 0 &&
        np_sizes_read(loader->index, &dealer->sizes, err) == 0)
        return dealer;
    np_dealer_free(dealer);
    return NULL;
}

void np_dealer_free(struct np_dealer *dealer)
{
    if (!dealer)
        return;
    np_sizes_free(dealer->sizes);
    np_free(dealer->rows);
    np_free(dealer->steps);
    np_free(dealer->batches);
    np_free(dealer->rngs);
    np_free(dealer->samples);
    np_free(dealer);
}

const struct np_dealt *np_dealer_rows_of(const struct np_dealer *dealer)
{
    return dealer->rows;
}

int np_dealer_rows(const struct np_dealer *dealer, uint64_t seq)
{
    return at(dealer, seq)->rows;
}

bool np_dealer_has_epoch(const struct np_dealer *dealer)
{
    return dealer->has_epoch;
}

void np_dealer_end_epoch(struct np_dealer *dealer)
{
    dealer->has_epoch = false;
}

/* --- torch's functions -------------------------------------------------------------------------- */

/* After one has failed, the batch is not dealt: until its end any number will do. */
static float torch_exp(void *context, float x)
{
    struct np_dealer *dealer = context;
    const float exp = dealer->deal.exp(dealer->deal.context, x);

    if (isfinite(exp))
        return exp;
    dealer->unanswered = true;
    return 1;
}

static float torch_log(void *context, float x)
{
    struct np_dealer *dealer = context;
    float log;

    for (int i = 0; i < dealer->nr_logs; i++)
        if (dealer->logs[i].x == x)
            return dealer->logs[i].log;
    log = dealer->deal.log(dealer->deal.context, x);
    if (!isfinite(log)) {
        dealer->unanswered = true;
        return 0;
    }
    if (dealer->nr_logs < MAX_LOGS)
        dealer->logs[dealer->nr_logs++] = (struct logarithm){x, log};
    return log;
}

/* How torch rounds; -ENOTSUP: in neither of the two ways. */
static int find_rounding(struct np_dealer *dealer, const float *probes, struct np_err *err)
{
    for (int fused = 0; fused < 2; fused++) {
        struct np_torch_rng rng;
        int n = 0;

        np_torch_seed(&rng, 1);
        while (n < NNP_DEAL_PROBES && probes[n] == np_torch_uniform(&rng, 0.08f, 1, fused))
            n++;
        dealer->fused = fused;
        if (n == NNP_DEAL_PROBES)
            return 0;
    }
    return np_err_set(err, -ENOTSUP,
        "this version of torch draws random numbers in a way that nnpipe does not know; use "
        "exact_order=False");
}

/* --- dealing ------------------------------------------------------------------------------------ */

static void deal_row(
    struct np_dealer *dealer, struct np_torch_rng *rng, uint64_t position, struct np_dealt *row)
{
    const struct nnp_loader *loader = dealer->loader;
    const struct np_torch_draws draws = {
        rng, dealer->deal.transforms_version, dealer->fused, torch_exp, torch_log, dealer};

    row->sample = (uint64_t)dealer->samples[position];
    row->position = (uint32_t)position;
    np_sizes_get(dealer->sizes, loader->index, row->sample, &row->source_w, &row->source_h);
    if (row->source_w == 0 ||
        !np_augment_draw_torch(loader->chain, &draws, row->source_w, row->source_h, &row->drawn))
        row->sample = UINT64_MAX;
}

/* Rows of batch k of the epoch. */
static int rows_of(const struct np_dealer *dealer, uint64_t k)
{
    const uint64_t first = k * (uint64_t)batch_rows(dealer), left = dealer->nr_samples - first;

    return left < (uint64_t)batch_rows(dealer) ? (int)left : batch_rows(dealer);
}

/* Draws the rows of the epoch's next batch: row r into rows[r]; rows NULL: into none. *ret_before: the
 * generator's state before. -ECANCELED: the program's exp() or log() failed, and nothing was drawn. */
static int draw_batch(struct np_dealer *dealer, struct np_dealt *rows,
    struct np_torch_rng *ret_before, struct np_err *err)
{
    const uint64_t k = dealer->nr_dealt;
    struct np_torch_rng *rng = &dealer->rngs[k % (uint64_t)nr_rngs(dealer)];
    struct np_dealt none = {0};

    *ret_before = *rng;
    dealer->unanswered = false;
    for (int r = 0; r < rows_of(dealer, k); r++)
        deal_row(
            dealer, rng, k * (uint64_t)batch_rows(dealer) + (uint64_t)r, rows ? &rows[r] : &none);
    if (dealer->unanswered) {
        *rng = *ret_before;
        return np_err_set(err, -ECANCELED, "the program's exp() or log() failed");
    }
    dealer->nr_dealt++;
    return 0;
}

static int deal_batch(struct np_dealer *dealer, struct np_err *err)
{
    const uint64_t seq = dealer->next_seq;
    struct dealt_batch *batch = at(dealer, seq);
    struct np_dealt *rows =
        &dealer->rows[seq % (uint64_t)dealer->nr_batches * (uint64_t)batch_rows(dealer)];

    batch->is_void = false;
    batch->rows = rows_of(dealer, dealer->nr_dealt);
    for (int r = batch->rows; r < batch_rows(dealer); r++)
        rows[r].sample = UINT64_MAX;
    if (draw_batch(dealer, rows, &batch->before, err) < 0)
        return err->code;
    dealer->next_seq++;
    return 0;
}

int np_dealer_deal(struct np_dealer *dealer, struct np_ring *ring, struct np_err *err)
{
    const uint64_t taken = dealer->loader->taken, length = dealer->loader->length;

    if (!dealer->deal.workers && !dealer->seeded)
        return np_err_set(err, -EINVAL, "nnp_deal_state() must be called first");
    while (dealer->nr_dealt < length && dealer->nr_dealt < taken + (uint64_t)dealer->ahead &&
           dealer->next_seq < dealer->first_ready + (uint64_t)dealer->nr_batches) {
        if (deal_batch(dealer, err) < 0)
            return err->code;
        np_ring_open(ring, dealer->next_seq - 1);
    }
    return 0;
}

uint64_t np_dealer_start(struct np_dealer *dealer)
{
    return dealer->first_ready = dealer->next_seq;
}

bool np_dealer_took(struct np_dealer *dealer, uint64_t seq)
{
    dealer->first_ready = seq + 1;
    return !at(dealer, seq)->is_void;
}

/* Drops all batches in the ring, and sets the generators as they were before batch `end` of the
 * epoch, if that was dealt. */
static void drop(struct np_dealer *dealer, uint64_t end)
{
    for (uint64_t seq = dealer->first_ready; seq < dealer->next_seq; seq++)
        at(dealer, seq)->is_void = true;
    for (uint64_t seq = dealer->next_seq; dealer->nr_dealt > end; dealer->nr_dealt--)
        dealer->rngs[(dealer->nr_dealt - 1) % (uint64_t)nr_rngs(dealer)] =
            at(dealer, --seq)->before;
}

/* Ends the epoch with the generators behind its batches before `skipped`, or behind those that the
 * program has taken. -ECANCELED: a further call goes on. */
static int end_epoch(struct np_dealer *dealer, uint64_t skipped, struct np_err *err)
{
    const uint64_t length = dealer->loader->length, taken = nr_taken(dealer);
    const uint64_t end = skipped < length ? skipped : length;
    struct np_torch_rng before;
    int code = 0;

    drop(dealer, end > taken ? end : taken);
    dealer->has_epoch = false;
    while (!code && dealer->nr_dealt < end)
        code = draw_batch(dealer, NULL, &before, err);
    return code;
}

/* --- what the program says ---------------------------------------------------------------------- */

/* NULL: -EINVAL: there is no such sample; -ENOMEM. */
static int64_t *copy_samples(
    const struct np_dealer *dealer, const int64_t *samples, uint64_t nr_samples, struct np_err *err)
{
    const uint64_t n = np_index_samples(dealer->loader->index);
    int64_t *copy = np_try_array(nr_samples, sizeof(*copy), err);

    for (uint64_t i = 0; copy && i < nr_samples; i++) {
        copy[i] = samples[i];
        if (copy[i] >= 0 && (uint64_t)copy[i] < n)
            continue;
        np_err_set(err, -EINVAL, "there is no sample %lld: the set has %llu", (long long)copy[i],
            (unsigned long long)n);
        np_free(copy);
        return NULL;
    }
    return copy;
}

static int deal_epoch(struct nnp_loader *loader, const int64_t *samples, uint64_t nr_samples,
    uint64_t base_seed, bool continues, uint64_t nr_skipped, struct np_err *err)
{
    struct np_dealer *dealer = loader->dealer;
    const uint64_t rows = (uint64_t)loader->shape.rows;
    const uint64_t length = (nr_samples + (loader->options.drop_last ? 0 : rows - 1)) / rows;
    int64_t *copy;
    int code;

    if (!dealer || !dealer->rngs)
        return np_err_set(err, -EINVAL, "nnp_deal() must be called first, with order=dealt");
    copy = copy_samples(dealer, samples, nr_samples, err);
    if (!copy)
        return err->code;
    if (loader->failed)
        np_lib_stop(loader);
    loader->failed = false;
    code = end_epoch(dealer, continues && dealer->deal.workers ? nr_skipped : 0, err);
    if (code) {
        np_free(copy);
        return code;
    }
    np_free(dealer->samples);
    dealer->samples = copy;
    dealer->nr_samples = nr_samples;
    dealer->nr_dealt = 0;
    if (dealer->deal.workers && !(continues && dealer->seeded))
        for (int w = 0; w < dealer->deal.workers; w++)
            np_torch_seed(&dealer->rngs[w], base_seed + (uint64_t)w);
    dealer->seeded = dealer->deal.workers > 0;
    dealer->has_epoch = true;
    loader->length = length;
    loader->taken = 0;
    return 0;
}

int nnp_deal(struct nnp_loader *loader, const struct nnp_deal *deal)
{
    struct np_dealer *dealer = loader->dealer;
    struct np_err err = {0};
    int code = 0;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    if (!dealer || dealer->rngs)
        code = np_err_set(&err, -EINVAL, "nnp_deal() is for order=dealt, and is called once");
    else if (deal->bytes < sizeof(*deal) || deal->workers < 0 || deal->workers > MAX_WORKERS ||
             deal->transforms_version < 1 || deal->transforms_version > 2 || !deal->exp ||
             !deal->log || !deal->probes)
        code = np_err_set(&err, -EINVAL, "nnp_deal(): a field has no such value");
    if (!code)
        code = find_rounding(dealer, deal->probes, &err);
    if (!code && deal->values)
        code = np_lib_format(loader, deal->values, &err);
    if (!code) {
        dealer->deal = *deal;
        dealer->deal.probes = dealer->deal.values = NULL;
        dealer->rngs = np_try_array((size_t)nr_rngs(dealer), sizeof(*dealer->rngs), &err);
        code = dealer->rngs ? 0 : -ENOMEM;
    }
    pthread_mutex_unlock(&loader->lock);
    return code < 0 ? np_lib_fail(loader, &err) : 0;
}

int nnp_deal_epoch(struct nnp_loader *loader, const int64_t *samples, uint64_t nr_samples,
    uint64_t base_seed, int continues, uint64_t nr_skipped)
{
    struct np_err err = {0};
    int code;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    code = deal_epoch(loader, samples, nr_samples, base_seed, continues != 0, nr_skipped, &err);
    pthread_mutex_unlock(&loader->lock);
    return code < 0 ? np_lib_fail(loader, &err) : 0;
}

/* --- the program's own generator ---------------------------------------------------------------- */

static bool has_programs_rng(const struct np_dealer *dealer)
{
    return dealer && dealer->rngs && dealer->deal.workers == 0;
}

static bool same(const struct np_torch_rng *a, const struct np_torch_rng *b)
{
    return a->next == b->next && memcmp(a->words, b->words, sizeof(a->words)) == 0;
}

/* The generator's state behind the draws of the batches before `taken`, as they were dealt. */
static const struct np_torch_rng *state_at(const struct np_dealer *dealer, uint64_t taken)
{
    return dealer->nr_dealt > taken
               ? &at(dealer, dealer->next_seq - (dealer->nr_dealt - taken))->before
               : &dealer->rngs[0];
}

static int wrong_state(size_t bytes, struct np_err *err)
{
    return np_err_set(err, -EINVAL,
        "the state of the generator has %zu bytes, or another form than torch 1.8 to 2.15 give it",
        bytes);
}

static int take_state(struct np_dealer *dealer, const void *state, size_t bytes, struct np_err *err)
{
    const uint64_t taken = nr_taken(dealer);
    struct np_torch_rng now;

    if (!np_torch_read(&now, state, bytes))
        return wrong_state(bytes, err);
    if (dealer->seeded && same(&now, state_at(dealer, taken))) {
        if (++dealer->nr_agreed >= AGREE && dealer->ahead < dealer->nr_batches) {
            dealer->ahead =
                2 * dealer->ahead < dealer->nr_batches ? 2 * dealer->ahead : dealer->nr_batches;
            dealer->nr_agreed = 0;
        }
        return 0;
    }
    if (dealer->nr_dealt > taken) { /* a guess was wrong: the program draws, too */
        drop(dealer, taken);
        dealer->ahead = 1;
        dealer->nr_agreed = 0;
    }
    dealer->rngs[0] = now;
    dealer->seeded = true;
    return 0;
}

int nnp_deal_state(struct nnp_loader *loader, const void *state, size_t bytes)
{
    struct np_dealer *dealer = loader->dealer;
    struct np_err err = {0};
    int code;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    if (!has_programs_rng(dealer))
        code = np_err_set(&err, -EINVAL, "nnp_deal_state() is for a dealt order without workers");
    else
        code = take_state(dealer, state, bytes, &err);
    pthread_mutex_unlock(&loader->lock);
    return code < 0 ? np_lib_fail(loader, &err) : 0;
}

int nnp_deal_after(struct nnp_loader *loader, void *state, size_t bytes)
{
    struct np_dealer *dealer = loader->dealer;
    struct np_torch_rng form;
    struct np_err err = {0};
    int code = 0;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    if (!has_programs_rng(dealer) || !dealer->seeded)
        code = np_err_set(&err, -EINVAL, "nnp_deal_after() follows nnp_deal_state()");
    else if (!np_torch_read(&form, state, bytes))
        code = wrong_state(bytes, &err);
    else
        np_torch_write(state_at(dealer, nr_taken(dealer)), state);
    pthread_mutex_unlock(&loader->lock);
    return code < 0 ? np_lib_fail(loader, &err) : 0;
}
