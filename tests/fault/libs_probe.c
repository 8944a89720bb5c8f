/* Loads cuDNN, cuBLASLt and NVRTC as the plugin does, makes cuDNN load its own parts, and prints where
 * each came from. Exit 1: the error. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#include "trainer/cuda/libs.h"

static void print_loaded(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;

    if (library)
        dlinfo(library, RTLD_DI_LINKMAP, &map);
    printf("%s %s\n", name, map ? map->l_name : "not loaded");
}

int main(void)
{
    static struct np_cuda_libs libs;
    cudnnBackendDescriptor_t tensor = NULL;
    struct np_err err = {0};

    if (np_cuda_libs_open(&libs, &err) < 0) {
        puts(err.text);
        return 1;
    }
    printf("cuDNN %s %s\n", libs.cudnn_library.version, libs.cudnn_library.path);
    printf("cuBLASLt %s %s\n", libs.cublaslt_library.version, libs.cublaslt_library.path);
    printf("NVRTC %s %s\n", libs.nvrtc_library.version, libs.nvrtc_library.path);
    if (libs.cudnn.new_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor) !=
        CUDNN_STATUS_SUCCESS) {
        puts("cuDNN makes no descriptor");
        return 1;
    }
    libs.cudnn.free_descriptor(tensor);
    print_loaded("libcudnn_graph.so.9");
    if (libs.nvrtc_library.handle) {
        char builtins[64];

        snprintf(builtins, sizeof(builtins), "libnvrtc-builtins.so.%s", libs.nvrtc_library.version);
        print_loaded(builtins);
    }
    np_cuda_libs_close(&libs);
    return 0;
}
