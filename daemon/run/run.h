/* One run: opens loader, trainer and device, trains until it is finished or stopped, closes
 * everything. Only here does the loader meet the device. Main thread. run_parts.h lists the
 * files of this module. */
#ifndef NP_RUN_H
#define NP_RUN_H

#include "daemon/run/run_options.h"

struct np_config;
int np_run_train(struct np_config *config, const struct np_run_options *options); /* exit code */

#endif
