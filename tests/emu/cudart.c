/* The emulated runtime's settings, lock, errors and device. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/emu/cudart_inside.h"

extern void (*np_emu_enqueue)(
    void *stream, void (*run)(void *job), void (*drop)(void *job), void *job);
extern void (*np_emu_argument)(const char *kernel, uint64_t word, int is_pointer);
extern void (*np_emu_load)(void *stream, const void *kernel);
void np_emu_seed(uint64_t seed); /* all of grid.cc */

static pthread_mutex_t lock;
static bool running; /* an operation: the API may not be called from inside */
static uint64_t draws, memory_bytes = 2ull << 30, fail_at, nr_calls, nr_devices = 1;
static uint64_t drop_at, nr_waits;
static bool steady, launched, modelled;
static const char *dies; /* NNPIPE_EMU_DIES */
static int depth;        /* of the lock */
static cudaError_t dead; /* an error of what ran: each call has it from then on */
static __thread cudaError_t last_error;
static __thread int current; /* device */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
    nr_devices = setting("NNPIPE_EMU_DEVICES", 1);
    drop_at = setting("NNPIPE_EMU_DROP", 0);
    modelled = setting("NNPIPE_EMU_CLOCK", 0);
    steady = setting("NNPIPE_EMU_STEADY", 0);
    dies = getenv("NNPIPE_EMU_DIES");
    const uint64_t rank = setting("NNPIPE_RANK", 0);
    const bool fails = setting("NNPIPE_EMU_FAIL_RANK", rank) == rank;
    np_emu_set(setting("NNPIPE_EMU_SEED", 1), setting("NNPIPE_EMU_MEMORY", memory_bytes),
        fails ? setting("NNPIPE_EMU_FAIL", 0) : 0);
    np_emu_enqueue = np_emu_launch_kernel;
    np_emu_argument = np_emu_check_argument;
    np_emu_load = np_emu_load_kernel;
}

void np_emu_set(uint64_t seed, uint64_t memory, uint64_t fail)
{
    draws = seed;
    np_emu_seed(seed);
    memory_bytes = memory;
    fail_at = fail;
    nr_calls = 0;
    dead = cudaSuccess;
    last_error = cudaSuccess;
}

void np_emu_unload(void)
{
    np_emu_lock();
    dead = cudaErrorCudartUnloading;
    np_emu_unlock();
}

