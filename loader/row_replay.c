/* A store keeps the outputs of the first samples, which represent the set because the order is
 * shuffled. It allocates while it fills; if memory is out it counts as full. */
#include "loader/row_replay.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/stat.h"

#define BEHIND       64           /* zeros behind an output: decoders and resizers may read them */
#define SAMPLE_BYTES (256u << 10) /* max mean size of an output */

struct output {
    uint64_t sample;
    uint8_t *data;
    size_t bytes;
    /* decode alone: the pixels in `data`, source size and geometry */
    struct np_pixels pixels;
    struct np_row about;
};

struct store {
    struct output *outputs; /* (max_outputs); NULL: the stage is not replayed */
    int nr_outputs, max_outputs, next;
    uint64_t bytes;
    bool full;
};

struct frame {
    const struct np_index *index; /* NULL: none */
    uint64_t offset;
    uint32_t file;
};

struct np_row_replay {
    struct np_row_maker *maker;
    struct store stores[NP_NR_STAGES];
    int nr_made;                 /* training rows, until the stores close */
    struct np_record record;     /* of the last returned extent */
    struct frame kept;           /* whose extent was stored last */
    struct frame read, unpacked; /* whose extent, or content, was replaced last */
    struct output *read_output;  /* the replacement for `read` */
};

/* --- stores ------------------------------------------------------------------------------- */

/* The output that replaces the work of the stage; NULL: do the work. */
static struct output *next_output(
    struct np_row_replay *replay, enum np_stage stage, const struct np_making *making)
{
    struct store *store = &replay->stores[stage];

    if (!store->full || making->ticket->kind != NP_BATCH_TRAIN)
        return NULL;
    store->next = (store->next + 1) % store->nr_outputs;
    return &store->outputs[store->next];
}

/* NULL: do not store it. */
static struct output *add_output(
    struct np_row_replay *replay, enum np_stage stage, const struct np_making *making, size_t bytes)
{
    struct store *store = &replay->stores[stage];
    struct output *output;

    if (!store->outputs || store->full || making->ticket->kind != NP_BATCH_TRAIN)
        return NULL;
    output = &store->outputs[store->nr_outputs];
    output->data = np_try_alloc(bytes + BEHIND, NULL);
    if (!output->data) {
        store->full = store->nr_outputs > 0;
        return NULL;
    }
    output->sample = making->source;
    output->bytes = bytes;
    store->bytes += bytes;
    store->nr_outputs++;
    store->full = store->nr_outputs == store->max_outputs ||
                  store->bytes >= (uint64_t)store->max_outputs * SAMPLE_BYTES;
    return output;
}

static void keep(struct np_row_replay *replay, enum np_stage stage, const struct np_making *making,
    const uint8_t *data, size_t bytes)
{
    struct output *output = add_output(replay, stage, making, bytes);

    if (output)
        memcpy(output->data, data, bytes);
}

static void keep_pixels(struct np_row_replay *replay, const struct np_making *making)
{
    const struct np_pixels *pixels = &making->pixels;
    const size_t row_bytes = (size_t)pixels->width * (size_t)pixels->channels;
    struct output *output =
        add_output(replay, NP_STAGE_DECODE, making, row_bytes * (size_t)pixels->height);

    if (!output)
        return;
    for (int y = 0; y < pixels->height; y++)
        memcpy(output->data + (size_t)y * row_bytes, pixels->data + y * pixels->stride, row_bytes);
    output->pixels = *pixels;
    output->pixels.data = output->data;
    output->pixels.stride = (ptrdiff_t)row_bytes;
    output->about = *making->about;
}

/* Closes the stores after enough rows, since one read in a packed set serves many rows. */
static void count_row(struct np_row_replay *replay, const struct np_making *making)
{
    const int enough = 2 * replay->stores[NP_STAGE_READ].max_outputs;

    if (making->ticket->kind != NP_BATCH_TRAIN || replay->nr_made == enough)
        return;
    if (++replay->nr_made == enough)
        for (int s = 0; s < NP_NR_STAGES; s++)
            replay->stores[s].full = replay->stores[s].nr_outputs > 0;
}

/* --- stages ------------------------------------------------------------------------------- */

static struct frame frame_of(const struct np_row_replay *replay, const struct np_making *making)
{
    const struct np_row_options *options = np_row_options(replay->maker);

    return (struct frame){
        options->sets[making->ticket->kind].index, making->record->offset, making->record->file};
}

static bool same_frame(const struct frame *a, const struct frame *b)
{
    return a->index == b->index && a->offset == b->offset && a->file == b->file;
}

