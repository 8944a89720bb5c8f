/* The CUDA device over the emulated runtime: opening and closing, pinned pages, copies in their order,
 * event times, each call of the runtime failing once. The libraries are empty ones (device.sh). Prints
 * an "ok -" or "not ok -" line each. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "tests/emu/cudart.h"
#include "trainer/cuda/device_cuda.h"
#include "trainer/cuda/kernels_cuda.h"

#define BYTES (3u << 20)

/* planted.cu */
void planted_add_ones(void *stream, int blocks, int idle, float *out);
void planted_zero(void *stream, float *x, int n);
void planted_set_step(void *stream, struct np_cuda_step *step, const struct np_cuda_step *value);

const struct np_plan_ops np_cuda_plan_ops = {0}; /* nothing is computed here */
static int nr_failed;

static void is(bool passed, const char *sentence, const char *why)
{
    printf(
        "%s - %s%s%s\n", passed ? "ok" : "not ok", sentence, passed ? "" : ": ", passed ? "" : why);
    nr_failed += !passed;
}

static int open_device(struct np_device *device, int ordinal, struct np_err *err)
{
    const struct np_device_options options = {.ordinal = ordinal};

    *device = (struct np_device){.ops = &np_cuda_ops, .pinned = np_page_allocator};
    snprintf(device->name, sizeof(device->name), "cuda:%d", ordinal);
    return np_cuda_ops.open(device, &options, err);
}

/* Copies into one buffer in turn, each behind the other's event, and what lies there at the end is the
 * last one's. Returns 0, or what failed. */
static int copy_in_turn(struct np_device *device, uint8_t *ret_last)
{
    const struct np_device_ops *ops = device->ops;
    struct np_event events[4] = {{0}};
    uint8_t *host = device->pinned.alloc(device->pinned.context, BYTES);
    void *memory = ops->alloc(device, BYTES);
    uint64_t before_ns = np_now_ns(), last_ns = 0;
    int code = host && memory ? 0 : -ENOMEM;

    for (int i = 0; i < 4 && code == 0; i++) {
        if (i > 0) /* the host's buffer is written when the copy before has passed */
            code = ops->done(device, &events[i - 1], true) < 0 ? -EIO : 0;
        if (i > 0 && code == 0 &&
            (events[i - 1].passed_ns < last_ns || events[i - 1].passed_ns > np_now_ns()))
            code = -ERANGE;
        if (i > 0)
            last_ns = events[i - 1].passed_ns;
        memset(host, i + 1, BYTES);
        if (code == 0)
            code = ops->upload(device, memory, host, BYTES);
        ops->record(device, NP_STREAM_COPY, &events[i]);
        ops->follow(device, NP_STREAM_COMPUTE, &events[i]);
    }
    if (code == 0)
        code = ops->done(device, &events[3], true) == 1 &&
                       events[3].passed_ns + 1000000000u > before_ns
                   ? 0
                   : -EIO;
    if (code == 0 &&
        cudaMemcpy(ret_last, (uint8_t *)memory + BYTES - 1, 1, cudaMemcpyDeviceToHost)) {
        snprintf(device->fault, sizeof(device->fault), "the test's own copy");
        code = -EIO;
    }
    ops->free(device, memory);
    device->pinned.free(device->pinned.context, host, BYTES);
    return code;
}

static void test_copies(void)
{
    struct np_device device;
    struct np_err err = {0};
    uint8_t last = 0;
    struct np_event never = {0};

    is(open_device(&device, 0, &err) == 0, "a GPU is opened", err.text);
    is(device.auto_precision == NP_BF16, "precision auto is bf16 there", "it is not");
    is(copy_in_turn(&device, &last) == 0 && last == 4, "copies pass in order, at rising times",
        device.fault);
    is(np_cuda_ops.done(&device, &never, true) == 1, "an event never recorded has passed", "no");
    np_cuda_ops.close(&device);
}

static void test_pinned(void)
{
    static const size_t sizes[] = {1, 4096, 5000, (2u << 20) - 1, 2u << 20, (6u << 20) + 1};
    struct np_device device;
    struct np_err err = {0};
    bool aligned = true, zero = true, reached = true;

    if (open_device(&device, 0, &err) < 0)
        return is(false, "pinned pages", err.text);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char *memory = device.pinned.alloc(device.pinned.context, sizes[i]);

        aligned = aligned && memory && (uintptr_t)memory % 4096 == 0;
        zero = zero && memory && memory[0] == 0 && memory[sizes[i] - 1] == 0;
        reached = reached && memory && np_emu_holds(memory, sizes[i]);
        if (i % 2) /* the others are left for close() */
            device.pinned.free(device.pinned.context, memory, sizes[i]);
    }
    is(aligned && zero, "pinned pages are aligned and zero", "they are not");
    is(reached, "the device reaches all of a pinned block", "it does not");
    device.pinned.free(device.pinned.context, NULL, 0);
    is(!device.pinned.alloc(device.pinned.context, SIZE_MAX - 5), "a size beyond all is refused",
        "it is not");
    np_cuda_ops.close(&device);
}

