/* See libs.h. A file of the right name is loaded by its full path, so that a library finds its own
 * parts beside it; what it then opens by name alone is matched with what is loaded already, so
 * cuBLASLt and NVRTC come before cuDNN. The first file found has to be the right one: looking
 * further would hide it. Libraries stay loaded until the process ends; none of them takes being
 * unloaded well. */
#include "trainer/cuda/libs.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"

#define CUDA_MAJOR (CUDART_VERSION / 1000) /* of the headers: what it was built for */
#if CUDART_VERSION >= 13000
#define INSTALL_CUDNN    "`apt install libcudnn9-cuda-13` or `pip install nvidia-cudnn-cu13`"
#define INSTALL_CUBLASLT "`apt install libcublas-13-0` or `pip install nvidia-cublas`"
#define INSTALL_NVRTC    "`apt install cuda-nvrtc-13-0` or `pip install nvidia-cuda-nvrtc`"
#else
#define INSTALL_CUDNN    "`apt install libcudnn9-cuda-12` or `pip install nvidia-cudnn-cu12`"
#define INSTALL_CUBLASLT "`apt install libcublas-12-9` or `pip install nvidia-cublas-cu12`"
#define INSTALL_NVRTC    "`apt install cuda-nvrtc-12-9` or `pip install nvidia-cuda-nvrtc-cu12`"
#endif
#define MAX_PLACES 96

struct symbol {
    const char *name;
    size_t offset; /* of its pointer in the struct of functions */
    bool optional;
};
struct wanted {
    const char *name, *stem; /* "cuDNN"; "libcudnn.so" */
    int major;
    const char *install;
    const struct symbol *symbols;
};

#define CUDNN_SYMBOL(field, symbol)                                                                \
    {                                                                                              \
        symbol, offsetof(struct np_cudnn, field), false                                            \
    }
#define CUBLASLT_SYMBOL(field, symbol)                                                             \
    {                                                                                              \
        symbol, offsetof(struct np_cublaslt, field), false                                         \
    }

static const struct symbol cudnn_symbols[] = {
    CUDNN_SYMBOL(version, "cudnnGetVersion"),
    CUDNN_SYMBOL(error_string, "cudnnGetErrorString"),
    {"cudnnGetLastErrorString", offsetof(struct np_cudnn, last_error), true},
    CUDNN_SYMBOL(create, "cudnnCreate"),
    CUDNN_SYMBOL(destroy, "cudnnDestroy"),
    CUDNN_SYMBOL(set_stream, "cudnnSetStream"),
    CUDNN_SYMBOL(new_descriptor, "cudnnBackendCreateDescriptor"),
    CUDNN_SYMBOL(free_descriptor, "cudnnBackendDestroyDescriptor"),
    CUDNN_SYMBOL(finalize, "cudnnBackendFinalize"),
    CUDNN_SYMBOL(set, "cudnnBackendSetAttribute"),
    CUDNN_SYMBOL(get, "cudnnBackendGetAttribute"),
    CUDNN_SYMBOL(execute, "cudnnBackendExecute"),
    {NULL, 0, false},
};
static const struct symbol cublaslt_symbols[] = {
    CUBLASLT_SYMBOL(version, "cublasLtGetVersion"),
    CUBLASLT_SYMBOL(error_string, "cublasLtGetStatusString"),
    CUBLASLT_SYMBOL(create, "cublasLtCreate"),
    CUBLASLT_SYMBOL(destroy, "cublasLtDestroy"),
    CUBLASLT_SYMBOL(matmul, "cublasLtMatmul"),
    CUBLASLT_SYMBOL(new_matmul, "cublasLtMatmulDescCreate"),
    CUBLASLT_SYMBOL(free_matmul, "cublasLtMatmulDescDestroy"),
    CUBLASLT_SYMBOL(set_matmul, "cublasLtMatmulDescSetAttribute"),
    CUBLASLT_SYMBOL(new_layout, "cublasLtMatrixLayoutCreate"),
    CUBLASLT_SYMBOL(free_layout, "cublasLtMatrixLayoutDestroy"),
    CUBLASLT_SYMBOL(new_preference, "cublasLtMatmulPreferenceCreate"),
    CUBLASLT_SYMBOL(free_preference, "cublasLtMatmulPreferenceDestroy"),
    CUBLASLT_SYMBOL(set_preference, "cublasLtMatmulPreferenceSetAttribute"),
    CUBLASLT_SYMBOL(heuristic, "cublasLtMatmulAlgoGetHeuristic"),
    {NULL, 0, false},
};
static const struct wanted cudnn_wanted = {
    "cuDNN", "libcudnn.so", CUDNN_MAJOR, INSTALL_CUDNN, cudnn_symbols};
