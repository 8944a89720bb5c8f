/* Devices by name, the config's `device:`, and what all devices share: notes, faults, libraries.
 * Opening and listing: one thread, at start. The CUDA device comes from its plugin. */
#include "trainer/device.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "build_id.h"
#include "loader/base/text.h"

#define MAX_ORDINAL 999
#define PLUGIN_FILE "libnnpipe-cuda.so"

/* --- what all devices share ------------------------------------------------------------------- */

void np_device_note(const struct np_device *device, const char *format, ...)
{
    char text[700];
    va_list args;

    if (!device->note)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    device->note(device->note_context, text);
}

int np_device_blame(const struct np_device *device, struct np_err *err)
{
    if (*device->fault)
        np_err_context(err, "%s: %s", device->name, device->fault);
    return err ? err->code : 0;
}

void np_device_add_library(
    struct np_device_info *info, const char *name, const char *version, const char *path)
{
    struct np_library *library = &info->libraries[info->nr_libraries];

    if (!*version)
        return;
    assert(info->nr_libraries < NP_MAX_LIBRARIES);
    info->nr_libraries++;
    snprintf(library->name, sizeof(library->name), "%s", name);
    snprintf(library->version, sizeof(library->version), "%s", version);
    snprintf(library->path, sizeof(library->path), "%s", path);
}

/* --- the plugin ------------------------------------------------------------------------------- */

typedef const struct np_plugin *(*plugin_fn)(void);

static int check_plugin(
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
    int code = check_plugin(path, library, ret_plugin, err);
    if (code < 0)
        dlclose(library);
    else
        *ret_library = library;
    return code;
}

/* Loads the first plugin found: beside the program, in ../lib/nnpipe from there, on the library
 * path. A file that does not load or fit is an error that names it: a further search would hide
 * it. */
static int find_plugin(void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err)
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
        snprintf(path, sizeof(path), "%s%s" PLUGIN_FILE, exe, places[i]);
        code = np_plugin_load(path, ret_library, ret_plugin, &why);
    }
    if (code == -ENOENT) {
        why = (struct np_err){0};
        code = np_plugin_load(PLUGIN_FILE, ret_library, ret_plugin, &why);
    }
    if (code == -ENOENT)
        return np_err_set(err, -ENOENT,
            "no CUDA plugin: " PLUGIN_FILE " is neither in %s nor in %s../lib/nnpipe nor on the "
            "library path; `make` builds it where nvcc and cuDNN are installed; device: cpu needs "
            "neither",
            exe, exe);
    return code < 0 ? np_err_set(err, code, "%s", why.text) : 0;
}

/* --- a GPU that is not used ------------------------------------------------------------------- */

#define DEVICE_FILE "/dev/nvidia0"
#define PROC_FOLDER "/proc/driver/nvidia/gpus" /* one folder per GPU; visible in containers too */

static bool has_entry(const char *path)
{
    DIR *dir = opendir(path);
    bool found = false;

    for (const struct dirent *entry; dir && !found && (entry = readdir(dir)) != NULL;)
        found = entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return found;
}

/* A started driver must stay loaded: it may have threads. */
static int count_by_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    int (*init)(unsigned int flags), (*count)(int *ret_n), n = 0;

    if (!driver)
        return 0;
    void *symbols[] = {dlsym(driver, "cuInit"), dlsym(driver, "cuDeviceGetCount")};

    if (symbols[0] && symbols[1]) {
        memcpy(&init, &symbols[0], sizeof(init)); /* ISO C has no cast from an object pointer */
        memcpy(&count, &symbols[1], sizeof(count));
        if (init(0) != 0 || count(&n) != 0)
            n = 0;
    }
    dlclose(driver);
    return n;
}

/* True: this machine seems to have an NVIDIA GPU; text names the evidence ("/dev/nvidia0 is
 * there"). Called when no GPU can be opened, so that `device: auto` does not take the CPU of a GPU
 * machine without a warning. The kernel module's files come first; without them, as on WSL, the
 * driver's library counts. */
