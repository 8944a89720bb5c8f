/* The runtime is linked statically and looks for the driver at its first call, so all of this works
 * without a driver. */
#include "trainer/cuda/gpu_cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_MAJOR  8 /* sm_80: bf16, and the copies that kernels rely on */
#define MIN_DRIVER (CUDART_VERSION >= 13000 ? 580 : 525)
#define INSTALL_DRIVER                                                                             \
    "install NVIDIA's driver %d or newer (in a container: run it with --gpus all), or use "        \
    "device: cpu"

int np_cuda_check(
    const struct np_device *device, cudaError_t status, const char *what, struct np_err *err)
{
    if (status == cudaSuccess)
        return 0;
    cudaGetLastError(); /* cleared, so that checks of kernel launches do not find it */
    return np_err_set(err, status == cudaErrorMemoryAllocation ? -ENOMEM : -EIO, "%s%s%s: %s: %s",
        device ? device->name : "", device ? ": " : "", what, cudaGetErrorName(status),
        cudaGetErrorString(status));
}

static bool read_line(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(text, (int)text_bytes, file) != NULL;

    if (file)
        fclose(file);
    if (read)
        text[strcspn(text, "\n")] = '\0';
    else
        *text = '\0';
    return read;
}

void np_cuda_driver_text(char *text, size_t text_bytes)
{
    read_line("/sys/module/nvidia/version", text, text_bytes);
}

bool np_cuda_pci_file(int ordinal, const char *name, char *text, size_t text_bytes)
{
    char id[32] = "", path[128];

    if (cudaDeviceGetPCIBusId(id, sizeof(id), ordinal) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    for (char *c = id; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", id, name);
    return read_line(path, text, text_bytes);
}

int np_cuda_node(int ordinal)
{
    char text[32];

    return np_cuda_pci_file(ordinal, "numa_node", text, sizeof(text)) ? atoi(text) : -1;
}

static int no_driver(struct np_err *err)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (!driver)
        return np_err_set(err, -ENODEV,
            "no NVIDIA driver: this machine has no libcuda.so.1; " INSTALL_DRIVER, MIN_DRIVER);
    dlclose(driver);
    return np_err_set(err, -ENODEV,
        "the NVIDIA driver does not work: libcuda.so.1 exists, but its kernel module is not "
        "loaded; load it (modprobe nvidia), or " INSTALL_DRIVER,
        MIN_DRIVER);
}

static int old_driver(int version, struct np_err *err)
{
    char name[64];

    np_cuda_driver_text(name, sizeof(name));
    return np_err_set(err, -ENODEV,
        "the NVIDIA driver%s%s supports CUDA %d.%d, and this plugin needs %d.%d; " INSTALL_DRIVER,
        *name ? " " : "", name, version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10, MIN_DRIVER);
}

static int no_gpu(struct np_err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return np_err_set(err, -ENODEV, "the NVIDIA driver sees no GPU%s%.100s%s; use device: cpu",
        visible ? " (CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "", visible ? "')" : "");
}

int np_cuda_count(int *ret_n, struct np_err *err)
{
    int version = 0, n = 0;
    cudaError_t status = cudaDriverGetVersion(&version);

    if (status == cudaSuccess)
        status = cudaGetDeviceCount(&n);
    cudaGetLastError();
    switch ((int)status) {
    case cudaSuccess:
        if (n == 0)
            return no_gpu(err);
        *ret_n = n;
        return 0;
    case cudaErrorNoDevice: return no_gpu(err);
    case cudaErrorStubLibrary: return no_driver(err);
    case cudaErrorInsufficientDriver: return version ? old_driver(version, err) : no_driver(err);
    case cudaErrorSystemNotReady:
        return np_err_set(err, -ENODEV,
            "the GPUs are not ready: on a machine with NVSwitch the fabric manager has to run "
            "(systemctl start nvidia-fabricmanager)");
    case cudaErrorSystemDriverMismatch:
        return np_err_set(err, -ENODEV,
            "libcuda.so.1 and the kernel's nvidia module are of different versions: restart the "
            "machine after a driver's update");
    default: np_cuda_check(NULL, status, "to look for GPUs", err); return -ENODEV;
    }
}

static int check_mode(int ordinal, struct np_err *err)
{
    int mode = cudaComputeModeDefault;

    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal) != cudaSuccess)
        cudaGetLastError();
    if (mode == cudaComputeModeProhibited)
        return np_err_set(err, -ENODEV,
            "cuda:%d: this GPU's compute mode is `prohibited`: no program may use it until "
            "`nvidia-smi -i %d -c 0`",
            ordinal, ordinal);
    return 0;
}

int np_cuda_usable(int ordinal, int n, struct cudaDeviceProp *ret_props, struct np_err *err)
{
    int code;

    if (ordinal >= n && n == 1)
        return np_err_set(
            err, -ENODEV, "there is no cuda:%d: this machine has one GPU, cuda:0", ordinal);
    if (ordinal >= n)
        return np_err_set(err, -ENODEV,
            "there is no cuda:%d: this machine has %d GPUs, cuda:0 to cuda:%d", ordinal, n, n - 1);
    code = np_cuda_check(NULL, cudaGetDeviceProperties(ret_props, ordinal), "its properties", err);
    if (code < 0)
        return code;
    if (ret_props->major < MIN_MAJOR)
        return np_err_set(err, -ENODEV,
            "cuda:%d: %.100s is sm_%d%d, and nnpipe needs at least sm_%d0: Ampere (A100, "
            "RTX 30) or newer",
            ordinal, ret_props->name, ret_props->major, ret_props->minor, MIN_MAJOR);
    return check_mode(ordinal, err);
}
