/* `nnpipe selftest`: compares a device with the reference on small networks, and in a short
 * training. The device is used only through its tables, so any device can be tested. The
 * reference is the CPU's reference kernels in f32; for updates, the formulas of optim.c on the
 * device's own gradients. Main thread. */
#ifndef NP_SELFTEST_H
#define NP_SELFTEST_H

#include "trainer/device.h"
#include "trainer/selftest/selftest_cases.h"

/* The numbers that are compared for each network. */
enum np_selftest_number {
    NP_SELF_LOGITS, /* of a training step */
    NP_SELF_LOSS,
    NP_SELF_COUNTS,  /* rows, correct, top-5: rows that differ from the device's own logits */
    NP_SELF_GRADS,   /* of the worst tensor */
    NP_SELF_SUM,     /* gradients summed over two batches */
    NP_SELF_RUNNING, /* running statistics after two batches */
    NP_SELF_EVAL,    /* logits of an evaluation */
    NP_SELF_NORM,    /* of the gradients, before clipping */
    NP_SELF_SGD,     /* weights and state: clipped, accumulated, then a second update */
    NP_SELF_ADAMW,
    NP_SELF_ADAPTIVE, /* adam, nadam, rmsprop, lamb or muon, by the draw */
    NP_SELF_AGAIN,    /* elements whose bits differ when the same steps run a second time */
    NP_SELF_CURVE,    /* loss of a short training against the CPU device's */
    NP_SELF_LEARNT,   /* its last losses, as a share of its first */
    NP_SELF_NR
};
extern const struct np_selftest_tolerance {
    const char *name;
    double f32, bf16, f16; /* tolerance of its error */
} np_selftest_numbers[NP_SELF_NR];

struct np_selftest_result {
    bool ok;
    int worst;                    /* enum np_selftest_number: largest error / tolerance */
    double error[NP_SELF_NR];     /* ||device - reference|| / ||reference||, but for counts */
    double tolerance[NP_SELF_NR]; /* negative: not compared */
    char tensor[64];              /* whose gradient is the worst */
    int draws;                    /* of weights and pixels; more than one: see below */
};

/* Tests one network in one precision; `cpu` computes the reference. Blocks until done.
 *
 * A weight or pixel within rounding of a kink (relu, max pooling) may move to the kink's other
 * side, and then no tolerance is meaningful. So when a number exceeds its tolerance, the reference
 * runs again with its weights moved by at least 16 times the precision's rounding. If the reference
 * itself then changes by at least a quarter of the error, the draw is void and another is made;
 * otherwise the device is wrong. Eight void draws are a failure: rounding exceeds a tolerance now
 * and then, a fault each time.
 *
 * A case that trains: sixty steps on random pictures against the CPU device in f32 (its reference
 * kernels when `device` is a CPU itself), then the same again: equal weights, bit for bit.
 *
 * Returns 0 with *ret_result filled, passed or not; an error comes from the device (out of memory,
 * a call that failed). */
int np_selftest_run(struct np_device *device, struct np_device *cpu,
    const struct np_selftest_case *the_case, enum np_dtype precision, uint64_t seed,
    struct np_selftest_result *ret_result, struct np_err *err);

#endif