static const struct wanted cublaslt_wanted = {
    "cuBLASLt", "libcublasLt.so", CUDA_MAJOR, INSTALL_CUBLASLT, cublaslt_symbols};
static const struct wanted nvrtc_wanted = {"NVRTC", "libnvrtc.so", CUDA_MAJOR, INSTALL_NVRTC, NULL};

/* --- where to look ------------------------------------------------------------------------- */

struct places {
    char folders[MAX_PLACES][256]; /* "": by name alone, the loader looks */
    int n;
};

static void add_place(struct places *places, const char *folder)
{
    if (places->n == MAX_PLACES || strlen(folder) >= sizeof(places->folders[0]))
        return;
    for (int i = 0; i < places->n; i++)
        if (strcmp(places->folders[i], folder) == 0)
            return;
    strcpy(places->folders[places->n++], folder);
}

/* Every folder that matches, the last in the alphabet (the newest version) first. */
static void add_matching(struct places *places, const char *root, const char *pattern)
{
    char whole[512];
    glob_t found;

    if (root == NULL || *root == '\0' ||
        (size_t)snprintf(whole, sizeof(whole), "%s%s", root, pattern) >= sizeof(whole) ||
        glob(whole, GLOB_ONLYDIR | GLOB_BRACE, NULL, &found) != 0)
        return;
    for (size_t i = found.gl_pathc; i-- > 0;)
        add_place(places, found.gl_pathv[i]);
    globfree(&found);
}

/* What the `python3` of each folder of PATH has from pip: an environment that is first in PATH without
 * being activated, or that a link of another folder points into. */
static void add_pythons(struct places *places, const char *packages)
{
    const char *folders = getenv("PATH");

    for (size_t length; folders && *folders; folders += length + (folders[length] == ':')) {
        char path[512], to[512];

        length = strcspn(folders, ":");
        if (length == 0 || length > sizeof(path) - 16)
            continue;
        snprintf(path, sizeof(path), "%.*s/python3", (int)length, folders);
        for (int links = 0; links < 8 && access(path, X_OK) == 0; links++) {
            char *name = strrchr(path, '/');
            ssize_t bytes;

            if (name - path >= 4 && strncmp(name - 4, "/bin", 4) == 0) {
                char prefix[512];

                snprintf(prefix, sizeof(prefix), "%.*s", (int)(name - 4 - path), path);
                add_matching(places, *prefix ? prefix : "/.", packages);
            }
            bytes = readlink(path, to, sizeof(to) - 1);
            if (bytes <= 0)
                break;
            to[bytes] = '\0';
            if (*to == '/')
                name = path;
            else
                name++; /* beside it */
            if ((size_t)(name - path) + strlen(to) >= sizeof(path))
                break;
            strcpy(name, to);
        }
    }
}

static void find_places(struct places *places)
{
    static const char toolkit[] = "/{lib64,lib}", packages[] = "/{site,dist}-packages/nvidia/*/lib";
    const char *own = getenv("NNPIPE_CUDA_LIBS"), *only = getenv("NNPIPE_CUDA_LIBS_ONLY");
    char pip[128];

    for (size_t length; own && *own; own += length + (own[length] == ':')) {
        char folder[256];

        length = strcspn(own, ":");
        if (length > 0 && length < sizeof(folder)) {
            snprintf(folder, sizeof(folder), "%.*s", (int)length, own);
            add_place(places, folder);
        }
    }
    if (only && strcmp(only, "1") == 0)
        return;
    add_place(places, "");
    add_matching(places, getenv("CUDA_HOME"), toolkit);
    add_matching(places, getenv("CUDA_PATH"), toolkit);
    add_matching(places, "/usr/local/cuda", toolkit);
    add_matching(places, "/usr/local/cuda-*", toolkit);
    snprintf(pip, sizeof(pip), "/lib/python3*%s", packages);
    add_matching(places, getenv("VIRTUAL_ENV"), pip);
    add_matching(places, getenv("CONDA_PREFIX"), pip);
    add_matching(places, getenv("CONDA_PREFIX"), "/lib");
    add_pythons(places, pip);
    snprintf(pip, sizeof(pip), "/.local/lib/python3*%s", packages);
    add_matching(places, getenv("HOME"), pip);
    snprintf(pip, sizeof(pip), "/.pyenv/versions/*/lib/python3*%s", packages);
    add_matching(places, getenv("HOME"), pip);
    snprintf(pip, sizeof(pip), "/{usr/local,usr,opt/conda,opt/venv}/lib/python3*%s", packages);
    add_matching(places, "/.", pip);
}

