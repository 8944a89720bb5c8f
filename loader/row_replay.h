/* Stages of a row that do nothing: what a stage gave for some samples is kept, and given again in
 * place of its work. `nnpipe profile --deep` measures with it what a run does while one stage costs
 * nothing and all others do their true work. One reader thread's; training rows alone. */
#ifndef NP_ROW_REPLAY_H
#define NP_ROW_REPLAY_H

#include "loader/row.h"

struct np_row_replay;
/* Wraps the maker's stages. stubs: bits 1 << enum np_stage, of which read to augment are replayed. Each
 * is replayed once nr_samples outputs of it are kept (or enough bytes, or enough rows were made), and
 * does its work until then. *ret_replay is NULL where no stage is replayed; it is freed after the
 * maker's last row. -ENOMEM. */
int np_row_replay_new(struct np_row_maker *maker, unsigned stubs, int nr_samples,
    struct np_row_replay **ret_replay, struct np_err *err);
void np_row_replay_free(struct np_row_replay *replay);

#endif
