/* Bytes -> row. The bytes come from the cache or from a read. Counts time in the block of the
 * reader thread, which runs it. */
#include "loader/row.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "loader/growth.h"
#include "loader/pixels/geometry.h"
#include "loader/pixels/painter.h"
#include "loader/row_entries.h"

#define BEHIND     64   /* bytes behind a buffer that decoders may read */
#define PART_SAVES 4096 /* bytes: a part of a record is read only if this saves at least so many */

struct np_row_maker {
    struct np_row_options options;      /* set once */
    const struct np_row_stages *stages; /* set once */
    void *context;
    struct np_decoder *decoder;
    struct np_painter *painter;
    struct np_step *steps; /* of the row being made; NULL: the chains are geometry alone */

    struct np_unzstd *unzstd;
    uint8_t *frame; /* content of the last unpacked frame */
    size_t frame_cap, frame_bytes;
    const struct np_index *frame_index; /* the set that `frame` belongs to; NULL: no frame */
    uint64_t frame_offset;
    uint32_t frame_file;

    uint8_t *plain; /* the row before it is formatted; NULL: rows are not formatted */
    uint8_t *dense; /* a picture without gaps between rows, for the cache */
    size_t dense_cap;
};

static int new_frame(struct np_row_maker *maker, struct np_err *err)
{
    size_t max_bytes = 0;

    for (int s = 0; s < 2; s++) {
        const struct np_index *index = maker->options.sets[s].index;

        if (index && index->max_inner > max_bytes)
            max_bytes = index->max_inner;
    }
    maker->frame_cap = max_bytes < NP_MAX_SAMPLE_BYTES ? max_bytes : NP_MAX_SAMPLE_BYTES;
    maker->frame = np_try_reserve(maker->frame_cap + BEHIND, err);
    return maker->frame ? 0 : -ENOMEM;
}

static int new_plain(struct np_row_maker *maker, struct np_err *err)
{
    struct np_batch_shape shape = maker->options.shape;

    shape.format = (struct np_row_format){0};
    maker->plain = np_try_alloc(np_batch_row_room(&shape), err);
    return maker->plain ? 0 : -ENOMEM;
}

static int new_steps(struct np_row_maker *maker, struct np_err *err)
{
    int max_steps = 0;

    for (int s = 0; s < 2; s++) {
        const struct np_chain *chain = maker->options.sets[s].chain;
        const int n = chain ? np_chain_max_steps(chain) : 0;

        max_steps = n > max_steps ? n : max_steps;
    }
    if (max_steps > 0)
        maker->steps = np_try_array((size_t)max_steps, sizeof(*maker->steps), err);
    return max_steps == 0 || maker->steps ? 0 : -ENOMEM;
}

int np_row_maker_new(
    const struct np_row_options *options, struct np_row_maker **ret_maker, struct np_err *err)
{
    struct np_row_maker *maker = np_try_alloc(sizeof(*maker), err);
    int code;

    if (!maker)
        return -ENOMEM;
    maker->options = *options;
    np_row_wrap(maker, &np_row_stages, maker);
    code = np_decoder_new(&maker->decoder, err);
    if (!code)
        np_decoder_limit(maker->decoder, options->max_pixels);
    maker->painter = np_painter_new(options->rule, err);
    maker->unzstd = np_unzstd_new(err);
    if (!maker->painter || !maker->unzstd)
        code = -ENOMEM;
    if (!code)
        code = new_steps(maker, err);
    if (!code)
        code = new_frame(maker, err);
    if (!code && options->formatter)
        code = new_plain(maker, err);
    if (code) {
        np_row_maker_free(maker);
        return code;
    }
    *ret_maker = maker;
    return 0;
}

void np_row_maker_free(struct np_row_maker *maker)
{
    if (!maker)
        return;
    if (maker->frame)
        munmap(maker->frame, maker->frame_cap + BEHIND);
    np_free(maker->plain);
    np_free(maker->dense);
    np_unzstd_free(maker->unzstd);
    np_painter_free(maker->painter);
    np_free(maker->steps);
    np_decoder_free(maker->decoder);
    np_free(maker);
}

const struct np_row_options *np_row_options(const struct np_row_maker *maker)
{
    return &maker->options;
}

void np_row_wrap(struct np_row_maker *maker, const struct np_row_stages *stages, void *context)
{
    maker->stages = stages;
    maker->context = context;
}

static const struct np_set *set_of(const struct np_row_maker *maker, const struct np_making *making)
{
    return &maker->options.sets[making->ticket->kind];
}

