/* How a config computes on this machine: threads, precision, graphs, and the checkpoint key of a
 * device's own state. Any thread. */
#ifndef NP_COMPUTE_H
#define NP_COMPUTE_H

#include "daemon/cmd.h"
#include "daemon/config/setup.h"
#include "trainer/device.h"

int np_compute_threads(const struct np_config *config); /* auto: the CPUs of this process */
/* The config's precision, or the device's default. */
enum np_dtype np_compute_precision(const struct np_config *config, const struct np_device *device);
extern const char *const np_precision_names[]; /* by enum np_dtype; NULL at the end */
/* By its name; false: there is no such precision. */
bool np_precision_find(const char *name, enum np_dtype *ret_precision);
/* Builds both graphs of setup. -ENOEXEC: the model has mistakes, which it prints. */
int np_compute_graph(const struct np_config *config, enum np_dtype precision,
    const struct np_overrides *overrides, struct np_setup *setup, struct np_err *err);

/* Copies a batch to the device and waits. *memory: NULL at first; receives device memory, or
 * host if the device reads that itself; np_compute_free(). The labels of a batch begin at the
 * next multiple of NP_LABELS_AT after its images. Trainer thread. */
#define NP_LABELS_AT 256
int np_compute_copy(
    struct np_device *device, void *host, size_t bytes, void **memory, struct np_err *err);
void np_compute_free(struct np_device *device, void *host, void *memory);

/* The key in the facts for a device's own state: a run that resumes on the other kind keeps
 * both. */
enum np_state_kind { NP_STATE_GPU, NP_STATE_CPU, NP_NR_STATE_KINDS };
extern const char *const np_state_keys[NP_NR_STATE_KINDS];
enum np_state_kind np_state_kind(const struct np_device *device);

#endif
