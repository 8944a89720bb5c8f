/* `nnpipe doctor` for a GPU: compares the rates of bus, memory and clocks with the possible rates,
 * which follow from the link's generation and width and from the memory's clock and width. Events
 * on a stream of its own time the copies. Main thread. */
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/text.h"
#include "trainer/cuda/device_cuda.h"

#define H2D_BYTES  (64ull << 20)
#define D2D_BYTES  (256ull << 20)
#define MEASURE_MS 300.0
#define MAX_COPIES 2000
#define MIN_BUS    0.70 /* of the link's rate: headers and flow control take up to a fifth */
#define MIN_MEMORY 0.75

/* --- NVML ------------------------------------------------------------------------------------- */

/* The driver's management library: clocks, ECC, persistence. Loaded at run time if present. Its
 * header is often not installed; these calls have not changed in ten years. */
struct nvml_facts { /* -1: not reported */
    int sm_mhz, max_sm_mhz, memory_mhz, max_memory_mhz;
    int watts, watts_limit, watts_default;
    int ecc, ecc_pending;     /* 0 off, 1 on */
    long long ecc_errors;     /* uncorrected, since the driver was loaded */
    int persistence;          /* 0 off, 1 on */
    long long slowed_reasons; /* bits of why clocks are lower: NVML_* */
};
#define NVML_POWER_CAP   0x04ll
#define NVML_HW_SLOWDOWN 0x08ll
#define NVML_THERMAL     0x60ll /* by software or hardware */
#define NVML_POWER_BRAKE 0x80ll

#define CLOCK_SM           1
#define CLOCK_MEMORY       2
#define ERRORS_UNCORRECTED 1
#define SINCE_LOADED       0

typedef int (*plain_fn)(void);
typedef int (*find_fn)(const char *pci_id, void **ret_device);
typedef int (*clock_fn)(void *device, unsigned which, unsigned *ret_mhz);
typedef int (*number_fn)(void *device, unsigned *ret_number);
typedef int (*ecc_fn)(void *device, unsigned *ret_now, unsigned *ret_pending);
typedef int (*errors_fn)(
    void *device, unsigned kind, unsigned counter, unsigned long long *ret_count);
typedef int (*reasons_fn)(void *device, unsigned long long *ret_reasons);

struct nvml {
    void *library, *device; /* device NULL: the library is missing, or does not know the GPU */
};

/* Sets *ret_function, a pointer to a function; NULL: the library lacks it. */
static void find(const struct nvml *nvml, const char *name, void *ret_function)
{
    void *address = dlsym(nvml->library, name);

    memcpy(ret_function, &address, sizeof(address));
}

static void nvml_close(struct nvml *nvml)
{
    plain_fn shutdown = NULL;

    if (nvml->device)
        find(nvml, "nvmlShutdown", &shutdown);
    if (shutdown)
        shutdown();
    if (nvml->library)
        dlclose(nvml->library);
}

/* pci_id: "0000:3B:00.0". */
static void nvml_open(struct nvml *nvml, const char *pci_id)
{
    plain_fn init;
    find_fn handle;

    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return;
    find(nvml, "nvmlInit_v2", &init);
    find(nvml, "nvmlDeviceGetHandleByPciBusId_v2", &handle);
    if (!init || !handle || init() != 0 || handle(pci_id, &nvml->device) != 0)
        nvml->device = NULL;
}

static int clock_of(const struct nvml *nvml, const char *name, unsigned which)
{
    unsigned mhz = 0;
    clock_fn call;

    find(nvml, name, &call);
    return call && call(nvml->device, which, &mhz) == 0 ? (int)mhz : -1;
}

static int number_of(const struct nvml *nvml, const char *name, unsigned scale)
{
    unsigned number = 0;
    number_fn call;

    find(nvml, name, &call);
    return call && call(nvml->device, &number) == 0 ? (int)(number / scale) : -1;
}

static void read_ecc(const struct nvml *nvml, struct nvml_facts *facts)
{
    unsigned now = 0, pending = 0;
    unsigned long long errors = 0;
    ecc_fn mode;
    errors_fn total;

    find(nvml, "nvmlDeviceGetEccMode", &mode);
    find(nvml, "nvmlDeviceGetTotalEccErrors", &total);
    facts->ecc = facts->ecc_pending = -1;
    facts->ecc_errors = -1;
    if (mode && mode(nvml->device, &now, &pending) == 0) {
        facts->ecc = (int)now;
        facts->ecc_pending = (int)pending;
    }
    if (total && total(nvml->device, ERRORS_UNCORRECTED, SINCE_LOADED, &errors) == 0)
        facts->ecc_errors = (long long)errors;
}