/* --- find --------------------------------------------------------------------------------- */

static bool in_frame(const struct np_row_maker *maker, const struct np_making *making)
{
    const struct np_record *record = making->record;

    return record->packing == NP_PACKING_ZSTD &&
           maker->frame_index == set_of(maker, making)->index &&
           maker->frame_file == record->file && maker->frame_offset == record->offset;
}

static bool find(void *context, struct np_making *making)
{
    const struct np_row_maker *maker = context;
    const struct np_set *set = set_of(maker, making);

    if (maker->options.cache &&
        np_cache_find(maker->options.cache, set->cache_set, making->sample, &making->cached)) {
        making->bytes = making->cached.data;
        making->nr_bytes = making->cached.bytes;
        making->checked = true;
        return true;
    }
    if (set->index->memory) {
        making->bytes = set->index->memory + making->record->offset;
        making->nr_bytes = making->record->bytes;
        making->checked = true;
        return true;
    }
    if (set->index->raw.kind == NP_RAW_SYNTH) { /* such a sample is drawn from its number */
        making->bytes = (const uint8_t *)&making->record->offset;
        making->nr_bytes = making->record->inner_bytes;
        return true;
    }
    return in_frame(maker, making);
}

void np_row_expect(const struct np_row_maker *maker, const struct np_ticket *ticket)
{
    const struct np_set *set = &maker->options.sets[ticket->kind];

    if (ticket->masked)
        return;
    __builtin_prefetch(np_index_record(set->index, ticket->sample));
    if (maker->options.cache && !maker->options.resident)
        np_cache_expect(maker->options.cache, set->cache_set, ticket->sample);
}

bool np_row_find(struct np_row_maker *maker, struct np_making *making)
{
    making->source = making->sample;
    making->cached = (struct np_cached){0};
    making->extent = making->bytes = NULL;
    making->checked = making->has_crc = making->is_part = making->is_loaded = false;
    const bool found = maker->stages->find(maker->context, making);
    making->claimed =
        maker->options.cache && !making->cached.data &&
        np_cache_claim(maker->options.cache, set_of(maker, making)->cache_set, making->sample);
    return found;
}

void np_row_end(const struct np_row_maker *maker, struct np_making *making)
{
    if (making->claimed)
        np_cache_withdraw(maker->options.cache, set_of(maker, making)->cache_set, making->sample);
    making->claimed = false;
}

static void put(
    const struct np_row_maker *maker, struct np_making *making, const struct np_cached *cached)
{
    np_cache_put(maker->options.cache, set_of(maker, making)->cache_set, making->sample, cached);
    making->claimed = false;
}

/* --- decompress ----------------------------------------------------------------------------- */

/* Compares the bytes with the index's checksum, once. If the index has none, computes it for
 * keep(), but not for a picture in a file of its own, which may be edited on purpose. */
static int check_crc(const struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    const struct np_record *record = making->record;

    if (making->checked || (!record->has_crc && set_of(maker, making)->index->root))
        return 0;
    making->crc = np_crc32c(0, making->bytes, making->nr_bytes);
    making->checked = making->has_crc = true;
    if (!record->has_crc || making->crc == record->crc32c)
        return 0;
    return np_err_set(err, -EBADMSG, "wrong checksum: CRC32C is %08x, the index has %08x",
        making->crc, record->crc32c);
}

static int unpack_frame(
    struct np_row_maker *maker, const struct np_making *making, struct np_err *err)
{
    const struct np_record *record = making->record;
    int code;

    maker->frame_index = NULL;
    code = np_unzstd_frame(maker->unzstd, making->extent, record->bytes, maker->frame,
        maker->frame_cap, &maker->frame_bytes, err);
    if (code)
        return code;
    maker->frame_index = set_of(maker, making)->index;
    maker->frame_file = record->file;
    maker->frame_offset = record->offset;
    return 0;
}

static int decompress(void *context, struct np_making *making, struct np_err *err)
{
    struct np_row_maker *maker = context;
    const struct np_record *record = making->record;
    const uint64_t end = (uint64_t)record->inner_offset + record->inner_bytes;
    int code;

    if (!in_frame(maker, making) && (code = unpack_frame(maker, making, err)) < 0)
        return code;
    if (end > maker->frame_bytes)
        return np_err_set(err, -EBADMSG,
            "its zstd frame holds %zu bytes, but the index expects it at %u to %llu",
            maker->frame_bytes, record->inner_offset, (unsigned long long)end);
    making->bytes = maker->frame + record->inner_offset;
    making->nr_bytes = record->inner_bytes;
    return check_crc(maker, making, err);
}

