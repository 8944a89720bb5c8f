#include "daemon/serve/batcher.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/run/compute.h"
#include "daemon/run/evaluate.h"
#include "daemon/run/one_row.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "trainer/plan.h"

#define NR_BATCHES 2

struct batch {
    uint8_t *host;           /* rows, then labels */
    void *device;            /* np_compute_copy()'s */
    struct np_asked **asked; /* (max) by place: the order of arrival */
    int nr_claimed, nr_ready;
    uint64_t first_ns; /* its first picture was claimed */
};

struct decoder {
    struct np_batcher *batcher;
    struct np_one_row *maker;
    pthread_t thread;
    bool started;
};

struct np_batcher {
    struct np_batcher_options options;
    int max;   /* rows of a batch */
    int *rows; /* (max) place -> row: neighbours in time are on different lanes */
    size_t row_bytes, labels_at, batch_bytes;
    float *logits; /* (max, classes) */
    struct decoder *decoders;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t given; /* for decoders: a picture waits, or a batch has space */
    pthread_cond_t ready; /* for run(): a batch changed */
    struct np_asked *waiting, **waiting_end, *done, **done_end;
    int nr_waiting;
    struct batch batches[NR_BATCHES], *filling;
    bool stopped;
};

/* --- decoding ------------------------------------------------------------------------------- */

static int32_t *labels_of(const struct np_batcher *batcher, const struct batch *batch)
{
    return (int32_t *)(void *)(batch->host + batcher->labels_at);
}

/* Under the lock. NULL: nothing to decode, or no space. */
static struct np_asked *claim(struct np_batcher *batcher, struct batch **ret_batch, int *ret_place)
{
    struct batch *batch = batcher->filling;
    struct np_asked *asked = batcher->waiting;

    if (!asked || batch->nr_claimed == batcher->max)
        return NULL;
    batcher->waiting = asked->next;
    if (!asked->next)
        batcher->waiting_end = &batcher->waiting;
    batcher->nr_waiting--;
    if (batch->nr_claimed == 0)
        batch->first_ns = np_now_ns();
    *ret_place = batch->nr_claimed++;
    batch->asked[*ret_place] = asked;
    *ret_batch = batch;
    pthread_cond_signal(&batcher->ready);
    return asked;
}

static void *decode_main(void *context)
{
    struct decoder *decoder = context;
    struct np_batcher *batcher = decoder->batcher;
    struct np_asked *asked;
    struct batch *batch;
    int place;

    pthread_mutex_lock(&batcher->lock);
    for (;;) {
        while (
            !(asked = claim(batcher, &batch, &place)) && !(batcher->stopped && !batcher->waiting))
            pthread_cond_wait(&batcher->given, &batcher->lock);
        if (!asked)
            break;
        pthread_mutex_unlock(&batcher->lock);
        const int row = batcher->rows[place];
        const int code = np_one_row_make(decoder->maker, asked->bytes, asked->nr_bytes,
            batch->host + (size_t)row * batcher->row_bytes, &asked->err);
        labels_of(batcher, batch)[row] = code < 0 ? -1 : 0; /* any label: it is computed */
        pthread_mutex_lock(&batcher->lock);
        batch->nr_ready++;
        pthread_cond_signal(&batcher->ready);
    }
    pthread_mutex_unlock(&batcher->lock);
    return NULL;
}

/* --- computing ------------------------------------------------------------------------------ */

/* Under the lock. Waits for a batch that should start, closes it, waits for its rows. NULL: stopped,
 * and nothing is left. */
static struct batch *next_batch(struct np_batcher *batcher)
{
    struct batch *batch = batcher->filling;

    while (batch->nr_claimed < batcher->max) {
        const uint64_t until = batch->first_ns + batcher->options.max_delay_ns;
        const struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

        if (batch->nr_claimed == 0) {
            if (batcher->stopped && !batcher->waiting)
                return NULL;
            pthread_cond_wait(&batcher->ready, &batcher->lock);
        } else if (np_now_ns() >= until || batcher->stopped) {
            break;
        } else {
            pthread_cond_timedwait(&batcher->ready, &batcher->lock, &time);
        }
    }
    batcher->filling = batch == &batcher->batches[0] ? &batcher->batches[1] : &batcher->batches[0];
    pthread_cond_broadcast(&batcher->given);
    while (batch->nr_ready < batch->nr_claimed)
        pthread_cond_wait(&batcher->ready, &batcher->lock);
    return batch;
}