/* Call it under load: idle clocks are low. */
static void nvml_read(const struct nvml *nvml, struct nvml_facts *ret_facts)
{
    unsigned long long reasons = 0;
    reasons_fn slowed;

    find(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", &slowed);
    ret_facts->sm_mhz = clock_of(nvml, "nvmlDeviceGetClockInfo", CLOCK_SM);
    ret_facts->max_sm_mhz = clock_of(nvml, "nvmlDeviceGetMaxClockInfo", CLOCK_SM);
    ret_facts->memory_mhz = clock_of(nvml, "nvmlDeviceGetClockInfo", CLOCK_MEMORY);
    ret_facts->max_memory_mhz = clock_of(nvml, "nvmlDeviceGetMaxClockInfo", CLOCK_MEMORY);
    ret_facts->watts = number_of(nvml, "nvmlDeviceGetPowerUsage", 1000);
    ret_facts->watts_limit = number_of(nvml, "nvmlDeviceGetEnforcedPowerLimit", 1000);
    ret_facts->watts_default = number_of(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", 1000);
    ret_facts->persistence = number_of(nvml, "nvmlDeviceGetPersistenceMode", 1);
    ret_facts->slowed_reasons =
        slowed && slowed(nvml->device, &reasons) == 0 ? (long long)reasons : -1;
    read_ecc(nvml, ret_facts);
}

/* --- a visit ---------------------------------------------------------------------------------- */

struct visit {
    struct np_device *device;
    struct np_cuda *cuda;
    struct nvml nvml;
    struct nvml_facts loaded;
    np_found_fn found;
    void *context;
};

/* advice: of a warning. */
__attribute__((format(printf, 5, 6))) static void report(const struct visit *visit,
    enum np_verdict verdict, const char *what, const char *advice, const char *format, ...)
{
    char text[560];
    const struct np_finding finding = {
        verdict, what, text, verdict == NP_FOUND_WARN ? advice : NULL};
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    visit->found(visit->context, &finding);
}

static enum np_verdict ok_if(bool good)
{
    return good ? NP_FOUND_OK : NP_FOUND_WARN;
}

/* --- bandwidths ---------------------------------------------------------------------------- */

struct copies {
    void *to;
    const void *from;
    size_t bytes;
    enum cudaMemcpyKind kind;
};

static cudaError_t time_copies(struct visit *visit, const struct copies *copies, cudaEvent_t start,
    cudaEvent_t end, int n, float *ret_ms)
{
    cudaStream_t stream = visit->cuda->streams[NP_STREAM_COPY];
    cudaError_t status = cudaEventRecord(start, stream);

    for (int i = 0; i < n && status == cudaSuccess; i++)
        status = cudaMemcpyAsync(copies->to, copies->from, copies->bytes, copies->kind, stream);
    if (status == cudaSuccess)
        status = cudaEventRecord(end, stream);
    if (status == cudaSuccess && visit->nvml.device && copies->kind == cudaMemcpyDeviceToDevice)
        nvml_read(&visit->nvml, &visit->loaded); /* while the copies run */
    if (status == cudaSuccess)
        status = cudaEventSynchronize(end);
    if (status == cudaSuccess)
        status = cudaEventElapsedTime(ret_ms, start, end);
    return status;
}

/* Measures the rate, in 10^9 bytes a second. The first two copies warm up and give the number of
 * copies that fills the time. */
static int measure(
    struct visit *visit, const struct copies *copies, double *ret_gbps, struct np_err *err)
{
    cudaEvent_t start = NULL, end = NULL;
    float ms = 0;
    int n = 1;
    cudaError_t status = cudaEventCreateWithFlags(&start, cudaEventBlockingSync);

    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&end, cudaEventBlockingSync);
    if (status == cudaSuccess)
        status = time_copies(visit, copies, start, end, 2, &ms);
    if (status == cudaSuccess) {
        double max = MEASURE_MS / (ms > 0.001f ? (double)ms / 2 : 0.0005);
        n = max < 2 ? 2 : max > MAX_COPIES ? MAX_COPIES : (int)max;
        status = time_copies(visit, copies, start, end, n, &ms);
    }
    *ret_gbps = (double)copies->bytes * n / ((ms > 0 ? (double)ms : 1e-3) * 1e6);
    if (start)
        cudaEventDestroy(start);
    if (end)
        cudaEventDestroy(end);
    return np_cuda_check(visit->device, status, "to time copies", err);
}

/* "32.0 GT/s PCIe" and "16" -> 10^9 bytes a second one way; 0: unknown. */
static double link_gbps(const char *speed, const char *width)
{
    double gts = atof(speed);
    int lanes = atoi(width);
    double coded = gts < 6 ? 0.8 : gts < 60 ? 128.0 / 130 : 242.0 / 256;

    return gts > 0 && lanes > 0 ? gts * lanes * coded / 8 : 0;
}

static void judge_bus(const struct visit *visit, double gbps)
{
    char speed[64], width[32], max_speed[64], max_width[32];
    int ordinal = visit->cuda->ordinal;
    bool known = np_cuda_pci_file(ordinal, "current_link_speed", speed, sizeof(speed)) &
                 np_cuda_pci_file(ordinal, "current_link_width", width, sizeof(width)) &
                 np_cuda_pci_file(ordinal, "max_link_speed", max_speed, sizeof(max_speed)) &
                 np_cuda_pci_file(ordinal, "max_link_width", max_width, sizeof(max_width));
    double link = known ? link_gbps(speed, width) : 0,
           max = known ? link_gbps(max_speed, max_width) : 0;

    if (max < link) /* an idle link is slow: it may have gone to sleep */
        max = link;
    if (link < gbps) /* a virtual machine does not see the real link */
        link = max;
    if (link <= 0 || link < gbps) {
        report(visit, NP_FOUND_OK, "host to device", NULL,
            "%.1f GB/s from pinned memory; the link's possible rate is not reported", gbps);
        return;
    }
    report(visit, ok_if(gbps >= MIN_BUS * link), "host to device",
        "something shares the bus, or the memory is far: see the NUMA node below; other programs "
        "that copy; the IOMMU (iommu=pt)",
        "%.1f GB/s from pinned memory, %.0f%% of the link's %.1f (%s x%s)", gbps, 100 * gbps / link,
        link, speed, width);
    if (atoi(width) < atoi(max_width) && atoi(max_width) <= 16)
        report(visit, NP_FOUND_WARN, "PCIe width",
            "the slot, a riser or the board's layout gives it fewer lanes: try another slot",
            "x%s, but the GPU supports x%s", width, max_width);
}

/* Measures copies between two buffers, which may be NULL; false: failed, and reported. */
static bool measured(struct visit *visit, const struct copies *copies, const char *what,
    const char *advice, double *ret_gbps)
{
    const bool there = copies->to && copies->from;
    struct np_err err = {0};

    if (there && measure(visit, copies, ret_gbps, &err) == 0)
        return true;
    report(visit, NP_FOUND_WARN, what, advice, "%s", there ? err.text : visit->device->fault);
    return false;
}

static void look_at_bus(struct visit *visit)
{
    struct np_device *device = visit->device;
    void *host = device->pinned.alloc(device->pinned.context, H2D_BYTES);
    void *memory = device->ops->alloc(device, H2D_BYTES);
    double gbps;

    if (measured(visit, &(struct copies){memory, host, H2D_BYTES, cudaMemcpyHostToDevice},
            "host to device",
            "a run would fail in the same way: free memory of the GPU and of this machine", &gbps))
        judge_bus(visit, gbps);
    device->ops->free(device, memory);
    device->pinned.free(device->pinned.context, host, H2D_BYTES);
}

static void look_at_memory(struct visit *visit)
{
    struct np_device *device = visit->device;
    void *from = device->ops->alloc(device, D2D_BYTES), *to = device->ops->alloc(device, D2D_BYTES);
    int khz = 0, bits = 0;
    double gbps, max;

    cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, visit->cuda->ordinal);
    cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, visit->cuda->ordinal);
    max = 2.0 * khz * 1e3 * bits / 8 * 1e-9; /* two transfers per clock */
    if (measured(visit, &(struct copies){to, from, D2D_BYTES, cudaMemcpyDeviceToDevice},
            "device memory", "another process uses the GPU's memory: `nvidia-smi` names it",
            &gbps)) {
        gbps *= 2; /* read and written */
        report(visit, ok_if(gbps >= MIN_MEMORY * max), "device memory",
            "another process uses the GPU (`nvidia-smi`), or its clocks are lowered: see below",
            "%.0f GB/s copied within, %.0f%% of %.0f (%d MHz, %d bits)", gbps,
            max > 0 ? 100 * gbps / max : 0, max, khz / 1000, bits);
    }
    device->ops->free(device, from);
    device->ops->free(device, to);
}

