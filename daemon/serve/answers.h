/* Texts of `nnpipe serve`'s answers, and its counters. Called by the server's thread. */
#ifndef NP_ANSWERS_H
#define NP_ANSWERS_H

#include "daemon/serve/batcher.h"
#include "loader/base/json.h"

#define NP_NR_BUCKETS 13 /* of latencies; the last is without limit */

struct np_answers {
    struct np_json json;               /* the current text */
    uint64_t statuses[6];              /* answers by status / 100 */
    uint64_t latencies[NP_NR_BUCKETS]; /* pictures, from the end of the request to the result */
    double latency_sum_s;
    uint64_t pictures, batches_of; /* computed; the sum of their batches' rows */
};
void np_answers_fini(struct np_answers *answers);

/* JSON; valid until the next call. NULL: no memory. */
const char *np_answers_error(struct np_answers *answers, const char *code, const char *text);
/* As `nnpipe predict --json` prints it: label, class, probability, and the `top` classes; of a network
 * for several classes, too, `classes`; of one for numbers their values. Changes odds. */
const char *np_answers_prediction(
    struct np_answers *answers, const struct np_inference *net, double *odds, int top);
const char *np_answers_model(
    struct np_answers *answers, const struct np_inference *net, const char *weights);

void np_answers_count(struct np_answers *answers, unsigned status);
void np_answers_measure(struct np_answers *answers, const struct np_asked *asked);
/* In Prometheus' text format; np_free. waiting: pictures for a batch; held: requests. */
char *np_answers_prometheus(const struct np_answers *answers, int waiting, int held);

#endif