static int compute(struct np_batcher *batcher, struct batch *batch, struct np_err *err)
{
    struct np_inference *net = batcher->options.net;
    const struct np_plan_ops *ops = net->device->plan_ops;
    struct np_metrics metrics;
    int code;

    for (int place = batch->nr_claimed; place < batcher->max; place++)
        labels_of(batcher, batch)[batcher->rows[place]] = -1;
    code = np_compute_copy(net->device, batch->host, batcher->batch_bytes, &batch->device, err);
    if (code == 0)
        code =
            ops->eval(net->plan, batch->device, (uint8_t *)batch->device + batcher->labels_at, err);
    if (code == 0)
        code = ops->metrics(net->plan, false, &metrics, err);
    return code < 0 ? code : ops->logits(net->plan, batcher->logits, err);
}

/* A picture that is bad by itself keeps its own error. */
static void blame(struct np_asked *asked, const struct np_err *failed)
{
    if (asked->err.code)
        return;
    asked->err = *failed;
    asked->err.code = -EIO;
}

static void answer(struct np_batcher *batcher, struct batch *batch, const struct np_err *failed)
{
    const struct np_node *classes = batcher->options.net->setup.sets.classes;

    for (int place = 0; place < batch->nr_claimed; place++) {
        struct np_asked *asked = batch->asked[place];
        const float *logits = batcher->logits + batcher->rows[place] * classes->nr_items;

        asked->batch_rows = batch->nr_claimed;
        if (failed->code)
            blame(asked, failed);
        if (asked->err.code < 0 || np_outputs_check(logits, classes, &asked->err) < 0)
            continue;
        if (batcher->options.net->config->data.train.label_type != NP_LABEL_VALUE)
            np_odds(logits, classes->nr_items,
                np_graph_has_sigmoids(batcher->options.net->setup.eval_graph), asked->odds);
        for (int c = 0; c < classes->nr_items; c++)
            if (batcher->options.net->config->data.train.label_type == NP_LABEL_VALUE)
                asked->odds[c] = (double)logits[c];
    }
}

/* Under the lock. */
static void give_back(struct np_batcher *batcher, struct np_asked *asked, uint64_t now_ns)
{
    asked->done_ns = now_ns;
    asked->next = NULL;
    *batcher->done_end = asked;
    batcher->done_end = &asked->next;
}

static void tell(const struct np_batcher *batcher)
{
    const uint64_t one = 1;

    if (write(batcher->options.done_fd, &one, sizeof(one)) < 0) /* it is readable already */
        return;
}

/* Under the lock. */
static void finish(struct np_batcher *batcher, struct batch *batch)
{
    const uint64_t now = np_now_ns();

    for (int place = 0; place < batch->nr_claimed; place++)
        give_back(batcher, batch->asked[place], now);
    batch->nr_claimed = batch->nr_ready = 0;
    tell(batcher);
}

/* Under the lock. Nobody computes any more: all pictures get the error, those of batches once they
 * are decoded. The queue is empty before a decoder can see that the batcher has stopped: with a full
 * batch it would wait for space for ever. */
static void fail_all(struct np_batcher *batcher, const struct np_err *failed)
{
    struct np_asked *asked, *next;

    for (asked = batcher->waiting; asked; asked = next) {
        next = asked->next;
        blame(asked, failed);
        give_back(batcher, asked, np_now_ns());
    }
    batcher->waiting = NULL;
    batcher->waiting_end = &batcher->waiting;
    batcher->nr_waiting = 0;
    tell(batcher);
    for (int i = 0; i < NR_BATCHES; i++) {
        struct batch *batch = &batcher->batches[i];

        while (batch->nr_ready < batch->nr_claimed)
            pthread_cond_wait(&batcher->ready, &batcher->lock);
        answer(batcher, batch, failed);
        finish(batcher, batch);
    }
}

int np_batcher_run(struct np_batcher *batcher, struct np_err *err)
{
    struct batch *batch;

    pthread_mutex_lock(&batcher->lock);
    while (!err->code && (batch = next_batch(batcher))) {
        pthread_mutex_unlock(&batcher->lock);
        compute(batcher, batch, err);
        answer(batcher, batch, err);
        pthread_mutex_lock(&batcher->lock);
        finish(batcher, batch);
    }
    batcher->stopped = true;
    if (err->code)
        fail_all(batcher, err);
    pthread_mutex_unlock(&batcher->lock);
    return err->code;
}

/* --- callers -------------------------------------------------------------------------------- */

bool np_batcher_give(struct np_batcher *batcher, struct np_asked *asked)
{
    asked->given_ns = np_now_ns();
    asked->next = NULL;
    pthread_mutex_lock(&batcher->lock);
    const bool is_taken = !batcher->stopped && batcher->nr_waiting < batcher->options.max_waiting;
    if (is_taken) {
        *batcher->waiting_end = asked;
        batcher->waiting_end = &asked->next;
        batcher->nr_waiting++;
        pthread_cond_signal(&batcher->given);
    }
    pthread_mutex_unlock(&batcher->lock);
    return is_taken;
}

struct np_asked *np_batcher_take(struct np_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    struct np_asked *asked = batcher->done;
    if (asked && !(batcher->done = asked->next))
        batcher->done_end = &batcher->done;
    pthread_mutex_unlock(&batcher->lock);
    return asked;
}

