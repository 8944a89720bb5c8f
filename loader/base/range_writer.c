/* The writing thread of a range cache. Readers give it copies of blocks, under a lock that is held
 * for a few moves of pointers; the thread takes all that are queued at once, and for them: locks
 * their entries of the maps (between processes), reserves their space, writes them, syncs each file
 * once, and only then writes the entries. It waits in next_batch(). */
#include "loader/base/range_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define FULL_NS 30000000000ull /* until a full cache looks for space again */
#define STOP_S  5
#define PAGE    4096

/* --- the calls ----------------------------------------------------------------------------- */

static int posix_write(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    const char *at = data;

    while (bytes > 0) {
        const ssize_t wrote = pwrite(fd, at, bytes, (off_t)offset);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? -errno : -EIO;
        at += wrote;
        offset += (uint64_t)wrote;
        bytes -= (uint64_t)wrote;
    }
    return 0;
}

static int posix_sync(int fd)
{
    return fdatasync(fd) < 0 ? -errno : 0;
}

const struct np_range_disk np_range_posix_disk = {posix_write, posix_sync};

/* --- a batch --------------------------------------------------------------------------------- */

static uint64_t entry_offset(const struct np_range_job *job)
{
    return job->object->layout.map_offset + 8 * job->block;
}

static int by_place(const void *a, const void *b)
{
    const struct np_range_job *x = a, *y = b;

    if (x->object != y->object)
        return x->object < y->object ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

static struct flock entry_lock(short type, uint64_t offset, uint64_t bytes)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)bytes};
}

/* Locks the block's entry. If another process is writing it, or has written it, it is done. */
static void claim(struct np_range_job *job)
{
    struct np_range_object *object = job->object;
    struct flock lock = entry_lock(F_WRLCK, entry_offset(job), 8);
    uint64_t sum = 0;

    job->is_due = false;
    if (atomic_load(&object->cache->is_off) || fcntl(object->fd, F_OFD_SETLK, &lock) < 0)
        return;
    if (np_read_at(object->fd, entry_offset(job), &sum, sizeof(sum)) < 0)
        return;
    job->is_rewrite = np_bit(object->dropped, job->block);
    if (sum && !job->is_rewrite)
        atomic_store_explicit(&object->sums[job->block], sum, memory_order_release);
    else
        job->is_due = true;
}

static uint64_t space_of(const struct np_range_job *job)
{
    return job->is_rewrite ? 0 : ((uint64_t)job->bytes + PAGE - 1) / PAGE * PAGE;
}

/* False: there is no room, now and for a while. */
static bool reserve(struct np_range_cache *cache, const struct np_range_job *job)
{
    struct np_range_folder *folder = &cache->folder;

    if (np_range_folder_reserve(folder, space_of(job)))
        return true;
    np_range_folder_count(folder);
    return np_range_folder_reserve(folder, space_of(job));
}

/* Reserves space for the jobs, in order, until there is none. */
static void reserve_all(struct np_range_cache *cache, struct np_range_job *jobs, int nr)
{
    struct np_range_folder *folder = &cache->folder;
    bool is_full = false;
    const int code = np_range_folder_take(folder, NULL);

    if (code && code != -EBUSY)
        np_range_turn_off(cache, code);
    for (int i = 0; i < nr; i++) {
        if (!jobs[i].is_due)
            continue;
        is_full = is_full || (!code && !reserve(cache, &jobs[i]));
        if (!code && !is_full)
            continue;
        jobs[i].is_due = false;
        if (!code)
            atomic_fetch_add(&cache->nr_full, 1);
    }
    if (is_full)
        atomic_store(&cache->full_until_ns, np_now_ns() + FULL_NS);
    if (code)
        return;
    np_range_folder_begin(folder);
    atomic_store(&cache->used_bytes, folder->used_bytes);
    atomic_store(&cache->nr_evicted, folder->nr_evicted);
    np_range_folder_release(folder);
}

static void fail(struct np_range_job *job, int code)
{
    job->is_due = false;
    np_range_turn_off(job->object->cache, code);
}