/* --- decode --------------------------------------------------------------------------------- */

/* Of the ticket's row: while rows grow, that of the stage. */
static const struct np_chain *chain_of(
    const struct np_row_maker *maker, const struct np_making *making)
{
    const struct np_batch_shape *shape = &maker->options.shape;
    const struct np_ticket *ticket = making->ticket;

    if (shape->growth && ticket->kind == NP_BATCH_TRAIN)
        return np_growth_at(shape->growth, np_batch_first_row(shape, ticket->step))->chain;
    return set_of(maker, making)->chain;
}

/* The program drew the geometry for the size in the picture's header, as it was then. */
static int take_dealt(
    const struct np_dealt *dealt, int width, int height, struct np_drawn *drawn, struct np_err *err)
{
    *drawn = dealt->drawn;
    if (width == dealt->source_w && height == dealt->source_h)
        return 0;
    return np_err_set(err, -EBADMSG,
        "it has %d x %d pixels, but had %d x %d when its size was read: it was changed meanwhile",
        width, height, dealt->source_w, dealt->source_h);
}

static int draw(const struct np_row_maker *maker, const struct np_making *making, int width,
    int height, struct np_err *err)
{
    const struct np_ticket *ticket = making->ticket;
    const struct np_batch_shape shape =
        np_batch_shape_of(&maker->options.shape, ticket->kind, ticket->step);
    struct np_drawn drawn = {0};

    making->about->source_w = width;
    making->about->source_h = height;
    if (!ticket->dealt)
        np_augment_draw_row(chain_of(maker, making), maker->options.seed, ticket->epoch,
            ticket->position, ticket->sample, width, height, &drawn);
    else if (take_dealt(ticket->dealt, width, height, &drawn, err) < 0)
        return -EBADMSG;
    making->about->geometry = drawn.geometry;
    np_geometry_order(&making->about->geometry, maker->options.rule);
    if (drawn.width == shape.width && drawn.height == shape.height)
        return 0;
    return np_err_set(err, -EBADMSG,
        "its %d x %d pixels become %d x %d, but rows are %d x %d; add a resize to loader.augment "
        "and loader.test_augment",
        width, height, drawn.width, drawn.height, shape.width, shape.height);
}

static bool wants_whole(const struct np_row_maker *maker, const struct np_making *making)
{
    const struct np_row_options *options = &maker->options;
    const uint64_t bytes = (uint64_t)making->about->source_w * (uint64_t)making->about->source_h *
                           (uint64_t)options->shape.channels;

    return making->claimed && options->cache_decoded && np_cache_fits(options->cache, bytes);
}

static struct np_row_picture picture_of(
    const struct np_row_maker *maker, const struct np_making *making)
{
    const struct np_set *set = set_of(maker, making);
    const struct np_record *record = making->record;

    return (struct np_row_picture){.store = making->entries ? set->entries : NULL,
        .sample = making->source,
        .mark = set->index->root ? making->mtime_ns : np_entries_mark(record),
        .nr_bytes = record->inner_bytes,
        .bytes = making->bytes,
        .checked = record->has_crc};
}

static void count_entered(
    const struct np_row_maker *maker, const struct np_row_picture *picture, bool is_entered)
{
    struct np_entered *sum = maker->options.entered;

    if (sum && picture->nr_bytes >= NP_ENTRIES_MIN_BYTES)
        __atomic_fetch_add(is_entered ? &sum->entered : &sum->missed, 1, __ATOMIC_RELAXED);
}

/* Decodes the open picture, all of whose bytes are in memory; uses its entries if there are any. */
static int decode_open(const struct np_row_maker *maker, struct np_making *making,
    const struct np_geometry *geometry, struct np_err *err)
{
    const struct np_row_picture picture = picture_of(maker, making);
    struct np_jpeg *jpeg = picture.store ? np_decoder_jpeg(maker->decoder) : NULL;
    bool given = false;
    int code = 0;

    if (jpeg && !making->is_loaded)
        code = np_row_entries_load(making->entries, &picture, err);
    if (jpeg && !code)
        code = np_row_entries_give(making->entries, &picture, NULL, jpeg, &given, err);
    if (!code)
        code = np_decoder_decode(
            maker->decoder, geometry, maker->options.shape.channels, &making->pixels, err);
    if (code || !jpeg || jpeg != np_decoder_jpeg(maker->decoder))
        return code;
    count_entered(maker, &picture, given);
    return np_row_entries_keep(making->entries, &picture, jpeg, err);
}