static bool gpu_sign(char *text, size_t text_bytes)
{
    int n = 0;

    if (access(DEVICE_FILE, F_OK) == 0)
        snprintf(text, text_bytes, DEVICE_FILE " is there");
    else if (has_entry(PROC_FOLDER))
        snprintf(text, text_bytes, PROC_FOLDER " lists a GPU");
    else if ((n = count_by_driver()) > 0)
        snprintf(text, text_bytes, "libcuda.so.1 counts %d", n);
    else
        return false;
    return true;
}

/* --- names ------------------------------------------------------------------------------------ */

static const struct builtin {
    const char *name;
    const struct np_device_ops *ops;
    const struct np_plan_ops *plan_ops;
    void (*describe)(struct np_device_info *info); /* Optional: NULL means nothing to add */
} builtins[] = {
    {"cpu", &np_device_cpu, &np_plan_cpu, np_cpu_describe},
    {"sim", &np_device_sim, &np_plan_sim, NULL},
    {NULL, NULL, NULL, NULL},
};

struct opened { /* the device that np_device_open() returns, and the plugin it came from */
    struct np_device device;
    void *library;
};

/* "cuda:1" -> 1; "cuda" and "gpu" -> 0; anything else -> -1. In upper or lower case, with or
 * without the colon. */
static int cuda_ordinal(const char *name)
{
    static const char *const words[] = {"cuda", "gpu", "nvidia", NULL};
    int64_t ordinal;

    for (int i = 0; words[i]; i++) {
        const char *number = name + strlen(words[i]);

        if (strncasecmp(name, words[i], strlen(words[i])) != 0)
            continue;
        if (*number == '\0')
            return 0;
        number += *number == ':';
        if (*number < '0' || *number > '9')
            return -1;
        return np_text_int(number, 0, MAX_ORDINAL, &ordinal) ? (int)ordinal : -1;
    }
    return -1;
}

static const struct builtin *find_builtin(const char *name)
{
    for (const struct builtin *row = builtins; row->name; row++)
        if (strcasecmp(row->name, name) == 0)
            return row;
    return NULL;
}

bool np_device_find(const char *word, char name[NP_DEVICE_NAME])
{
    const struct builtin *row = find_builtin(word);
    const int ordinal = cuda_ordinal(word);

    if (row)
        snprintf(name, NP_DEVICE_NAME, "%s", row->name);
    else if (ordinal >= 0 && isdigit((unsigned char)word[strlen(word) - 1]))
        snprintf(name, NP_DEVICE_NAME, "cuda:%d", ordinal);
    else if (ordinal >= 0)
        snprintf(name, NP_DEVICE_NAME, "cuda");
    else if (strcasecmp(word, "auto") == 0)
        snprintf(name, NP_DEVICE_NAME, "auto");
    else
        return false;
    return true;
}

/* library: closed with the device, or here on failure; NULL: none. */
static int open_with(const struct builtin *row, const struct np_device_options *options,
    void *library, struct np_device **ret_device, struct np_err *err)
{
    struct opened *opened = np_alloc(sizeof(*opened));
    struct np_device *device = &opened->device;

    device->node = -1;
    device->ops = row->ops;
    device->plan_ops = row->plan_ops;
    device->pinned = np_page_allocator;
    device->auto_precision = NP_F32;
    snprintf(device->name, sizeof(device->name), "%s", row->name);
    int code = row->ops->open(device, options, err);
    if (code < 0) {
        np_free(opened);
        if (library)
            dlclose(library);
        return code;
    }
    opened->library = library;
    *ret_device = device;
    return 0;
}

static int open_cuda(
    const struct np_device_options *options, struct np_device **ret_device, struct np_err *err)
{
    const struct np_plugin *plugin;
    void *library;
    char name[32];
    int code = find_plugin(&library, &plugin, err);

    snprintf(name, sizeof(name), "cuda:%d", options->ordinal);
    if (code < 0) {
        np_err_context(err, "%s", name);
        return code;
    }
    const struct builtin row = {name, plugin->ops, plugin->plan_ops, NULL};
    return open_with(&row, options, library, ret_device, err);
}

