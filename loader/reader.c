/* The reader thread. Its loop: take tickets until `depth` reads are in flight, wait for one
 * of them, make its row. It waits in two named places: in np_io_reap() while reads are in
 * flight, and in np_ring_claim() while none is; so a batch under way is never held up by a
 * later one that finds no free slot. */
#include "loader/reader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/reader_job.h"

#define NICENESS 5 /* compute threads win */

static int nr_in_flight(const struct np_reader *reader)
{
    return reader->config->depth - reader->nr_free;
}

/* The next ticket with its slot, or NULL: the run ends or stops, or (with reads in flight) the
 * slot is not free yet. */
static struct np_job *next_job(struct np_reader *reader)
{
    struct np_batch *batch;
    struct np_job *job;

    if (!reader->has_held)
        reader->has_held = np_sampler_next(reader->config->sampler, &reader->held);
    reader->ended |= !reader->has_held;
    if (reader->ended)
        return NULL;
    batch = np_ring_try_claim(reader->config->ring, reader->held.seq);
    if (!batch && nr_in_flight(reader) > 0)
        return NULL;
    if (!batch) {
        np_stat_about(reader->block, reader->held.seq, (int)reader->held.row);
        batch = np_ring_claim(reader->config->ring, reader->held.seq, reader->block);
        reader->ended |= !batch;
    }
    if (!batch)
        return NULL;
    reader->has_held = false;
    job = reader->free_jobs[--reader->nr_free];
    job->ticket = reader->held;
    job->batch = batch;
    job->sample = job->ticket.sample;
    np_stat_about(reader->block, job->ticket.seq, (int)job->ticket.row);
    job->attempt = job->nr_tries = 0;
    return job;
}

/* Of those in flight. */
static struct np_job *oldest_read(const struct np_reader *reader)
{
    struct np_job *oldest = NULL;

    for (int i = 0; i < reader->config->depth; i++) {
        struct np_job *job = &reader->jobs[i];

        if (job->in_flight && (!oldest || job->tried_ns < oldest->tried_ns))
            oldest = job;
    }
    return oldest;
}

/* Blocks until a read is complete. */
static struct np_job *reap(struct np_reader *reader)
{
    struct np_io_read *read = np_io_reap(&reader->io, false);
    struct np_job *job;

    if (!read) {
        job = oldest_read(reader);
        np_stat_about(reader->block, job->ticket.seq, (int)job->ticket.row);
        np_stat_wait(reader->block, NP_STATE_IO_WAIT, "read", job->extent.path, job->record.offset);
        np_reader_calls(reader);
        read = np_io_reap(&reader->io, true);
        np_reader_back(reader);
        np_stat_done(reader->block);
    }
    job = read->owner;
    job->in_flight = false;
    np_stat_hold(reader->block, reader->io.nr_in_flight);
    return job;
}

/* Tickets until all jobs are under way. */
static int fill(struct np_reader *reader)
{
    const struct np_batch_shape *shape = &reader->config->shape;
    const uint64_t row_bytes =
        (uint64_t)shape->height * (uint64_t)shape->width * (uint64_t)shape->channels;
    struct np_job *job = NULL;
    int code = 0;

    while (!code && reader->nr_free > 0 && (job = next_job(reader))) {
        np_stat_lap(reader->block, NP_STAGE_BATCH, row_bytes, 0);
        code = np_job_begin(reader, job);
    }
    if (!job) /* there is no slot, or no ticket: what it took to find out */
        np_stat_pass(reader->block, NP_STAGE_BATCH);
    return code;
}

static int read_run(struct np_reader *reader)
{
    int code = 0;

    while (!code && !np_ring_stopped(reader->config->ring)) {
        code = fill(reader);
        if (code || nr_in_flight(reader) == 0)
            break;
        code = np_job_finish(reader, reap(reader));
    }
    return code;
}

/* --- the thread --------------------------------------------------------------------------- */

/* The largest extent of both sets. */
static size_t max_bytes(const struct np_reader_config *config)
{
    size_t most = 1;

    for (int s = 0; s < 2; s++)
        if (config->sets[s].index && np_index_max_extent(config->sets[s].index) > most)
            most = np_index_max_extent(config->sets[s].index);
    return most < NP_MAX_SAMPLE_BYTES ? most : NP_MAX_SAMPLE_BYTES;
}

static int new_jobs(struct np_reader *reader, struct np_err *err)
{
    const int depth = reader->config->depth;

    reader->buffer_bytes = (max_bytes(reader->config) + 64 + 4095) / 4096 * 4096;
    reader->jobs = np_try_array((size_t)depth, sizeof(*reader->jobs), NULL);
    for (int i = 0; reader->jobs && i < depth; i++)
        reader->jobs[i].own_fd = -1;
    reader->free_jobs = np_try_array((size_t)depth, sizeof(*reader->free_jobs), NULL);
    reader->buffers = mmap(NULL, reader->buffer_bytes * (size_t)depth, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reader->buffers == MAP_FAILED)
        reader->buffers = NULL;
    if (!reader->jobs || !reader->free_jobs || !reader->buffers)
        return np_err_set(err, -ENOMEM,
            "out of memory for %d reads of %zu bytes in flight; lower loader.depth", depth,
            reader->buffer_bytes);
    for (int i = 0; i < depth; i++) {
        struct np_job *job = &reader->jobs[i];

        job->buffer = (uint8_t *)reader->buffers + (size_t)i * reader->buffer_bytes;
        job->buffer_bytes = reader->buffer_bytes;
        reader->free_jobs[reader->nr_free++] = job;
    }
    return 0;
}

