/* Holds a device against the reference on a small network, and on a short training: `nnpipe
 * selftest`. The device is used through its tables alone, so that any device can be asked. The truth is
 * the CPU's reference kernels in f32; of the updates, the formulas of optim.c on the device's own
 * gradients. Main thread. */
#ifndef NP_SELFTEST_H
#define NP_SELFTEST_H

#include "trainer/device.h"
#include "trainer/graph/graph.h"

/* What is looked at, of each network. */
enum np_selftest_number {
    NP_SELF_LOGITS, /* of a training step */
    NP_SELF_LOSS,
    NP_SELF_COUNTS,  /* rows, correct and top-5 against the device's own logits: rows off */
    NP_SELF_GRADS,   /* the worst tensor's */
    NP_SELF_SUM,     /* gradients summed over two batches */
    NP_SELF_RUNNING, /* running statistics after two batches */
    NP_SELF_EVAL,    /* logits of an evaluation */
    NP_SELF_NORM,    /* of the gradients, before clipping */
    NP_SELF_SGD,     /* weights and state: clipped, accumulated, then a second update */
    NP_SELF_ADAMW,
    NP_SELF_AGAIN,  /* gradients of the same step once more: elements with other bits */
    NP_SELF_CURVE,  /* loss of a short training against the CPU device's */
    NP_SELF_LEARNT, /* its last losses, as a share of its first */
    NP_SELF_NR
};
extern const char *const np_selftest_numbers[NP_SELF_NR];

struct np_selftest_case {
    const struct np_node *model, *blocks, *loss; /* as in a config; blocks, loss: or NULL */
    int batch, height, width, channels, classes;
    int nr_masked; /* rows at the end without a label */
    bool fast;     /* large: against the CPU device's own kernels instead of the reference's */
    double loose, loose_f32; /* at least so many times the tolerance, for a deep network; 0: 1 */
};

struct np_selftest_result {
    bool ok;
    int worst;                    /* enum np_selftest_number: largest error / tolerance */
    double error[NP_SELF_NR];     /* ||device - reference|| / ||reference||, counts aside */
    double tolerance[NP_SELF_NR]; /* negative: not looked at */
    char tensor[64];              /* whose gradient is the worst */
    int draws;                    /* of weights and pixels; more than one: see np_selftest_run() */
};

/* One network. `cpu` gives the reference. A weight or pixel within rounding of a kink (relu, max
 * pooling) may come out on its other side, and then no tolerance says anything. So where a number is
 * off, the reference is run with its weights moved by at least 16 times the precision's rounding. If
 * it then moves by a quarter as much itself, the draw is void and another is made; else the device is
 * wrong. Eight void draws are a failure: rounding misses a tolerance now and then, a fault each time.
 * Returns 0 with *ret_result filled, good or not; an error is the device's (out of memory, a call
 * that failed). */
int np_selftest_run(struct np_device *device, struct np_device *cpu,
    const struct np_selftest_case *the_case, enum np_dtype precision, uint64_t seed,
    struct np_selftest_result *ret_result, struct np_err *err);

/* Sixty steps on drawn pictures against the CPU device in f32 (the reference kernels where `device`
 * is a CPU itself), then the same again: equal weights, bit for bit. */
int np_selftest_train(struct np_device *device, struct np_device *cpu,
    const struct np_selftest_case *the_case, enum np_dtype precision, uint64_t seed,
    struct np_selftest_result *ret_result, struct np_err *err);

#endif