static void note_usable(void *context, const struct np_device_info *info)
{
    int *n = context;

    *n += *info->gpu != '\0';
}

int np_device_count_gpus(void)
{
    const struct np_plugin *plugin;
    void *library;
    int n = 0;

    if (find_plugin(&library, &plugin, NULL) < 0)
        return 0;
    plugin->list(note_usable, &n);
    dlclose(library);
    return n;
}

/* Opens the GPU of options->ordinal, or else the CPU with the reason in passed_over if there seems to be
 * a GPU. A GPU that only the others of several processes have is an error. */
static int open_auto(
    const struct np_device_options *options, struct np_device **ret_device, struct np_err *err)
{
    struct np_device_options mine = *options;
    struct np_err why = {0};
    char sign[64];

    if (open_cuda(&mine, ret_device, &why) == 0)
        return 0;
    if (mine.ordinal > 0 && np_device_count_gpus() > 0)
        return np_err_set(err, why.code, "%s", why.text);
    int code = open_with(find_builtin("cpu"), &mine, NULL, ret_device, err);
    if (code == 0 && gpu_sign(sign, sizeof(sign)))
        snprintf((*ret_device)->passed_over, sizeof((*ret_device)->passed_over),
            "device: auto took the CPU, although there seems to be an NVIDIA GPU (%s): %s; `nnpipe "
            "devices` shows what was found",
            sign, why.text);
    return code;
}

int np_device_open(const char *name, const struct np_device_options *options,
    struct np_device **ret_device, struct np_err *err)
{
    struct np_device_options mine = options ? *options : (struct np_device_options){0};
    const struct builtin *row;

    if (strcasecmp(name, "auto") == 0)
        return open_auto(&mine, ret_device, err);
    if (cuda_ordinal(name) >= 0) {
        if (isdigit((unsigned char)name[strlen(name) - 1]))
            mine.ordinal = cuda_ordinal(name);
        return open_cuda(&mine, ret_device, err);
    }
    row = find_builtin(name);
    if (!row)
        return np_err_set(
            err, -EINVAL, "there is no device '%s': expected " NP_DEVICE_NAMES " or sim", name);
    return open_with(row, &mine, NULL, ret_device, err);
}

void np_device_close(struct np_device *device)
{
    if (!device)
        return;
    void *library = ((struct opened *)device)->library; /* device is its first field */
    device->ops->close(device);
    np_free(device);
    if (library)
        dlclose(library);
}

/* --- listing ------------------------------------------------------------------------------- */

static void describe_builtin(const struct builtin *row, struct np_device_info *ret_info)
{
    *ret_info = (struct np_device_info){0};
    snprintf(ret_info->name, sizeof(ret_info->name), "%s", row->name);
    snprintf(ret_info->kind, sizeof(ret_info->kind), "%s", row->name);
    if (row->describe)
        row->describe(ret_info);
}

struct listing {
    np_info_fn found;
    void *context;
    int nr;
};

/* Adds the evidence of a GPU that its driver does not report to the plugin's description. */
static void pass_on(void *context, const struct np_device_info *info)
{
    struct listing *listing = context;
    struct np_device_info mine = *info;

    listing->nr++;
    if (!*mine.gpu)
        gpu_sign(mine.seen, sizeof(mine.seen));
    listing->found(listing->context, &mine);
}

static void list_gpus(np_info_fn found, void *context)
{
    struct np_device_info none = {.name = "cuda:0", .kind = "cuda"};
    struct listing listing = {found, context, 0};
    const struct np_plugin *plugin;
    struct np_err err = {0};
    void *library = NULL;

    if (find_plugin(&library, &plugin, &err) == 0)
        plugin->list(pass_on, &listing);
    if (listing.nr == 0) {
        snprintf(
            none.reason, sizeof(none.reason), "%s", library ? "no NVIDIA GPU found" : err.text);
        pass_on(&listing, &none);
    }
    if (library)
        dlclose(library);
}

