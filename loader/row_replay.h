/* Replays stages of a row: a replayed stage does no work, but returns outputs that it stored for
 * earlier samples. `nnpipe profile --deep` measures with it the rate of a run in which one stage
 * costs nothing. Each reader thread has its own; evaluation rows are not replayed. */
#ifndef NP_ROW_REPLAY_H
#define NP_ROW_REPLAY_H

#include "loader/row.h"

struct np_row_replay;
/* Wraps the maker's stages. stubs: bits 1 << enum np_stage, of which only read to augment are used.
 * A stage works until nr_samples of its outputs are stored (or 256 KiB times as many, or 2
 * nr_samples rows are made), then it is replayed. *ret_replay NULL: no stage is replayed; else free
 * it after the maker's last row. -ENOMEM. */
int np_row_replay_new(struct np_row_maker *maker, unsigned stubs, int nr_samples,
    struct np_row_replay **ret_replay, struct np_err *err);
void np_row_replay_free(struct np_row_replay *replay);

#endif
