/* Bytes -> row. The reader calls it with what it has read; caches are looked up and filled
 * here, so that cached and read samples take the same road from where they join.
 * The reader's thread alone; times go to its block. */
#include "loader/maker.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "loader/base/clock.h"
#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "loader/resize.h"

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

    uint8_t *full; /* for the decoded cache: a whole picture without gaps between rows */
    size_t full_cap;
};

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

int np_maker_new(
    const struct np_maker_options *options, struct np_maker **ret_maker, struct np_err *err)
{
    struct np_maker *maker = np_alloc(sizeof(*maker));
    int code = 0;

    if (!maker)
        return np_err_set(err, -ENOMEM, "out of memory for a reader");
    maker->options = *options;
    code = np_decoder_new(&maker->decoder, err);
    if (!code && !(maker->resizer = np_resizer_new()))
        code = np_err_set(err, -ENOMEM, "out of memory for a reader's resizer");
    if (!code)
        code = new_frame(maker, err);
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
    np_free(maker->full);
    np_unzstd_free(maker->unzstd);
    np_resizer_free(maker->resizer);
    np_decoder_free(maker->decoder);
    np_free(maker);
}

/* Does the frame unpacked last hold this record? */
static bool in_frame(
    const struct np_maker *maker, const struct np_index *index, const struct np_record *record)
{
    return record->packing == NP_PACKING_ZSTD && maker->frame_index == index &&
           maker->frame_file == record->file && maker->frame_offset == record->offset;
}

bool np_maker_has(const struct np_maker *maker, enum np_batch_kind kind, uint64_t sample,
    const struct np_record *record)
{
    const struct np_set *set = &maker->options.sets[kind];
    struct np_cached cached;

    return (maker->options.cache &&
               np_cache_find(maker->options.cache, set->cache_set, sample, &cached)) ||
           in_frame(maker, set->index, record);
}

static int unpack_frame(struct np_maker *maker, const struct np_index *index,
    const struct np_record *record, const uint8_t *extent, struct np_err *err)
{
    int code;

    maker->frame_index = NULL;
    code = np_unzstd_frame(maker->unzstd, extent, record->bytes, maker->frame, maker->frame_cap,
        &maker->frame_bytes, err);
    if (code)
        return code;
    maker->frame_index = index;
    maker->frame_file = record->file;
    maker->frame_offset = record->offset;
    return 0;
}