/* "/a, /b, the library path"; as many as the text holds. */
static void describe(const struct places *places, char *text, size_t text_bytes)
{
    size_t used = 0;

    *text = '\0';
    for (int i = 0; i < places->n; i++) {
        const char *folder = *places->folders[i] ? places->folders[i] : "the library path";

        if (used + strlen(folder) + 24 > text_bytes) {
            snprintf(text + used, text_bytes - used, " and %d more", places->n - i);
            return;
        }
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i ? ", " : "", folder);
    }
    if (places->n == 0)
        snprintf(text, text_bytes, "no folder at all (NNPIPE_CUDA_LIBS_ONLY is set)");
}

/* --- loading one --------------------------------------------------------------------------- */

static bool is_absent(const char *file, const char *why)
{
    return why && strncmp(why, file, strlen(file)) == 0 && strstr(why, "No such file") != NULL;
}

/* 0, or -ENOENT: not there; -ENOEXEC: there, and it does not load. */
static int load_from(const char *folder, const char *file, int flags,
    struct np_cuda_library *library, struct np_err *err)
{
    char path[512];
    struct link_map *map = NULL;

    snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", file);
    if (*folder && access(path, F_OK) != 0)
        return -ENOENT;
    library->handle = dlopen(path, RTLD_NOW | RTLD_NODELETE | flags);
    if (!library->handle) {
        const char *why = dlerror();

        if (*folder == '\0' && is_absent(file, why))
            return -ENOENT;
        return np_err_set(err, -ENOEXEC, "%s does not load: %s", path, why ? why : "no reason");
    }
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
        snprintf(library->path, sizeof(library->path), "%s", map->l_name);
    return 0;
}

/* A file of this library with another major version; false: none. */
static bool find_other(
    const struct wanted *wanted, const struct places *places, char *path, size_t path_bytes)
{
    for (int i = 0; i < places->n; i++) {
        char pattern[512];
        glob_t found;

        if (*places->folders[i] == '\0')
            continue;
        snprintf(pattern, sizeof(pattern), "%s/%s.[0-9]*", places->folders[i], wanted->stem);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        snprintf(path, path_bytes, "%s", found.gl_pathv[0]);
        globfree(&found);
        return true;
    }
    return false;
}

static int not_found(const struct wanted *wanted, const struct places *places, struct np_err *err)
{
    char looked[280], other[300];

    if (find_other(wanted, places, other, sizeof(other)))
        return np_err_set(err, -EPROTO,
            "%s is there in another version, %s, and %s.%d is needed: install %s, or name its "
            "folder in NNPIPE_CUDA_LIBS",
            wanted->name, other, wanted->stem, wanted->major, wanted->install);
    describe(places, looked, sizeof(looked));
    return np_err_set(err, -ENOENT,
        "%s is missing: no %s.%d in %s; install %s, or name its folder in NNPIPE_CUDA_LIBS",
        wanted->name, wanted->stem, wanted->major, looked, wanted->install);
}

static int find(const struct wanted *wanted, const struct places *places,
    struct np_cuda_library *library, struct np_err *err)
{
    char file[64];
    int code = -ENOENT;

    snprintf(file, sizeof(file), "%s.%d", wanted->stem, wanted->major);
    for (int i = 0; i < places->n && code == -ENOENT; i++)
        code = load_from(places->folders[i], file, RTLD_LOCAL, library, err);
    return code == -ENOENT ? not_found(wanted, places, err) : code;
}

static int bind(const struct wanted *wanted, const struct np_cuda_library *library, void *functions,
    struct np_err *err)
{
    for (const struct symbol *symbol = wanted->symbols; symbol->name; symbol++) {
        void *address = dlsym(library->handle, symbol->name);

        if (address == NULL && !symbol->optional)
            return np_err_set(err, -EPROTO,
                "%s at %s has no %s: it is no %s %d, or damaged; install %s", wanted->name,
                library->path, symbol->name, wanted->name, wanted->major, wanted->install);
        memcpy((char *)functions + symbol->offset, &address, sizeof(address));
    }
    return 0;
}