/* As without replay, samples of one frame get the same extent. */
static bool find(void *context, struct np_making *making)
{
    struct np_row_replay *replay = context;
    const struct frame frame = frame_of(replay, making);
    const bool packed = making->record->packing != NP_PACKING_NONE;

    if (np_row_stages.find(replay->maker, making))
        return true;
    if (!replay->stores[NP_STAGE_READ].full || making->ticket->kind != NP_BATCH_TRAIN)
        return packed && making->ticket->kind == NP_BATCH_TRAIN &&
               same_frame(&frame, &replay->unpacked);
    if (!packed || !same_frame(&frame, &replay->read))
        replay->read_output = next_output(replay, NP_STAGE_READ, making);
    replay->read = frame;
    replay->record = np_index_get(frame.index, replay->read_output->sample);
    making->source = replay->read_output->sample;
    making->record = &replay->record;
    making->extent = replay->read_output->data;
    return true;
}

static int decompress(void *context, struct np_making *making, struct np_err *err)
{
    struct np_row_replay *replay = context;
    const struct output *output = next_output(replay, NP_STAGE_DECOMPRESS, making);
    int code = 0;

    if (output) {
        replay->unpacked = frame_of(replay, making);
        making->bytes = output->data;
        making->nr_bytes = (uint32_t)output->bytes;
        making->checked = true;
        return 0;
    }
    code = np_row_stages.decompress(replay->maker, making, err);
    if (!code)
        keep(replay, NP_STAGE_DECOMPRESS, making, making->bytes, making->nr_bytes);
    return code;
}

/* Stores an extent, unless an earlier read of the same frame was stored. */
static void keep_extent(struct np_row_replay *replay, const struct np_making *making)
{
    const struct frame frame = frame_of(replay, making);

    if (!making->extent ||
        (making->record->packing != NP_PACKING_NONE && same_frame(&frame, &replay->kept)))
        return;
    replay->kept = frame;
    keep(replay, NP_STAGE_READ, making, making->extent, making->record->bytes);
}

static int decode(void *context, struct np_making *making, struct np_err *err)
{
    struct np_row_replay *replay = context;
    const struct output *output = next_output(replay, NP_STAGE_DECODE, making);
    int code = 0;

    if (output) {
        making->pixels = output->pixels;
        making->about->geometry = output->about.geometry;
        making->about->source_w = output->about.source_w;
        making->about->source_h = output->about.source_h;
    } else {
        code = np_row_stages.decode(replay->maker, making, err);
    }
    if (code)
        return code;
    if (!output)
        keep_pixels(replay, making);
    keep_extent(replay, making);
    count_row(replay, making);
    return 0;
}

static int augment(void *context, struct np_making *making, struct np_err *err)
{
    struct np_row_replay *replay = context;
    const size_t row_bytes = np_batch_row_bytes_of(
        &np_row_options(replay->maker)->shape, making->ticket->kind, making->ticket->step);
    const struct output *output = next_output(replay, NP_STAGE_AUGMENT, making);
    int code;

    if (output) {
        memcpy(making->out, output->data, row_bytes);
        return 0;
    }
    code = np_row_stages.augment(replay->maker, making, err);
    if (!code)
        keep(replay, NP_STAGE_AUGMENT, making, making->out, row_bytes);
    return code;
}

static const struct np_row_stages stages = {find, decompress, decode, augment};

int np_row_replay_new(struct np_row_maker *maker, unsigned stubs, int nr_samples,
    struct np_row_replay **ret_replay, struct np_err *err)
{
    const unsigned mine = 1u << NP_STAGE_READ | 1u << NP_STAGE_DECOMPRESS | 1u << NP_STAGE_DECODE |
                          1u << NP_STAGE_AUGMENT;
    struct np_row_replay *replay;

    *ret_replay = NULL;
    if (!(stubs & mine))
        return 0;
    replay = np_try_alloc(sizeof(*replay), err);
    for (int s = 0; replay && s < NP_NR_STAGES; s++) {
        struct store *store = &replay->stores[s];

        store->max_outputs = nr_samples;
        if (!(stubs & mine & 1u << s))
            continue;
        store->outputs = np_try_array((size_t)nr_samples, sizeof(*store->outputs), err);
        if (!store->outputs) {
            np_row_replay_free(replay);
            replay = NULL;
        }
    }
    if (!replay)
        return -ENOMEM;
    replay->maker = maker;
    np_row_wrap(maker, &stages, replay);
    *ret_replay = replay;
    return 0;
}

void np_row_replay_free(struct np_row_replay *replay)
{
    if (!replay)
        return;
    for (int s = 0; s < NP_NR_STAGES; s++) {
        for (int i = 0; i < replay->stores[s].nr_outputs; i++)
            np_free(replay->stores[s].outputs[i].data);
        np_free(replay->stores[s].outputs);
    }
    np_free(replay);
}