static void write_data(struct np_range_cache *cache, struct np_range_job *job)
{
    const struct np_range_object *object = job->object;
    int code;

    if (atomic_load(&cache->is_off)) {
        job->is_due = false;
        return;
    }
    code = cache->disk->write(object->fd, job->data, job->bytes,
        object->layout.data_offset + job->block * NP_RANGE_BLOCK);
    if (code)
        fail(job, code);
}

static void write_entry(struct np_range_cache *cache, struct np_range_job *job)
{
    struct np_range_object *object = job->object;
    const uint64_t sum = np_range_sum(object->layout.seed, job->block, job->data, job->bytes);
    const int code = cache->disk->write(object->fd, &sum, sizeof(sum), entry_offset(job));

    if (code) {
        fail(job, code);
        return;
    }
    np_bit_clear(object->checked, job->block);
    atomic_store_explicit(&object->sums[job->block], sum, memory_order_release);
    np_bit_clear(object->dropped, job->block);
    job->is_due = false;
    atomic_fetch_add_explicit(&cache->nr_stored, 1, memory_order_relaxed);
}

/* The jobs of one object, whose data are written. */
static void finish_object(struct np_range_cache *cache, struct np_range_job *jobs, int nr)
{
    struct flock all = entry_lock(F_UNLCK, 0, 0);
    int code = 0, nr_written = 0;

    for (int i = 0; i < nr; i++)
        nr_written += jobs[i].is_due;
    if (nr_written)
        code = cache->disk->sync(jobs[0].object->fd);
    for (int i = 0; i < nr; i++)
        if (jobs[i].is_due && code)
            fail(&jobs[i], code);
        else if (jobs[i].is_due)
            write_entry(cache, &jobs[i]);
    fcntl(jobs[0].object->fd, F_OFD_SETLK, &all);
}

