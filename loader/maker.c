/* Bytes -> row. The reader calls it with what it has read; caches are looked up and filled
 * here, so that cached and read samples take the same road from where they join.
 * The reader's thread alone; times go to its block. */
#include "loader/maker_parts.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "loader/pixels/geometry.h"
#include "loader/pixels/resize.h"

#define REPLAY_BYTES (256u << 10) /* kept of a sample on the average, at most */

static int new_frame(struct np_maker *maker, struct np_err *err)
{
    size_t most = 0;

    for (int s = 0; s < 2; s++)
        if (maker->options.sets[s].index && np_index_max_inner(maker->options.sets[s].index) > most)
            most = np_index_max_inner(maker->options.sets[s].index);
    maker->frame_cap = most < NP_MAX_SAMPLE_BYTES ? most : NP_MAX_SAMPLE_BYTES;
    maker->unzstd = np_unzstd_new();
    /* Pages that no frame reaches are never touched. */
    maker->frame = mmap(NULL, maker->frame_cap + 64, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (maker->frame == MAP_FAILED)
        maker->frame = NULL;
    if (!maker->unzstd || !maker->frame)
        return np_err_set(
            err, -ENOMEM, "out of memory for a reader's frame of %zu bytes", maker->frame_cap);
    return 0;
}

static int new_replays(struct np_maker *maker, struct np_err *err)
{
    const int n = maker->options.replay_samples;

    for (int s = NP_STAGE_READ; s <= NP_STAGE_AUGMENT; s++)
        if (maker->options.stubs & 1u << s &&
            !(maker->replays[s] = np_replay_new(n, (uint64_t)n * REPLAY_BYTES)))
            return np_err_set(err, -ENOMEM, "out of memory for a reader's replay");
    return 0;
}

int np_maker_new(
    const struct np_maker_options *options, struct np_maker **ret_maker, struct np_err *err)
{
    struct np_maker *maker = np_try_alloc(sizeof(*maker), NULL);
    int code = 0;

    if (!maker)
        return np_err_set(err, -ENOMEM, "out of memory for a reader");
    maker->options = *options;
    code = np_decoder_new(&maker->decoder, err);
    if (!code)
        np_decoder_limit(maker->decoder, options->max_pixels);
    if (!code && !(maker->resizer = np_resizer_new()))
        code = np_err_set(err, -ENOMEM, "out of memory for a reader's resizer");
    if (!code)
        code = new_frame(maker, err);
    if (!code)
        code = new_replays(maker, err);
    if (code) {
        np_maker_free(maker);
        return code;
    }
    *ret_maker = maker;
    return 0;
}

void np_maker_free(struct np_maker *maker)
{
    if (!maker)
        return;
    if (maker->frame)
        munmap(maker->frame, maker->frame_cap + 64);
    for (int s = 0; s < NP_NR_STAGES; s++)
        np_replay_free(maker->replays[s]);
    np_free(maker->full);
    np_unzstd_free(maker->unzstd);
    np_resizer_free(maker->resizer);
    np_decoder_free(maker->decoder);
    np_free(maker);
}

/* A sample's bytes checked against the index. */
static int check_crc(const struct np_record *record, uint32_t crc, struct np_err *err)
{
    if (!record->has_crc || crc == record->crc32c)
        return 0;
    return np_err_set(
        err, -EBADMSG, "wrong checksum: CRC32C is %08x, the index says %08x", crc, record->crc32c);
}

static int draw(const struct np_maker *maker, const struct np_making *making, int width, int height,
    struct np_err *err)
{
    const struct np_ticket *ticket = making->ticket;
    const struct np_batch_shape *shape = &maker->options.shape;
    struct np_geometry *geometry = &making->about->geometry;

    making->about->source_w = width;
    making->about->source_h = height;
    np_augment_draw(maker->options.sets[ticket->kind].chain, maker->options.seed, ticket->epoch,
        ticket->position, width, height, geometry);
    np_geometry_order(geometry, maker->options.rule);
    if (geometry->window_w == shape->width && geometry->window_h == shape->height)
        return 0;
    return np_err_set(err, -EBADMSG,
        "its %d x %d pixels come out as %d x %d where rows are %d x %d; add a resize to "
        "loader.augment and loader.test_augment",
        width, height, geometry->window_w, geometry->window_h, shape->width, shape->height);
}

/* Would a cache of pictures take this one whole? */
static bool wants_full(
    const struct np_maker *maker, const struct np_making *making, const struct np_image_info *info)
{
    const uint64_t bytes =
        (uint64_t)info->width * (uint64_t)info->height * (uint64_t)maker->options.shape.channels;

    return maker->options.cache && maker->options.cache_decoded &&
           np_cache_wants(maker->options.cache, maker->options.sets[making->ticket->kind].cache_set,
               making->sample, bytes);
}

/* Decodes all of the picture, and puts a copy into the cache. */
static int decode_full(struct np_maker *maker, const struct np_making *making,
    const struct np_image_info *info, struct np_pixels *ret_pixels, struct np_err *err)
{
    const struct np_geometry whole = {.right = info->width,
        .bottom = info->height,
        .scaled_w = info->width,
        .scaled_h = info->height,
        .window_w = info->width,
        .window_h = info->height};
    const int channels = maker->options.shape.channels;
    const size_t row_bytes = (size_t)info->width * (size_t)channels;
    const size_t bytes = row_bytes * (size_t)info->height;
    struct np_pixels pixels;
    struct np_cached cached;
    int code = np_decoder_decode(maker->decoder, &whole, channels, &pixels, err);

    if (code)
        return code;
    /* Allocates only while larger pictures than before come in. */
    if (np_hold(&maker->full, &maker->full_cap, bytes, NULL))
        return np_err_set(err, -ENOMEM, "out of memory for a picture of %zu bytes", bytes);
    for (int y = 0; y < info->height; y++)
        memcpy(maker->full + (size_t)y * row_bytes,
            pixels.data + (y - pixels.origin_y) * pixels.stride - pixels.origin_x * channels,
            row_bytes);
    cached = (struct np_cached){maker->full, (uint32_t)bytes, info->width, info->height, channels};
    np_cache_put(maker->options.cache, maker->options.sets[making->ticket->kind].cache_set,
        making->sample, &cached);
    *ret_pixels = pixels;
    return 0;
}

/* Another sample's pixels, cut as they were. A cache of pictures gets those that are whole. */
static void decode_other(struct np_maker *maker, const struct np_making *making,
    const struct np_replayed *other, struct np_pixels *ret_pixels)
{
    const struct np_pixels *pixels = &other->pixels;
    const struct np_cached cached = {
        other->data, (uint32_t)other->bytes, pixels->width, pixels->height, pixels->channels};

    making->about->geometry = other->geometry;
    making->about->source_w = other->source_w;
    making->about->source_h = other->source_h;
    if (maker->options.cache && maker->options.cache_decoded && pixels->width == other->source_w &&
        pixels->height == other->source_h)
        np_cache_put(maker->options.cache, maker->options.sets[making->ticket->kind].cache_set,
            making->sample, &cached);
    *ret_pixels = *pixels;
}

static void store_pixels(
    struct np_maker *maker, const struct np_making *making, const struct np_pixels *pixels)
{
    const size_t row_bytes = (size_t)pixels->width * (size_t)pixels->channels;
    struct np_replayed *output = making->ticket->kind == NP_BATCH_TRAIN
                                     ? np_replay_add(maker->replays[NP_STAGE_DECODE],
                                           making->sample, row_bytes * (size_t)pixels->height)
                                     : NULL;

    if (!output)
        return;
    for (int y = 0; y < pixels->height; y++)
        memcpy(output->data + (size_t)y * row_bytes, pixels->data + y * pixels->stride, row_bytes);
    output->pixels = *pixels;
    output->pixels.data = output->data;
    output->pixels.stride = (ptrdiff_t)row_bytes;
    output->geometry = making->about->geometry;
    output->source_w = making->about->source_w;
    output->source_h = making->about->source_h;
}

static int decode(struct np_maker *maker, const struct np_making *making, const uint8_t *bytes,
    uint32_t nr_bytes, struct np_pixels *ret_pixels, struct np_err *err)
{
    const struct np_index *index = maker->options.sets[making->ticket->kind].index;
    const struct np_replayed *other =
        np_maker_replayed(maker, making->ticket->kind, NP_STAGE_DECODE, making->sample);
    struct np_image_info info;
    int code;

    if (other) {
        decode_other(maker, making, other, ret_pixels);
        return 0;
    }
    code = np_decoder_open(maker->decoder, bytes, nr_bytes, np_index_raw(index), &info, err);
    if (code)
        return code;
    code = draw(maker, making, info.width, info.height, err);
    if (code)
        return code;
    if (wants_full(maker, making, &info))
        code = decode_full(maker, making, &info, ret_pixels, err);
    else
        code = np_decoder_decode(maker->decoder, &making->about->geometry,
            maker->options.shape.channels, ret_pixels, err);
    if (!code)
        store_pixels(maker, making, ret_pixels);
    return code;
}

/* The encoded bytes that decoded well: their CRC goes into the index, they into the cache. */
static void keep(struct np_maker *maker, const struct np_making *making,
    const struct np_encoded *encoded, bool has_crc, uint32_t crc)
{
    const struct np_set *set = &maker->options.sets[making->ticket->kind];

    /* Whoever edits a picture that is a file of its own does not mean it to be bad. */
    if (has_crc && !encoded->record.has_crc && !np_index_root(set->index))
        np_index_set_crc(set->index, encoded->sample, crc);
    if (encoded->extent)
        np_maker_store(maker, making, NP_STAGE_READ, encoded->extent, encoded->record.bytes);
    if (encoded->record.packing != NP_PACKING_NONE)
        np_maker_store(
            maker, making, NP_STAGE_DECOMPRESS, encoded->bytes, encoded->record.inner_bytes);
    if (maker->options.cache && !maker->options.cache_decoded) {
        const struct np_cached cached = {
            .data = encoded->bytes, .bytes = encoded->record.inner_bytes};

        np_cache_put(maker->options.cache, set->cache_set, making->sample, &cached);
    }
}

/* Pixels of a sample that was read. */
static int make_read(struct np_maker *maker, const struct np_making *making,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    struct np_encoded encoded;
    uint32_t crc = 0;
    int code = np_maker_find_bytes(maker, making, &encoded, err);

    if (code)
        return code;
    const bool packed = encoded.record.packing != NP_PACKING_NONE;
    const bool checks = !np_maker_replayed(maker, making->ticket->kind,
        packed ? NP_STAGE_DECOMPRESS : NP_STAGE_DECODE, making->sample);
    if (checks) {
        crc = np_crc32c(0, encoded.bytes, encoded.record.inner_bytes);
        code = check_crc(&encoded.record, crc, err);
    }
    if (code)
        return code;
    if (packed)
        np_stat_lap(maker->options.block, NP_STAGE_DECOMPRESS, encoded.record.inner_bytes, 0);
    code = decode(maker, making, encoded.bytes, encoded.record.inner_bytes, ret_pixels, err);
    if (code)
        return code;
    keep(maker, making, &encoded, checks, crc);
    np_stat_lap(maker->options.block, NP_STAGE_DECODE, encoded.record.inner_bytes, 0);
    return 0;
}

/* Pixels of a sample that the cache holds. */
static int make_cached(struct np_maker *maker, const struct np_making *making,
    const struct np_cached *cached, struct np_pixels *ret_pixels, struct np_err *err)
{
    int code;

    if (cached->width) {
        *ret_pixels = (struct np_pixels){.data = cached->data,
            .width = cached->width,
            .height = cached->height,
            .channels = cached->channels,
            .stride = (ptrdiff_t)cached->width * cached->channels};
        return draw(maker, making, cached->width, cached->height, err);
    }
    code = decode(maker, making, cached->data, cached->bytes, ret_pixels, err);
    np_stat_lap(maker->options.block, NP_STAGE_DECODE, cached->bytes, 0);
    return code;
}

/* Is the row the device's to make? */
static bool is_resident(const struct np_maker *maker, const struct np_making *making)
{
    const int set = maker->options.sets[making->ticket->kind].cache_set;
    struct np_cached cached;

    making->about->resident = NP_NOT_RESIDENT;
    if (!maker->options.resident ||
        !np_cache_find(maker->options.cache, set, making->sample, &cached) ||
        cached.width != making->about->source_w || cached.height != making->about->source_h)
        return false; /* another size: two readers replayed it at once */
    making->about->resident = (uint64_t)(cached.data - np_cache_arena(maker->options.cache));
    return true;
}

/* The row, of the picture's pixels. */
static int augment(struct np_maker *maker, const struct np_making *making,
    const struct np_pixels *pixels, struct np_err *err)
{
    const struct np_ticket *ticket = making->ticket;
    const struct np_batch_shape *shape = &maker->options.shape;
    const size_t row_bytes = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;
    const struct np_replayed *other =
        np_maker_replayed(maker, ticket->kind, NP_STAGE_AUGMENT, making->sample);
    int code;

    if (other) {
        memcpy(making->out, other->data, row_bytes);
        return 0;
    }
    code = np_resize(maker->resizer, pixels, &making->about->geometry, making->out, err);
    if (code)
        return code;
    np_augment_apply(maker->options.sets[ticket->kind].chain, maker->options.seed, ticket->epoch,
        ticket->position, making->out, shape->height, shape->width, shape->channels);
    np_maker_store(maker, making, NP_STAGE_AUGMENT, making->out, row_bytes);
    return 0;
}

/* Stores fill with what few rows need, even if that is less than they could hold: of a packed set many
 * rows come out of one read. */
static void close_replays(struct np_maker *maker, enum np_batch_kind kind)
{
    if (!maker->options.stubs || kind != NP_BATCH_TRAIN ||
        maker->nr_made >= 2 * maker->options.replay_samples)
        return;
    if (++maker->nr_made == 2 * maker->options.replay_samples)
        for (int s = 0; s < NP_NR_STAGES; s++)
            np_replay_close(maker->replays[s]);
}

int np_maker_make(struct np_maker *maker, const struct np_making *making, struct np_err *err)
{
    const struct np_ticket *ticket = making->ticket;
    const struct np_set *set = &maker->options.sets[ticket->kind];
    const struct np_batch_shape *shape = &maker->options.shape;
    const uint64_t row_bytes = (uint64_t)shape->height * shape->width * shape->channels;
    struct np_pixels pixels;
    struct np_cached cached;
    int code;

    if (maker->options.cache &&
        np_cache_find(maker->options.cache, set->cache_set, making->sample, &cached))
        code = make_cached(maker, making, &cached, &pixels, err);
    else
        code = make_read(maker, making, &pixels, err);
    if (code)
        return code;
    if (!is_resident(maker, making) && (code = augment(maker, making, &pixels, err)) < 0)
        return code;
    np_stat_lap(maker->options.block, NP_STAGE_AUGMENT, row_bytes, 0);
    close_replays(maker, ticket->kind);
    return 0;
}
