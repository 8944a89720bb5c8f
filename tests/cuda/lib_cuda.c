/* libnnpipe's batches on a GPU over the emulated runtime (lib_cuda.sh), whose streams run late and in
 * random orders. `lib_cuda`: all tests, an "ok -" or "not ok -" line each. `lib_cuda late`: the test
 * alone in which batches are released with work queued; exit 1 if bytes are wrong. `lib_cuda exit`:
 * releases and closes when the runtime is gone. `lib_cuda open`: prints nnp_open()'s code and text. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/torch_rng.h"
#include "loader/nnpipe.h"
#include "tests/emu/cudart.h"

enum { SAMPLES = 45, HEIGHT = 20, WIDTH = 18, SIDE = 16, BATCH = 8, PER_EPOCH = 6 };
#define MAX_BYTES (BATCH * SIDE * SIDE * 3 * 4)
#define AUGMENT                                                                                    \
    "augment: [{random_crop: {size: 16}}, flip], test_augment: [{center_crop: "                    \
    "16}], normalize: "                                                                            \
    "{mean: [0.4, 0.5, 0.6], std: [0.2, 0.3, 0.25]}"
static const char config[] = "seed: 5\nloader: {batch: 8, readers: 2, prefetch: 4, " AUGMENT "}\n";

struct taken { /* a batch, on the host */
    int rows;
    uint64_t epoch, number, samples[BATCH];
    int64_t labels[BATCH];
    uint8_t images[MAX_BYTES];
};

static int nr_failed;
static uint8_t pixels[SAMPLES][HEIGHT * WIDTH * 3];
static int64_t labels[SAMPLES];
static char error[2048];

static void is(bool passed, const char *sentence, const char *why)
{
    printf(
        "%s - %s%s%s\n", passed ? "ok" : "not ok", sentence, passed ? "" : ": ", passed ? "" : why);
    nr_failed += !passed;
}

/* --- loaders
 * ------------------------------------------------------------------------------------------
 */

static int open_with(const char *const *options, struct nnp_loader **ret_loader)
{
    struct nnp_data *data =
        nnp_data_pixels(&pixels[0][0], SAMPLES, HEIGHT, WIDTH, 3, labels, error, sizeof(error));
    int code = nnp_open(config, NULL, data, options, ret_loader, error, sizeof(error));

    if (code)
        nnp_data_free(data);
    return code;
}

static struct nnp_loader *must_open(const char *device, const char *dtype, const char *layout)
{
    struct nnp_loader *loader;
    char texts[3][40];
    const char *options[] = {texts[0], texts[1], texts[2], NULL};

    snprintf(texts[0], sizeof(texts[0]), "device=%s", device);
    snprintf(texts[1], sizeof(texts[1]), "dtype=%s", dtype);
    snprintf(texts[2], sizeof(texts[2]), "layout=%s", layout);
    if (open_with(options, &loader) < 0) {
        printf("not ok - a loader is opened: %s\n", error);
        exit(1);
    }
    return loader;
}

static size_t row_bytes(const struct nnp_loader *loader)
{
    const char *dtype = nnp_dtype(loader);
    int64_t shape[4];

    nnp_shape(loader, shape);
    return (size_t)(shape[1] * shape[2] * shape[3]) * (strcmp(dtype, "uint8") == 0        ? 1u
                                                          : strcmp(dtype, "float32") == 0 ? 4u
                                                                                          : 2u);
}

static void take_facts(const struct nnp_batch *batch, struct taken *taken)
{
    memset(taken, 0, sizeof(*taken));
    taken->rows = nnp_batch_rows(batch);
    taken->epoch = nnp_batch_epoch(batch);
    taken->number = nnp_batch_number(batch);
    for (int r = 0; r < taken->rows; r++) {
        taken->samples[r] = nnp_batch_sample(batch, r);
        taken->labels[r] = nnp_batch_labels((struct nnp_batch *)batch)[r];
    }
}

static int next(struct nnp_loader *loader, struct nnp_batch **ret_batch)
{
    int code;

    do
        code = nnp_next(loader, -1, ret_batch);
    while (code == 0); /* an epoch has ended */
    if (code < 0)
        nnp_error(loader, error, sizeof(error));
    return code;
}