/* What was reserved and then not written stays on the account until the next count. */
static void write_batch(struct np_range_cache *cache, struct np_range_job *jobs, int nr)
{
    qsort(jobs, (size_t)nr, sizeof(*jobs), by_place);
    for (int i = 0; i < nr; i++)
        claim(&jobs[i]);
    reserve_all(cache, jobs, nr);
    for (int i = 0; i < nr; i++)
        if (jobs[i].is_due)
            write_data(cache, &jobs[i]);
    for (int i = 0, end; i < nr; i = end) {
        for (end = i; end < nr && jobs[end].object == jobs[i].object; end++)
            ;
        finish_object(cache, jobs + i, end - i);
    }
    np_range_folder_end(&cache->folder);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* Waits for jobs and takes them all. 0: the end. */
static int next_batch(struct np_range_writer *writer)
{
    int nr;

    pthread_mutex_lock(&writer->lock);
    while (writer->nr_queued == 0 && !writer->stop)
        pthread_cond_wait(&writer->wake, &writer->lock);
    nr = writer->nr_queued;
    memcpy(writer->batch, writer->queue, (size_t)nr * sizeof(*writer->batch));
    writer->nr_queued = 0;
    writer->nr_busy = nr;
    pthread_mutex_unlock(&writer->lock);
    return nr;
}

static void end_batch(struct np_range_writer *writer, int nr)
{
    for (int i = 0; i < nr; i++)
        np_bit_clear(writer->batch[i].object->queued, writer->batch[i].block);
    pthread_mutex_lock(&writer->lock);
    for (int i = 0; i < nr; i++)
        writer->free[writer->nr_free++] = writer->batch[i].data;
    pthread_mutex_unlock(&writer->lock);
    for (int i = 0; i < nr; i++)
        np_range_object_leave(writer->batch[i].object);
    pthread_mutex_lock(&writer->lock);
    writer->nr_busy = 0;
    if (writer->nr_queued == 0)
        pthread_cond_broadcast(&writer->idle);
    pthread_mutex_unlock(&writer->lock);
}

static void *run(void *context)
{
    struct np_range_cache *cache = context;
    struct np_range_writer *writer = &cache->writer;
    int nr;

    prctl(PR_SET_NAME, "range cache");
    while ((nr = next_batch(writer)) > 0) {
        write_batch(cache, writer->batch, nr);
        end_batch(writer, nr);
    }
    pthread_mutex_lock(&writer->lock);
    writer->ended = true;
    pthread_cond_broadcast(&writer->idle);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

int np_range_writer_start(struct np_range_cache *cache, struct np_err *err)
{
    struct np_range_writer *writer = &cache->writer;
    pthread_condattr_t monotonic;
    int code;

    pthread_mutex_init(&writer->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->wake, NULL);
    pthread_cond_init(&writer->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    writer->memory = np_try_reserve((size_t)NP_RANGE_JOBS * NP_RANGE_BLOCK, err);
    if (!writer->memory)
        return -ENOMEM;
    for (int i = NP_RANGE_JOBS - 1; i >= 0; i--)
        writer->free[writer->nr_free++] = (char *)writer->memory + (size_t)i * NP_RANGE_BLOCK;
    code = pthread_create(&writer->thread, NULL, run, cache);
    if (code)
        return np_err_set(err, -code, "cannot start the thread of the cache: %s", strerror(code));
    writer->runs = true;
    return 0;
}

bool np_range_writer_stop(struct np_range_cache *cache)
{
    struct np_range_writer *writer = &cache->writer;
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += STOP_S;
    pthread_mutex_lock(&writer->lock);
    writer->stop = true;
    pthread_cond_broadcast(&writer->wake);
    while (writer->runs && !writer->ended &&
           pthread_cond_timedwait(&writer->idle, &writer->lock, &end) == 0)
        ;
    if (writer->runs && !writer->ended) {
        pthread_detach(writer->thread);
        pthread_mutex_unlock(&writer->lock);
        return false;
    }
    pthread_mutex_unlock(&writer->lock);
    if (writer->runs)
        pthread_join(writer->thread, NULL);
    if (writer->memory)
        munmap(writer->memory, (size_t)NP_RANGE_JOBS * NP_RANGE_BLOCK);
    pthread_cond_destroy(&writer->wake);
    pthread_cond_destroy(&writer->idle);
    pthread_mutex_destroy(&writer->lock);
    return true;
}

void np_range_flush(struct np_range_cache *cache)
{
    struct np_range_writer *writer = &cache->writer;

    pthread_mutex_lock(&writer->lock);
    while (writer->nr_queued || writer->nr_busy)
        pthread_cond_wait(&writer->idle, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

/* --- putting: readers ------------------------------------------------------------------------ */

void np_range_object_leave(struct np_range_object *object)
{
    struct np_range_writer *writer = &object->cache->writer;
    bool is_last;

    pthread_mutex_lock(&writer->lock);
    is_last = --object->nr_users == 0;
    pthread_mutex_unlock(&writer->lock);
    if (is_last)
        np_range_object_free(object);
}

static void *take_memory(struct np_range_writer *writer)
{
    void *memory = NULL;

    pthread_mutex_lock(&writer->lock);
    if (writer->nr_free)
        memory = writer->free[--writer->nr_free];
    pthread_mutex_unlock(&writer->lock);
    return memory;
}

static void put_block(struct np_range_object *object, uint64_t block, const void *data)
{
    struct np_range_writer *writer = &object->cache->writer;
    struct np_range_job job = {
        .object = object, .block = block, .bytes = np_range_block_bytes(object, block)};

    if (atomic_load_explicit(&object->sums[block], memory_order_relaxed) ||
        np_bit_set(object->queued, block))
        return;
    job.data = take_memory(writer);
    if (!job.data) {
        np_bit_clear(object->queued, block);
        atomic_fetch_add_explicit(&object->cache->nr_slow, 1, memory_order_relaxed);
        return;
    }
    memcpy(job.data, data, job.bytes);
    pthread_mutex_lock(&writer->lock);
    object->nr_users++;
    writer->queue[writer->nr_queued++] = job; /* each has its memory, so it fits */
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
}

void np_range_put(struct np_range_object *object, uint64_t offset, const void *data, uint64_t bytes)
{
    uint64_t block = (offset + NP_RANGE_BLOCK - 1) / NP_RANGE_BLOCK;

    if (offset > object->bytes || bytes > object->bytes - offset || !np_range_stores(object))
        return;
    for (; block < object->layout.nr_blocks; block++) {
        const uint64_t at = block * NP_RANGE_BLOCK - offset;

        if (at > bytes || bytes - at < np_range_block_bytes(object, block))
            break;
        put_block(object, block, (const char *)data + at);
    }
}
