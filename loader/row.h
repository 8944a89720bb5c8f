/* Makes a row of a batch from a sample's bytes: decompress, check, decode, augment. Each reader
 * thread has one maker. It allocates at the start; codecs allocate when they are first needed. */
#ifndef NP_ROW_H
#define NP_ROW_H

#include "loader/cache.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/codec.h"
#include "loader/sampler.h"
#include "loader/source/index.h"

/* A larger sample, or frame, is not read as an image. */
#define NP_MAX_SAMPLE_BYTES (256u << 20)

/* A set of the run. Borrowed; immutable except for CRCs. */
struct np_set {
    struct np_index *index;
    const struct np_chain *chain;
    const int32_t *labels; /* class of the set -> class of the run; NULL: equal */
    const struct np_files *files;
    struct np_changed *changed; /* only if each sample is a file of its own */
    struct np_entries *entries; /* NULL: none are kept */
    int cache_set;
};

/* JPEGs that entries are kept of, but for small ones: how many were decoded from an entry, and how
 * many had none yet. Atomic. */
struct np_entered {
    uint64_t entered, missed;
};

struct np_row_options {
    const struct np_set *sets; /* (2), by enum np_batch_kind */
    struct np_batch_shape shape;
    uint64_t seed;
    enum np_pixels_rule rule;
    uint64_t max_pixels;    /* as np_decoder_limit() */
    struct np_cache *cache; /* NULL: none */
    bool cache_decoded;
    struct np_entered *entered; /* NULL: not counted */
    bool resident; /* the device makes rows from cached pictures; about->resident locates each */
    struct np_block *block; /* the calling thread's */
};

/* A row in the making. The caller sets the first part; each stage sets what the next one reads. */
struct np_making {
    const struct np_ticket *ticket;
    uint64_t sample;                /* the ticket's, or its replacement */
    const struct np_record *record; /* the sample's, with the current size of its file */
    uint64_t mtime_ns;              /* of its own file; 0: not known, or it is in a shard */
    struct np_row_entries *entries; /* of this row; its contents are the stages' */
    bool whole;                     /* its record must be read whole */
    uint8_t *out;                   /* the row's pixels */
    struct np_row *about;           /* receives source size, geometry and residence */

    uint64_t source;         /* by find: the sample that record and extent belong to */
    struct np_cached cached; /* by find: the cache's entry; data NULL: none */
    uint32_t from, to;       /* by np_row_plan(): the bytes of the record to read */
    bool is_part, is_loaded; /* these are not all; the entries are the picture's */
    const uint8_t *extent;   /* by the caller, if find returned false: the record; read from..to */
    const uint8_t *bytes;    /* by decompress: the encoded sample */
    uint32_t nr_bytes;
    bool checked, has_crc; /* bytes need no further check; crc is their CRC */
    uint32_t crc;
    struct np_pixels pixels; /* by decode */
};

struct np_row_maker;
/* The stages of a row. `context` is the maker, or the context given to np_row_wrap(). Errors:
 * -ENOMEM, or bad content, whose err->text says what is wrong without naming the sample. */
struct np_row_stages {
    /* True if the row can be made without reading: from the cache, or the frame unpacked last. */
    bool (*find)(void *context, struct np_making *making);
    /* extent -> bytes; only for a packed sample. */
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
/* Makes the maker call these stages instead; they may call np_row_stages with the maker. */
void np_row_wrap(struct np_row_maker *maker, const struct np_row_stages *stages, void *context);

/* A hint: the ticket's row will be made soon. Fetches the record, and the start of what the cache
 * has, into the processor's caches. */
void np_row_expect(const struct np_row_maker *maker, const struct np_ticket *ticket);
/* Runs the first stage. If false, the caller plans and reads the record's extent, and sets
 * making->extent. */
bool np_row_find(struct np_row_maker *maker, struct np_making *making);
/* Sets which bytes of the record must be read: all, or from its entries those that the row needs.
 * buffer: of record->bytes, into which the caller reads them at their place in the record; it then
 * has what else of the record is needed. -ENOMEM. */
int np_row_plan(
    struct np_row_maker *maker, struct np_making *making, uint8_t *buffer, struct np_err *err);
/* Runs all later stages. Errors: those of the stages; -EAGAIN: a part of the record was not enough;
 * the caller sets making->whole, and plans and reads it again. */
int np_row_make(struct np_row_maker *maker, struct np_making *making, struct np_err *err);

#endif