uint64_t np_emu_draw(void) /* splitmix64 */
{
    uint64_t z = (draws += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t np_emu_memory_bytes(void)
{
    return memory_bytes;
}

uint64_t np_emu_calls(void)
{
    return nr_calls;
}

_Noreturn void np_emu_die(const char *who, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "cudart: %s: ", who);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

void *np_emu_new(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (!memory)
        np_emu_die("emulation", "no memory for %zu bytes", bytes);
    return memory;
}

/* The GPU has fallen off the bus: nothing works any more in this process. */
static void die_where_told(void)
{
    FILE *file = dies && !dead ? fopen(dies, "r") : NULL;
    unsigned long long at = 0;

    if (!file)
        return;
    if (fscanf(file, "%llu", &at) == 1 && nr_calls >= at)
        dead = cudaErrorLaunchFailure;
    fclose(file);
}

bool np_emu_fails(const char *call)
{
    die_where_told();
    if (dead)
        return true;
    if (++nr_calls != fail_at)
        return false;
    fprintf(stderr, "cudart: call %llu, %s, fails as NNPIPE_EMU_FAIL says\n",
        (unsigned long long)nr_calls, call);
    return true;
}

bool np_emu_drops_wait(void)
{
    return ++nr_waits == drop_at;
}

static void report_bytes(void)
{
    const char *path = getenv("NNPIPE_EMU_BYTES");
    FILE *file = path ? fopen(path, "w") : NULL;
    struct np_emu_counts counts;

    if (!file)
        return;
    np_emu_count(&counts);
    fprintf(file, "%llu\n", (unsigned long long)counts.bytes);
    fclose(file);
}

bool np_emu_models_clock(void)
{
    return modelled;
}

void np_emu_launched(void)
{
    if (launched || nr_waits == 0) /* no batch yet: plans are timed */
        return;
    launched = true;
    report_bytes();
}

void np_emu_check_steady(const char *call, const char *what)
{
    if (steady && launched)
        np_emu_die(call, "%s behind the first graph, and NNPIPE_EMU_STEADY forbids it", what);
}

bool np_emu_enter(const char *call)
{
    np_emu_lock();
    if (running)
        np_emu_die(call, "called by what runs in a stream");
    return !np_emu_fails(call);
}

/* Is it the error of an earlier kernel or copy, and not of the call that returns it? */
static bool is_sticky(cudaError_t status)
{
    return status == cudaErrorLaunchFailure || status == cudaErrorIllegalAddress;
}

/* NVIDIA's guide says that "not ready" is not kept as the last error; runtimes have kept it. Drawn. */
static bool is_kept(cudaError_t status)
{
    return status != cudaSuccess &&
           (status != cudaErrorNotReady || (last_error == cudaSuccess && np_emu_draw() % 2));
}

cudaError_t np_emu_leave(cudaError_t status)
{
    if (!dead && is_sticky(status))
        dead = status;
    if (dead)
        status = dead;
    if (is_kept(status))
        last_error = status;
    np_emu_unlock();
    return status;
}

void np_emu_lock(void)
{
    pthread_mutex_lock(&lock);
    depth++;
}

void np_emu_unlock(void)
{
    if (--depth == 0)
        np_emu_hide_memory();
    pthread_mutex_unlock(&lock);
}

bool np_emu_dead(void)
{
    return dead != cudaSuccess;
}

void np_emu_refuse_launch(cudaError_t status)
{
    if (!dead)
        last_error = status;
}

void np_emu_run(struct work *work)
{
    np_emu_show_memory();
    running = true;
    work->run(work->job);
    running = false;
}

static bool others; /* an operation waits for another process */

bool np_emu_ready(struct work *work)
{
    if (!work || !work->ready)
        return true;
    np_emu_show_memory();
    if (work->ready(work->job))
        return true;
    others = true;
    return false;
}

/* The lock is free meanwhile: another thread may do what ends the wait. */
bool np_emu_await_others(void)
{
    const struct timespec moment = {0, 200000};
    const int held = depth;

    if (!others)
        return false;
    others = false;
    for (int i = 0; i < held; i++)
        np_emu_unlock();
    nanosleep(&moment, NULL);
    for (int i = 0; i < held; i++)
        np_emu_lock();
    return true;
}

bool np_emu_progress(void)
{
    np_emu_lock();
    others = false;
    const bool ran = !np_emu_dead() && !running && np_emu_advance();
    np_emu_unlock();
    return ran;
}

/* --- errors ---------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = dead ? dead : last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return dead ? dead : last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
        "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
        "pointer does not correspond to a registered memory region"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
        "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
        "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
        "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
        "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
        "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
        "too many resources requested for launch"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
        "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

/* --- the device ------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorUnknown);
    *count = (int)nr_devices;
    return np_emu_leave(nr_devices ? cudaSuccess : cudaErrorNoDevice);
}

static cudaError_t check_device(int device)
{
    return device >= 0 && (uint64_t)device < nr_devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorUnknown);
    *device = current;
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorUnknown);
    if (check_device(device) == cudaSuccess)
        current = device;
    return np_emu_leave(check_device(device));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *props, int device)
{
    if (!np_emu_enter(__func__) || check_device(device))
        return np_emu_leave(cudaErrorInvalidDevice);
    *props = (struct cudaDeviceProp){.name = "Emulated H200",
        .totalGlobalMem = memory_bytes,
        .major = 9,
        .multiProcessorCount = 132,
        .ECCEnabled = 1,
        .l2CacheSize = 62914560};
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (!np_emu_enter(__func__) || check_device(device))
        return np_emu_leave(cudaErrorInvalidDevice);
    switch ((int)attr) {
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 6144; break;
    case cudaDevAttrComputeMode: *value = cudaComputeModeDefault; break;
    default: np_emu_die(__func__, "attribute %d is not emulated", (int)attr);
    }
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device)
{
    if (!np_emu_enter(__func__) || check_device(device))
        return np_emu_leave(cudaErrorInvalidDevice);
    snprintf(text, (size_t)room, "0000:%02X:00.0", 0xee + device);
    return np_emu_leave(room > 12 ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = nr_devices ? 13000 : 0;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    (void)flags;
    return cudaSuccess;
}
