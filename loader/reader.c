/* The reader thread. Its loop: take tickets until `depth` reads are in flight, wait for one of
 * them, make its row. It waits for a read in np_io_reap() while any is in flight, else for a slot
 * in np_ring_claim(); so a later batch without a free slot never delays an earlier one.
 *
 * A job is one ticket: find its sample, read it, make the row, commit it; or report the sample as
 * bad and start again with its replacement. A failed read is retried, and then ends the run; bad
 * content goes to the bad-sample policy. The two never mix, so the samples trained on do not depend
 * on the disk. */
#include "loader/reader.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/reader_parts.h"
#include "loader/row_entries.h"

#define NICENESS 5 /* compute threads win */

static int32_t label_of(const struct np_reader *reader, const struct np_job *job)
{
    const struct np_set *set = np_reader_set(reader, job);

    if (job->record.no_label)
        return -1;
    if (set->index->values)
        return 0;
    return set->labels ? set->labels[job->record.label] : (int32_t)job->record.label;
}

/* Writes the values behind the labels; zeros for a masked row, or a set without labels. */
static void put_values(const struct np_reader *reader, const struct np_job *job, bool good)
{
    const struct np_batch_shape *shape = &reader->config->row.shape;
    const struct np_index *index = np_reader_set(reader, job)->index;
    const size_t width = (size_t)shape->values;
    float *to = (float *)(job->batch->labels + shape->rows) + (size_t)job->ticket.row * width;

    assert(!index->values || index->nr_values == shape->values);
    if (good && index->values && !job->record.no_label)
        memcpy(to, index->values + (size_t)job->record.label * width, width * sizeof(*to));
    else
        memset(to, 0, width * sizeof(*to));
}

/* good: the row is written; else masks it. */
static void commit(struct np_reader *reader, struct np_job *job, bool good)
{
    const struct np_ticket *ticket = &job->ticket;
    struct np_batch *batch = job->batch;
    struct np_row *about = &batch->about[ticket->row];

    if (!good) {
        const size_t row_bytes =
            np_batch_row_bytes_of(&reader->config->row.shape, ticket->kind, ticket->step);

        memset(np_ring_row(reader->config->ring, batch, row_bytes, ticket->row), 0, row_bytes);
        memset(about, 0, sizeof(*about));
        about->resident = NP_NOT_RESIDENT;
    }
    about->sample = good ? job->making.sample : UINT64_MAX;
    about->position = ticket->position;
    about->epoch = ticket->epoch;
    about->attempts = (uint16_t)job->attempt;
    batch->labels[ticket->row] = good ? label_of(reader, job) : -1;
    if (reader->config->row.shape.values)
        put_values(reader, job, good);
    if (ticket->row == 0) {
        batch->kind = ticket->kind;
        batch->step = ticket->step;
        batch->part = ticket->part;
        batch->nr_parts = ticket->nr_parts;
    }
    if (reader->config->exchange)
        np_exchange_commit(reader->config->exchange, batch);
    np_ring_commit(reader->config->ring, batch, reader->block);
    np_reading_close(job);
    np_buffer_release(&reader->buffers, &job->buffer);
    reader->free_jobs[reader->nr_free++] = job;
}

/* -EBADMSG: the content is bad; -ENOMEM; -EAGAIN: the record must be read whole. */
static int make(struct np_reader *reader, struct np_job *job)
{
    int code = np_row_make(reader->maker, &job->making, &reader->why);

    return code && code != -ENOMEM && code != -EAGAIN ? -EBADMSG : code;
}