/* 91900 is 9.19.0, and so is what `scale` says for others. */
static int check_version(const struct wanted *wanted, size_t version,
    struct np_cuda_library *library, struct np_err *err)
{
    /* Until 8 cuDNN wrote 8907 for 8.9.7. */
    size_t major = version >= 10000 ? version / 10000 : version / 1000,
           minor = version >= 10000 ? version % 10000 / 100 : version % 1000 / 100;

    snprintf(
        library->version, sizeof(library->version), "%zu.%zu.%zu", major, minor, version % 100);
    if (major == (size_t)wanted->major)
        return 0;
    return np_err_set(err, -EPROTO,
        "%s at %s is version %s, and %d is needed: install %s, or name its folder in "
        "NNPIPE_CUDA_LIBS",
        wanted->name, library->path, library->version, wanted->major, wanted->install);
}

/* --- the three ----------------------------------------------------------------------------- */

static int open_cublaslt(struct np_cuda_libs *libs, const struct places *places, struct np_err *err)
{
    int code = find(&cublaslt_wanted, places, &libs->cublaslt_library, err);

    if (code == 0)
        code = bind(&cublaslt_wanted, &libs->cublaslt_library, &libs->cublaslt, err);
    if (code == 0)
        code =
            check_version(&cublaslt_wanted, libs->cublaslt.version(), &libs->cublaslt_library, err);
    return code;
}

/* cuDNN 9 comes in one file name for two CUDAs; only its own word tells them apart. */
static int check_cudart(const struct np_cuda_library *library, struct np_err *err)
{
    size_t (*version)(void);
    void *address = dlsym(library->handle, "cudnnGetCudartVersion");

    memcpy(&version, &address, sizeof(version));
    if (version == NULL || version() / 1000 == CUDA_MAJOR)
        return 0;
    return np_err_set(err, -EPROTO,
        "cuDNN at %s is made for CUDA %zu, and this plugin for %d: install %s, or name its folder "
        "in NNPIPE_CUDA_LIBS",
        library->path, version() / 1000, CUDA_MAJOR, cudnn_wanted.install);
}

static int open_cudnn(struct np_cuda_libs *libs, const struct places *places, struct np_err *err)
{
    int code = find(&cudnn_wanted, places, &libs->cudnn_library, err);

    if (code == 0)
        code = bind(&cudnn_wanted, &libs->cudnn_library, &libs->cudnn, err);
    if (code == 0)
        code = check_version(&cudnn_wanted, libs->cudnn.version(), &libs->cudnn_library, err);
    return code == 0 ? check_cudart(&libs->cudnn_library, err) : code;
}

/* NVRTC opens its builtins by name: they are loaded before it needs them, from beside it. */
static void load_builtins(const struct np_cuda_library *nvrtc, int major, int minor)
{
    struct np_cuda_library builtins = {0};
    char folder[512], file[64];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", nvrtc->path);
    slash = strrchr(folder, '/');
    if (!slash)
        return;
    *slash = '\0';
    snprintf(file, sizeof(file), "libnvrtc-builtins.so.%d.%d", major, minor);
    load_from(folder, file, RTLD_GLOBAL, &builtins, NULL);
}

static void open_nvrtc(struct np_cuda_libs *libs, const struct places *places)
{
    struct np_cuda_library *library = &libs->nvrtc_library;
    int (*version)(int *major, int *minor);
    void *address;
    int major = 0, minor = 0;

    if (find(&nvrtc_wanted, places, library, NULL) < 0)
        return;
    address = dlsym(library->handle, "nvrtcVersion");
    memcpy(&version, &address, sizeof(version));
    if (version == NULL || version(&major, &minor) != 0 || major != CUDA_MAJOR) {
        *library = (struct np_cuda_library){0};
        return;
    }
    snprintf(library->version, sizeof(library->version), "%d.%d", major, minor);
    load_builtins(library, major, minor);
}

int np_cuda_libs_open(struct np_cuda_libs *libs, struct np_err *err)
{
    struct places *places = np_alloc(sizeof(*places));
    int code;

    *libs = (struct np_cuda_libs){0};
    find_places(places);
    open_nvrtc(libs, places);
    code = open_cublaslt(libs, places, err);
    if (code == 0)
        code = open_cudnn(libs, places, err);
    np_free(places);
    return code;
}

void np_cuda_libs_close(struct np_cuda_libs *libs)
{
    const struct np_cuda_library *const all[] = {
        &libs->cudnn_library, &libs->cublaslt_library, &libs->nvrtc_library};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i]->handle)
            dlclose(all[i]->handle);
    *libs = (struct np_cuda_libs){0};
}
