/* The plugin's table, and the description of each GPU: the libraries it needs, found or missing.
 * Main thread. */
#include <stdio.h>

#include "build_id.h"
#include "trainer/cuda/device_cuda.h"

const struct np_plugin *np_plugin_cuda(void);

static void add_driver(struct np_device_info *info)
{
    char text[48], cuda[32], both[96];
    int version = 0;

    np_cuda_driver_text(text, sizeof(text));
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
        return;
    snprintf(cuda, sizeof(cuda), "CUDA %d.%d", version / 1000, version % 1000 / 10);
    snprintf(both, sizeof(both), *text ? "%s (%s)" : "%s%s", text, cuda);
    np_device_add_library(info, "driver", both, "");
}

static void add_libraries(struct np_device_info *info, const struct np_cuda_libs *libs)
{
    const struct {
        const char *name;
        const struct np_cuda_library *library;
    } all[] = {{"cudnn", &libs->cudnn_library}, {"cublasLt", &libs->cublaslt_library},
        {"nvrtc", &libs->nvrtc_library}, {"nccl", &libs->nccl_library}};
    char runtime[32];

    add_driver(info);
    snprintf(runtime, sizeof(runtime), "%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    np_device_add_library(info, "cuda", runtime, "in the plugin");
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i].library->handle)
            np_device_add_library(info, all[i].name, all[i].library->version, all[i].library->path);
}

/* n: GPUs that the driver reports; 0: no_gpu has the reason. */
static void describe(int ordinal, int n, const struct np_err *no_gpu, const struct np_err *no_libs,
    struct np_device_info *info)
{
    struct cudaDeviceProp props = {0};
    struct np_err why = {0};

    snprintf(info->name, sizeof(info->name), "cuda:%d", ordinal);
    snprintf(info->kind, sizeof(info->kind), "cuda");
    if (n == 0) { /* all that must be installed */
        snprintf(info->reason, sizeof(info->reason), "%s%s%s", no_gpu->text,
            no_libs->code ? "; " : "", no_libs->text);
        return;
    }
    np_cuda_usable(ordinal, n, &props, &why);
    snprintf(info->reason, sizeof(info->reason), "%s", why.code ? why.text : no_libs->text);
    if (!props.major)
        return;
    snprintf(info->gpu, sizeof(info->gpu), "%.255s", props.name);
    snprintf(info->arch, sizeof(info->arch), "sm_%d%d", props.major, props.minor);
    info->memory_bytes = props.totalGlobalMem;
}

static void list(np_info_fn found, void *context)
{
    struct np_err no_gpu = {0}, no_libs = {0};
    struct np_cuda_libs libs;
    int n = 0;

    np_cuda_count(&n, &no_gpu);
    np_cuda_libs_open(&libs, &no_libs);
    for (int i = 0; i < (n ? n : 1); i++) {
        struct np_device_info info = {0};

        describe(i, n, &no_gpu, &no_libs, &info);
        add_libraries(&info, &libs);
        found(context, &info);
    }
    np_cuda_libs_close(&libs);
}

static const struct np_plugin plugin = {
    .version = NP_PLUGIN_VERSION,
    .contract = NP_CONTRACT,
    .build = NP_COMMIT,
    .ops = &np_cuda_ops,
    .plan_ops = &np_cuda_plan_ops,
    .list = list,
    .doctor = np_cuda_doctor,
};

const struct np_plugin *np_plugin_cuda(void)
{
    return &plugin;
}
