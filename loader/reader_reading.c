/* Reads a job's sample: opens its own file or uses its shard's, reads the bytes that the row needs,
 * past the page cache where that is faster, and retries failed reads. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/reader_parts.h"

/* Pauses before the retries. */
static const int backoff_ms[] = {10, 100, 1000};
enum { NR_RETRIES = sizeof(backoff_ms) / sizeof(*backoff_ms) };

void np_reading_close(struct np_job *job)
{
    if (job->own_fd >= 0)
        close(job->own_fd);
    job->own_fd = -1;
}

/* Sleeps until `milliseconds` after the last submission, or until the ring is stopped. If many
 * reads failed at once, all of them share the sleep of the first. */
static void back_off(struct np_reader *reader, const struct np_job *job, int milliseconds)
{
    const uint64_t end_ns = job->tried_ns + (uint64_t)milliseconds * 1000000;
    uint64_t now_ns = np_now_ns();

    np_stat_wait(reader->block, NP_STATE_IO_WAIT, "retry", job->extent.path, job->record.offset);
    for (; now_ns < end_ns && !np_ring_stopped(reader->config->ring); now_ns = np_now_ns())
        np_sleep_until_ns(end_ns - now_ns < 10000000 ? end_ns : now_ns + 10000000);
    np_stat_done(reader->block);
}

/* Gives the record a buffer. -EBADMSG: no image has such a size; -ENOMEM. */
static int take_place(struct np_reader *reader, struct np_job *job)
{
    if (job->record.bytes == 0)
        return np_err_set(&reader->why, -EBADMSG, "is empty");
    if (job->record.bytes > NP_MAX_SAMPLE_BYTES)
        return np_err_set(&reader->why, -EBADMSG,
            "has %u bytes, more than the %u that an image may have", job->record.bytes,
            NP_MAX_SAMPLE_BYTES);
    return np_buffer_take(&reader->buffers, (int)(job - reader->jobs),
        job->direct ? job->record.offset : 0, job->record.bytes, &job->buffer, &reader->why);
}

/* Opens the sample's own file and takes its current size. fd: the result of np_io_reap(), or
 * -EINPROGRESS: not opened yet. 0; -EINPROGRESS: submit the open; 1: the file is no image or memory
 * is out, and `why` is set; or the storage's -errno. */
static int open_own(struct np_reader *reader, struct np_job *job, int fd)
{
    const struct np_set *set = np_reader_set(reader, job);

    np_stat_call(reader->block, "open", job->extent.path, job->record.offset);
    np_reader_place_move(&reader->place, NP_READER_CALLS);
    if (fd == -EINPROGRESS)
        fd = np_io_open_now(&reader->io, job->extent.path, job->direct);
    if (fd != -EINPROGRESS)
        fd = job->own_fd = np_extent_opened(fd, &job->record, &job->making.mtime_ns);
    np_reader_place_move(&reader->place, NP_READER_WORKS);
    np_stat_called(reader->block);
    if (fd == -EINVAL && job->direct) { /* tmpfs, for example, has no O_DIRECT */
        job->direct = false;
        return -EINPROGRESS;
    }
    if (fd < 0) {
        if (!np_extent_is_bad(set->index, fd))
            return fd;
        np_err_set(&reader->why, -EBADMSG, "cannot be opened: %s", strerror(-fd));
        return 1;
    }
    if (job->record.bytes != job->extent.record->bytes)
        np_changed_add(set->changed, job->making.sample, job->extent.path);
    return take_place(reader, job) ? 1 : 0;
}

/* Returns as open_own(). */
static int submit(struct np_reader *reader, struct np_job *job)
{
    const struct np_set *set = np_reader_set(reader, job);
    int code = 0;

    job->tried_ns = np_now_ns();
    if (set->index->root && job->own_fd < 0)
        code = open_own(reader, job, -EINPROGRESS);
    if (code == -EINPROGRESS) {
        job->read =
            (struct np_io_read){.path = job->extent.path, .direct = job->direct, .owner = job};
        return np_io_submit(&reader->io, &job->read);
    }
    if (code)
        return code;
    if (np_row_plan(reader->maker, &job->making, job->buffer.data, &reader->why))
        return 1;
    if (job->making.is_part && job->own_fd >= 0) /* the kernel reads no page around it */
        posix_fadvise(job->own_fd, 0, 0, POSIX_FADV_RANDOM);
    job->read = (struct np_io_read){
        .fd = job->own_fd >= 0 ? job->own_fd
              : job->direct    ? np_files_direct(set->files, job->record.file)
                               : np_files_fd(set->files, job->record.file),
        .offset = job->record.offset + job->making.from,
        .bytes = job->making.to - job->making.from,
        .buffer = job->buffer.data + job->making.from,
        .owner = job,
    };
    if (job->direct) {
        const uint32_t before = np_io_widen(&job->read);

        memcpy(job->front, job->read.buffer, before);
    }
    return np_io_submit(&reader->io, &job->read);
}

