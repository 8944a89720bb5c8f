/* Makes a row of a batch from the bytes of a sample: decompress, check, decode, augment. Each
 * reader thread has one maker. It allocates at the start, and a codec when it is first used. */
#ifndef NP_ROW_H
#define NP_ROW_H

#include "loader/cache.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/codec.h"
#include "loader/pixels/format.h"
#include "loader/sampler.h"
#include "loader/source/index.h"

/* A larger sample or frame is not read as an image. */
#define NP_MAX_SAMPLE_BYTES (256u << 20)

/* A set of the run. Borrowed; only CRCs are added. */
struct np_set {
    struct np_index *index;
    const struct np_chain *chain;
    const int32_t *labels; /* class of the set -> of the run; NULL: equal */
    const struct np_files *files;
    struct np_changed *changed; /* NULL: samples are in shards */
    struct np_entries *entries; /* NULL: off */
    int cache_set;
};

/* Number of JPEGs decoded from an entry, and of those that had none yet, without small ones.
 * Atomic. */
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
    bool resident; /* the device makes rows of cached pictures, which about->resident locates */
    struct np_block *block;
    const struct np_formatter *formatter; /* NULL: rows are u8 (height, width, channels) */
};

/* A row in the making. The caller sets the first part; each stage sets what the next one reads. */
struct np_making {
    const struct np_ticket *ticket;
    uint64_t sample;                /* the ticket's sample, or its replacement */
    const struct np_record *record; /* of the sample, with the current size of its file */
    uint64_t mtime_ns;              /* of its own file; 0: it is in a shard, or not known */
    struct np_row_entries *entries; /* the caller allocates it; the stages fill it */
    bool whole;                     /* the whole record must be read */
    uint8_t *out;
    struct np_row *about; /* receives source size, geometry and residence */

    uint64_t source;         /* by find: the sample whose record and extent these are */
    struct np_cached cached; /* by find: the cache's entry; data NULL: none */
    bool claimed;            /* by np_row_find(): this job may put the sample into the cache */
    uint32_t from, to;       /* by np_row_plan(): the bytes of the record to read */
    bool is_part;            /* from..to is not all of it */
    bool is_loaded;          /* entries are of this picture */
    const uint8_t *extent;   /* by the caller, if find returned false: the record; read from..to */
    const uint8_t *bytes;    /* by decompress: the encoded sample */
    uint32_t nr_bytes;
    bool checked, has_crc; /* checked: bytes need no further check; has_crc: crc is theirs */
    uint32_t crc;
    struct np_pixels pixels; /* by decode */
};

struct np_row_maker;
/* The stages of a row. `context` is the maker, or the context given to np_row_wrap(). Errors:
 * -ENOMEM, or bad content; err->text then has the cause without the name of the sample. */
struct np_row_stages {
    /* True: the row needs no read: its data is in the cache, or in the last unpacked frame. */
    bool (*find)(void *context, struct np_making *making);
    /* Only for packed samples. */
    int (*decompress)(void *context, struct np_making *making, struct np_err *err);
    /* Draws the geometry. */
    int (*decode)(void *context, struct np_making *making, struct np_err *err);
    int (*augment)(void *context, struct np_making *making, struct np_err *err);
};
extern const struct np_row_stages np_row_stages;

/* Borrows what the options point to. -ENOMEM. */
int np_row_maker_new(
    const struct np_row_options *options, struct np_row_maker **ret_maker, struct np_err *err);
void np_row_maker_free(struct np_row_maker *maker);
const struct np_row_options *np_row_options(const struct np_row_maker *maker);
/* Makes the maker call these stages instead; they may call np_row_stages with the maker. */
void np_row_wrap(struct np_row_maker *maker, const struct np_row_stages *stages, void *context);

/* A hint: the ticket's row will be made soon. Fetches the record and the start of the cached data
 * into the processor's caches. */
void np_row_expect(const struct np_row_maker *maker, const struct np_ticket *ticket);
/* Runs the first stage. If it returns false, the caller plans and reads the extent of the record,
 * and sets making->extent. Claims what is not in the cache: the caller calls np_row_end() when the
 * row is made or has failed. */
bool np_row_find(struct np_row_maker *maker, struct np_making *making);
/* Sets which bytes of the record the caller must read: all, or, with entries, those that the row
 * needs. buffer: of record->bytes; the caller reads each byte to its place in the record, and
 * np_row_plan() fills in what else is needed. -ENOMEM. */
int np_row_plan(
    struct np_row_maker *maker, struct np_making *making, uint8_t *buffer, struct np_err *err);
/* Runs all later stages. Errors: those of the stages; -EAGAIN: a part of the record was not enough,
 * so the caller sets making->whole, and plans and reads it again. */
int np_row_make(struct np_row_maker *maker, struct np_making *making, struct np_err *err);
void np_row_end(const struct np_row_maker *maker, struct np_making *making);

#endif
