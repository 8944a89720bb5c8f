/* How a config computes on this box: threads, precision, and where a checkpoint keeps a device's own
 * state. Any thread. */
#ifndef NP_COMPUTE_H
#define NP_COMPUTE_H

#include "daemon/config/config.h"
#include "trainer/device.h"

int np_compute_threads(const struct np_config *config); /* `auto` decided */
/* The config's, or the device's own. */
enum np_dtype np_compute_precision(const struct np_config *config, const struct np_device *device);
extern const char *const np_precision_names[]; /* by enum np_dtype; NULL ends them */
bool np_precision_find(const char *name, enum np_dtype *ret_precision);

/* The facts' key for what a device wants to find again: a run that continues on a device of the other
 * kind keeps both. */
enum np_state_kind { NP_STATE_GPU, NP_STATE_CPU, NP_NR_STATE_KINDS };
extern const char *const np_state_keys[NP_NR_STATE_KINDS];
enum np_state_kind np_state_kind(const struct np_device *device);

#endif
