/* The CUDA plugin: loaded at run time, so that nnpipe runs where there is no NVIDIA driver. It
 * holds no device code yet: it lists the GPUs it sees and refuses to open one, saying so. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn_version.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "trainer/device.h"

#define WHY "this build of the CUDA plugin has no device code yet; use device: cpu"

const struct np_plugin *np_plugin_cuda(void);

static int cuda_open(
    struct np_device *device, const struct np_device_options *options, struct np_err *err)
{
    (void)device;
    return np_err_set(err, -ENOSYS, "cuda:%d: %s", options->ordinal, WHY);
}

/* Opening fails always, so nobody gets here. */
static void cuda_close(struct np_device *device)
{
    (void)device;
}

/* How many GPUs the driver has; 0 without a driver. The driver is loaded by hand: linking it
 * would keep the plugin from loading where there is none. */
static int count_gpus(void)
{
    typedef CUresult (*init_fn)(unsigned int);
    typedef CUresult (*count_fn)(int *);
    int nr_gpus = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (driver == NULL)
        return 0;
    init_fn init = (init_fn)(uintptr_t)dlsym(driver, "cuInit");
    count_fn count = (count_fn)(uintptr_t)dlsym(driver, "cuDeviceGetCount");
    if (init == NULL || count == NULL || init(0) != CUDA_SUCCESS || count(&nr_gpus) != CUDA_SUCCESS)
        nr_gpus = 0;
    return nr_gpus; /* the driver stays loaded: unloading it after cuInit is not supported */
}

static int list(void (*line)(void *context, const char *json), void *context)
{
    char json[512];
    int nr_gpus = count_gpus();

    for (int i = 0; i < nr_gpus; i++) {
        snprintf(json, sizeof(json),
            "{\"name\":\"cuda:%d\",\"kind\":\"cuda\",\"usable\":false,\"reason\":\"%s\","
            "\"versions\":{\"cuda\":\"%d.%d\",\"cudnn\":\"%d.%d.%d\"}}",
            i, WHY, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, CUDNN_MAJOR, CUDNN_MINOR,
            CUDNN_PATCHLEVEL);
        line(context, json);
    }
    return nr_gpus;
}

static const struct np_device_ops ops = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
};
static const struct np_plan_ops plan_ops = {0};

static const struct np_plugin plugin = {
    .version = NP_PLUGIN_VERSION,
    .build = "without device code",
    .ops = &ops,
    .plan_ops = &plan_ops,
    .list = list,
};

const struct np_plugin *np_plugin_cuda(void)
{
    return &plugin;
}
