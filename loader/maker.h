/* Makes a row of a batch from a sample's bytes: decompress, check, decode, augment. One a
 * reader thread; all its memory is taken at the start, what codecs take beside. */
#ifndef NP_MAKER_H
#define NP_MAKER_H

#include "loader/pixels/augment.h"
#include "loader/cache.h"
#include "loader/pixels/codec.h"
#include "loader/sampler.h"

/* More than this is read as no image: a sample, or the frame it lies in. */
#define NP_MAX_SAMPLE_BYTES (256u << 20)

/* One of the run's sets (by enum np_batch_kind). Borrowed, immutable but for CRCs. */
struct np_set {
    struct np_index *index;
    const struct np_chain *chain;
    const int32_t *labels; /* class of the set -> class of the run; NULL: equal */
    const struct np_files *files;
    struct np_changed *changed; /* of a set whose samples are files of their own */
    int cache_set;
};

struct np_maker;
struct np_maker_options {
    const struct np_set *sets; /* (2) */
    struct np_batch_shape shape;
    uint64_t seed;
    enum np_pixels_rule rule;
    uint64_t max_pixels;    /* as np_decoder_limit() */
    struct np_cache *cache; /* NULL: none */
    bool cache_decoded;
    bool resident; /* the device makes rows of what the cache holds: about->resident says where */
    struct np_block *block; /* of the thread that calls */
    unsigned stubs;     /* bits 1 << enum np_stage: read to augment are replayed in training rows */
    int replay_samples; /* what is kept of each for that */
};
/* Borrows what the options point to. */
int np_maker_new(
    const struct np_maker_options *options, struct np_maker **ret_maker, struct np_err *err);
void np_maker_free(struct np_maker *maker);

/* What a row is made of. */
struct np_making {
    const struct np_ticket *ticket;
    uint64_t sample;                /* the ticket's, or its replacement */
    const struct np_record *record; /* the sample's, with the size that its file has now */
    const uint8_t *extent;          /* as read; NULL: from the cache, or the frame unpacked last */
    uint8_t *out;                   /* the row */
    struct np_row *about;           /* box, sizes and geometry are set */
};
/* Can the row be made without reading? record: the sample's. */
bool np_maker_has(const struct np_maker *maker, enum np_batch_kind kind, uint64_t sample,
    const struct np_record *record);
/* Is a read to be left out, since the bytes of another one stand in for it? */
bool np_maker_replays_read(const struct np_maker *maker, enum np_batch_kind kind, uint64_t sample);
/* Makes it. Errors are the content's (err says what is wrong with it, without naming it), -ENOMEM
 * aside. */
int np_maker_make(struct np_maker *maker, const struct np_making *making, struct np_err *err);

#endif
