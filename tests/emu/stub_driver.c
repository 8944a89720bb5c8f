/* libcuda.so.1 for machines without a GPU: modules and kernels can be loaded, into nothing, and
 * everything else fails with "no device". cuDNN asks no more of a driver to compile a plan for a
 * GPU that is only described, so that its engines compiled at run time can be had, checked and
 * refused with their own messages without a GPU. Nothing can run. */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NO_DEVICE = 100, NOT_FOUND = 500 };

static char nothing[4096]; /* what handles point at */

#define LOADS(name, ...)                                                                           \
    int name(void **out, ##__VA_ARGS__);                                                           \
    int name(void **out, ##__VA_ARGS__)                                                            \
    {                                                                                              \
        *out = nothing;                                                                            \
        return OK;                                                                                 \
    }
#define ACCEPTS(name)                                                                              \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return OK;                                                                                 \
    }
#define REFUSES(name)                                                                              \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return NO_DEVICE;                                                                          \
    }

LOADS(cuLibraryLoadData)
LOADS(cuLibraryLoadFromFile)
LOADS(cuLibraryGetKernel)
LOADS(cuLibraryGetModule)
LOADS(cuLibraryGetUnifiedFunction)
LOADS(cuModuleLoad)
LOADS(cuModuleLoadData)
LOADS(cuModuleLoadDataEx)
LOADS(cuModuleLoadFatBinary)
LOADS(cuModuleGetFunction)
LOADS(cuKernelGetFunction)
LOADS(cuKernelGetLibrary)
LOADS(cuFuncGetModule)
ACCEPTS(cuLibraryUnload)
ACCEPTS(cuModuleUnload)
ACCEPTS(cuKernelSetAttribute)
ACCEPTS(cuKernelSetCacheConfig)
ACCEPTS(cuFuncSetAttribute)
ACCEPTS(cuFuncSetCacheConfig)
ACCEPTS(cuFuncLoad)
REFUSES(cuDeviceGet)
REFUSES(cuDeviceGetAttribute)
REFUSES(cuDeviceGetName)
REFUSES(cuDeviceTotalMem_v2)
REFUSES(cuCtxGetCurrent)
REFUSES(cuCtxSetCurrent)
REFUSES(cuCtxGetDevice)
REFUSES(cuDevicePrimaryCtxRetain)
REFUSES(cuMemAlloc_v2)
REFUSES(cuMemcpyHtoDAsync_v2)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPushCurrent)
REFUSES(cuStreamGetCtx)
REFUSES(cuLinkCreate)
REFUSES(cuLinkAddData)
REFUSES(cuLinkComplete)
REFUSES(cuLinkDestroy)
REFUSES(cuOccupancyMaxPotentialClusterSize)

int cuLibraryGetGlobal(void **out, size_t *bytes, void *library, const char *name);
int cuLibraryGetGlobal(void **out, size_t *bytes, void *library, const char *name)
{
    (void)library;
    (void)name;
    *out = nothing;
    *bytes = sizeof(nothing);
    return OK;
}

static int attribute(int *out)
{
    *out = 0;
    return OK;
}

int cuKernelGetAttribute(int *out, int which, void *kernel, int device);
int cuKernelGetAttribute(int *out, int which, void *kernel, int device)
{
    (void)which;
    (void)kernel;
    (void)device;
    return attribute(out);
}

int cuFuncGetAttribute(int *out, int which, void *function);
int cuFuncGetAttribute(int *out, int which, void *function)
{
    (void)which;
    (void)function;
    return attribute(out);
}

/* "1": it reports this many GPUs, for callers that need only the count. */
static int nr_gpus(void)
{
    const char *count = getenv("NNPIPE_STUB_GPUS");

    return count ? atoi(count) : 0;
}

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return nr_gpus() > 0 ? OK : NO_DEVICE;
}

int cuDeviceGetCount(int *out);
int cuDeviceGetCount(int *out)
{
    *out = nr_gpus();
    return nr_gpus() > 0 ? OK : NO_DEVICE;
}

int cuDriverGetVersion(int *out);
int cuDriverGetVersion(int *out)
{
    const char *version = getenv("NNPIPE_STUB_CUDA"); /* "12040": a driver for CUDA 12.4 */

    *out = version ? atoi(version) : 13000;
    return OK;
}

int cuGetErrorString(int error, const char **out);
int cuGetErrorString(int error, const char **out)
{
    *out = error == NO_DEVICE ? "no device: a driver for tests" : "an error of a driver for tests";
    return OK;
}

int cuGetErrorName(int error, const char **out);
int cuGetErrorName(int error, const char **out)
{
    return cuGetErrorString(error, out);
}
