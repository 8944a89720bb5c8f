/* The driver's management library, as far as `nnpipe doctor` needs it: clocks, ECC, persistence.
 * Loaded at run time if present; it comes with the driver. Main thread. */
#ifndef NP_NVML_H
#define NP_NVML_H

#include <stdbool.h>

struct np_nvml_facts { /* -1: not reported */
    int sm_mhz, max_sm_mhz, memory_mhz, max_memory_mhz;
    int watts, watts_limit, watts_default;
    int ecc, ecc_pending;     /* 0 off, 1 on */
    long long ecc_errors;     /* uncorrected, since the driver was loaded */
    int persistence;          /* 0 off, 1 on */
    long long slowed_reasons; /* bits of why clocks are lower: NP_NVML_* */
};
#define NP_NVML_POWER_CAP   0x04ll
#define NP_NVML_HW_SLOWDOWN 0x08ll
#define NP_NVML_THERMAL     0x60ll /* by software or hardware */
#define NP_NVML_POWER_BRAKE 0x80ll

struct np_nvml;
/* pci_id: "0000:3B:00.0". NULL: the library is missing, or does not know the GPU. */
struct np_nvml *np_nvml_open(const char *pci_id);
void np_nvml_close(struct np_nvml *nvml);
/* Reads the current state: clocks rise under load. */
void np_nvml_read(const struct np_nvml *nvml, struct np_nvml_facts *ret_facts);

#endif