/* Submits the read or the open, with retries. code: the last failure, or 0. 1: in flight; else
 * -EBADMSG, -ENOMEM or -EIO, and `why` is set. */
static int submit_again(struct np_reader *reader, struct np_job *job, int code)
{
    for (;;) {
        if (code && job->nr_tries == NR_RETRIES)
            return np_err_set(&reader->why, -EIO,
                "%s: cannot read %u bytes at offset %llu: %s (tried %d times)", job->extent.path,
                job->record.bytes, (unsigned long long)job->record.offset, strerror(-code),
                NR_RETRIES + 1);
        if (code) {
            np_reading_close(job);
            back_off(reader, job, backoff_ms[job->nr_tries++]);
        }
        code = submit(reader, job);
        if (code > 0)
            return reader->why.code;
        if (!code)
            break;
    }
    job->in_flight = true;
    job->submit_ns += np_stat_pass(reader->block, NP_STAGE_READ);
    np_stat_in_flight(reader->block, reader->io.nr_in_flight);
    return 1;
}

int np_reading_start(struct np_reader *reader, struct np_job *job)
{
    struct np_index *index = np_reader_set(reader, job)->index;
    struct np_making *making = &job->making;
    int code;

    job->record = np_index_get(index, making->sample);
    job->submit_ns = 0;
    making->ticket = &job->ticket;
    making->record = &job->record;
    making->out = np_ring_row(reader->config->ring, job->batch,
        np_batch_row_bytes_of(&reader->config->row.shape, job->ticket.kind, job->ticket.step),
        job->ticket.row);
    making->about = &job->batch->about[job->ticket.row];
    making->mtime_ns = 0;
    making->entries = job->entries;
    making->whole = false;
    if (np_row_find(reader->maker, making))
        return 0;
    np_source_locate(index, making->sample, &job->extent);
    job->direct = reader->io.opens &&
                  np_files_is_direct(np_reader_set(reader, job)->files, index, making->sample);
    if (!index->root && (code = take_place(reader, job)) < 0)
        return code;
    return submit_again(reader, job, 0);
}

int np_reading_whole(struct np_reader *reader, struct np_job *job)
{
    job->making.whole = true;
    return submit_again(reader, job, 0);
}

/* A read of an object failed: its backend has repeated it as long as it makes sense. */
static int fail_remote(struct np_reader *reader, const struct np_job *job)
{
    const int code = job->read.result;
    const bool is_plain = code == -ESTALE || code == -ENOMEM || code == -ECANCELED;

    return np_err_set(&reader->why, is_plain ? code : -EIO,
        "cannot read %u bytes at offset %llu: %s", job->read.bytes,
        (unsigned long long)job->read.offset, job->read.why ? job->read.why : strerror(-code));
}

/* After a read past the page cache. True: it has all the wanted bytes, and its result now looks
 * like that of a plain read. */
static bool check_direct(struct np_job *job)
{
    const uint32_t before = (uint32_t)(job->record.offset + job->making.from - job->read.offset);
    const uint32_t wanted = job->making.to - job->making.from;

    memcpy(job->read.buffer, job->front, before);
    if (job->read.result < (int32_t)(before + wanted))
        return false;
    job->read.bytes = wanted;
    job->read.result = (int32_t)wanted;
    return true;
}

int np_reading_check(struct np_reader *reader, struct np_job *job)
{
    if (job->read.path) {
        const int code = open_own(reader, job, job->read.result);

        return code > 0 ? reader->why.code
                        : submit_again(reader, job, code == -EINPROGRESS ? 0 : code);
    }
    if (job->read.direct && !check_direct(job)) {
        job->direct = false;
        np_reading_close(job);
        return submit_again(reader, job, 0);
    }
    if (job->read.result < 0 && np_is_remote(job->read.fd))
        return fail_remote(reader, job);
    if (job->read.result < 0)
        return submit_again(reader, job, job->read.result);
    if (job->making.is_part && (uint32_t)job->read.result < job->read.bytes)
        return np_reading_whole(reader, job);
    if (!job->making.is_part && (uint32_t)job->read.result < job->record.bytes)
        return np_err_set(&reader->why, -EBADMSG, "is truncated: the file ends %u bytes early",
            job->record.bytes - (uint32_t)job->read.result);
    job->making.extent = job->buffer.data;
    return 0;
}