/* Anchors are renewed each second; times stay the host's all the while. */
static void test_clock(void)
{
    struct np_device device;
    struct np_err err = {0};
    struct np_event event = {0};
    uint64_t first_anchor_ns;
    bool right = true;

    if (open_device(&device, 0, &err) < 0)
        return is(false, "times of events", err.text);
    const struct np_cuda_clock *clock = &((struct np_cuda *)device.state)->clock;
    first_anchor_ns = clock->anchor_ns[clock->current];
    for (int i = 0; i < 26; i++) {
        uint64_t from_ns = np_now_ns();

        device.ops->record(&device, NP_STREAM_COMPUTE, &event);
        right = right && device.ops->done(&device, &event, true) == 1 &&
                event.passed_ns + 2000000 > from_ns && event.passed_ns <= np_now_ns();
        usleep(50000);
    }
    is(right, "events pass between their record and now, by the host's clock", "they do not");
    is(clock->anchor_ns[clock->current] > first_anchor_ns + 900000000u,
        "the clock's anchor is renewed", "it is not");
    np_cuda_ops.close(&device);
}

static void ignore(void *context, const struct np_finding *finding)
{
    int *counts = context;

    counts[finding->verdict]++;
}

static void test_doctor(void)
{
    struct np_err err = {0};
    int counts[3] = {0};

    is(np_cuda_doctor(0, ignore, counts, &err) == 0 && counts[0] + counts[1] >= 4,
        "the doctor finds GPU, libraries, bus and memory", err.text);
    is(np_cuda_doctor(7, ignore, counts, &err) == -ENODEV &&
            strstr(err.text, "there is no cuda:7: this machine has one GPU, cuda:0"),
        "the doctor of a missing GPU prints the number of GPUs", err.text);
}

/* Every call of the runtime fails once: the device reports it or did not need the call, and nothing leaks. */
static void test_faults(void)
{
    struct np_emu_counts counts;
    struct np_device device;
    uint64_t nr_calls, reported = 0, silent = 0;
    uint8_t last;

    np_emu_set(1, 256u << 20, 0);
    if (open_device(&device, 0, NULL) == 0) {
        copy_in_turn(&device, &last);
        np_cuda_ops.close(&device);
    }
    np_emu_count(&counts);
    nr_calls = counts.calls;
    for (uint64_t i = 1; i <= nr_calls; i++) {
        struct np_err err = {0};

        np_emu_set(1, 256u << 20, i);
        int code = open_device(&device, 0, &err);
        if (code < 0) {
            reported += *err.text != '\0';
            silent += *err.text == '\0';
            continue;
        }
        code = copy_in_turn(&device, &last);
        if (code < 0) {
            reported += *device.fault != '\0';
            silent += *device.fault == '\0';
        }
        np_cuda_ops.close(&device);
        np_emu_count(&counts);
        silent += counts.bytes != 0;
    }
    np_emu_set(1, 256u << 20, 0);
    printf("# %llu calls, %llu reported\n", (unsigned long long)nr_calls,
        (unsigned long long)reported);
    is(nr_calls > 20 && reported > nr_calls / 2 && silent == 0,
        "every call of the runtime fails once, with words and without a leak",
        "some failed without a word, or kept memory");
}

static void test_refused(void)
{
    struct np_device device;
    struct np_err err = {0};
    void *memory = NULL;
    struct np_emu_counts counts;

    if (open_device(&device, 0, &err) < 0)
        return is(false, "pinning refused", err.text);
    np_emu_set(1, 256u << 20, 0);
    np_emu_count(&counts);
    np_emu_set(1, 256u << 20, 1);
    memory = device.pinned.alloc(device.pinned.context, BYTES);
    is(!memory && strstr(device.fault, "CUDA cannot pin 4 MiB") &&
            strstr(device.fault, "ulimit -l"),
        "pinning that is refused names the limit of locked memory", device.fault);
    np_emu_set(1, 256u << 20, 0);
    *device.fault = '\0';
    is(!device.ops->alloc(&device, 1ull << 40) && strstr(device.fault, "out of memory"),
        "missing device memory is reported", device.fault);
    np_cuda_ops.close(&device);
}

