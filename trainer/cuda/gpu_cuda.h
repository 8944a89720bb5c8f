/* Finds and describes GPUs without opening them, and turns CUDA's errors into ours. Trainer
 * thread. */
#ifndef NP_GPU_CUDA_H
#define NP_GPU_CUDA_H

#include <cuda_runtime_api.h>

#include "trainer/device.h"

/* status -> err: "cuda:0: WHAT: cudaErrorName: its text"; 0 for cudaSuccess, -ENOMEM for lack of
 * memory, else -EIO. device may be NULL. */
int np_cuda_check(
    const struct np_device *device, cudaError_t status, const char *what, struct np_err *err);

/* Counts the GPUs. -ENODEV: no driver, too old a driver, no GPU; the message gives the reason and
 * what to install. */
int np_cuda_count(int *ret_n, struct np_err *err);

/* Checks that GPU `ordinal` of n can be used. -ENODEV: it cannot, and why; *ret_props is filled
 * if the GPU exists. */
int np_cuda_usable(int ordinal, int n, struct cudaDeviceProp *ret_props, struct np_err *err);

/* Reads a file of /sys/bus/pci/devices/: numa_node, max_link_width ...; false: it does not
 * exist. */
bool np_cuda_pci_file(int ordinal, const char *name, char *text, size_t text_bytes);
/* Returns the GPU's NUMA node; -1: none, or not known. */
int np_cuda_node(int ordinal);
/* "580.65.06", or "" if the kernel does not report it. */
void np_cuda_driver_text(char *text, size_t text_bytes);

#endif