/* --- the driver's library ------------------------------------------------------------------ */

static void judge_clocks(const struct visit *visit)
{
    const struct nvml_facts *facts = &visit->loaded;
    const long long bad = NVML_HW_SLOWDOWN | NVML_THERMAL | NVML_POWER_BRAKE;
    bool slowed = facts->slowed_reasons >= 0 && facts->slowed_reasons & bad;
    bool capped = facts->watts_limit > 0 && facts->watts_limit < facts->watts_default;

    report(visit, ok_if(!slowed && !capped), "clocks",
        slowed ? "look at its cooling and its power supply: `nvidia-smi -q -d PERFORMANCE`"
               : "`nvidia-smi -pl` restores the default limit",
        "SM %d of %d MHz, memory %d of %d MHz, %d W of %d%s%s", facts->sm_mhz, facts->max_sm_mhz,
        facts->memory_mhz, facts->max_memory_mhz, facts->watts, facts->watts_limit,
        slowed && facts->slowed_reasons & NVML_THERMAL ? "; slowed by heat"
        : slowed                                       ? "; slowed by the hardware"
                                                       : "",
        capped ? "; its power limit is lowered" : "");
}

static void judge_ecc(const struct visit *visit)
{
    const struct nvml_facts *facts = &visit->loaded;

    if (facts->ecc < 0)
        report(visit, NP_FOUND_SKIPPED, "ECC", NULL, "this GPU has none, or does not report it");
    else
        report(visit, ok_if(facts->ecc && facts->ecc_errors <= 0), "ECC",
            facts->ecc ? "its memory has failed: drain the machine, `nvidia-smi -q -d ECC`"
                       : "a flipped bit would not be detected: `nvidia-smi -e 1`, then restart",
            "%s%s, %lld uncorrected errors", facts->ecc ? "on" : "off",
            facts->ecc != facts->ecc_pending ? " until the next reset" : "",
            facts->ecc_errors > 0 ? facts->ecc_errors : 0);
}

