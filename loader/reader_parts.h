/* The state of a reader and of its jobs, for reader.c and reader_reading.c. Only the reader thread
 * uses it, unless a field says otherwise. */
#ifndef NP_READER_PARTS_H
#define NP_READER_PARTS_H

#include <pthread.h>

#include "loader/reader_buffer.h"
#include "loader/reader_config.h"
#include "loader/reader_place.h"
#include "loader/row_replay.h"
#include "loader/source/files.h"

struct np_job {
    struct np_ticket ticket;
    struct np_batch *batch;
    int attempt; /* bad samples at this position so far */
    int nr_tries;
    uint64_t tried_ns;  /* the last submission */
    uint64_t submit_ns; /* time of opening and submitting: np_stat_pass() */
    int own_fd;         /* of the sample's own file; -1: not open */
    bool in_flight;
    bool direct;                /* read past the page cache: np_io_widen() */
    uint8_t front[NP_IO_BLOCK]; /* saved bytes that the widened read overwrites */
    struct np_buffer buffer;
    struct np_extent extent;
    struct np_record record;
    struct np_row_entries *entries;
    struct np_making making;
    struct np_io_read read;
};

struct np_reader {
    const struct np_reader_config *config; /* set once */
    pthread_t thread;
    int number;

    struct np_reader_place place;

    /* reader thread only */
    struct np_io io;
    struct np_row_maker *maker;
    struct np_row_replay *replay; /* NULL: no stage is replayed */
    struct np_block *block;
    struct np_job *jobs;
    struct np_job **free_jobs;
    int nr_free;
    struct np_buffers buffers;
    bool ended;
    int nr_ahead, next_ahead;
    struct np_ticket ahead[NP_READER_AHEAD]; /* tickets taken; their slots may not be free yet */
    struct np_err why;                       /* of the current sample */
};

static inline const struct np_set *np_reader_set(
    const struct np_reader *reader, const struct np_job *job)
{
    return &reader->config->row.sets[job->ticket.kind];
}

static inline int np_reader_begun(const struct np_reader *reader)
{
    return reader->config->depth - reader->nr_free;
}

/* The ticket to work on next, and its slot; valid until the next call. Waits only while no job is
 * begun. NULL: the run ends or stops, or (with jobs begun) there is none now. reader_tickets.c */
const struct np_ticket *np_reader_ticket(struct np_reader *reader, struct np_batch **ret_batch);

/* Begins to read the sample of job->making. 1: its read is in flight; 0: it needs none; else
 * reader->why has the cause: -EBADMSG: the sample is bad; -EIO; -ENOMEM; -ESTALE. */
int np_reading_start(struct np_reader *reader, struct np_job *job);
/* Checks the read that np_io_reap() returned. 1: in flight again; 0: all bytes are there; else as
 * np_reading_start(). */
int np_reading_check(struct np_reader *reader, struct np_job *job);
/* Reads a whole record, after a part was not enough. As np_reading_start(), but never 0. */
int np_reading_whole(struct np_reader *reader, struct np_job *job);
void np_reading_close(struct np_job *job);

#endif