/* The next batch of a loader on either device, on the host. stream NULL: the
 * loader is on the CPU. */
static int take(struct nnp_loader *loader, cudaStream_t stream, struct taken *taken)
{
    struct nnp_batch *batch;
    int code = next(loader, &batch);
    size_t bytes;

    if (code < 0)
        return code;
    take_facts(batch, taken);
    bytes = (size_t)taken->rows * row_bytes(loader);
    if (!stream) {
        memcpy(taken->images, nnp_batch_images(batch), bytes);
    } else {
        code = nnp_batch_use(batch, stream);
        if (code < 0)
            nnp_batch_error(batch, error, sizeof(error));
        if (!code && (cudaMemcpyAsync(taken->images, nnp_batch_images(batch), bytes,
                          cudaMemcpyDeviceToHost, stream) ||
                         cudaStreamSynchronize(stream))) {
            snprintf(error, sizeof(error), "cuda:0: the program's own copy");
            code = -EIO;
        }
    }
    nnp_batch_release(batch);
    return code < 0 ? code : 0;
}

static uint64_t device_bytes(void)
{
    struct np_emu_counts counts;

    np_emu_count(&counts);
    return counts.bytes;
}

/* --- the same batches
 * ---------------------------------------------------------------------------------
 */

static bool same_batches(struct nnp_loader *cpu, struct nnp_loader *cuda, int n)
{
    static struct taken wanted, got;
    cudaStream_t stream;
    bool same = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;

    for (int i = 0; i < n && same; i++) {
        same = take(cpu, NULL, &wanted) == 0 && take(cuda, stream, &got) == 0 &&
               memcmp(&wanted, &got, sizeof(got)) == 0;
        if (!same)
            snprintf(error + strlen(error), 100, " batch %d of %s, %s differs", i, nnp_dtype(cuda),
                nnp_layout(cuda));
    }
    cudaStreamDestroy(stream);
    return same;
}

static void test_formats(void)
{
    static const char *const dtypes[] = {"uint8", "float32", "bfloat16", "float16"};
    static const char *const layouts[] = {"nhwc", "nchw"};
    bool same = true;

    for (int i = 0; i < 8 && same; i++) {
        struct nnp_loader *cpu = must_open("cpu", dtypes[i / 2], layouts[i % 2]);
        struct nnp_loader *cuda = must_open("cuda:0", dtypes[i / 2], layouts[i % 2]);

        same = same_batches(cpu, cuda, 2 * PER_EPOCH + 1);
        nnp_close(cpu);
        nnp_close(cuda);
    }
    is(same, "batches of every type and layout are those of device=cpu, short ones too", error);
    is(device_bytes() == 0, "after nnp_close() no memory of the GPU is left", "there is some");
}

static void test_seek(void)
{
    struct nnp_loader *cpu = must_open("cpu", "float32", "nchw");
    struct nnp_loader *cuda = must_open("cuda:0", "float32", "nchw");
    bool same = same_batches(cpu, cuda, 2);
    uint64_t epoch, number;

    nnp_position(cuda, &epoch, &number);
    is(epoch == 0 && number == 2, "batches ahead do not move the position", "they do");
    same =
        same && nnp_seek(cpu, 3, 4) == 0 && nnp_seek(cuda, 3, 4) == 0 && same_batches(cpu, cuda, 5);
    is(same, "a position that is set gives the same batches", error);
    nnp_close(cpu);
    nnp_close(cuda);
}

static float call(void *context, float x)
{
    return x;
}

static int deal(struct nnp_loader *loader, int workers)
{
    struct np_torch_rng rng;
    float probes[NNP_DEAL_PROBES];
    const struct nnp_deal what = {.bytes = sizeof(what),
        .workers = workers,
        .transforms_version = 2,
        .exp = call,
        .log = call,
        .probes = probes};

    np_torch_seed(&rng, 1);
    for (int i = 0; i < NNP_DEAL_PROBES; i++)
        probes[i] = np_torch_uniform(&rng, 0.08f, 1, true);
    return nnp_deal(loader, &what);
}

/* The program draws numbers of its own between some batches, so that batches
 * ahead are void. */
