/* `nnpipe devices`: lists the devices of this machine, and why some are not usable. */
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "trainer/device.h"

/* For a GPU a line per library, "cudnn  9.19.0  /usr/lib/libcudnn.so.9"; else "oneDNN 3.1, vectors
 * avx2". */
static void print_library(const struct np_device_info *info, int i)
{
    const struct np_library *library = &info->libraries[i];

    if (strcmp(info->kind, "cuda") == 0)
        printf("\n%15s %-9s %-14s %s", "", library->name, library->version, library->path);
    else
        printf("%s%s %s", i ? ", " : "  ", library->name, library->version);
}

static void print_text(void *context, const struct np_device_info *info)
{
    printf("%-8s %-6s %s", info->name, info->kind, *info->reason ? "not usable" : "usable");
    if (*info->gpu)
        printf("  %s, %s, %.1f GiB", info->gpu, info->arch, (double)info->memory_bytes / (1 << 30));
    if (*info->reason)
        printf(": %s", info->reason);
    for (int i = 0; i < info->nr_libraries; i++)
        print_library(info, i);
    putchar('\n');
}

/* {library: version}, or {library: path} for those with a path. */
static void put_libraries(
    struct np_json *line, const char *key, const struct np_device_info *info, bool paths)
{
    np_json_open(line, key, '{');
    for (int i = 0; i < info->nr_libraries; i++) {
        const struct np_library *library = &info->libraries[i];

        if (!paths || *library->path)
            np_json_text(line, library->name, paths ? library->path : library->version);
    }
    np_json_close(line, '}');
}

static void print_json(void *context, const struct np_device_info *info)
{
    const bool cuda = strcmp(info->kind, "cuda") == 0;
    struct np_json line = {0};

    np_json_begin(&line, "device");
    np_json_text(&line, "name", info->name);
    np_json_text(&line, "kind", info->kind);
    np_json_bool(&line, "usable", !*info->reason);
    np_json_text(&line, "reason", info->reason);
    if (*info->gpu) {
        np_json_text(&line, "gpu", info->gpu);
        np_json_text(&line, "arch", info->arch);
        np_json_int(&line, "memory_bytes", (int64_t)info->memory_bytes);
    }
    put_libraries(&line, "versions", info, false);
    if (cuda && info->nr_libraries)
        put_libraries(&line, "paths", info, true);
    if (cuda && !*info->gpu)
        np_json_text(&line, "seen", info->seen);
    np_json_print(&line, stdout);
    np_json_fini(&line);
}

int np_cmd_devices(int argc, char **argv)
{
    bool json = false;
    const struct np_flag flags[] = {{"--json", NULL, &json, NULL}, {NULL, NULL, NULL, NULL}};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0 && nr != 0)
        code = np_usage("devices", "takes no operands");
    if (code == 0)
        np_device_list(json ? print_json : print_text, NULL);
    return code;
}