/* --- what a GPU would not forgive -------------------------------------------------------------- */

static uint8_t host_bytes[64];

/* Does a child that does this end by it? */
static bool ends(void (*act)(struct np_device *device, void *memory))
{
    pid_t child;
    int status = 0;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        struct np_device device;
        void *memory;

        if (!freopen("/dev/null", "w", stderr) || open_device(&device, 0, NULL) < 0 ||
            !(memory = device.ops->alloc(&device, 4096)))
            _exit(0);
        act(&device, memory);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status != 0;
}

static void *compute(const struct np_device *device)
{
    return ((struct np_cuda *)device->state)->streams[NP_STREAM_COMPUTE];
}

static void give_host_pointer(struct np_device *device, void *memory)
{
    (void)memory;
    planted_zero(compute(device), (float *)(void *)host_bytes, 4);
}

static void give_stack_in_structure(struct np_device *device, void *memory)
{
    uint8_t pixels[16] = {0};
    struct np_cuda_step step = {.images = pixels};

    planted_set_step(compute(device), memory, &step);
}

static void give_freed(struct np_device *device, void *memory)
{
    device->ops->free(device, memory);
    planted_zero(compute(device), memory, 4);
}

static void read_on_host(struct np_device *device, void *memory)
{
    (void)device;
    *(volatile uint8_t *)memory;
}

static void give_its_own(struct np_device *device, void *memory)
{
    struct np_cuda_step step = {.images = memory};

    planted_set_step(compute(device), memory, &step);
    planted_zero(compute(device), memory, 4);
    cudaStreamSynchronize(compute(device));
}

static void test_pointers(void)
{
    is(ends(give_host_pointer), "a kernel is not given the host's memory", "it was");
    is(ends(give_stack_in_structure), "nor in a structure", "it was");
    is(ends(give_freed), "nor memory that was freed", "it was");
    is(ends(read_on_host), "the host does not read the device's memory", "it did");
    is(!ends(give_its_own), "a kernel is given the device's memory", "it was not");
}

/* What planted_add_ones() gives for three blocks; zeros where it cannot be seen. */
static void add_ones(const struct np_device *device, int idle, float *memory, float *ret_sums)
{
    memset(ret_sums, 0, 3 * sizeof(*ret_sums));
    planted_add_ones(compute(device), 3, idle, memory);
    if (cudaMemcpyAsync(ret_sums, memory, 3 * sizeof(*ret_sums), cudaMemcpyDeviceToHost,
            compute(device)) != cudaSuccess)
        ret_sums[0] = 0;
}