static bool same_dealt(int workers)
{
    static const char *const on[2][4] = {{"order=dealt", "device=cpu", "dtype=float32", NULL},
        {"order=dealt", "device=cuda:0", "dtype=float32", NULL}};
    static struct taken taken[2];
    struct nnp_loader *loaders[2] = {0};
    struct np_torch_rng rng;
    int64_t samples[SAMPLES];
    char state[5056];
    cudaStream_t stream;
    bool same = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;

    for (int i = 0; i < SAMPLES; i++)
        samples[i] = (i * 7) % SAMPLES;
    for (int d = 0; d < 2; d++)
        same = same && open_with(on[d], &loaders[d]) == 0 && deal(loaders[d], workers) == 0;
    for (int epoch = 0; epoch < 3 && same; epoch++) {
        np_torch_seed(&rng, (uint64_t)epoch + 9);
        for (int d = 0; d < 2; d++)
            same = same &&
                   nnp_deal_epoch(loaders[d], samples, SAMPLES, 77 + (uint64_t)epoch, 0, 0) == 0;
        for (int k = 0; k < PER_EPOCH && same; k++) {
            if (k % 3 == 2)
                np_torch_uniform(&rng, 0, 1, true);
            for (int d = 0; d < 2; d++) {
                np_torch_write(&rng, state);
                same = same && (workers || nnp_deal_state(loaders[d], state, sizeof(state)) == 0) &&
                       take(loaders[d], d ? stream : NULL, &taken[d]) == 0 &&
                       (workers || nnp_deal_after(loaders[d], state, sizeof(state)) == 0);
            }
            np_torch_read(&rng, state, sizeof(state));
            same = same && memcmp(&taken[0], &taken[1], sizeof(taken[0])) == 0;
        }
        for (int d = 0; d < 2 && same; d++)
            same = nnp_next(loaders[d], -1, &(struct nnp_batch *){NULL}) == 0;
    }
    if (!same && !*error)
        snprintf(error, sizeof(error), "they differ");
    for (int d = 0; d < 2; d++)
        nnp_close(loaders[d]);
    cudaStreamDestroy(stream);
    return same;
}

/* Rows of bad pictures that are not replaced. */
static void test_blank(void)
{
    static struct taken wanted, got;
    const char *options[] = {"set=val", "dtype=float32", "device=cpu", NULL};
    const char *paths[] = {"lib_cuda.bad"};
    const int64_t one_label[] = {0};
    struct nnp_loader *loaders[2] = {0};
    cudaStream_t stream;
    int code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

    for (int d = 0; d < 2 && !code; d++) {
        struct nnp_data *data =
            nnp_data_files(getenv("TMP_BAD"), paths, one_label, 1, NULL, 0, error, sizeof(error));

        code = nnp_open(config, NULL, data, options, &loaders[d], error, sizeof(error));
        options[2] = "device=cuda:0";
        if (!code)
            code = take(loaders[d], d ? stream : NULL, d ? &got : &wanted);
    }
    is(!code && wanted.samples[0] == UINT64_MAX && memcmp(&wanted, &got, sizeof(got)) == 0,
        "a bad row is 0, not the value of a black pixel", code ? error : "it is not");
    nnp_close(loaders[0]);
    nnp_close(loaders[1]);
    cudaStreamDestroy(stream);
}

/* --- work that is queued
 * ------------------------------------------------------------------------------
 */

#define LATE 24

/* Copies of every batch within the device are queued, on `nr` streams in turn,
 * and each batch is released at once. The copies are looked at when all is
 * done. */
