/* The state of a reader and of its jobs, for reader.c and reader_reading.c alone. Everything here is the
 * reader's thread's, if nothing else is said. */
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
    int attempt; /* samples of this position that were bad */
    int nr_tries;
    uint64_t tried_ns;  /* when its read was last submitted */
    uint64_t submit_ns; /* how long opening and submitting took, as np_stat_pass() */
    int own_fd;         /* the sample's own file, or -1 */
    bool in_flight;
    bool direct;                /* read past the page cache: np_io_widen() */
    uint8_t front[NP_IO_BLOCK]; /* bytes that np_io_widen() will overwrite */
    struct np_buffer buffer;
    struct np_extent extent;
    struct np_record record;
    struct np_row_entries *entries;
    struct np_making making; /* the sample and its row */
    struct np_io_read read;
};

struct np_reader {
    const struct np_reader_config *config; /* set once */
    pthread_t thread;
    int number;

    struct np_reader_place place; /* has its own lock */

    /* reader thread only */
    struct np_io io;
    struct np_row_maker *maker;
    struct np_row_replay *replay; /* NULL: no stage is replayed */
    struct np_block *block;
    struct np_job *jobs;
    struct np_job **free_jobs; /* a stack */
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

/* Begins to read the sample of job->making. 1: its read is in flight; 0: it needs none; else the
 * cause is in reader->why: -EBADMSG: it is bad; -EIO; -ENOMEM. */
int np_reading_start(struct np_reader *reader, struct np_job *job);
/* After np_io_reap() gave the job's read. 1: in flight again; 0: all bytes are there; else as
 * np_reading_start(). */
int np_reading_check(struct np_reader *reader, struct np_job *job);
/* Reads all of a record of which a part was not enough. As np_reading_start(), but never 0. */
int np_reading_whole(struct np_reader *reader, struct np_job *job);
/* Closes the sample's own file. */
void np_reading_close(struct np_job *job);

#endif
