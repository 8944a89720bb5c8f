/* Loads a library by its full path, so that it finds its own parts beside it. The parts that it
 * then opens by name must already be loaded, so cuBLASLt and NVRTC are loaded before cuDNN. If the
 * first file found is wrong, that is an error: a further search would hide it. Libraries stay
 * loaded until the process ends, because unloading them is not safe. */
#include "trainer/cuda/libs.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
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
#define INSTALL_NCCL     "`apt install libnccl2` or `pip install nvidia-nccl-cu13`"
#else
#define INSTALL_CUDNN    "`apt install libcudnn9-cuda-12` or `pip install nvidia-cudnn-cu12`"
#define INSTALL_CUBLASLT "`apt install libcublas-12-9` or `pip install nvidia-cublas-cu12`"
#define INSTALL_NVRTC    "`apt install cuda-nvrtc-12-9` or `pip install nvidia-cuda-nvrtc-cu12`"
#define INSTALL_NCCL     "`apt install libnccl2` or `pip install nvidia-nccl-cu12`"
#endif
#define NCCL_MAJOR 2 /* its sends and receives can be captured since 2.11 */
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

#define SYMBOL(of_, field_, symbol_)                                                               \
    {                                                                                              \
        symbol_, offsetof(struct of_, field_), false                                               \
    }

/* clang-format off */
static const struct symbol cudnn_symbols[] = {
    SYMBOL(np_cudnn, version, "cudnnGetVersion"),
    SYMBOL(np_cudnn, error_string, "cudnnGetErrorString"),
    {"cudnnGetLastErrorString", offsetof(struct np_cudnn, last_error), true},
    SYMBOL(np_cudnn, create, "cudnnCreate"),
    SYMBOL(np_cudnn, destroy, "cudnnDestroy"),
    SYMBOL(np_cudnn, set_stream, "cudnnSetStream"),
    SYMBOL(np_cudnn, new_descriptor, "cudnnBackendCreateDescriptor"),
    SYMBOL(np_cudnn, free_descriptor, "cudnnBackendDestroyDescriptor"),
    SYMBOL(np_cudnn, finalize, "cudnnBackendFinalize"),
    SYMBOL(np_cudnn, set, "cudnnBackendSetAttribute"),
    SYMBOL(np_cudnn, get, "cudnnBackendGetAttribute"),
    SYMBOL(np_cudnn, execute, "cudnnBackendExecute"),
    {NULL, 0, false},
};
static const struct symbol cublaslt_symbols[] = {
    SYMBOL(np_cublaslt, version, "cublasLtGetVersion"),
    SYMBOL(np_cublaslt, error_string, "cublasLtGetStatusString"),
    SYMBOL(np_cublaslt, create, "cublasLtCreate"),
    SYMBOL(np_cublaslt, destroy, "cublasLtDestroy"),
    SYMBOL(np_cublaslt, matmul, "cublasLtMatmul"),
    SYMBOL(np_cublaslt, new_matmul, "cublasLtMatmulDescCreate"),
    SYMBOL(np_cublaslt, free_matmul, "cublasLtMatmulDescDestroy"),
    SYMBOL(np_cublaslt, set_matmul, "cublasLtMatmulDescSetAttribute"),
    SYMBOL(np_cublaslt, new_layout, "cublasLtMatrixLayoutCreate"),
    SYMBOL(np_cublaslt, free_layout, "cublasLtMatrixLayoutDestroy"),
    SYMBOL(np_cublaslt, new_preference, "cublasLtMatmulPreferenceCreate"),
    SYMBOL(np_cublaslt, free_preference, "cublasLtMatmulPreferenceDestroy"),
    SYMBOL(np_cublaslt, set_preference, "cublasLtMatmulPreferenceSetAttribute"),
    SYMBOL(np_cublaslt, heuristic, "cublasLtMatmulAlgoGetHeuristic"),
    {NULL, 0, false},
};
static const struct symbol nccl_symbols[] = {
    SYMBOL(np_nccl, get_version, "ncclGetVersion"),
    SYMBOL(np_nccl, error_string, "ncclGetErrorString"),
    {"ncclGetLastError", offsetof(struct np_nccl, last_error), true},
    SYMBOL(np_nccl, get_id, "ncclGetUniqueId"),
    SYMBOL(np_nccl, init, "ncclCommInitRank"),
    SYMBOL(np_nccl, destroy, "ncclCommDestroy"),
    SYMBOL(np_nccl, abort, "ncclCommAbort"),
    SYMBOL(np_nccl, async_error, "ncclCommGetAsyncError"),
    SYMBOL(np_nccl, group_start, "ncclGroupStart"),
    SYMBOL(np_nccl, group_end, "ncclGroupEnd"),
    SYMBOL(np_nccl, send, "ncclSend"),
    SYMBOL(np_nccl, receive, "ncclRecv"),
    SYMBOL(np_nccl, all_reduce, "ncclAllReduce"),
    {NULL, 0, false},
};
/* clang-format on */
static const struct wanted cudnn_wanted = {
    "cuDNN", "libcudnn.so", CUDNN_MAJOR, INSTALL_CUDNN, cudnn_symbols};
