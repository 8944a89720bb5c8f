/* `nnpipe doctor` for a GPU: compares the rates of bus, memory and clock with the possible ones.
 * Main thread. */
#ifndef NP_DOCTOR_CUDA_H
#define NP_DOCTOR_CUDA_H

#include "trainer/device.h"

/* As np_plugin.doctor. */
int np_cuda_doctor(int ordinal, np_found_fn found, void *context, struct np_err *err);

#endif
