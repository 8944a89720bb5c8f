/* One ticket's way: find its sample, read it, make the row, hand it in; or say what is wrong
 * and begin again with the sample that takes its place. Reader threads, each on its own jobs.
 *
 * Reads that fail are tried again and then end the run; content that is bad goes to the
 * policy. The two never mix: what is trained on does not depend on the disk's mood. */
#include "loader/reader_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/source/changed.h"

/* Before each further try of a read that failed. */
static const int backoff_ms[] = {10, 100, 1000};
enum { NR_RETRIES = sizeof(backoff_ms) / sizeof(*backoff_ms) };

static void close_own(struct np_job *job)
{
    if (job->own_fd >= 0)
        close(job->own_fd);
    job->own_fd = -1;
}

void np_job_free(struct np_job *job)
{
    close_own(job);
    np_free(job->own_buffer);
}

static int32_t label_of(const struct np_reader *reader, const struct np_job *job)
{
    const struct np_set *set = &reader->config->sets[job->ticket.kind];

    if (job->record.no_label)
        return -1;
    return set->labels ? set->labels[job->record.label] : (int32_t)job->record.label;
}

/* The row is written (good), or to be masked: hands it in. */
static void commit(struct np_reader *reader, struct np_job *job, bool good)
{
    const struct np_batch_shape *shape = &reader->config->shape;
    const struct np_ticket *ticket = &job->ticket;
    struct np_batch *batch = job->batch;
    struct np_row *about = &batch->about[ticket->row];

    if (!good) {
        memset(np_ring_row(reader->config->ring, batch, ticket->row), 0,
            (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels);
        memset(about, 0, sizeof(*about));
        about->resident = NP_NOT_RESIDENT;
    }
    about->sample = good ? job->sample : UINT64_MAX;
    about->position = ticket->position;
    about->epoch = ticket->epoch;
    about->attempts = (uint16_t)job->attempt;
    batch->labels[ticket->row] = good ? label_of(reader, job) : -1;
    if (ticket->row == 0) {
        batch->kind = ticket->kind;
        batch->step = ticket->step;
        batch->part = ticket->part;
        batch->nr_parts = ticket->nr_parts;
    }
    np_ring_commit(reader->config->ring, batch, reader->block);
    close_own(job);
    reader->free_jobs[reader->nr_free++] = job;
}

/* --- reading ------------------------------------------------------------------------------ */

/* Sleeps until so long after the last try, unless the ring is stopped meanwhile. Where many reads
 * failed at once, the others' time has passed too when the first is tried again. */
static void back_off(struct np_reader *reader, const struct np_job *job, int milliseconds)
{
    const uint64_t end_ns = job->tried_ns + (uint64_t)milliseconds * 1000000;
    uint64_t now_ns = np_now_ns();

    np_stat_wait(
        reader->block, NP_STATE_IO_WAIT, "another try", job->extent.path, job->record.offset);
    for (; now_ns < end_ns && !np_ring_stopped(reader->config->ring); now_ns = np_now_ns())
        np_sleep_until_ns(end_ns - now_ns < 10000000 ? end_ns : now_ns + 10000000);
    np_stat_done(reader->block);
}

/* 0; -EBADMSG: no image has such a size; -ENOMEM: both are said. */
static int check_size(struct np_reader *reader, struct np_job *job)
{
    if (job->record.bytes == 0)
        return np_err_set(&reader->why, -EBADMSG, "is empty");
    if (job->record.bytes > NP_MAX_SAMPLE_BYTES)
        return np_err_set(&reader->why, -EBADMSG,
            "has %u bytes, more than %u are read as one image", job->record.bytes,
            NP_MAX_SAMPLE_BYTES);
    if (job->record.bytes <= job->buffer_bytes)
        return 0;
    if (np_hold(&job->own_buffer, &job->own_bytes, job->record.bytes, NULL))
        return np_err_set(
            &reader->why, -ENOMEM, "out of memory to read %u bytes", job->record.bytes);
    job->buffer = job->own_buffer;
    job->buffer_bytes = job->own_bytes;
    return 0;
}

/* The sample's own file, as it is now. 0; 1: it is no sample, or there is no memory, as why says; or
 * what the storage failed with. */
static int open_own(struct np_reader *reader, struct np_job *job)
{
    const struct np_set *set = &reader->config->sets[job->ticket.kind];

    np_stat_call(reader->block, "open", job->extent.path, job->record.offset);
    np_reader_calls(reader);
    job->own_fd = np_extent_open(job->extent.path, &job->record);
    np_reader_back(reader);
    np_stat_called(reader->block);
    if (job->own_fd < 0) {
        const int code = job->own_fd;

        if (!np_extent_is_bad(set->index, code))
            return code;
        np_err_set(&reader->why, -EBADMSG, "cannot be opened: %s", strerror(-code));
        return 1;
    }
    if (job->record.bytes != job->extent.record->bytes)
        np_changed_add(set->changed, job->sample, job->extent.path);
    return check_size(reader, job) ? 1 : 0;
}

/* As open_own(). */
static int submit(struct np_reader *reader, struct np_job *job)
{
    const struct np_set *set = &reader->config->sets[job->ticket.kind];
    int code;

    job->tried_ns = np_now_ns();
    if (np_index_root(set->index) && job->own_fd < 0 && (code = open_own(reader, job)))
        return code;
    job->read = (struct np_io_read){
        .fd = job->own_fd >= 0 ? job->own_fd : np_files_fd(set->files, job->record.file),
        .offset = job->record.offset,
        .bytes = job->record.bytes,
        .buffer = job->buffer,
        .owner = job,
    };
    return np_io_submit(&reader->io, &job->read);
}

/* Submits, again and again while that fails. code: what failed before, or 0. 1: the read is in flight;
 * -EBADMSG, -ENOMEM, -EIO: it never will be, as why says. */
static int submit_again(struct np_reader *reader, struct np_job *job, int code)
{
    for (;;) {
        if (code && job->nr_tries == NR_RETRIES)
            return np_err_set(&reader->why, -EIO,
                "%s: cannot read %u bytes at offset %llu: %s (tried %d times)", job->extent.path,
                job->record.bytes, (unsigned long long)job->record.offset, strerror(-code),
                NR_RETRIES + 1);
        if (code) {
            close_own(job);
            back_off(reader, job, backoff_ms[job->nr_tries++]);
        }
        code = submit(reader, job);
        if (code > 0)
            return reader->why.code;
        if (!code)
            break;
    }
    job->in_flight = true;
    job->submit_ns = np_stat_pass(reader->block, NP_STAGE_READ);
    np_stat_hold(reader->block, reader->io.nr_in_flight);
    return 1;
}

/* 1: the sample's read is in flight; 0: it needs none; -EBADMSG: it is bad; -EIO. */
static int start(struct np_reader *reader, struct np_job *job)
{
    struct np_index *index = reader->config->sets[job->ticket.kind].index;
    int code;

    job->record = np_index_get(index, job->sample);
    if (np_maker_has(reader->maker, job->ticket.kind, job->sample, &job->record))
        return 0;
    np_source_locate(index, job->sample, &job->extent);
    if (np_index_raw(index)->kind == NP_RAW_SYNTH) { /* drawn: its number is all its bytes */
        memcpy(job->buffer, &job->record.offset, sizeof(job->record.offset));
        return 0;
    }
    if (np_maker_replays_read(reader->maker, job->ticket.kind, job->sample))
        return 0;
    if (!np_index_root(index) && (code = check_size(reader, job)) < 0)
        return code;
    return submit_again(reader, job, 0);
}

/* 1: in flight again; 0: all bytes are there; -EBADMSG: the file is too short; -EIO. */
static int check_read(struct np_reader *reader, struct np_job *job)
{
    if (job->read.result < 0)
        return submit_again(reader, job, job->read.result);
    if ((uint32_t)job->read.result < job->record.bytes)
        return np_err_set(&reader->why, -EBADMSG, "is torn: the file ends %u bytes before it does",
            job->record.bytes - (uint32_t)job->read.result);
    return 0;
}

/* --- rows --------------------------------------------------------------------------------- */

/* 0, -EBADMSG: its content is bad, or -ENOMEM. */
static int make(struct np_reader *reader, struct np_job *job)
{
    const struct np_making making = {
        .ticket = &job->ticket,
        .sample = job->sample,
        .record = &job->record,
        .extent = job->buffer,
        .out = np_ring_row(reader->config->ring, job->batch, job->ticket.row),
        .about = &job->batch->about[job->ticket.row],
    };
    int code = np_maker_make(reader->maker, &making, &reader->why);

    return code && code != -ENOMEM ? -EBADMSG : code;
}

/* Files it: where it lies and what is wrong. As np_bad_add(). */
static int report_bad(struct np_reader *reader, const struct np_job *job)
{
    const struct np_index *index = reader->config->sets[job->ticket.kind].index;
    struct np_bad_sample bad = {
        .step = job->ticket.step,
        .sample = job->sample,
        .seq = job->ticket.seq,
        .row = job->ticket.row,
        .attempt = job->attempt,
        .position = job->ticket.position,
        .epoch = job->ticket.epoch,
        .kind = job->ticket.kind,
        .offset = job->record.offset,
    };
    struct np_err err = {0};
    int n = 0, code;

    if (np_index_root(index))
        n = snprintf(bad.path, sizeof(bad.path), "%s/", np_index_root(index));
    else if (np_index_files(index) > (int)job->record.file)
        n = snprintf(
            bad.path, sizeof(bad.path), "%s:", np_index_file(index, (int)job->record.file));
    if (n < (int)sizeof(bad.path))
        np_index_name(index, job->sample, bad.path + n, (int)sizeof(bad.path) - n);
    snprintf(bad.reason, sizeof(bad.reason), "%.255s", reader->why.text);
    code = np_bad_add(reader->config->bad, &bad, &err);
    reader->why = err;
    return code;
}

/* Bytes that are bad since the shard has been written over are nothing that a replacement mends. */
static int check_shard(struct np_reader *reader, const struct np_job *job)
{
    const struct np_set *set = &reader->config->sets[job->ticket.kind];

    if (!np_files_changed(set->files, job->record.file))
        return 0;
    memset(&reader->why, 0, sizeof(reader->why));
    return np_err_set(&reader->why, -ESTALE,
        "%s has changed since the run began, so its samples are not the same any more: bring the "
        "old file back, or start a new run",
        np_index_file(set->index, (int)job->record.file));
}

/* A job's outcome. 1: another sample takes its place, to be started; 0: its row is handed in;
 * or what ends the run. */
static int settle(struct np_reader *reader, struct np_job *job, int outcome)
{
    int code;

    if (outcome == 0)
        commit(reader, job, true);
    if (outcome != -EBADMSG)
        return outcome;
    if ((code = check_shard(reader, job)) < 0)
        return code;
    code = report_bad(reader, job);
    close_own(job);
    if (code < 0)
        return code;
    if (code > 0 || job->ticket.kind == NP_BATCH_EVAL) {
        commit(reader, job, false);
        return 0;
    }
    job->attempt++;
    job->nr_tries = 0;
    job->sample = np_sampler_replacement(reader->config->sampler, &job->ticket, job->attempt);
    return 1;
}

/* Starts a job; one that needs no read is finished here. */
int np_job_begin(struct np_reader *reader, struct np_job *job)
{
    int code;

    if (job->ticket.masked) {
        commit(reader, job, false);
        return 0;
    }
    do {
        code = start(reader, job);
        if (code > 0)
            return 0;
        if (code == 0)
            code = make(reader, job);
        code = settle(reader, job, code);
    } while (code > 0);
    return code;
}

/* What follows a read. */
int np_job_finish(struct np_reader *reader, struct np_job *job)
{
    np_stat_about(reader->block, job->ticket.seq, (int)job->ticket.row);

    int code = check_read(reader, job);

    if (code > 0)
        return 0;
    np_stat_lap(reader->block, NP_STAGE_READ, job->record.bytes, job->submit_ns);
    if (code == 0)
        code = make(reader, job);
    code = settle(reader, job, code);
    return code > 0 ? np_job_begin(reader, job) : code;
}