static bool late(cudaStream_t *streams, int nr)
{
    static struct taken wanted[LATE], got;
    struct nnp_loader *cpu = must_open("cpu", "float32", "nchw");
    struct nnp_loader *cuda = must_open("cuda:0", "float32", "nchw");
    const size_t bytes = row_bytes(cuda);
    uint8_t *kept = NULL;
    bool same = cudaMalloc((void **)&kept, (size_t)LATE * MAX_BYTES) == cudaSuccess;

    for (int i = 0; i < LATE && same; i++) {
        struct nnp_batch *batch;
        const cudaStream_t stream = streams[i % nr];

        same = take(cpu, NULL, &wanted[i]) == 0 && next(cuda, &batch) == 1 &&
               nnp_batch_use(batch, stream) == 0 &&
               cudaMemcpyAsync(kept + (size_t)i * MAX_BYTES, nnp_batch_images(batch),
                   (size_t)wanted[i].rows * bytes, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
        nnp_batch_release(batch);
    }
    nnp_close(cuda); /* which waits */
    for (int i = 0; i < LATE && same; i++) {
        const size_t n = (size_t)wanted[i].rows * bytes;

        same = cudaMemcpy(got.images, kept + (size_t)i * MAX_BYTES, n, cudaMemcpyDeviceToHost) ==
                   cudaSuccess &&
               memcmp(got.images, wanted[i].images, n) == 0;
        if (!same)
            snprintf(error, sizeof(error), "batch %d has another's bytes", i);
    }
    nnp_close(cpu);
    cudaFree(kept);
    return same;
}

static void test_late(void)
{
    cudaStream_t streams[5] = {NULL, cudaStreamLegacy, cudaStreamPerThread};
    bool same = cudaStreamCreateWithFlags(&streams[3], cudaStreamNonBlocking) == cudaSuccess &&
                cudaStreamCreateWithFlags(&streams[4], cudaStreamDefault) == cudaSuccess;

    is(same && late(&streams[3], 1), "a batch that is released with work queued is not overwritten",
        error);
    is(same && late(streams, 5), "nor on five streams, the default ones among them", error);
    cudaStreamDestroy(streams[3]);
    cudaStreamDestroy(streams[4]);
}

struct worker {
    pthread_t thread;
    struct nnp_batch *batch;
    uint8_t *kept; /* device */
    size_t bytes;
    cudaStream_t stream;
    bool failed;
};

static void *work(void *context)
{
    struct worker *worker = context;

    worker->failed = nnp_batch_use(worker->batch, worker->stream) < 0 ||
                     cudaMemcpyAsync(worker->kept, nnp_batch_images(worker->batch), worker->bytes,
                         cudaMemcpyDeviceToDevice, worker->stream) != cudaSuccess;
    nnp_batch_release(worker->batch);
    return NULL;
}

/* Four threads own a batch, each with a stream of its own; the loader is closed
 * under them. */
static void test_threads(void)
{
    static struct taken wanted, got;
    struct worker workers[4] = {{0}};
    struct nnp_loader *cpu = must_open("cpu", "bfloat16", "nhwc");
    struct nnp_loader *cuda = must_open("cuda:0", "bfloat16", "nhwc");
    struct nnp_batch *batch;
    bool same = take(cpu, NULL, &wanted) == 0 && next(cuda, &batch) == 1;

    for (int i = 0; i < 4 && same; i++) {
        struct worker *worker = &workers[i];

        worker->batch = batch;
        worker->bytes = (size_t)wanted.rows * row_bytes(cuda);
        same = cudaMalloc((void **)&worker->kept, worker->bytes) == cudaSuccess &&
               cudaStreamCreateWithFlags(&worker->stream, cudaStreamNonBlocking) == cudaSuccess;
        if (i)
            nnp_batch_retain(batch);
    }
    for (int i = 0; i < 4 && same; i++)
        same = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    nnp_close(cuda);
    for (int i = 0; i < 4 && same; i++) /* the streams live until the last release */
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < 4 && same; i++) {
        same = !workers[i].failed &&
               cudaMemcpy(got.images, workers[i].kept, workers[i].bytes, cudaMemcpyDeviceToHost) ==
                   cudaSuccess &&
               memcmp(got.images, wanted.images, workers[i].bytes) == 0;
        cudaFree(workers[i].kept);
        cudaStreamDestroy(workers[i].stream);
    }
    is(same, "owners in four threads, with a stream each, see a batch after nnp_close()",
        "they do not");
    is(device_bytes() == 0, "the last release frees the GPU's memory", "it does not");
    nnp_close(cpu);
}