static int set_up(struct np_reader *reader, struct np_err *err)
{
    const struct np_reader_config *config = reader->config;
    char name[16];
    int code;

    snprintf(name, sizeof(name), "reader %d", reader->number);
    pthread_setname_np(pthread_self(), name);
    /* Linux: the calling thread alone. What it cannot have is no error. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), getpriority(PRIO_PROCESS, 0) + NICENESS);
    code = np_io_open(&reader->io, config->io, config->depth, err);
    if (!code)
        code = new_jobs(reader, err);
    if (!code && !(reader->block = np_stat_join(config->stat, name)))
        code = np_err_set(err, -ENOMEM, "out of memory for a reader's counters");
    if (!code)
        code = np_maker_new(
            &(struct np_maker_options){
                .sets = config->sets,
                .shape = config->shape,
                .seed = config->seed,
                .rule = config->rule,
                .max_pixels = config->max_pixels,
                .cache = config->cache,
                .cache_decoded = config->cache_decoded,
                .resident = config->resident,
                .block = reader->block,
                .stubs = config->stubs,
                .replay_samples = config->replay_samples,
            },
            &reader->maker, err);
    return code;
}

/* Waits for the reads in flight. */
static void close_io(struct np_reader *reader)
{
    const struct np_job *job = reader->jobs ? oldest_read(reader) : NULL;

    if (job)
        np_stat_wait(
            reader->block, NP_STATE_IO_WAIT, "end of read", job->extent.path, job->record.offset);
    np_reader_calls(reader);
    np_io_close(&reader->io);
    np_reader_back(reader);
    if (job)
        np_stat_done(reader->block);
}

static void tear_down(struct np_reader *reader)
{
    for (int i = 0; reader->jobs && i < reader->config->depth; i++)
        np_job_free(&reader->jobs[i]);
    np_maker_free(reader->maker);
    if (reader->buffers)
        munmap(reader->buffers, reader->buffer_bytes * (size_t)reader->config->depth);
    np_free(reader->free_jobs);
    np_free(reader->jobs);
}

static void move(struct np_reader *reader, enum np_reader_place place)
{
    pthread_mutex_lock(&reader->lock);
    const bool left_behind = reader->place == NP_READER_LEFT_BEHIND;
    if (!left_behind)
        reader->place = place;
    pthread_cond_signal(&reader->moved);
    pthread_mutex_unlock(&reader->lock);
    while (left_behind)
        pause();
}

void np_reader_calls(struct np_reader *reader)
{
    move(reader, NP_READER_CALLS);
}

void np_reader_back(struct np_reader *reader)
{
    move(reader, NP_READER_WORKS);
}

static void *reader_main(void *context)
{
    struct np_reader *reader = context;
    int code = set_up(reader, &reader->why);

    if (!code)
        code = read_run(reader);
    np_stat_pass(reader->block, NP_STAGE_BATCH);
    if (code)
        np_ring_stop(reader->config->ring, &reader->why);
    np_ring_leave(reader->config->ring);
    if (reader->io.ops)
        close_io(reader);
    np_stat_leave(reader->block);
    tear_down(reader);
    move(reader, NP_READER_ENDED);
    return NULL;
}

/* The condition's waits end by the clock of np_now_ns(). */
static void new_lock(struct np_reader *reader)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void free_reader(struct np_reader *reader)
{
    pthread_cond_destroy(&reader->moved);
    pthread_mutex_destroy(&reader->lock);
    np_free(reader);
}

int np_reader_start(const struct np_reader_config *config, int number,
    struct np_reader **ret_reader, struct np_err *err)
{
    struct np_reader *reader = np_try_alloc(sizeof(*reader), NULL);
    sigset_t all, before;
    int code;

    if (!reader)
        return np_err_set(err, -ENOMEM, "out of memory for a reader");
    reader->config = config;
    reader->number = number;
    new_lock(reader);
    /* Signals are the main thread's. */
    sigfillset(&all);
    np_ring_join(config->ring);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = -pthread_create(&reader->thread, NULL, reader_main, reader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) {
        np_ring_leave(config->ring);
        free_reader(reader);
        return np_err_set(err, code, "cannot start reader thread %d: %s", number, strerror(-code));
    }
    *ret_reader = reader;
    return 0;
}

/* Waits until it has ended, or hangs in a call at until_ns or later; true: it hangs. */
static bool hangs(struct np_reader *reader, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    bool hung = false;

    pthread_mutex_lock(&reader->lock);
    while (reader->place != NP_READER_ENDED && !hung) {
        if (np_now_ns() < until_ns)
            pthread_cond_timedwait(&reader->moved, &reader->lock, &until);
        else if (reader->place == NP_READER_CALLS)
            hung = true;
        else
            pthread_cond_wait(&reader->moved, &reader->lock);
    }
    if (hung)
        reader->place = NP_READER_LEFT_BEHIND;
    pthread_mutex_unlock(&reader->lock);
    return hung;
}

bool np_reader_join(struct np_reader *reader, uint64_t until_ns)
{
    if (hangs(reader, until_ns)) {
        np_stat_called(reader->block);
        pthread_detach(reader->thread);
        return false;
    }
    pthread_join(reader->thread, NULL);
    free_reader(reader);
    return true;
}
