/* `nnpipe bench io`: reads the extents of the training set in random order, with the loader's
 * number of threads and reads in flight, without decoding. All threads take positions from one
 * counter, so no extent is read twice before all have been read once. Main thread; the measuring
 * threads share the fields marked atomic. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "daemon/bench/bench.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/base/rng.h"
#include "loader/source/files.h"

#define MAX_THREADS 1024

struct io_bench {
    const struct np_index *index;
    struct np_files *files;
    const char *io, *local_io;
    struct np_remote_session session; /* limit_ns 0: all files are local */
    int depth;
    uint64_t seed, end_ns, max_reads;              /* the limit that is reached first ends it */
    uint64_t next;                                 /* atomic: position */
    uint64_t done_reads, done_bytes, cached_reads; /* atomic */
    struct np_err err;                             /* under lock */
    pthread_mutex_t lock;
};

struct one_read {
    struct np_io_read read;
    struct np_extent extent;
};

static void fail(struct io_bench *bench, const struct np_err *err)
{
    pthread_mutex_lock(&bench->lock);
    if (!bench->err.code)
        bench->err = *err;
    pthread_mutex_unlock(&bench->lock);
}

/* fd: of the file; -EINPROGRESS: open it first; or the error of the open. */
static int start(struct np_io *io, struct one_read *one, int fd, struct np_err *err)
{
    int code;

    if (fd < 0 && fd != -EINPROGRESS && !np_is_remote(fd))
        return np_err_set(err, fd, "%s: cannot open: %s", one->extent.path, strerror(-fd));
    one->read.path = fd == -EINPROGRESS ? one->extent.path : NULL;
    one->read.fd = fd;
    code = np_io_submit(io, &one->read);
    return code ? np_err_set(err, code, "%s: cannot read: %s", one->extent.path, strerror(-code))
                : 0;
}

/* 1: no further read is needed. */
static int submit(
    struct io_bench *bench, struct np_io *io, struct one_read *one, struct np_err *err)
{
    const uint64_t position = __atomic_fetch_add(&bench->next, 1, __ATOMIC_RELAXED);
    const uint64_t n = np_index_samples(bench->index);
    const uint64_t sample =
        np_permute(n, bench->seed, NP_STREAM_ORDER, (uint32_t)(position / n), 0, position % n);
    const struct np_record record = np_index_get(bench->index, sample);

    if (position >= bench->max_reads)
        return 1;
    np_source_locate(bench->index, sample, &one->extent);
    one->read.offset = record.offset;
    one->read.bytes = record.bytes;
    one->read.owner = one;
    return start(io, one,
        bench->index->root ? np_io_open_now(io, one->extent.path, false)
                           : np_files_fd(bench->files, record.file),
        err);
}

static void close_own(const struct io_bench *bench, struct one_read *one)
{
    if (bench->index->root && one->read.fd >= 0)
        close(one->read.fd);
    if (bench->index->root)
        one->read.fd = -1;
}

/* NULL: the read failed. */
static struct one_read *reap(struct io_bench *bench, struct np_io *io, struct np_err *err)
{
    struct one_read *one;

    while ((one = np_io_reap(io, true)->owner)->read.path)
        if (start(io, one, one->read.result, err))
            return NULL;
    close_own(bench, one);
    if (one->read.result < 0) {
        np_err_set(err, one->read.result, "%s: cannot read at offset %" PRIu64 ": %s",
            one->extent.path, one->read.offset,
            np_is_remote(one->read.fd) && one->read.why ? one->read.why
                                                        : strerror(-one->read.result));
        return NULL;
    }
    __atomic_fetch_add(&bench->done_reads, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bench->done_bytes, (uint64_t)one->read.result, __ATOMIC_RELAXED);
    return one;
}

static int read_all(
    struct io_bench *bench, struct np_io *io, struct one_read *reads, struct np_err *err)
{
    int code = 0;

    for (int i = 0; !code && i < bench->depth; i++)
        code = submit(bench, io, &reads[i], err);
    /* Reads in flight at the end count too, because they are most of the work on slow storage. */
    while (code >= 0 && io->nr_in_flight > 0) {
        struct one_read *one = reap(bench, io, err);

        if (!one)
            code = err->code;
        else if (!code && np_now_ns() < bench->end_ns)
            code = submit(bench, io, one, err);
    }
    return code < 0 ? code : 0;
}

static int open_io(const struct io_bench *bench, struct np_io *io, struct np_err *err)
{
    if (bench->session.limit_ns)
        return np_remote()->open_io(io, bench->local_io, bench->depth, &bench->session, err);
    return np_io_open(io, bench->local_io, bench->depth, err);
}