static void judge_persistence(const struct visit *visit)
{
    const int persistence = visit->loaded.persistence;

    report(visit, persistence < 0 ? NP_FOUND_SKIPPED : ok_if(persistence), "persistence",
        "`systemctl enable --now nvidia-persistenced`, or `nvidia-smi -pm 1`", "%s",
        persistence < 0 ? "the driver does not report it"
        : persistence   ? "on"
                        : "off: the driver restarts for each run");
}

/* --- the rest ------------------------------------------------------------------------------ */

static void look_at_node(const struct visit *visit)
{
    char path[96], list[400] = "", advice[500];
    int node = visit->cuda->pinned.node, n;
    cpu_set_t allowed;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    file = node < 0 ? NULL : fopen(path, "re");
    bool read = file && fgets(list, sizeof(list), file);
    if (file)
        fclose(file);
    if (!read) {
        report(visit, NP_FOUND_SKIPPED, "NUMA node", NULL, "the GPU's NUMA node is not reported");
        return;
    }
    list[strcspn(list, "\n")] = '\0';
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    n = np_text_cpus(list, &allowed);
    snprintf(advice, sizeof(advice),
        "all batches cross between sockets: `taskset -c %s nnpipe ...`, or cpuset.cpus", list);
    report(visit, ok_if(n > 0), "NUMA node", advice,
        "%d; this process may use %d of its cores (%s)", node, n > 0 ? n : 0, list);
}

static void look_at_gpu(const struct visit *visit)
{
    const struct cudaDeviceProp *props = &visit->cuda->props;
    const struct np_cuda_libs *libs = &visit->cuda->libs;
    const bool compiles = libs->nvrtc_library.handle;

    report(visit, NP_FOUND_OK, visit->device->name, NULL, "%s, sm_%d%d, %.1f GiB", props->name,
        props->major, props->minor, (double)props->totalGlobalMem / (1 << 30));
    report(visit, ok_if(compiles), "libraries",
        "cuDNN's engines that compile at run time cannot be used, which costs speed: install "
        "NVRTC (`apt install cuda-nvrtc-13-0` or `pip install nvidia-cuda-nvrtc`)",
        "cuDNN %s, cuBLASLt %s, NVRTC %s", libs->cudnn_library.version,
        libs->cublaslt_library.version, compiles ? libs->nvrtc_library.version : "missing");
}

static void look_at_all(struct visit *visit)
{
    look_at_gpu(visit);
    look_at_bus(visit);
    look_at_memory(visit);
    if (visit->nvml.device) {
        judge_clocks(visit);
        judge_ecc(visit);
        judge_persistence(visit);
    } else {
        report(visit, NP_FOUND_SKIPPED, "clocks, ECC", NULL,
            "libnvidia-ml.so.1 is missing, or does not know this GPU");
    }
    look_at_node(visit);
}

int np_cuda_doctor(int ordinal, np_found_fn found, void *context, struct np_err *err)
{
    const struct np_device_options options = {.ordinal = ordinal};
    struct np_device *device = np_alloc(sizeof(*device));
    struct visit visit = {.device = device, .found = found, .context = context};
    char id[32] = "";
    int code;

    device->ops = &np_cuda_ops;
    snprintf(device->name, sizeof(device->name), "cuda:%d", ordinal);
    code = np_cuda_ops.open(device, &options, err);
    if (code == 0) {
        visit.cuda = device->state;
        if (cudaDeviceGetPCIBusId(id, sizeof(id), ordinal) == cudaSuccess)
            nvml_open(&visit.nvml, id);
        look_at_all(&visit);
        nvml_close(&visit.nvml);
        np_cuda_ops.close(device);
    }
    np_free(device);
    return code;
}
