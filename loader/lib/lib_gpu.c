/* The plugin for batches on a GPU: found, checked, opened. libnnpipe itself knows nothing of CUDA. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "loader/lib/lib.h"

#define PLUGIN_FILE "libnnpipe-cuda-rows.so"

typedef const struct np_rows_plugin *(*plugin_fn)(void);

/* The library stays loaded, with all that CUDA has started. */
static int load(const char *path, const struct np_rows_plugin **ret_plugin, struct np_err *err)
{
    const struct np_rows_plugin *plugin;
    void *library, *symbol;
    plugin_fn entry;

    if (strchr(path, '/') && access(path, F_OK) != 0)
        return -ENOENT;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror();

        /* else a library that the plugin needs is missing */
        if (!strchr(path, '/') && why && strncmp(why, path, strlen(path)) == 0 &&
            strstr(why, "No such file"))
            return -ENOENT;
        return np_err_set(err, -ENODEV, "%s does not load: %s", path, why ? why : "no reason");
    }
    symbol = dlsym(library, "np_plugin_rows");
    if (!symbol)
        return np_err_set(err, -ENODEV, "%s is not libnnpipe's plugin for a GPU", path);
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from an object pointer */
    plugin = entry();
    if (strcmp(plugin->contract, NP_CONTRACT) != 0)
        return np_err_set(err, -ENODEV,
            "%s is from another build (%s; this libnnpipe: %s) and does not fit: build both from "
            "one source",
            path, plugin->build, NP_COMMIT);
    *ret_plugin = plugin;
    return 0;
}

/* The folder of libnnpipe.so, or of the program that it is linked into, with its slash. */
static void own_folder(char *folder, size_t folder_bytes)
{
    void *self;
    int (*abi)(void) = nnp_abi;
    Dl_info info;
    char path[PATH_MAX];
    char *slash;

    memcpy(&self, &abi, sizeof(self));
    if (!dladdr(self, &info) || !info.dli_fname || !realpath(info.dli_fname, path))
        snprintf(path, sizeof(path), "./");
    slash = strrchr(path, '/');
    slash[1] = '\0';
    snprintf(folder, folder_bytes, "%s", path);
}

/* The first that there is: a file that does not load or fit is an error, which a further search would
 * hide. */
static int find(const struct np_rows_plugin **ret_plugin, struct np_err *err)
{
    static const char *const places[] = {"", "nnpipe/", "../nnpipe/", "../lib/nnpipe/"};
    const char *named = getenv("NNPIPE_CUDA_PLUGIN");
    char folder[PATH_MAX], path[PATH_MAX + 64];
    int code = -ENOENT;

    own_folder(folder, sizeof(folder));
    if (named && *named)
        code = load(named, ret_plugin, err);
    if (code == -ENOENT && named && *named)
        return np_err_set(err, -ENODEV, "NNPIPE_CUDA_PLUGIN: there is no %s", named);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places) && code == -ENOENT; i++) {
        snprintf(path, sizeof(path), "%s%s" PLUGIN_FILE, folder, places[i]);
        code = load(path, ret_plugin, err);
    }
    if (code == -ENOENT)
        code = load(PLUGIN_FILE, ret_plugin, err);
    if (code == -ENOENT)
        return np_err_set(err, -ENODEV,
            "no plugin for CUDA: " PLUGIN_FILE " is neither in %s nor in %s../lib/nnpipe nor on "
            "the library path, and NNPIPE_CUDA_PLUGIN does not name it; `make` builds it where "
            "nvcc is installed; device=cpu needs none",
            folder, folder);
    return code;
}

int np_lib_find_gpu(struct nnp_loader *loader, struct np_err *err)
{
    const struct np_rows_plugin *plugin = NULL;
    int code = find(&plugin, err);

    if (code) {
        np_err_context(err, "device=cuda:%d", loader->options.gpu);
        return code;
    }
    code = plugin->gpu->check(loader->options.gpu, err);
    if (!code)
        loader->plugin = plugin;
    return code;
}

int np_lib_open_gpu(
    const struct nnp_loader *loader, struct np_store_gpu *ret_gpu, struct np_err *err)
{
    struct np_gpu_config config = {.ordinal = loader->options.gpu, .shape = loader->shape};

    *ret_gpu = (struct np_store_gpu){loader->plugin, NULL};
    if (!loader->plugin)
        return 0;
    memcpy(config.words, loader->words, sizeof(config.words));
    return loader->plugin->gpu->open(&config, &ret_gpu->gpu, err);
}

struct np_batch_shape np_lib_ring_shape(const struct nnp_loader *loader)
{
    struct np_batch_shape shape = loader->shape;

    if (loader->plugin)
        shape.format = (struct np_row_format){NP_ROW_U8, false};
    return shape;
}
