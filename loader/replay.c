/* See replay.h. It fills once, with the samples that come first: their order is shuffled, so they stand
 * for the set. Memory is taken while it fills. */
#include "loader/replay.h"

#include "loader/base/mem.h"

#define BEHIND 64 /* decoders and resizers may read so far */

struct np_replay {
    int nr_samples, max_samples;
    uint64_t bytes, cap_bytes;
    bool full;
    struct np_replayed samples[]; /* (max_samples) */
};

struct np_replay *np_replay_new(int nr_samples, uint64_t cap_bytes)
{
    struct np_replay *replay =
        np_try_alloc(sizeof(*replay) + (size_t)nr_samples * sizeof(*replay->samples), NULL);

    if (!replay)
        return NULL;
    replay->max_samples = nr_samples;
    replay->cap_bytes = cap_bytes;
    return replay;
}

void np_replay_free(struct np_replay *replay)
{
    for (int i = 0; replay && i < replay->nr_samples; i++)
        np_free(replay->samples[i].data);
    np_free(replay);
}

const struct np_replayed *np_replay_find(const struct np_replay *replay, uint64_t sample)
{
    if (!replay || !replay->full || replay->nr_samples == 0)
        return NULL;
    return &replay->samples[sample % (uint64_t)replay->nr_samples];
}

struct np_replayed *np_replay_add(struct np_replay *replay, uint64_t sample, size_t bytes)
{
    if (!replay || replay->full)
        return NULL;

    struct np_replayed *output = &replay->samples[replay->nr_samples];

    output->data = np_try_alloc(bytes + BEHIND, NULL);
    if (!output->data) {
        replay->full = true;
        return NULL;
    }
    output->sample = sample;
    output->bytes = bytes;
    replay->bytes += bytes;
    replay->nr_samples++;
    replay->full = replay->nr_samples == replay->max_samples || replay->bytes >= replay->cap_bytes;
    return output;
}

void np_replay_close(struct np_replay *replay)
{
    if (replay)
        replay->full = replay->nr_samples > 0;
}
