/* Where a sample's encoded bytes come from: the extent that was read, the frame unpacked last, or what
 * stands in for either. The reader's thread alone. */
#include "loader/maker_parts.h"

#include <errno.h>
#include <string.h>

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

/* --- replay ----------------------------------------------------------------------------------- */

const struct np_replayed *np_maker_replayed(
    const struct np_maker *maker, enum np_batch_kind kind, enum np_stage stage, uint64_t sample)
{
    return kind == NP_BATCH_TRAIN ? np_replay_find(maker->replays[stage], sample) : NULL;
}

void np_maker_store(struct np_maker *maker, const struct np_making *making, enum np_stage stage,
    const uint8_t *bytes, size_t nr_bytes)
{
    struct np_replayed *output =
        making->ticket->kind == NP_BATCH_TRAIN
            ? np_replay_add(maker->replays[stage], making->sample, nr_bytes)
            : NULL;

    if (output)
        memcpy(output->data, bytes, nr_bytes);
}

bool np_maker_replays_read(const struct np_maker *maker, enum np_batch_kind kind, uint64_t sample)
{
    return np_maker_replayed(maker, kind, NP_STAGE_READ, sample) != NULL;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void set_frame(
    struct np_maker *maker, const struct np_index *index, const struct np_record *record)
{
    maker->frame_index = index;
    maker->frame_file = record->file;
    maker->frame_offset = record->offset;
}

static int unpack_frame(struct np_maker *maker, const struct np_index *index,
    const struct np_record *record, const uint8_t *extent, struct np_err *err)
{
    int code;

    maker->frame_index = NULL;
    maker->frame_replayed = NULL;
    code = np_unzstd_frame(maker->unzstd, extent, record->bytes, maker->frame, maker->frame_cap,
        &maker->frame_bytes, err);
    if (!code)
        set_frame(maker, index, record);
    return code;
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

/* The frame, or the bytes, of another sample take the place of this one's. For who comes later and
 * asks whether its frame is there, it is this one's. */
static int unpack_other(struct np_maker *maker, const struct np_index *index,
    const struct np_replayed *other, struct np_encoded *encoded, struct np_err *err)
{
    const struct np_record own = encoded->record;
    const bool same_frame = in_frame(maker, index, &own);
    int code;

    encoded->sample = other->sample;
    encoded->record = np_index_get(index, other->sample);
    if (same_frame) {
        encoded->bytes = maker->frame + encoded->record.inner_offset;
        return 0;
    }
    maker->frame_index = NULL; /* it may be said to be this very frame, and hold another one */
    code = unpack(maker, index, &encoded->record, other->data, &encoded->bytes, err);
    if (!code && own.packing == NP_PACKING_ZSTD) {
        set_frame(maker, index, &own);
        maker->frame_replayed = other;
    }
    return code;
}

int np_maker_find_bytes(struct np_maker *maker, const struct np_making *making,
    struct np_encoded *encoded, struct np_err *err)
{
    const enum np_batch_kind kind = making->ticket->kind;
    const struct np_index *index = maker->options.sets[kind].index;
    const struct np_replayed *bytes, *frame;
    int code;

    encoded->extent = NULL;
    encoded->sample = making->sample;
    encoded->record = *making->record;
    const bool packed = encoded->record.packing != NP_PACKING_NONE;
    const bool there = in_frame(maker, index, &encoded->record);
    bytes = packed ? np_maker_replayed(maker, kind, NP_STAGE_DECOMPRESS, making->sample) : NULL;
    frame = there ? maker->frame_replayed
                  : np_maker_replayed(maker, kind, NP_STAGE_READ, making->sample);
    if (bytes) {
        set_frame(maker, index, &encoded->record);
        maker->frame_replayed = NULL;
        encoded->sample = bytes->sample;
        encoded->record = np_index_get(index, bytes->sample);
        encoded->bytes = bytes->data;
        return 0;
    }
    if (frame)
        return unpack_other(maker, index, frame, encoded, err);
    code = unpack(maker, index, &encoded->record, making->extent, &encoded->bytes, err);
    if (!code && !there && np_index_raw(index)->kind != NP_RAW_SYNTH)
        encoded->extent = making->extent;
    return code;
}
