/* A reader thread: takes tickets, keeps reads in flight, makes rows of the bytes. */
#ifndef NP_READER_H
#define NP_READER_H

#include "loader/reader_config.h"

struct np_reader;
/* Starts the thread; config is borrowed. The thread ends with the run, when the ring is stopped, or
 * after an error, with which it stops the ring: -EIO: a file cannot be read; -ESTALE: a shard has
 * changed; -ENOMEM. */
int np_reader_start(const struct np_reader_config *config, int number,
    struct np_reader **ret_reader, struct np_err *err);
/* Waits for the thread's end, and frees the reader; call it after the ring was stopped or the run
 * has ended. False: the thread still hangs in a read or open() at until_ns (np_now_ns()). It is
 * abandoned with its own memory, and never touches shared memory again. */
bool np_reader_join(struct np_reader *reader, uint64_t until_ns);

#endif