static const struct wanted cublaslt_wanted = {
    "cuBLASLt", "libcublasLt.so", CUDA_MAJOR, INSTALL_CUBLASLT, cublaslt_symbols};
static const struct wanted nccl_wanted = {
    "NCCL", "libnccl.so", NCCL_MAJOR, INSTALL_NCCL, nccl_symbols};
static const struct wanted nvrtc_wanted = {"NVRTC", "libnvrtc.so", CUDA_MAJOR, INSTALL_NVRTC, NULL};

/* --- where to look ------------------------------------------------------------------------- */

struct places {
    char folders[MAX_PLACES][256]; /* "": by name, searched by the loader */
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

/* Tries every folder that matches, the last in the alphabet (the newest version) first. */
static void add_matching(struct places *places, const char *root, const char *pattern)
{
    char whole[512];
    glob_t found;

    if (!root || *root == '\0' ||
        (size_t)snprintf(whole, sizeof(whole), "%s%s", root, pattern) >= sizeof(whole) ||
        glob(whole, GLOB_ONLYDIR | GLOB_BRACE, NULL, &found) != 0)
        return;
    for (size_t i = found.gl_pathc; i-- > 0;)
        add_place(places, found.gl_pathv[i]);
    globfree(&found);
}

/* Adds pip's packages for the `python3` of each folder of PATH: an environment may be first in
 * PATH without being activated, or a link may point into it. */
static void add_pythons(struct places *places, const char *packages)
{
    char *folders = np_strdup(getenv("PATH")), *rest = folders, *folder;

    while (rest && (folder = strsep(&rest, ":"))) {
        char at[PATH_MAX], to[PATH_MAX], prefix[PATH_MAX];

        snprintf(at, sizeof(at), "%s/python3", folder);
        for (int links = 0; links < 8 && access(at, X_OK) == 0; links++) {
            char *name = strrchr(at, '/');
            const ssize_t bytes = readlink(at, to, sizeof(to) - 1);

            snprintf(name, sizeof(at) - (size_t)(name - at), "/..");
            if (realpath(at, prefix))
                add_matching(places, prefix, packages);
            if (bytes <= 0)
                break;
            to[bytes] = '\0';
            if (*to == '/')
                name = at;
            else
                name++; /* beside it */
            snprintf(name, sizeof(at) - (size_t)(name - at), "%s", to);
        }
    }
    np_free(folders);
}

#define TOOLKIT "/{lib64,lib}"
#define PIP     "/lib/python3*/{site,dist}-packages/nvidia/*/lib"

static void find_places(struct places *places)
{
    static const struct {
        const char *variable, *root, *pattern; /* the folder that a variable names, or this one */
    } searched[] = {{"CUDA_HOME", NULL, TOOLKIT}, {"CUDA_PATH", NULL, TOOLKIT},
        {NULL, "/usr/local/cuda", TOOLKIT}, {NULL, "/usr/local/cuda-*", TOOLKIT},
        {"VIRTUAL_ENV", NULL, PIP}, {"CONDA_PREFIX", NULL, PIP}, {"CONDA_PREFIX", NULL, "/lib"},
        {NULL, NULL, PIP}, /* the pythons in PATH */
        {"HOME", NULL, "/.local" PIP}, {"HOME", NULL, "/.pyenv/versions/*" PIP},
        {NULL, "/.", "/{usr/local,usr,opt/conda,opt/venv}" PIP}};
    const char *only = getenv("NNPIPE_CUDA_LIBS_ONLY");
    char *own = np_strdup(getenv("NNPIPE_CUDA_LIBS")), *rest = own, *folder;

    while (rest && (folder = strsep(&rest, ":")))
        if (*folder)
            add_place(places, folder);
    np_free(own);
    if (only && strcmp(only, "1") == 0)
        return;
    add_place(places, "");
    for (size_t i = 0; i < sizeof(searched) / sizeof(*searched); i++)
        if (searched[i].variable || searched[i].root)
            add_matching(places,
                searched[i].variable ? getenv(searched[i].variable) : searched[i].root,
                searched[i].pattern);
        else
            add_pythons(places, searched[i].pattern);
}

/* "/a, /b, the library path"; as many as fit in the text. */
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

/* -ENOENT: no such file. -ENOEXEC: the file does not load. */
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

