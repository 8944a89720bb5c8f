/* The settings that all readers of a run share. */
#ifndef NP_READER_CONFIG_H
#define NP_READER_CONFIG_H

#include "loader/bad.h"
#include "loader/base/remote.h"
#include "loader/exchange.h"
#include "loader/ring.h"
#include "loader/row.h"

#define NP_READER_AHEAD 4

/* Set once before the first reader starts; the readers borrow it and all that it points to. */
struct np_reader_config {
    struct np_sampler *sampler;
    struct np_ring *ring;
    struct np_exchange *exchange; /* NULL: batches are not shared */
    struct np_row_options row;    /* without block: each reader sets its own */
    struct np_bad *bad;
    struct np_stat *stat;
    const char *io;                         /* as np_io_open() */
    const struct np_remote_session *remote; /* some shards are objects; NULL: none */
    int depth;                              /* reads in flight, per reader */
    int ahead;          /* tickets that a reader takes at once, 1 to NP_READER_AHEAD */
    unsigned stubs;     /* as np_row_replay_new() */
    int replay_samples; /* per reader; as np_row_replay_new() */
};

#endif