static void *io_thread(void *context)
{
    struct io_bench *bench = context;
    const size_t bytes = (bench->index->max_extent + 4095ul) / 4096 * 4096;
    struct one_read *reads = np_alloc_array((size_t)bench->depth, sizeof(*reads));
    void *buffers = np_page_allocator.alloc(NULL, bytes * (size_t)bench->depth + 1);
    struct np_io io = {0};
    struct np_err err = {0};
    int code;

    for (int i = 0; i < bench->depth; i++)
        reads[i].read = (struct np_io_read){
            .fd = -1, .buffer = buffers ? (char *)buffers + (size_t)i * bytes : NULL};
    if (!buffers)
        code = np_err_set(&err, -ENOMEM, "out of memory for %d reads", bench->depth);
    else
        code = open_io(bench, &io, &err);
    if (!code)
        code = read_all(bench, &io, reads, &err);
    __atomic_fetch_add(&bench->cached_reads, io.nr_cached, __ATOMIC_RELAXED);
    np_io_close(&io);
    for (int i = 0; i < bench->depth; i++)
        close_own(bench, &reads[i]);
    np_page_allocator.free(NULL, buffers, bytes * (size_t)bench->depth + 1);
    np_free(reads);
    if (code)
        fail(bench, &err);
    return NULL;
}

static void drop_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Drops the set's files from the page cache; pages that are not yet written back stay. */
static void drop_cache(const struct np_index *index)
{
    struct np_extent extent;

    for (uint64_t i = 0; index->root && i < np_index_samples(index); i++) {
        np_source_locate(index, i, &extent);
        drop_file(extent.path);
    }
    for (int i = 0; !index->root && i < index->nr_files; i++)
        drop_file(index->paths[i]);
}

static void run_threads(struct io_bench *bench, int nr_threads)
{
    pthread_t threads[MAX_THREADS];
    int nr_started = 0;

    while (nr_started < nr_threads &&
           pthread_create(&threads[nr_started], NULL, io_thread, bench) == 0)
        nr_started++;
    if (nr_started < nr_threads) {
        struct np_err err = {0};

        np_err_set(&err, -EAGAIN, "only %d of %d threads could be started", nr_started, nr_threads);
        fail(bench, &err);
    }
    for (int i = 0; i < nr_started; i++)
        pthread_join(threads[i], NULL);
}

static void report(struct np_bench *bench, const struct io_bench *io, int nr_threads,
    double seconds, double cpu_seconds)
{
    struct np_json *json = &bench->ui.object;

    np_json_begin(json, "done");
    np_json_int(json, "reads", (int64_t)io->done_reads);
    np_json_int(json, "bytes", (int64_t)io->done_bytes);
    np_json_real(json, "seconds", seconds);
    np_json_real(json, "reads_per_second", (double)io->done_reads / seconds);
    np_json_real(json, "bytes_per_second", (double)io->done_bytes / seconds);
    np_json_real(json, "cpu_seconds", cpu_seconds);
    np_json_real(json, "cached_ratio",
        io->done_reads ? (double)io->cached_reads / (double)io->done_reads : 0);
    np_json_int(json, "readers", nr_threads);
    np_json_text(json, "io", io->io);
    np_json_int(json, "depth", io->depth);
    np_ui_event(&bench->ui, np_json_end(json));
    if (!bench->json)
        np_ui_say(&bench->ui,
            "%" PRIu64 " reads in %.2f s: %.0f a second, %.1f MB/s, %.2f CPU seconds; %.0f%% from "
            "the page cache; %d threads, %s, depth %d",
            io->done_reads, seconds, (double)io->done_reads / seconds,
            (double)io->done_bytes / seconds / 1e6, cpu_seconds,
            io->done_reads ? 100.0 * (double)io->cached_reads / (double)io->done_reads : 0.0,
            nr_threads, io->io, io->depth);
}

int np_bench_io(struct np_bench *bench, struct np_err *err)
{
    const struct np_loader_options *options = &bench->config->loader;
    struct io_bench io = {.index = bench->setup.sets.train,
        .seed = (uint64_t)bench->config->seed,
        .depth = np_loader_auto_depth(options, bench->setup.sets.train, NULL),
        .lock = PTHREAD_MUTEX_INITIALIZER};
    const int nr_threads = np_loader_auto_readers(options);
    struct np_io probe;
    int code;

    if (bench->setup.sets.train->raw.kind == NP_RAW_SYNTH)
        return np_err_set(err, -EINVAL, "this set is synthetic: there is no I/O to measure");
    code = np_io_open(&probe, options->io, io.depth, err);
    if (code)
        return code;
    io.io = io.local_io = probe.ops->name;
    np_io_close(&probe);
    code = np_files_open(io.index, false, &io.files, err);
    if (code)
        return code;
    if (np_files_nr_remote(io.files) > 0) {
        io.session.limit_ns = (uint64_t)options->read_timeout * 1000000000;
        io.io = "http";
    }
    if (bench->cold)
        drop_cache(io.index);
    const uint64_t start_ns = np_now_ns();
    const double start_cpu_seconds = np_cpu_seconds();
    io.end_ns = bench->seconds > 0 ? start_ns + (uint64_t)(bench->seconds * 1e9) : UINT64_MAX;
    io.max_reads = bench->epochs > 0
                       ? (uint64_t)ceil(bench->epochs * (double)np_index_samples(io.index))
                       : UINT64_MAX;
    run_threads(&io, nr_threads);
    np_files_close(io.files);
    if (io.err.code) {
        *err = io.err;
        return err->code;
    }
    report(bench, &io, nr_threads, (double)(np_now_ns() - start_ns) * 1e-9,
        np_cpu_seconds() - start_cpu_seconds);
    return 0;
}
