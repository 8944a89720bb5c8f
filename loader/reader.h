/* A reader thread: takes tickets, keeps reads in flight, makes rows of the bytes that arrive. */
#ifndef NP_READER_H
#define NP_READER_H

#include "loader/bad.h"
#include "loader/ring.h"
#include "loader/row.h"
#include "loader/source/files.h"

#define NP_READER_AHEAD 4

/* Shared by the readers of a run. Set once before the first starts; borrowed. */
struct np_reader_config {
    struct np_sampler *sampler;
    struct np_ring *ring;
    struct np_row_options row; /* but for the block, which is the reader's */
    struct np_bad *bad;
    struct np_stat *stat;
    const char *io;
    int depth;          /* reads in flight */
    int ahead;          /* tickets that a reader takes at once, 1 to NP_READER_AHEAD */
    unsigned stubs;     /* as np_row_replay_new() */
    int replay_samples; /* per reader; as np_row_replay_new() */
};

struct np_reader;
/* Starts the thread. It ends with the run, when the ring is stopped, or after an error, with which
 * it stops the ring: -EIO if a file cannot be read. */
int np_reader_start(const struct np_reader_config *config, int number,
    struct np_reader **ret_reader, struct np_err *err);
/* Waits for the thread's end; call it after the ring was stopped or the run has ended. A thread
 * that still hangs in a read or open() at until_ns (np_now_ns()) is abandoned with its own memory,
 * and never touches shared memory again: returns false. */
bool np_reader_join(struct np_reader *reader, uint64_t until_ns);

#endif
