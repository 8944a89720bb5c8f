/* What a stage put out for some samples, kept to be put out again in place of its work. With it
 * `nnpipe profile --deep` measures what a run does while one stage costs nothing and all others do
 * their true work. One thread's: no locks; nothing is replaced once it is full. */
#ifndef NP_REPLAY_H
#define NP_REPLAY_H

#include "loader/pixels/codec.h"

/* A stage's output. `data` has 64 bytes of zeros behind it. */
struct np_replayed {
    uint64_t sample;
    uint8_t *data;
    size_t bytes;
    /* decode alone: pixels whose data is the above, how they are to be cut, and of how large a picture */
    struct np_pixels pixels;
    struct np_geometry geometry;
    int source_w, source_h;
};

struct np_replay;
/* Holds up to nr_samples outputs, and no further one once they take cap_bytes. NULL: no memory. */
struct np_replay *np_replay_new(int nr_samples, uint64_t cap_bytes);
void np_replay_free(struct np_replay *replay);
/* The output to be put out for a sample; NULL: the store is not full yet, the stage does its work.
 * Takes NULL, which replays nothing. */
const struct np_replayed *np_replay_find(const struct np_replay *replay, uint64_t sample);
/* Room for one sample's output, zeros; NULL: full, or no memory, which makes it full. Takes NULL. */
struct np_replayed *np_replay_add(struct np_replay *replay, uint64_t sample, size_t bytes);
/* Full with what it holds, unless that is nothing. Takes NULL. */
void np_replay_close(struct np_replay *replay);

#endif
