/* What reader.c (the thread and its loop) and reader_job.c (one ticket's way through it)
 * share; for these two alone. */
#ifndef NP_READER_JOB_H
#define NP_READER_JOB_H

#include <pthread.h>

#include "loader/reader.h"
#include "loader/source/source.h"

/* One ticket under way. */
struct np_job {
    struct np_ticket ticket;
    struct np_batch *batch;
    uint64_t sample;
    int attempt; /* samples of this position that were bad */
    int nr_tries;
    uint64_t tried_ns;  /* when its read was last submitted */
    uint64_t submit_ns; /* that took so long, as np_stat_pass() */
    int own_fd;         /* the sample's own file, or -1 */
    bool in_flight;
    uint8_t *buffer;
    size_t buffer_bytes;
    uint8_t *own_buffer; /* for a file that has become larger than all were when they were listed */
    size_t own_bytes;
    struct np_extent extent;
    struct np_record record;
    struct np_io_read read;
};

/* Where a reader is: whoever ends the pipeline leaves one behind that hangs in a call. */
enum np_reader_place { NP_READER_WORKS, NP_READER_CALLS, NP_READER_LEFT_BEHIND, NP_READER_ENDED };

struct np_reader {
    const struct np_reader_config *config; /* set once */
    pthread_t thread;
    int number;

    pthread_mutex_t lock;
    pthread_cond_t moved;       /* with `lock`: it has ended */
    enum np_reader_place place; /* under lock */

    /* reader thread only */
    struct np_io io;
    struct np_maker *maker;
    struct np_block *block;
    struct np_job *jobs;
    struct np_job **free_jobs; /* a stack */
    int nr_free;
    void *buffers;
    size_t buffer_bytes;
    bool has_held, ended;
    struct np_ticket held; /* a ticket whose slot is not free yet */
    struct np_err why;     /* what is wrong with the sample at hand */
};

/* Starts a job that has its ticket and its slot; one that needs no read is finished here.
 * Negative: the run ends, why says it. */
int np_job_begin(struct np_reader *reader, struct np_job *job);
/* What follows a read. */
int np_job_finish(struct np_reader *reader, struct np_job *job);
void np_job_free(struct np_job *job); /* what it holds */
/* Around calls that may hang with the storage. A reader that was left behind meanwhile never comes back
 * from np_reader_back(): what it shared with others is gone. In between it touches only its own. */
void np_reader_calls(struct np_reader *reader);
void np_reader_back(struct np_reader *reader);

#endif
