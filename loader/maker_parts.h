/* What maker.c (caches, decoding, the row) and maker_bytes.c (a sample's encoded bytes, frames) share;
 * for these two alone. */
#ifndef NP_MAKER_PARTS_H
#define NP_MAKER_PARTS_H

#include "loader/base/stat.h"
#include "loader/maker.h"
#include "loader/replay.h"

struct np_maker {
    struct np_maker_options options; /* set once */
    struct np_decoder *decoder;
    struct np_resizer *resizer;

    struct np_unzstd *unzstd; /* NULL: nothing is packed */
    uint8_t *frame;           /* the frame unpacked last */
    size_t frame_cap, frame_bytes;
    uint64_t synth;                     /* a drawn sample's bytes: its number */
    const struct np_index *frame_index; /* whose it is; NULL: none */
    uint64_t frame_offset;
    uint32_t frame_file;

    struct np_replay *replays[NP_NR_STAGES];  /* NULL: the stage is not replayed */
    const struct np_replayed *frame_replayed; /* whose frame it really is; NULL: its own */

    int nr_made; /* training rows, up to what fills the stores */

    uint8_t *full; /* for the decoded cache: a whole picture without gaps between rows */
    size_t full_cap;
};

/* A sample's encoded bytes on their way to the decoder. */
struct np_encoded {
    uint64_t sample; /* whose they are: where a stage is replayed, not the ticket's */
    struct np_record record;
    const uint8_t *bytes;
    const uint8_t *extent; /* read for this very row; else NULL */
};

/* maker_bytes.c: the bytes of the sample, or of another one where read or decompress is replayed. */
int np_maker_find_bytes(struct np_maker *maker, const struct np_making *making,
    struct np_encoded *ret_encoded, struct np_err *err);
/* What stands in for a stage's work on this sample; NULL: nothing, it is to be done. */
const struct np_replayed *np_maker_replayed(
    const struct np_maker *maker, enum np_batch_kind kind, enum np_stage stage, uint64_t sample);
/* Keeps what the stage put out, as long as its store has room. */
void np_maker_store(struct np_maker *maker, const struct np_making *making, enum np_stage stage,
    const uint8_t *bytes, size_t nr_bytes);

#endif