int np_batcher_waiting(struct np_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    const int nr = batcher->nr_waiting;
    pthread_mutex_unlock(&batcher->lock);
    return nr;
}

void np_batcher_stop(struct np_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->stopped = true;
    pthread_cond_broadcast(&batcher->given);
    pthread_cond_signal(&batcher->ready);
    pthread_mutex_unlock(&batcher->lock);
}

/* --- open and close ------------------------------------------------------------------------- */

static void order_rows(struct np_batcher *batcher, int nr_lanes)
{
    int place = 0;

    for (int k = 0; place < batcher->max; k++)
        for (int lane = 0; lane < nr_lanes; lane++) {
            const int row = np_lane_start(batcher->max, nr_lanes, lane) + k;

            if (row < np_lane_start(batcher->max, nr_lanes, lane + 1))
                batcher->rows[place++] = row;
        }
}

static int open_memory(struct np_batcher *batcher, struct np_err *err)
{
    const struct np_inference *net = batcher->options.net;
    const size_t max = (size_t)batcher->max;
    bool all = true;

    batcher->row_bytes = np_one_row_bytes(net);
    batcher->labels_at =
        (max * batcher->row_bytes + NP_LABELS_AT - 1) / NP_LABELS_AT * NP_LABELS_AT;
    batcher->batch_bytes =
        batcher->labels_at + max * (1 + (size_t)net->setup.eval_graph->values) * sizeof(int32_t);
    for (int i = 0; i < NR_BATCHES; i++) {
        all &= (batcher->batches[i].host = np_try_alloc(batcher->batch_bytes, err)) != NULL;
        all &= (batcher->batches[i].asked = np_try_array(max, sizeof(void *), err)) != NULL;
    }
    all &= (batcher->rows = np_try_array(max, sizeof(int), err)) != NULL;
    all &= (batcher->logits = np_try_array(
                max * (size_t)net->setup.sets.classes->nr_items, sizeof(float), err)) != NULL;
    return all ? 0 : -ENOMEM;
}

static int start_decoders(struct np_batcher *batcher, struct np_err *err)
{
    int code = 0;

    for (int i = 0; i < batcher->options.nr_decoders && code == 0; i++) {
        struct decoder *decoder = &batcher->decoders[i];

        decoder->batcher = batcher;
        code = np_one_row_new(batcher->options.net, &decoder->maker, err);
        if (code == 0 && (code = -pthread_create(&decoder->thread, NULL, decode_main, decoder)) < 0)
            np_err_set(err, code, "a decoding thread: %s", strerror(-code));
        decoder->started = code == 0;
    }
    return code;
}

int np_batcher_open(
    const struct np_batcher_options *options, struct np_batcher **ret_batcher, struct np_err *err)
{
    struct np_batcher *batcher = np_alloc(sizeof(*batcher));
    pthread_condattr_t monotonic; /* as np_now_ns() */

    batcher->options = *options;
    batcher->max = options->net->setup.eval_graph->batch;
    batcher->waiting_end = &batcher->waiting;
    batcher->done_end = &batcher->done;
    batcher->filling = &batcher->batches[0];
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&batcher->lock, NULL);
    pthread_cond_init(&batcher->given, NULL);
    pthread_cond_init(&batcher->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    batcher->decoders = np_alloc_array((size_t)options->nr_decoders, sizeof(struct decoder));
    int code = open_memory(batcher, err);
    if (code == 0)
        order_rows(batcher, options->net->lanes);
    if (code == 0)
        code = start_decoders(batcher, err);
    if (code < 0)
        np_batcher_close(batcher);
    else
        *ret_batcher = batcher;
    return code;
}

void np_batcher_close(struct np_batcher *batcher)
{
    if (!batcher)
        return;
    pthread_mutex_lock(&batcher->lock);
    batcher->waiting = NULL; /* before the stop: a decoder waits until it sees both */
    pthread_mutex_unlock(&batcher->lock);
    np_batcher_stop(batcher);
    for (int i = 0; i < batcher->options.nr_decoders; i++) {
        if (batcher->decoders[i].started)
            pthread_join(batcher->decoders[i].thread, NULL);
        np_one_row_free(batcher->decoders[i].maker);
    }
    for (int i = 0; i < NR_BATCHES; i++) {
        struct batch *batch = &batcher->batches[i];

        np_compute_free(batcher->options.net->device, batch->host, batch->device);
        np_free(batch->asked);
    }
    pthread_cond_destroy(&batcher->given);
    pthread_cond_destroy(&batcher->ready);
    pthread_mutex_destroy(&batcher->lock);
    np_free(batcher->rows);
    np_free(batcher->logits);
    np_free(batcher->decoders);
    np_free(batcher);
}