/* A copy out of pinned pages, on a stream of its own. */
static void *start_copy(struct np_device *device, void *memory, cudaStream_t *ret_stream)
{
    void *host = device->pinned.alloc(device->pinned.context, 4096);

    if (!host || cudaStreamCreateWithFlags(ret_stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMemcpyAsync(memory, host, 4096, cudaMemcpyHostToDevice, *ret_stream) != cudaSuccess)
        _exit(0);
    return host;
}

static void unpin_in_use(struct np_device *device, void *memory)
{
    cudaStream_t stream;
    void *host = start_copy(device, memory, &stream);

    device->pinned.free(device->pinned.context, host, 4096);
}

static void unpin_behind_stream(struct np_device *device, void *memory)
{
    cudaStream_t stream;
    void *host = start_copy(device, memory, &stream);

    cudaStreamDestroy(stream);
    device->pinned.free(device->pinned.context, host, 4096);
}

static void unpin_after_copy(struct np_device *device, void *memory)
{
    cudaStream_t stream;
    void *host = start_copy(device, memory, &stream);

    cudaStreamSynchronize(stream);
    device->pinned.free(device->pinned.context, host, 4096);
    cudaStreamDestroy(stream);
}

static void zero_pinned(struct np_device *device, bool wait)
{
    void *host;

    if (cudaHostAlloc(&host, 64, cudaHostAllocMapped) != cudaSuccess)
        return;
    planted_zero(compute(device), host, 16);
    if (wait)
        cudaStreamSynchronize(compute(device));
    cudaFreeHost(host);
}

static void free_pinned_in_use(struct np_device *device, void *memory)
{
    (void)memory;
    zero_pinned(device, false);
}

static void free_pinned_being_set(struct np_device *device, void *memory)
{
    void *host;

    (void)memory;
    if (cudaHostAlloc(&host, 64, cudaHostAllocMapped) != cudaSuccess ||
        cudaMemsetAsync(host, 0, 64, compute(device)) != cudaSuccess)
        return;
    cudaFreeHost(host);
}

static void free_pinned_after_use(struct np_device *device, void *memory)
{
    (void)memory;
    zero_pinned(device, true);
}

/* The device's memory, and an event that a stream waits for. cudaFree() waits for all of it. */
static void free_as_cuda_allows(struct np_device *device, void *memory)
{
    cudaStream_t stream;
    cudaEvent_t event;
    void *host = start_copy(device, memory, &stream);

    if (cudaEventCreate(&event) != cudaSuccess)
        return;
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(compute(device), event, 0);
    planted_zero(compute(device), memory, 16);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    cudaFree(memory);
    device->pinned.free(device->pinned.context, host, 4096);
}

static void test_frees(void)
{
    is(ends(unpin_in_use), "pinned pages are not freed while a copy uses them", "they were");
    is(ends(unpin_behind_stream), "nor behind a stream that was destroyed without a wait",
        "they were");
    is(ends(free_pinned_in_use), "nor mapped memory while a kernel uses it", "it was");
    is(ends(free_pinned_being_set), "nor before it is set", "it was");
    is(!ends(unpin_after_copy) && !ends(free_pinned_after_use), "after their use they are freed",
        "they were not");
    is(!ends(free_as_cuda_allows), "device memory, events and streams in use are freed",
        "they were not");
}

/* Each block's is new, though an earlier block's lies in the same place. */
static void test_shared(void)
{
    struct np_device device;
    void *memory;
    float sums[3];

    if (open_device(&device, 0, NULL) < 0 || !(memory = device.ops->alloc(&device, 64)))
        return is(false, "shared memory", "no device");
    add_ones(&device, -1, memory, sums);
    is(sums[0] == 64 && sums[1] == 64 && sums[2] == 64, "a block adds up in shared memory",
        "other sums");
    add_ones(&device, 63, memory, sums);
    is(isnan(sums[0]) && isnan(sums[1]) && isnan(sums[2]),
        "shared memory that no thread has written is no number", "it is one");
    device.ops->free(&device, memory);
    np_cuda_ops.close(&device);
}

/* The error of work that ran is each call's, until the process ends; one of a call alone is not. */
static void test_sticky(void)
{
    struct np_device device;
    void *memory = NULL, *more = NULL;

    np_emu_set(1, 256u << 20, 0);
    if (open_device(&device, 0, NULL) < 0 || cudaMalloc(&memory, 64) != cudaSuccess)
        return is(false, "errors that stay", "no device");
    np_emu_set(1, 256u << 20, 1);
    is(cudaMalloc(&more, 64) == cudaErrorMemoryAllocation &&
            cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess &&
            cudaStreamSynchronize(compute(&device)) == cudaSuccess,
        "missing memory fails one call", "it did not");
    np_emu_set(1, 256u << 20, 1);
    is(cudaStreamSynchronize(compute(&device)) == cudaErrorLaunchFailure &&
            cudaMalloc(&more, 64) == cudaErrorLaunchFailure &&
            cudaGetLastError() == cudaErrorLaunchFailure &&
            cudaPeekAtLastError() == cudaErrorLaunchFailure &&
            cudaFree(memory) == cudaErrorLaunchFailure,
        "work that fails is the error of each later call", "it is not");
    np_cuda_ops.close(&device);
    np_emu_set(1, 256u << 20, 0);
}

/* Asking whether an event has passed must not lose the error of a launch. */
static void test_launch(void)
{
    struct np_device device;
    struct np_event event = {0};
    void *memory;
    int code = 0;

    np_emu_set(1, 256u << 20, 0);
    if (open_device(&device, 0, NULL) < 0 || !(memory = device.ops->alloc(&device, 64)))
        return is(false, "a launch that fails", "no device");
    planted_zero(compute(&device), memory, 4);
    device.ops->record(&device, NP_STREAM_COMPUTE, &event);
    np_emu_set(1, 256u << 20, 1);
    planted_zero(compute(&device), memory, 4);
    for (int i = 0; i < 100 && code == 0; i++)
        code = device.ops->done(&device, &event, false);
    is(code < 0 && strstr(device.fault, "cudaErrorLaunchOutOfResources"),
        "a failed launch is reported by the call that queries an event", device.fault);
    device.ops->free(&device, memory);
    np_cuda_ops.close(&device);
    np_emu_set(1, 256u << 20, 0);
}

int main(void)
{
    test_pointers();
    test_frees();
    test_shared();
    test_sticky();
    test_launch();
    test_copies();
    test_pinned();
    test_clock();
    test_doctor();
    test_refused();
    test_faults();
    return nr_failed != 0;
}
