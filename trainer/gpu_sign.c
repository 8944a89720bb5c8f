/* See gpu_sign.h. Looks for the kernel module's files first, and calls the driver's library when
 * there are none, as on WSL. */
#include "trainer/gpu_sign.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* A driver that has been started must stay loaded: it may have threads. */
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

bool np_gpu_sign(char *text, size_t text_bytes)
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
