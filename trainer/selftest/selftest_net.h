/* A device with a network, as the self-test drives it: opens both, uploads batches, queues steps,
 * reads arrays, and trains on drawn pictures. Functions return false with net->err filled.
 * Main thread. */
#ifndef NP_SELFTEST_NET_H
#define NP_SELFTEST_NET_H

#include "trainer/plan.h"
#include "trainer/selftest/selftest_cases.h"

#define NP_NET_BATCHES 2
#define NP_NET_STEPS   60 /* of the short training */

struct np_net_batch {
    uint8_t *images; /* on the host */
    int32_t *labels;
    void *device_images, *device_labels; /* where the device reads them */
    int nr_valid;                        /* set by np_net_upload() */
};

struct np_net {
    struct np_device *device;
    const struct np_plan_ops *ops;
    const struct np_selftest_case *the_case;
    struct np_graph *train, *eval;
    struct np_plan *plan;
    struct np_net_batch batches[NP_NET_BATCHES];
    size_t rows, row_bytes;
    float *zeros; /* (nr_params) */
    struct np_err *err;
};

/* Call np_net_close() also after a failure. reference: with the CPU's reference kernels. */
bool np_net_open(struct np_net *net, struct np_device *device,
    const struct np_selftest_case *the_case, enum np_dtype precision, bool reference,
    struct np_err *err);
void np_net_close(struct np_net *net);
/* Copies a batch's pixels and labels to where the device reads them. */
bool np_net_upload(struct np_net *net, struct np_net_batch *batch);
/* Writes initial weights and buffers, and a zeroed optimizer state. */
bool np_net_start(struct np_net *net, const float *params, const float *buffers, bool second_state);
/* The same, then lowers a float16 plan's loss scale until nothing overflows, with updates that
 * change no weight. */
bool np_net_settle(struct np_net *net, const float *params, const float *buffers);
/* Forward and backward of batch `at`, gradients of its mean loss. */
bool np_net_step(struct np_net *net, int at, uint64_t number, bool accumulate);
/* The same and an update, queued together where the device can. */
bool np_net_step_update(struct np_net *net, int at, uint64_t number, const struct np_hyper *hyper);
bool np_net_read(struct np_net *net, int array, float *to);
bool np_net_metrics(struct np_net *net, bool but_last, struct np_metrics *ret_metrics);
/* The short training, from fresh weights. *ret_params: np_free, also after a failure. */
bool np_net_train(
    struct np_net *net, uint64_t seed, float losses[NP_NET_STEPS], float **ret_params);

#endif