void np_device_list(np_info_fn found, void *context)
{
    for (const struct builtin *row = builtins; row->name; row++) {
        struct np_device_info info;

        describe_builtin(row, &info);
        found(context, &info);
    }
    list_gpus(found, context);
}

static void keep_named(void *context, const struct np_device_info *info)
{
    struct np_device_info *wanted = context;

    if (strcmp(info->name, wanted->name) == 0)
        *wanted = *info;
}

/* Does not load NVIDIA's libraries, which are large, to describe the CPU or sim. */
void np_device_describe(const char *name, struct np_device_info *ret_info)
{
    const struct builtin *row = find_builtin(name);

    *ret_info = (struct np_device_info){.kind = "cuda"};
    snprintf(ret_info->name, sizeof(ret_info->name), "%s", name);
    if (row)
        describe_builtin(row, ret_info);
    else
        list_gpus(keep_named, ret_info);
}

int np_device_doctor(const char *name, np_found_fn found, void *context, struct np_err *err)
{
    const struct np_plugin *plugin;
    void *library;
    int ordinal = cuda_ordinal(name), code = find_plugin(&library, &plugin, err);

    if (code < 0)
        return code;
    code = plugin->doctor ? plugin->doctor(ordinal < 0 ? 0 : ordinal, found, context, err)
                          : np_err_set(err, -ENOSYS, "%s: the plugin cannot measure a GPU", name);
    dlclose(library);
    return code;
}

/* --- the config ---------------------------------------------------------------------------- */

static const struct np_option sim_table[] = {
    {"h2d_gbps", NP_OPT_FLOAT, offsetof(struct np_device_options, h2d_gbps), "25", 1e-6, 1e6, NULL,
        "Rate of copies to the device, 10^9 bytes per second."},
    {"step_ms", NP_OPT_FLOAT, offsetof(struct np_device_options, step_ms), "20", 0, 1e6, NULL,
        "Time of a training step, milliseconds; an evaluation step takes a third."},
    NP_OPTIONS_END,
};
const struct np_choice np_device_choices[] = {
    {"sim", sim_table,
        "No real device: copies and steps take a given time and compute nothing, to measure the "
        "rest of the pipeline."},
    {NULL, NULL, NULL},
};

int np_device_parse(const struct np_node *node, char **ret_name,
    struct np_device_options *ret_options, struct np_report *report)
{
    char canonical[NP_DEVICE_NAME] = "auto";
    struct np_device_options options = {0};
    const struct np_node *args = NULL;
    const char *name = NULL;
    const bool is_word = node && node->kind == NP_NODE_SCALAR;

    if (node && (!np_node_named(node, &name, &args) || !np_device_find(name, canonical)))
        return np_report_add(report, node->line, node->column,
            "device: expected " NP_DEVICE_NAMES " or {sim: {...}}%s%.40s%s",
            is_word ? ", not '" : "", is_word ? node->text : "", is_word ? "'" : "");
    const bool sim = strcmp(canonical, "sim") == 0;
    if (args && !sim)
        return np_report_add(
            report, args->line, args->column, "device: %s takes no options", canonical);
    if (sim && np_options_parse(sim_table, args, "device.sim", NULL, &options, report) < 0)
        return -EINVAL;
    options.ordinal = cuda_ordinal(canonical) > 0 ? cuda_ordinal(canonical) : 0;
    *ret_name = np_strdup(canonical);
    *ret_options = options;
    return 0;
}

struct np_node *np_device_node(const char *name, const struct np_device_options *options)
{
    if (strcmp(name, "sim") == 0)
        return np_choice_node(&np_device_choices[0], options);
    return np_node_scalar(name, 0, 0);
}