        if (!*folder && why && strncmp(why, file, strlen(file)) == 0 && strstr(why, "No such file"))
            return -ENOENT;
        return np_err_set(err, -ENOEXEC, "%s does not load: %s", path, why ? why : "no reason");
    }
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
        snprintf(library->path, sizeof(library->path), "%s", map->l_name);
    return 0;
}

/* Finds a file of this library with another major version; false: none. */
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
            "%s is installed in another version, %s, and %s.%d is needed: install %s, or name its "
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

        if (!address && !symbol->optional)
            return np_err_set(err, -EPROTO,
                "%s at %s has no %s: it is no %s %d, or damaged; install %s", wanted->name,
                library->path, symbol->name, wanted->name, wanted->major, wanted->install);
        memcpy((char *)functions + symbol->offset, &address, sizeof(address));
    }
    return 0;
}

/* 91900 is 9.19.0; `scale` defines this for each library. */
static int check_version(const struct wanted *wanted, size_t version,
    struct np_cuda_library *library, struct np_err *err)
{
    /* Up to version 8 cuDNN used 8907 for 8.9.7. */
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

/* functions: a struct of them; the first returns the library's version. */
static int open_one(const struct wanted *wanted, const struct places *places,
    struct np_cuda_library *library, void *functions, struct np_err *err)
{
    size_t (**version)(void) = functions;
    int code = find(wanted, places, library, err);

    if (code == 0)
        code = bind(wanted, library, functions, err);
    return code == 0 ? check_version(wanted, (*version)(), library, err) : code;
}

/* cuDNN 9 has the same file name for two CUDA versions; only a call tells them apart. */
static int check_cudart(const struct np_cuda_library *library, struct np_err *err)
{
    size_t (*version)(void);
    void *address = dlsym(library->handle, "cudnnGetCudartVersion");

    memcpy(&version, &address, sizeof(version));
    if (!version || version() / 1000 == CUDA_MAJOR)
        return 0;
    return np_err_set(err, -EPROTO,
        "cuDNN at %s is made for CUDA %zu, and this plugin for %d: install %s, or name its folder "
        "in NNPIPE_CUDA_LIBS",
        library->path, version() / 1000, CUDA_MAJOR, cudnn_wanted.install);
}

/* NVRTC opens its builtins by name: load them first, from the same folder. */
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
    if (!version || version(&major, &minor) != 0 || major != CUDA_MAJOR) {
        *library = (struct np_cuda_library){0};
        return;
    }
    snprintf(library->version, sizeof(library->version), "%d.%d", major, minor);
    load_builtins(library, major, minor);
}

static void open_nccl(struct np_cuda_libs *libs, const struct places *places)
{
    struct np_cuda_library *library = &libs->nccl_library;
    struct np_err *err = &libs->no_nccl;
    int version = 0, code = find(&nccl_wanted, places, library, err);

    if (code == 0)
        code = bind(&nccl_wanted, library, &libs->nccl, err);
    if (code == 0 && libs->nccl.get_version(&version) != NP_NCCL_SUCCESS)
        code = np_err_set(err, -EPROTO, "NCCL at %s does not say its version", library->path);
    if (code == 0)
        code = check_version(&nccl_wanted, (size_t)version, library, err);
    if (code < 0)
        *library = (struct np_cuda_library){0};
}

int np_cuda_libs_open(struct np_cuda_libs *libs, struct np_err *err)
{
    struct places *places = np_alloc(sizeof(*places));
    int code;

    *libs = (struct np_cuda_libs){0};
    find_places(places);
    open_nvrtc(libs, places);
    open_nccl(libs, places);
    code = open_one(&cublaslt_wanted, places, &libs->cublaslt_library, &libs->cublaslt, err);
    if (code == 0)
        code = open_one(&cudnn_wanted, places, &libs->cudnn_library, &libs->cudnn, err);
    np_free(places);
    return code == 0 ? check_cudart(&libs->cudnn_library, err) : code;
}

void np_cuda_libs_close(struct np_cuda_libs *libs)
{
    const struct np_cuda_library *const all[] = {
        &libs->cudnn_library, &libs->cublaslt_library, &libs->nvrtc_library, &libs->nccl_library};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i]->handle)
            dlclose(all[i]->handle);
    *libs = (struct np_cuda_libs){0};
}