/* Decodes from a part of the picture's bytes. libjpeg-turbo would need all: -EAGAIN. -ENOMEM. */
static int decode_part(
    const struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    const struct np_row_picture picture = picture_of(maker, making);
    struct np_image_info info = {0};
    struct np_err why = {0};
    struct np_rect need;
    bool given = false;
    int code = np_decoder_open(maker->decoder, making->bytes, making->nr_bytes, NULL, &info, &why);
    struct np_jpeg *jpeg = code ? NULL : np_decoder_jpeg(maker->decoder);

    if (!jpeg || draw(maker, making, info.width, info.height, &why) < 0)
        return -EAGAIN;
    np_geometry_need(&making->about->geometry, &need);
    code = np_row_entries_give(making->entries, &picture, &need, jpeg, &given, err);
    if (!code && given)
        code = np_jpeg_decode(jpeg, &need, maker->options.shape.channels, &making->pixels, err);
    if (!code && given)
        count_entered(maker, &picture, true);
    return code == -EBADMSG || (code == 0 && !given) ? -EAGAIN : code;
}

static int decode(void *context, struct np_making *making, struct np_err *err)
{
    const struct np_row_maker *maker = context;
    struct np_geometry geometry;
    struct np_image_info info = {0};
    int code;

    if (making->is_part)
        return decode_part(maker, making, err);
    code = check_crc(maker, making, err);
    if (!code)
        code = np_decoder_open(maker->decoder, making->bytes, making->nr_bytes,
            &set_of(maker, making)->index->raw, &info, err);
    if (!code)
        code = draw(maker, making, info.width, info.height, err);
    if (code)
        return code;
    geometry = making->about->geometry;
    if (wants_whole(maker, making))
        geometry = (struct np_geometry){.right = info.width,
            .bottom = info.height,
            .scaled_w = info.width,
            .scaled_h = info.height,
            .window_w = info.width,
            .window_h = info.height};
    return decode_open(maker, making, &geometry, err);
}

/* True: a part of the record is enough for the row. Draws the geometry. */
static bool plan_part(const struct np_row_maker *maker, struct np_making *making, uint8_t *buffer)
{
    const uint32_t bytes = making->record->bytes;
    struct np_image_info info = {0};
    struct np_err why = {0};
    const struct np_jpeg *jpeg;
    struct np_rect need;

    if (!np_row_entries_header(making->entries, buffer, bytes) ||
        np_decoder_open(maker->decoder, buffer, bytes, NULL, &info, &why) < 0)
        return false;
    jpeg = np_decoder_jpeg(maker->decoder);
    if (!jpeg || info.channels > maker->options.shape.channels ||
        draw(maker, making, info.width, info.height, &why) < 0)
        return false;
    np_geometry_need(&making->about->geometry, &need);
    return np_row_entries_span(making->entries, jpeg, &need, &making->from, &making->to) &&
           bytes - (making->to - making->from) >= PART_SAVES;
}

int np_row_plan(
    struct np_row_maker *maker, struct np_making *making, uint8_t *buffer, struct np_err *err)
{
    const struct np_row_picture picture = picture_of(maker, making);
    int code;

    making->is_part = false;
    if (picture.store && !making->whole && making->record->packing == NP_PACKING_NONE &&
        !maker->options.cache && maker->stages == &np_row_stages) {
        code = np_row_entries_load(making->entries, &picture, err);
        if (code)
            return code;
        making->is_loaded = true;
        making->is_part = plan_part(maker, making, buffer);
    }
    if (!making->is_part) {
        making->from = 0;
        making->to = making->record->bytes;
    }
    return 0;
}

/* Puts a picture into the cache if it was decoded whole. */
static int keep_pixels(struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    const struct np_pixels *pixels = &making->pixels;
    const int width = making->about->source_w, height = making->about->source_h;
    const size_t row_bytes = (size_t)width * (size_t)pixels->channels;
    const size_t bytes = row_bytes * (size_t)height;
    struct np_cached cached = {pixels->data, (uint32_t)bytes, width, height, pixels->channels};

    if (pixels->width < width || pixels->height < height || !wants_whole(maker, making))
        return 0;
    if (pixels->stride != (ptrdiff_t)row_bytes) {
        if (np_hold(&maker->dense, &maker->dense_cap, bytes, err))
            return -ENOMEM;
        for (int y = 0; y < height; y++)
            memcpy(
                maker->dense + (size_t)y * row_bytes, pixels->data + y * pixels->stride, row_bytes);
        cached.data = maker->dense;
    }
    put(maker, making, &cached);
    return 0;
}

