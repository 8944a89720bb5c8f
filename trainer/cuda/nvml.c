/* See nvml.h. Declares the calls itself: the header is not always installed, and they have not
 * changed for ten years. */
#include "trainer/cuda/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "loader/base/mem.h"

#define CLOCK_SM           1
#define CLOCK_MEMORY       2
#define ERRORS_UNCORRECTED 1
#define SINCE_LOADED       0

typedef int (*plain_fn)(void);
typedef int (*find_fn)(const char *pci_id, void **ret_device);
typedef int (*clock_fn)(void *device, unsigned which, unsigned *ret_mhz);
typedef int (*number_fn)(void *device, unsigned *ret_number);
typedef int (*ecc_fn)(void *device, unsigned *ret_now, unsigned *ret_pending);
typedef int (*errors_fn)(
    void *device, unsigned kind, unsigned counter, unsigned long long *ret_count);
typedef int (*reasons_fn)(void *device, unsigned long long *ret_reasons);

struct np_nvml {
    void *library, *device;
};

/* Missing functions are NULL, which callers check. */
#define FUNCTION(type, name)                                                                       \
    type name;                                                                                     \
    do {                                                                                           \
        void *address = dlsym(nvml->library, #name);                                               \
        memcpy(&name, &address, sizeof(name));                                                     \
    } while (0)

struct np_nvml *np_nvml_open(const char *pci_id)
{
    struct np_nvml *nvml = np_alloc(sizeof(*nvml));

    if (!nvml)
        return NULL;
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library) {
        FUNCTION(plain_fn, nvmlInit_v2);
        FUNCTION(find_fn, nvmlDeviceGetHandleByPciBusId_v2);
        if (nvmlInit_v2 && nvmlDeviceGetHandleByPciBusId_v2 && nvmlInit_v2() == 0 &&
            nvmlDeviceGetHandleByPciBusId_v2(pci_id, &nvml->device) == 0)
            return nvml;
    }
    np_nvml_close(nvml);
    return NULL;
}

void np_nvml_close(struct np_nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->device) {
        FUNCTION(plain_fn, nvmlShutdown);
        if (nvmlShutdown)
            nvmlShutdown();
    }
    if (nvml->library)
        dlclose(nvml->library);
    np_free(nvml);
}

static int clock_of(const struct np_nvml *nvml, clock_fn call, unsigned which)
{
    unsigned mhz = 0;

    return call && call(nvml->device, which, &mhz) == 0 ? (int)mhz : -1;
}

static int number_of(const struct np_nvml *nvml, number_fn call, unsigned scale)
{
    unsigned number = 0;

    return call && call(nvml->device, &number) == 0 ? (int)(number / scale) : -1;
}

static void read_ecc(const struct np_nvml *nvml, struct np_nvml_facts *facts)
{
    FUNCTION(ecc_fn, nvmlDeviceGetEccMode);
    FUNCTION(errors_fn, nvmlDeviceGetTotalEccErrors);
    unsigned now = 0, pending = 0;
    unsigned long long errors = 0;

    facts->ecc = facts->ecc_pending = -1;
    facts->ecc_errors = -1;
    if (nvmlDeviceGetEccMode && nvmlDeviceGetEccMode(nvml->device, &now, &pending) == 0) {
        facts->ecc = (int)now;
        facts->ecc_pending = (int)pending;
    }
    if (nvmlDeviceGetTotalEccErrors &&
        nvmlDeviceGetTotalEccErrors(nvml->device, ERRORS_UNCORRECTED, SINCE_LOADED, &errors) == 0)
        facts->ecc_errors = (long long)errors;
}

void np_nvml_read(const struct np_nvml *nvml, struct np_nvml_facts *ret_facts)
{
    FUNCTION(clock_fn, nvmlDeviceGetClockInfo);
    FUNCTION(clock_fn, nvmlDeviceGetMaxClockInfo);
    FUNCTION(number_fn, nvmlDeviceGetPowerUsage);
    FUNCTION(number_fn, nvmlDeviceGetEnforcedPowerLimit);
    FUNCTION(number_fn, nvmlDeviceGetPowerManagementDefaultLimit);
    FUNCTION(number_fn, nvmlDeviceGetPersistenceMode);
    FUNCTION(reasons_fn, nvmlDeviceGetCurrentClocksThrottleReasons);
    unsigned long long reasons = 0;

    ret_facts->sm_mhz = clock_of(nvml, nvmlDeviceGetClockInfo, CLOCK_SM);
    ret_facts->max_sm_mhz = clock_of(nvml, nvmlDeviceGetMaxClockInfo, CLOCK_SM);
    ret_facts->memory_mhz = clock_of(nvml, nvmlDeviceGetClockInfo, CLOCK_MEMORY);
    ret_facts->max_memory_mhz = clock_of(nvml, nvmlDeviceGetMaxClockInfo, CLOCK_MEMORY);
    ret_facts->watts = number_of(nvml, nvmlDeviceGetPowerUsage, 1000);
    ret_facts->watts_limit = number_of(nvml, nvmlDeviceGetEnforcedPowerLimit, 1000);
    ret_facts->watts_default = number_of(nvml, nvmlDeviceGetPowerManagementDefaultLimit, 1000);
    ret_facts->persistence = number_of(nvml, nvmlDeviceGetPersistenceMode, 1);
    ret_facts->slowed_reasons = -1;
    if (nvmlDeviceGetCurrentClocksThrottleReasons &&
        nvmlDeviceGetCurrentClocksThrottleReasons(nvml->device, &reasons) == 0)
        ret_facts->slowed_reasons = (long long)reasons;
    read_ecc(nvml, ret_facts);
}
