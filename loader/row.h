/* Makes a row of a batch from a sample's bytes: decompress, check, decode, augment. One maker a
 * reader thread; it takes its memory at the start, codecs take theirs when they are first needed. */
#ifndef NP_ROW_H
#define NP_ROW_H

#include "loader/cache.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/codec.h"
#include "loader/sampler.h"
#include "loader/source/index.h"

/* A sample of more bytes than this, or a frame, is not read as an image. */
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

struct np_row_options {
    const struct np_set *sets; /* (2) */
    struct np_batch_shape shape;
    uint64_t seed;
    enum np_pixels_rule rule;
    uint64_t max_pixels;    /* as np_decoder_limit() */
    struct np_cache *cache; /* NULL: none */
    bool cache_decoded;
    bool resident; /* the device makes rows of what the cache holds: about->resident says where */
    struct np_block *block; /* of the thread that calls */
};

/* A row under way. The caller sets the first part; each stage reads what the one before it wrote. */
struct np_making {
    const struct np_ticket *ticket;
    uint64_t sample;                /* the ticket's, or its replacement */
    const struct np_record *record; /* the sample's, with the size that its file has now */
    uint8_t *out;                   /* the row */
    struct np_row *about;           /* sizes and geometry are set */

    uint64_t source;         /* find: whose bytes the record and the extent are */
    struct np_cached cached; /* find: the cache's entry; data NULL: none */
    const uint8_t *extent;   /* the caller, where find gave false: the bytes that were read */
    const uint8_t *bytes;    /* decompress: the encoded sample */
    uint32_t nr_bytes;
    bool checked, has_crc; /* nothing is left to check; crc is the bytes' */
    uint32_t crc;
    struct np_pixels pixels; /* decode */
};

struct np_row_maker;
/* The stages of a row, one function each; `context` is the maker, or what np_row_wrap() was given.
 * Errors are the content's (err says what is wrong with it and does not name it), or -ENOMEM. */
struct np_row_stages {
    /* Can the row be made without reading: from the cache, or from the frame unpacked last? */
    bool (*find)(void *context, struct np_making *making);
    /* A packed sample: extent -> bytes. */
    int (*decompress)(void *context, struct np_making *making, struct np_err *err);
    /* bytes -> pixels; draws the geometry. */
    int (*decode)(void *context, struct np_making *making, struct np_err *err);
    /* pixels -> out. */
    int (*augment)(void *context, struct np_making *making, struct np_err *err);
};
extern const struct np_row_stages np_row_stages;

/* Borrows what the options point to. */
int np_row_maker_new(
    const struct np_row_options *options, struct np_row_maker **ret_maker, struct np_err *err);
void np_row_maker_free(struct np_row_maker *maker);
const struct np_row_options *np_row_options(const struct np_row_maker *maker);
/* From now on the maker calls these stages, which may call np_row_stages with the maker. */
void np_row_wrap(struct np_row_maker *maker, const struct np_row_stages *stages, void *context);

/* The first stage. false: the caller reads the record's extent, and sets making->extent. */
bool np_row_find(struct np_row_maker *maker, struct np_making *making);
/* All that follow. Errors as of the stages. */
int np_row_make(struct np_row_maker *maker, struct np_making *making, struct np_err *err);

#endif