/* After a sample was decoded: stores its CRC in the index and the sample in the cache. */
static int keep(struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    const struct np_cached cached = {.data = making->bytes, .bytes = making->nr_bytes};

    if (making->has_crc && !making->record->has_crc)
        np_index_set_crc(set_of(maker, making)->index, making->source, making->crc);
    if (maker->options.cache_decoded)
        return keep_pixels(maker, making, err);
    if (making->claimed)
        put(maker, making, &cached);
    return 0;
}

/* --- augment -------------------------------------------------------------------------------- */

/* The steps behind the geometry that `decode` drew. A replayed decode has another sample's geometry,
 * but sizes do not depend on draws. */
static void draw_steps(
    const struct np_row_maker *maker, const struct np_making *making, struct np_drawn *drawn)
{
    const struct np_chain *chain = chain_of(maker, making);
    const struct np_ticket *ticket = making->ticket;
    const struct np_row *about = making->about;

    *drawn = (struct np_drawn){.steps = maker->steps};
    if (ticket->dealt)
        *drawn = ticket->dealt->drawn;
    else if (np_chain_touches(chain))
        np_augment_draw_row(chain, maker->options.seed, ticket->epoch, ticket->position,
            ticket->sample, about->source_w, about->source_h, drawn);
    drawn->geometry = about->geometry;
}

static int augment(void *context, struct np_making *making, struct np_err *err)
{
    const struct np_row_maker *maker = context;
    uint8_t *pixels = maker->plain ? maker->plain : making->out;
    struct np_drawn drawn;
    int code;

    draw_steps(maker, making, &drawn);
    code = np_painter_row(maker->painter, &making->pixels, &drawn, pixels, err);
    if (!code && maker->plain)
        np_format_row(maker->options.formatter, pixels, making->out);
    return code;
}

/* True if the device makes the row; sets about->resident. */
static bool is_resident(const struct np_row_maker *maker, const struct np_making *making)
{
    const struct np_row_options *options = &maker->options;
    struct np_row *about = making->about;
    struct np_cached cached;

    about->resident = NP_NOT_RESIDENT;
    if (!options->resident ||
        !np_cache_find(options->cache, set_of(maker, making)->cache_set, making->sample, &cached) ||
        cached.width != about->source_w || cached.height != about->source_h)
        return false; /* if stages are replayed, another reader may have cached another picture */
    about->resident = (uint64_t)(cached.data - np_cache_arena(options->cache));
    return true;
}

const struct np_row_stages np_row_stages = {find, decompress, decode, augment};

static int take_pixels(
    const struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    const struct np_cached *cached = &making->cached;

    making->pixels = (struct np_pixels){.data = cached->data,
        .width = cached->width,
        .height = cached->height,
        .channels = cached->channels,
        .stride = (ptrdiff_t)cached->width * cached->channels};
    return draw(maker, making, cached->width, cached->height, err);
}

static int make_pixels(struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    struct np_block *block = maker->options.block;
    int code;

    if (!making->bytes && making->record->packing != NP_PACKING_NONE) {
        code = maker->stages->decompress(maker->context, making, err);
        if (code)
            return code;
        np_stat_lap(block, NP_STAGE_DECOMPRESS, making->nr_bytes, 0);
    } else if (!making->bytes) {
        making->bytes = making->extent;
        making->nr_bytes = making->record->inner_bytes;
    }
    code = maker->stages->decode(maker->context, making, err);
    if (!code && !making->cached.data)
        code = keep(maker, making, err);
    if (!code)
        np_stat_lap(block, NP_STAGE_DECODE, making->nr_bytes, 0);
    return code;
}

int np_row_make(struct np_row_maker *maker, struct np_making *making, struct np_err *err)
{
    int code = making->cached.width > 0 ? take_pixels(maker, making, err)
                                        : make_pixels(maker, making, err);

    if (!code && !is_resident(maker, making))
        code = maker->stages->augment(maker->context, making, err);
    if (!code)
        np_stat_lap(maker->options.block, NP_STAGE_AUGMENT,
            np_batch_row_bytes_of(
                &maker->options.shape, making->ticket->kind, making->ticket->step),
            0);
    return code;
}