static int report_bad(struct np_reader *reader, const struct np_job *job)
{
    const struct np_index *index = np_reader_set(reader, job)->index;
    struct np_bad_sample bad = {
        .step = job->ticket.step,
        .sample = job->making.sample,
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

    if (index->root)
        n = snprintf(bad.path, sizeof(bad.path), "%s/", index->root);
    else if (index->nr_files > (int)job->record.file) {
        snprintf(bad.path, sizeof(bad.path), "%s", index->paths[job->record.file]);
        np_text_hide(bad.path);
        n = (int)strlen(bad.path);
        n += snprintf(bad.path + n, sizeof(bad.path) - (size_t)n, ":");
    }
    if (n < (int)sizeof(bad.path))
        np_index_name(index, job->making.sample, bad.path + n, (int)sizeof(bad.path) - n);
    snprintf(bad.reason, sizeof(bad.reason), "%.255s", reader->why.text);
    code = np_bad_add(reader->config->bad, &bad, &err);
    reader->why = err;
    return code;
}

/* A shard that was overwritten ends the run: it is no matter for the bad-sample policy. */
static int check_shard(struct np_reader *reader, const struct np_job *job)
{
    const struct np_set *set = np_reader_set(reader, job);

    if (!np_files_changed(set->files, job->record.file))
        return 0;
    memset(&reader->why, 0, sizeof(reader->why));
    return np_err_set(&reader->why, -ESTALE,
        "%s has changed since the run began, so its samples are no longer the same: restore the "
        "old file, or start a new run",
        set->index->paths[job->record.file]);
}

/* 1: start the replacement; 0: the row is committed; else the run ends. */
static int settle(struct np_reader *reader, struct np_job *job, int outcome)
{
    int code;

    np_row_end(reader->maker, &job->making);
    if (outcome == 0)
        commit(reader, job, true);
    if (outcome != -EBADMSG)
        return outcome;
    if ((code = check_shard(reader, job)) < 0)
        return code;
    code = report_bad(reader, job);
    np_reading_close(job);
    if (code < 0)
        return code;
    if (code > 0 && reader->config->exchange)
        np_exchange_keep(reader->config->exchange, job->ticket.seq);
    if (code > 0 || !np_sampler_replaces(reader->config->sampler, &job->ticket)) {
        commit(reader, job, false);
        return 0;
    }
    job->attempt++;
    job->nr_tries = 0;
    job->making.sample =
        np_sampler_replacement(reader->config->sampler, &job->ticket, job->attempt);
    return 1;
}

/* Starts a job; also finishes it if it needs no read. */
static int begin(struct np_reader *reader, struct np_job *job)
{
    int code;

    if (job->ticket.masked) {
        commit(reader, job, false);
        return 0;
    }
    do {
        code = np_reading_start(reader, job);
        if (code > 0)
            return 0;
        if (code == 0)
            code = make(reader, job);
        code = settle(reader, job, code);
    } while (code > 0);
    return code;
}

static int finish(struct np_reader *reader, struct np_job *job)
{
    np_stat_about(reader->block, job->ticket.seq, (int)job->ticket.row);

    int code = np_reading_check(reader, job);

    if (code > 0)
        return 0;
    np_stat_lap(reader->block, NP_STAGE_READ, job->read.bytes, job->submit_ns);
    if (code == 0)
        code = make(reader, job);
    if (code == -EAGAIN && (code = np_reading_whole(reader, job)) > 0)
        return 0;
    code = settle(reader, job, code);
    return code > 0 ? begin(reader, job) : code;
}

/* --- the loop ------------------------------------------------------------------------------- */

/* The next job. NULL: the run ends or stops, or (with reads in flight) there is none now. */
static struct np_job *next_job(struct np_reader *reader)
{
    struct np_batch *batch;
    const struct np_ticket *ticket = np_reader_ticket(reader, &batch);
    struct np_job *job;

    if (!ticket)
        return NULL;
    job = reader->free_jobs[--reader->nr_free];
    job->ticket = *ticket;
    job->batch = batch;
    job->making.sample = job->ticket.sample;
    np_stat_about(reader->block, job->ticket.seq, (int)job->ticket.row);
    job->attempt = job->nr_tries = 0;
    return job;
}

/* NULL: none is in flight. */
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

static struct np_job *reap(struct np_reader *reader)
{
    struct np_io_read *read = np_io_reap(&reader->io, false);
    struct np_job *job;

    if (!read) {
        job = oldest_read(reader);
        np_stat_about(reader->block, job->ticket.seq, (int)job->ticket.row);
        np_stat_wait(reader->block, NP_STATE_IO_WAIT, job->read.path ? "open" : "read",
            job->extent.path, job->record.offset);
        np_reader_place_move(&reader->place, NP_READER_CALLS);
        read = np_io_reap(&reader->io, true);
        np_reader_place_move(&reader->place, NP_READER_WORKS);
        np_stat_done(reader->block);
    }
    job = read->owner;
    job->in_flight = false;
    np_stat_in_flight(reader->block, reader->io.nr_in_flight);
    return job;
}

static int fill(struct np_reader *reader)
{
    struct np_job *job = NULL;
    int code = 0;

    while (!code && reader->nr_free > 0 && !np_buffers_full(&reader->buffers) &&
           (job = next_job(reader))) {
        np_stat_lap(reader->block, NP_STAGE_BATCH,
            np_batch_row_bytes_of(&reader->config->row.shape, job->ticket.kind, job->ticket.step),
            0);
        code = begin(reader, job);
    }
    if (!job) /* the time of a search without a result */
        np_stat_pass(reader->block, NP_STAGE_BATCH);
    return code;
}

static int read_run(struct np_reader *reader)
{
    int code = 0;

    while (!code && !np_ring_stopped(reader->config->ring)) {
        code = fill(reader);
        if (code || np_reader_begun(reader) == 0)
            break;
        code = finish(reader, reap(reader));
    }
    return code;
}

/* --- the thread ----------------------------------------------------------------------------- */

static size_t max_bytes(const struct np_reader_config *config)
{
    size_t max = 1;

    for (int s = 0; s < 2; s++)
        if (config->row.sets[s].index && config->row.sets[s].index->max_extent > max)
            max = config->row.sets[s].index->max_extent;
    return max;
}

static int new_jobs(struct np_reader *reader, struct np_err *err)
{
    const int depth = reader->config->depth;

    reader->jobs = np_try_array((size_t)depth, sizeof(*reader->jobs), err);
    for (int i = 0; reader->jobs && i < depth; i++)
        reader->jobs[i].own_fd = -1;
    reader->free_jobs = np_try_array((size_t)depth, sizeof(*reader->free_jobs), err);
    if (!reader->jobs || !reader->free_jobs)
        return -ENOMEM;
    if (np_buffers_new(&reader->buffers, depth, max_bytes(reader->config), err))
        return -ENOMEM;
    for (int i = 0; i < depth; i++) {
        struct np_job *job = &reader->jobs[i];

        job->entries = np_row_entries_new(err);
        if (!job->entries)
            return -ENOMEM;
        reader->free_jobs[reader->nr_free++] = job;
    }
    return 0;
}

static int new_maker(struct np_reader *reader, struct np_err *err)
{
    const struct np_reader_config *config = reader->config;
    struct np_row_options options = config->row;
    int code;

    options.block = reader->block;
    code = np_row_maker_new(&options, &reader->maker, err);
    if (!code)
        code = np_row_replay_new(
            reader->maker, config->stubs, config->replay_samples, &reader->replay, err);
    return code;
}

static int set_up(struct np_reader *reader, struct np_err *err)
{
    const struct np_reader_config *config = reader->config;
    char name[16];
    int code;

    snprintf(name, sizeof(name), "reader %d", reader->number);
    pthread_setname_np(pthread_self(), name);
    /* On Linux this affects the calling thread alone. A failure is ignored. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), getpriority(PRIO_PROCESS, 0) + NICENESS);
    code = config->remote
               ? np_remote()->open_io(&reader->io, config->io, config->depth, config->remote, err)
               : np_io_open(&reader->io, config->io, config->depth, err);
    if (!code)
        code = new_jobs(reader, err);
    if (!code && !(reader->block = np_stat_join(config->stat, name, err)))
        code = -ENOMEM;
    if (!code)
        code = new_maker(reader, err);
    return code;
}

/* Waits for the reads in flight. */
static void close_io(struct np_reader *reader)
{
    const struct np_job *job = reader->jobs ? oldest_read(reader) : NULL;

    if (job)
        np_stat_wait(
            reader->block, NP_STATE_IO_WAIT, "end of read", job->extent.path, job->record.offset);
    np_reader_place_move(&reader->place, NP_READER_CALLS);
    np_io_close(&reader->io);
    np_reader_place_move(&reader->place, NP_READER_WORKS);
    if (job)
        np_stat_done(reader->block);
}

static void tear_down(struct np_reader *reader)
{
    for (int i = 0; reader->jobs && i < reader->config->depth; i++) {
        np_reading_close(&reader->jobs[i]);
        np_buffer_release(&reader->buffers, &reader->jobs[i].buffer);
        np_row_entries_free(reader->jobs[i].entries);
    }
    np_row_replay_free(reader->replay);
    np_row_maker_free(reader->maker);
    np_buffers_free(&reader->buffers);
    np_free(reader->free_jobs);
    np_free(reader->jobs);
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
    np_reader_place_move(&reader->place, NP_READER_ENDED);
    return NULL;
}

static void free_reader(struct np_reader *reader)
{
    np_reader_place_fini(&reader->place);
    np_free(reader);
}

int np_reader_start(const struct np_reader_config *config, int number,
    struct np_reader **ret_reader, struct np_err *err)
{
    struct np_reader *reader = np_try_alloc(sizeof(*reader), err);
    sigset_t all, before;
    int code;

    if (!reader)
        return -ENOMEM;
    reader->config = config;
    reader->number = number;
    np_reader_place_init(&reader->place);
    /* Signals go to the main thread. */
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

bool np_reader_join(struct np_reader *reader, uint64_t until_ns)
{
    if (np_reader_place_hangs(&reader->place, until_ns)) {
        np_stat_called(reader->block);
        pthread_detach(reader->thread);
        return false;
    }
    pthread_join(reader->thread, NULL);
    free_reader(reader);
    return true;
}
