/* One device with one network on it, as the self-test drives it. Internal to selftest*.c. */
#ifndef NP_SELFTEST_SIDE_H
#define NP_SELFTEST_SIDE_H

#include "trainer/selftest/selftest.h"

struct np_self_batch {
    uint8_t *images; /* on the host */
    int32_t *labels;
    void *device_images, *device_labels; /* where the device reads them */
    int nr_valid;
};

#define NP_SELF_BATCHES 2

struct np_self_side {
    struct np_device *device;
    struct np_graph *train, *eval;
    struct np_plan *plan;
    struct np_self_batch batches[NP_SELF_BATCHES];
};

/* What one forward and backward gives. */
struct np_self_numbers {
    float *logits, *grads, *sum, *running, *eval_logits; /* sum, running: after both batches */
    float *block;                                        /* holds them all; np_free */
    struct np_metrics step, eval;
};

/* Builds graph and plan; batches are filled by np_self_draw(). Closed in any case. */
int np_self_open(struct np_self_side *side, struct np_device *device,
    const struct np_selftest_case *the_case, enum np_dtype precision, bool reference,
    struct np_err *err);
void np_self_close(struct np_self_side *side);

/* Pixels and labels of batch `at`, put where the device reads them. */
int np_self_load(struct np_self_side *side, int at, const uint8_t *images, const int32_t *labels,
    struct np_err *err);
/* Forward and backward of batch `at`, gradients of its mean loss. */
int np_self_step(
    struct np_self_side *side, int at, uint64_t step, bool accumulate, struct np_err *err);
/* The same and an update, at once where the device can. */
int np_self_step_update(struct np_self_side *side, int at, uint64_t step,
    const struct np_hyper *hyper, struct np_err *err);
/* Weights and buffers into the plan, optimizer state zeroed. */
int np_self_write(struct np_self_side *side, const float *params, const float *buffers,
    bool second_state, struct np_err *err);

int np_self_measure(struct np_self_side *side, const float *params, const float *buffers,
    uint64_t step, struct np_self_numbers *ret_numbers, struct np_err *err);

/* One block for arrays of so many floats each, zeroed; ret_arrays point into it. NULL: out of memory. */
float *np_self_arrays(const uint64_t *sizes, int n, float **const *ret_arrays, struct np_err *err);

/* Of a number in a precision. nr_kinks: how many layers of the network are relu or max pooling. */
double np_self_tolerance(enum np_dtype precision, int nr_kinks, int number);
/* ||a - b|| / max(||b||, least); infinite where a is no number. */
double np_self_error(const float *a, const float *b, uint64_t n, double least);
double np_self_norm(const float *a, uint64_t n);

/* selftest_optim.c: both optimizers against optim.c. Fills NORM, SGD and ADAMW of error. */
int np_self_optimizers(struct np_self_side *side, const float *params, const float *buffers,
    uint64_t step, double error[NP_SELF_NR], struct np_err *err);
/* A float16 plan lowers its loss scale until nothing overflows: updates that move nothing. */
int np_self_settle(
    struct np_self_side *side, const float *params, const float *buffers, struct np_err *err);

#endif