/* Each thread uses a batch on its own default stream and ends; this one releases it. */
static void test_per_thread(void)
{
    static struct taken wanted[LATE], got;
    struct nnp_loader *cpu = must_open("cpu", "float16", "nchw");
    struct nnp_loader *cuda = must_open("cuda:0", "float16", "nchw");
    uint8_t *kept = NULL;
    bool same = cudaMalloc((void **)&kept, (size_t)LATE * MAX_BYTES) == cudaSuccess;

    for (int i = 0; i < LATE && same; i++) {
        struct worker worker = {
            .kept = kept + (size_t)i * MAX_BYTES, .stream = cudaStreamPerThread};

        same = take(cpu, NULL, &wanted[i]) == 0 && next(cuda, &worker.batch) == 1;
        worker.bytes = (size_t)wanted[i].rows * row_bytes(cuda);
        if (same) {
            nnp_batch_retain(worker.batch);
            same = pthread_create(&worker.thread, NULL, work, &worker) == 0 &&
                   pthread_join(worker.thread, NULL) == 0 && !worker.failed;
            nnp_batch_release(worker.batch);
        }
    }
    nnp_close(cuda);
    for (int i = 0; i < LATE && same; i++) {
        const size_t n = (size_t)wanted[i].rows * row_bytes(cpu);

        same = cudaMemcpy(got.images, kept + (size_t)i * MAX_BYTES, n, cudaMemcpyDeviceToHost) ==
                   cudaSuccess &&
               memcmp(got.images, wanted[i].images, n) == 0;
    }
    is(same, "the default stream of another thread is waited for", "it is not");
    nnp_close(cpu);
    cudaFree(kept);
}

/* A call that fails has taken memory and gives it back unused: the streams of its last use may be gone. */
static void test_unused(void)
{
    static const char *const options[] = {"order=dealt", "device=cuda:0", NULL};
    struct nnp_loader *cuda;
    struct nnp_batch *held[PER_EPOCH] = {NULL};
    struct np_torch_rng rng;
    int64_t samples[SAMPLES] = {0};
    char state[5056];
    cudaStream_t stream;
    int code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

    np_torch_seed(&rng, 1);
    np_torch_write(&rng, state);
    if (!code && (code = open_with(options, &cuda)) == 0 && (code = deal(cuda, 0)) == 0)
        code = nnp_deal_epoch(cuda, samples, SAMPLES, 0, 0, 0);
    for (int i = 0; i < PER_EPOCH && !code; i++) {
        code = nnp_deal_state(cuda, state, sizeof(state));
        if (!code && (code = nnp_next(cuda, -1, &held[i])) == 1)
            code = nnp_batch_use(held[i], stream);
        if (!code)
            code = nnp_deal_after(cuda, state, sizeof(state));
    }
    for (int i = 0; i < PER_EPOCH && held[i]; i++)
        nnp_batch_release(held[i]);
    cudaStreamDestroy(stream);
    if (!code && (code = nnp_next(cuda, -1, held)) == 0 &&
        (code = nnp_deal_epoch(cuda, samples, SAMPLES, 0, 0, 0)) == 0)
        code = nnp_next(cuda, -1, held); /* without nnp_deal_state() */
    is(code == -EINVAL, "a call that fails touches no stream of an earlier use", error);
    nnp_close(cuda);
}

static void test_held(void)
{
    static const char *const options[] = {"device=cuda:0", "held=3", NULL};
    struct nnp_loader *loader;
    struct nnp_batch *held[4] = {NULL};
    int code = open_with(options, &loader);

    for (int i = 0; i < 3 && !code; i++)
        code = next(loader, &held[i]) < 0;
    is(!code && next(loader, &held[3]) == -EBUSY && strstr(error, "holds 3 batches"),
        "a program that holds `held` batches gets no more, whatever lies ahead", error);
    nnp_batch_release(held[1]);
    is(next(loader, &held[1]) == 1, "after a release it gets the next", error);
    nnp_close(loader);
    for (int i = 0; i < 3; i++)
        nnp_batch_release(held[i]);
    is(device_bytes() == 0, "batches may be released after nnp_close()", "memory is left");
}

/* --- errors
 * -------------------------------------------------------------------------------------------
 */

/* 0, or the error of a short loop. */
static int short_loop(void)
{
    static const char *const options[] = {"device=cuda:0", "dtype=float16", NULL};
    static struct taken taken;
    struct nnp_loader *loader;
    cudaStream_t stream = NULL;
    int code = open_with(options, &loader);

    if (code)
        return code;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
        snprintf(error, sizeof(error), "cuda:0: the program's own stream");
        code = -EIO;
    }
    for (int i = 0; i < 4 && !code; i++)
        code = take(loader, stream, &taken);
    nnp_close(loader);
    if (stream)
        cudaStreamDestroy(stream);
    return code;
}

