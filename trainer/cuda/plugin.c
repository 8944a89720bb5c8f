/* The plugin's table, and its lines of `nnpipe devices`: each GPU with what it needs, found or
 * missing. Main thread. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "build_id.h"
#include "trainer/cuda/device_cuda.h"
#include "trainer/cuda/doctor_cuda.h"

const struct np_plugin *np_plugin_cuda(void);

static void add_text(json_t *object, const char *key, const char *text)
{
    if (*text)
        json_object_set_new(object, key, json_string(text));
}

/* The driver by its own number and by the newest CUDA it takes. */
static void add_driver(json_t *versions)
{
    char text[64], cuda[32], both[128];
    int version = 0;

    np_cuda_driver_text(text, sizeof(text));
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
        return;
    snprintf(cuda, sizeof(cuda), "CUDA %d.%d", version / 1000, version % 1000 / 10);
    snprintf(both, sizeof(both), *text ? "%s (%s)" : "%s%s", text, cuda);
    add_text(versions, "driver", both);
}

static void add_libraries(json_t *object, const struct np_cuda_libs *libs)
{
    const struct {
        const char *name;
        const struct np_cuda_library *library;
    } all[] = {{"cudnn", &libs->cudnn_library}, {"cublasLt", &libs->cublaslt_library},
        {"nvrtc", &libs->nvrtc_library}};
    json_t *versions = json_object(), *paths = json_object();
    char runtime[32];

    add_driver(versions);
    snprintf(runtime, sizeof(runtime), "%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    add_text(versions, "cuda", runtime);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i].library->handle) {
            add_text(versions, all[i].name, all[i].library->version);
            add_text(paths, all[i].name, all[i].library->path);
        }
    add_text(paths, "cuda", "in the plugin");
    json_object_set_new(object, "versions", versions);
    json_object_set_new(object, "paths", paths);
}

static void add_gpu(json_t *object, const struct cudaDeviceProp *props)
{
    char arch[16];

    snprintf(arch, sizeof(arch), "sm_%d%d", props->major, props->minor);
    add_text(object, "gpu", props->name);
    add_text(object, "arch", arch);
    json_object_set_new(object, "memory_bytes", json_integer((json_int_t)props->totalGlobalMem));
}

static void print_line(int ordinal, const char *reason, const struct cudaDeviceProp *props,
    const struct np_cuda_libs *libs, void (*line)(void *context, const char *json), void *context)
{
    json_t *object = json_object();
    char name[32], *text;

    snprintf(name, sizeof(name), "cuda:%d", ordinal);
    json_object_set_new(object, "name", json_string(name));
    json_object_set_new(object, "kind", json_string("cuda"));
    json_object_set_new(object, "usable", json_boolean(*reason == '\0'));
    json_object_set_new(object, "reason", json_string(reason));
    if (props->major)
        add_gpu(object, props);
    add_libraries(object, libs);
    text = json_dumps(object, JSON_COMPACT);
    if (text)
        line(context, text);
    free(text);
    json_decref(object);
}

static int list(void (*line)(void *context, const char *json), void *context)
{
    struct np_err no_gpu = {0}, no_libs = {0};
    struct np_cuda_libs libs;
    struct cudaDeviceProp props = {0};
    int n = 0;

    np_cuda_count(&n, &no_gpu);
    np_cuda_libs_open(&libs, &no_libs);
    for (int i = 0; i < n; i++) {
        struct np_err why = {0};

        props = (struct cudaDeviceProp){0};
        np_cuda_usable(i, n, &props, &why);
        print_line(i, why.code ? why.text : no_libs.text, &props, &libs, line, context);
    }
    if (n == 0) {
        char both[2 * sizeof(no_gpu.text)]; /* all that is to be installed */

        snprintf(both, sizeof(both), "%s%s%s", no_gpu.text, no_libs.code ? "; " : "", no_libs.text);
        print_line(0, both, &props, &libs, line, context);
    }
    np_cuda_libs_close(&libs);
    return n ? n : 1;
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