/* The sample's own bytes: of the extent as it was read, or of the frame. */
static int unpack(struct np_maker *maker, const struct np_index *index,
    const struct np_record *record, const uint8_t *extent, const uint8_t **ret_bytes,
    struct np_err *err)
{
    if (np_index_raw(index)->kind == NP_RAW_SYNTH) {
        maker->synth = record->offset;
        *ret_bytes = (const uint8_t *)&maker->synth;
        return 0;
    }
    if (record->packing == NP_PACKING_NONE) {
        *ret_bytes = extent;
        return 0;
    }
    if (!in_frame(maker, index, record)) {
        int code = unpack_frame(maker, index, record, extent, err);

        if (code)
            return code;
    }
    if ((uint64_t)record->inner_offset + record->inner_bytes > maker->frame_bytes)
        return np_err_set(err, -EBADMSG,
            "its zstd frame holds %zu bytes where the index puts it at %u to %llu",
            maker->frame_bytes, record->inner_offset,
            (unsigned long long)record->inner_offset + record->inner_bytes);
    *ret_bytes = maker->frame + record->inner_offset;
    return 0;
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
    if (np_hold(&maker->full, &maker->full_cap, bytes))
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

static int decode(struct np_maker *maker, const struct np_making *making, const uint8_t *bytes,
    uint32_t nr_bytes, struct np_pixels *ret_pixels, struct np_err *err)
{
    const struct np_index *index = maker->options.sets[making->ticket->kind].index;
    struct np_image_info info;
    int code;

    code = np_decoder_open(maker->decoder, bytes, nr_bytes, np_index_raw(index), &info, err);
    if (code)
        return code;
    code = draw(maker, making, info.width, info.height, err);
    if (code)
        return code;
    if (wants_full(maker, making, &info))
        return decode_full(maker, making, &info, ret_pixels, err);
    return np_decoder_decode(
        maker->decoder, &making->about->geometry, maker->options.shape.channels, ret_pixels, err);
}

/* The encoded bytes that decoded well: their CRC goes into the index, they into the cache. */
static void keep(struct np_maker *maker, const struct np_making *making,
    const struct np_record *record, const uint8_t *bytes, uint32_t crc)
{
    const struct np_set *set = &maker->options.sets[making->ticket->kind];

    if (!record->has_crc)
        np_index_set_crc(set->index, making->sample, crc);
    if (maker->options.cache && !maker->options.cache_decoded) {
        const struct np_cached cached = {.data = bytes, .bytes = record->inner_bytes};

        np_cache_put(maker->options.cache, set->cache_set, making->sample, &cached);
    }
}

/* Pixels of a sample that was read. */
static int make_read(struct np_maker *maker, const struct np_making *making, uint64_t *now_ns,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    const struct np_index *index = maker->options.sets[making->ticket->kind].index;
    const struct np_record record = np_index_get(index, making->sample);
    const uint64_t since_ns = *now_ns;
    const uint8_t *bytes = NULL;
    uint64_t unpacked_ns = since_ns;
    uint32_t crc;
    int code = unpack(maker, index, &record, making->extent, &bytes, err);

    if (code)
        return code;
    crc = np_crc32c(0, bytes, record.inner_bytes);
    code = check_crc(&record, crc, err);
    if (code)
        return code;
    if (record.packing != NP_PACKING_NONE) {
        unpacked_ns = np_now_ns();
        np_stat_item_between(
            maker->options.block, NP_STAGE_DECOMPRESS, record.inner_bytes, since_ns, unpacked_ns);
    }
    code = decode(maker, making, bytes, record.inner_bytes, ret_pixels, err);
    if (code)
        return code;
    keep(maker, making, &record, bytes, crc);
    *now_ns = np_now_ns();
    np_stat_item_between(
        maker->options.block, NP_STAGE_DECODE, record.inner_bytes, unpacked_ns, *now_ns);
    return 0;
}

/* Pixels of a sample that the cache holds. */
static int make_cached(struct np_maker *maker, const struct np_making *making,
    const struct np_cached *cached, uint64_t *now_ns, struct np_pixels *ret_pixels,
    struct np_err *err)
{
    const uint64_t since_ns = *now_ns;
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
    *now_ns = np_now_ns();
    np_stat_item_between(maker->options.block, NP_STAGE_DECODE, cached->bytes, since_ns, *now_ns);
    return code;
}

/* Is the row the device's to make? */
static bool is_resident(const struct np_maker *maker, const struct np_making *making)
{
    const int set = maker->options.sets[making->ticket->kind].cache_set;
    struct np_cached cached;

    making->about->resident = NP_NOT_RESIDENT;
    if (!maker->options.resident ||
        !np_cache_find(maker->options.cache, set, making->sample, &cached))
        return false;
    making->about->resident = (uint64_t)(cached.data - np_cache_arena(maker->options.cache));
    return true;
}

int np_maker_make(struct np_maker *maker, const struct np_making *making, uint64_t since_ns,
    uint64_t *ret_ns, struct np_err *err)
{
    const struct np_ticket *ticket = making->ticket;
    const struct np_set *set = &maker->options.sets[ticket->kind];
    const struct np_batch_shape *shape = &maker->options.shape;
    const uint64_t row_bytes = (uint64_t)shape->height * shape->width * shape->channels;
    struct np_pixels pixels;
    struct np_cached cached;
    uint64_t now_ns = since_ns;
    int code;

    if (maker->options.cache &&
        np_cache_find(maker->options.cache, set->cache_set, making->sample, &cached))
        code = make_cached(maker, making, &cached, &now_ns, &pixels, err);
    else
        code = make_read(maker, making, &now_ns, &pixels, err);
    if (code)
        return code;
    if (!is_resident(maker, making)) {
        code = np_resize(maker->resizer, &pixels, &making->about->geometry, making->out, err);
        if (code)
            return code;
        np_augment_apply(set->chain, maker->options.seed, ticket->epoch, ticket->position,
            making->out, shape->height, shape->width, shape->channels);
    }
    *ret_ns = np_now_ns();
    np_stat_item_between(maker->options.block, NP_STAGE_AUGMENT, row_bytes, now_ns, *ret_ns);
    return 0;
}