static void test_failing(void)
{
    char why[2200] = "";
    uint64_t fail = 0;
    int code = 1;

    while (code && !*why && ++fail < 500) {
        struct np_emu_counts counts;

        *error = '\0';
        np_emu_set(fail, 2ull << 30, fail);
        code = short_loop();
        np_emu_count(&counts);
        if (code && !strstr(error, "cuda"))
            snprintf(why, sizeof(why), "call %d: %d, '%s'", (int)fail, code, error);
        else if (device_bytes())
            snprintf(why, sizeof(why), "call %d: memory of the GPU is left", (int)fail);
        if (!code && counts.calls >= fail)
            code = 1; /* that failure was survived: the next one */
    }
    np_emu_set(1, 2ull << 30, 0);
    is(!*why && fail > 40 && fail < 500,
        "each call of the runtime that fails becomes an error text", why);
    np_emu_set(1, 16 << 10, 0);
    code = short_loop();
    np_emu_set(1, 2ull << 30, 0);
    is(code == -ENOMEM && strstr(error, "out of memory"), "too little memory is reported", error);
    is(short_loop() == 0, "after all these errors a loader works", error);
}

static void test_fork(void)
{
    struct nnp_loader *cuda = must_open("cuda:0", "uint8", "nchw");
    struct nnp_batch *batch, *later;
    cudaStream_t stream;
    bool used = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                next(cuda, &batch) == 1 && nnp_batch_use(batch, stream) == 0;
    pid_t child = fork();
    int status = -1;

    if (child == 0) { /* the GPU is the parent's */
        nnp_batch_release(batch);
        nnp_close(cuda);
        _exit(nnp_next(cuda, 0, &batch) == -ECHILD ? 0 : 1);
    }
    waitpid(child, &status, 0);
    is(used && status == 0, "a child of fork() releases a batch without a call of CUDA",
        "it fails");
    is(next(cuda, &later) == 1, "and its parent goes on", error);
    nnp_batch_release(later);
    nnp_batch_release(batch);
    nnp_close(cuda);
    cudaStreamDestroy(stream);
}

/* The runtime is gone while the program still has a batch and a loader. */
static int leave_last(void)
{
    struct nnp_loader *cuda = must_open("cuda:0", "uint8", "nchw");
    struct nnp_batch *batch;
    struct np_emu_counts before, after;
    cudaStream_t stream;
    bool used = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                next(cuda, &batch) == 1 && nnp_batch_use(batch, stream) == 0;

    np_emu_unload();
    np_emu_count(&before);
    nnp_batch_release(batch);
    nnp_close(cuda);
    np_emu_count(&after);
    return !used || after.ran != before.ran;
}

/* --- main
 * ---------------------------------------------------------------------------------------------
 */

static int print_open(void)
{
    static const char *const options[] = {"device=cuda:0", NULL};
    struct nnp_loader *loader;
    const int code = open_with(options, &loader);

    printf("%d %s\n", code, error);
    if (!code)
        nnp_close(loader);
    return 0;
}

int main(int argc, char **argv)
{
    uint32_t draw = 1;

    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < HEIGHT * WIDTH * 3; k++)
            pixels[i][k] = (uint8_t)((draw = draw * 1664525u + 1013904223u) >> 24);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % 5;
    if (argc > 1 && strcmp(argv[1], "open") == 0)
        return print_open();
    if (argc > 1 && strcmp(argv[1], "exit") == 0)
        return leave_last();
    if (argc > 1) {
        cudaStream_t stream;

        return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
               !late(&stream, 1);
    }
    test_formats();
    test_seek();
    is(same_dealt(2), "dealt batches are those of device=cpu", error);
    is(same_dealt(0), "also where batches ahead become void", error);
    test_blank();
    test_late();
    test_threads();
    test_per_thread();
    test_unused();
    test_held();
    test_failing();
    test_fork();
    return nr_failed > 0;
}
