/* Opens the cache of a loader: resolves `auto`, its size, and whether it is shared. Trainer
 * thread. */
#include <errno.h>
#include <string.h>

#include "loader/base/box.h"
#include "loader/loader_parts.h"

/* cache: auto keeps the pixels of pictures up to this size; of a larger one only the crop is
 * decoded. */
#define AUTO_PICTURE_BYTES (64ull * 1024)
#define AUTO_CACHE_EPOCHS  3 /* the first epoch fills it, for about 5 % of the readers' time */

/* `share: auto` is off where it cannot be; a name must be met. */
int np_loader_settle_sharing(
    const struct np_loader_config *config, int code, const struct np_err *why, struct np_err *err)
{
    if (code == 0 || (code != -ENOMEM && strcmp(config->options->share_name, "auto") == 0))
        return 0;
    return np_err_set(err, code, "loader.share: %s", why->text);
}

static uint64_t nr_all_samples(const struct np_loader_config *config)
{
    uint64_t n = config->train ? np_index_samples(config->train) : 0;

    return config->eval && config->eval != config->train ? n + np_index_samples(config->eval) : n;
}

enum np_cache_kind np_loader_auto_cache(
    const struct np_loader_config *config, uint64_t memory_bytes, uint64_t free_bytes)
{
    const struct np_sampler_options *order = &config->sampler;
    const uint64_t left = order->nr_steps - config->first_step, n = nr_all_samples(config);
    const uint64_t limit = memory_bytes / 8 < free_bytes / 4 ? memory_bytes / 8 : free_bytes / 4;

    if (left == 0 || config->picture_bytes == 0 || config->picture_bytes > AUTO_PICTURE_BYTES ||
        left < AUTO_CACHE_EPOCHS * order->nr_train / (uint64_t)order->batch)
        return NP_CACHE_NONE;
    return n * np_cache_entry_bytes(config->picture_bytes) <= limit ? NP_CACHE_DECODED
                                                                    : NP_CACHE_NONE;
}

/* Resolves `device`: to a cache in host memory if the device cannot keep one or a chain does more
 * than geometry; to none if there is no second epoch (one pass over a test set). */
static enum np_cache_kind device_cache(const struct np_loader_config *config)
{
    if (config->sampler.nr_steps == config->first_step)
        return NP_CACHE_NONE;
    if (config->device_room == 0 || (config->augment && np_chain_touches(config->augment)) ||
        (config->test_augment && np_chain_touches(config->test_augment)))
        return NP_CACHE_DECODED;
    return NP_CACHE_DEVICE;
}

/* Size of a cache on the device: the configured size, or up to half of the device's free memory and
 * a quarter of the host's, which keeps the pictures too; at most the whole set if all its pictures
 * have one size. */
static int device_bytes(const struct np_loader_config *config, uint64_t memory_bytes,
    uint64_t *ret_bytes, struct np_err *err)
{
    const int64_t wanted = config->options->cache_bytes;
    const struct np_index *index = config->train ? config->train : config->eval;
    const bool one_size = index->raw.kind != NP_RAW_NONE;
    const uint64_t all = nr_all_samples(config) * np_cache_entry_bytes(config->picture_bytes);
    uint64_t limit = config->device_room / 2;

    if (wanted >= 0 && (uint64_t)wanted > config->device_room)
        return np_err_set(err, -ENOMEM,
            "loader.cache: {device: %lld MiB} is more than the %llu MiB that the device has left "
            "beside the model; give it less, or use `decoded`",
            (long long)wanted >> 20, (unsigned long long)config->device_room >> 20);
    if (limit > memory_bytes / 4)
        limit = memory_bytes / 4;
    if (one_size && config->picture_bytes && all < limit)
        limit = all;
    *ret_bytes = wanted < 0 ? limit : (uint64_t)wanted;
    return 0;
}

static int share_cache(
    struct np_cache *cache, const struct np_loader_config *config, struct np_err *err)
{
    const struct np_cache_sharing sharing = {.hash = config->pictures_key,
        .wait_ns = (uint64_t)config->options->share_wait_ms * 1000000,
        .picture_bytes = config->picture_bytes,
        .channels = config->shape.channels};
    struct np_err why = {0};

    return np_loader_settle_sharing(config, np_cache_share(cache, &sharing, &why), &why, err);
}

int np_loader_open_cache(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    const struct np_loader_options *options = config->options;
    struct np_row_options *row = &loader->config.row;
    const bool one_set = config->train == config->eval || !config->train || !config->eval;
    enum np_cache_kind kind = (enum np_cache_kind)options->cache;
    uint64_t nr_samples[2], bytes;
    struct np_box box;
    int code = 0;

    np_loader_own_box(options, &box);
    bytes = options->cache_bytes < 0 ? box.memory_bytes / 4 : (uint64_t)options->cache_bytes;
    if (kind == NP_CACHE_AUTO)
        kind = np_loader_auto_cache(config, box.memory_bytes, box.free_bytes);
    if (kind == NP_CACHE_DEVICE)
        kind = device_cache(config);
    if (kind == NP_CACHE_DEVICE)
        code = device_bytes(config, box.memory_bytes, &bytes, err);
    loader->cache = np_cache_names[NP_CACHE_NONE];
    if (code || kind == NP_CACHE_NONE)
        return code;
    row->resident = kind == NP_CACHE_DEVICE;
    row->cache_decoded = kind != NP_CACHE_ENCODED;
    loader->cache = np_cache_names[kind];
    loader->sets[NP_BATCH_EVAL].cache_set = !one_set;
    nr_samples[0] = np_index_samples(config->train ? config->train : config->eval);
    nr_samples[1] = one_set ? 0 : np_index_samples(config->eval);
    code = np_cache_new(bytes, one_set ? 1 : 2, nr_samples, &row->cache, err);
    loader->resident = row->resident ? row->cache : NULL;
    if (!code && kind == NP_CACHE_DECODED && config->pictures_key)
        code = share_cache(row->cache, config, err);
    return code;
}

struct np_cache_shared np_loader_cache_shared(const struct np_loader *loader)
{
    const struct np_cache *cache = loader->config.row.cache;

    return cache ? np_cache_shared(cache) : (struct np_cache_shared){0};
}
