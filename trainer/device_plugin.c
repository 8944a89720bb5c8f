/* Finds and loads the CUDA plugin. A file that exists but does not load or fit is an error that
 * names it: searching further would hide it. Trainer thread, at start. */
#include "trainer/device_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"

typedef const struct np_plugin *(*plugin_fn)(void);

static int check(
    const char *path, void *library, const struct np_plugin **ret_plugin, struct np_err *err)
{
    void *symbol = dlsym(library, "np_plugin_cuda");
    plugin_fn entry;

    if (!symbol)
        return np_err_set(
            err, -ENOEXEC, "%s is not an nnpipe plugin: it has no np_plugin_cuda", path);
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from an object pointer */
    const struct np_plugin *plugin = entry();
    if (!plugin)
        return np_err_set(err, -ENOEXEC, "%s: np_plugin_cuda returned nothing", path);
    if (plugin->version != NP_PLUGIN_VERSION)
        return np_err_set(err, -EPROTO,
            "%s has plugin version %d, this nnpipe needs %d: build both from one source (make)",
            path, plugin->version, NP_PLUGIN_VERSION);
    if (!plugin->contract || strcmp(plugin->contract, NP_CONTRACT) != 0)
        return np_err_set(err, -EPROTO,
            "%s is from another build (%s; this nnpipe: %s) and does not fit: build both from one "
            "source (make)",
            path, plugin->build ? plugin->build : "of an unknown commit", NP_COMMIT);
    *ret_plugin = plugin;
    return 0;
}

int np_plugin_load(
    const char *path, void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err)
{
    if (strchr(path, '/') != NULL && access(path, F_OK) != 0)
        return np_err_set(err, -ENOENT, "%s: no such file", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        bool absent = strchr(path, '/') == NULL && why && strncmp(why, path, strlen(path)) == 0 &&
                      strstr(why, "No such file") != NULL;
        return np_err_set(err, absent ? -ENOENT : -ENOEXEC, "%s does not load: %s", path,
            why ? why : "unknown reason");
    }
    int code = check(path, library, ret_plugin, err);
    if (code < 0)
        dlclose(library);
    else
        *ret_library = library;
    return code;
}

int np_plugin_find(void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err)
{
    static const char *const places[] = {"", "../lib/nnpipe/"};
    char exe[PATH_MAX] = "", path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    struct np_err why = {0};
    int code = -ENOENT;

    exe[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        slash[1] = '\0';
    for (int i = 0; i < 2 && slash && code == -ENOENT; i++) {
        why = (struct np_err){0};
        snprintf(path, sizeof(path), "%s%s" NP_PLUGIN_FILE, exe, places[i]);
        code = np_plugin_load(path, ret_library, ret_plugin, &why);
    }
    if (code == -ENOENT) {
        why = (struct np_err){0};
        code = np_plugin_load(NP_PLUGIN_FILE, ret_library, ret_plugin, &why);
    }
    if (code == -ENOENT)
        return np_err_set(err, -ENOENT,
            "no CUDA plugin: " NP_PLUGIN_FILE " is neither in %s nor in %s../lib/nnpipe nor on the "
            "library path; `make` builds it where nvcc and cuDNN are installed; device: cpu needs "
            "neither",
            exe, exe);
    return code < 0 ? np_err_set(err, code, "%s", why.text) : 0;
}
