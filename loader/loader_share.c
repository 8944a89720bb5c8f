/* What jobs must have in common to share batches, or decoded pictures. One thread. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "loader/base/mem.h"
#include "loader/base/version.h"
#include "loader/base/yaml.h"
#include "loader/loader.h"

/* Below this mean size of a picture's pixels the cache is not shared: shared memory has no huge pages
 * on most systems, and looking up its small pages would take more time than sharing saves. */
#define MIN_PICTURE_BYTES (32u << 10)

/* The keys of `loader:` that change no row; the sampler's options and the shape have the rest of
 * what is not in the text. */
static const char *const free_keys[] = {"readers", "io", "depth", "prefetch", "cache", "entries",
    "page_cache", "disk_cache", "read_timeout", "bad_samples", "share", NULL};

static bool is_free(const char *key)
{
    for (int i = 0; free_keys[i]; i++)
        if (strcmp(free_keys[i], key) == 0)
            return true;
    return false;
}

static uint64_t keys_hash(const struct np_loader_options *options, uint64_t hash)
{
    struct np_node *all = np_loader_options_node(options);
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    char *text;

    for (int i = 0; i < all->nr_items; i++)
        if (!is_free(all->items[i]->key))
            np_node_add(map, all->items[i]->key, np_node_copy(all->items[i]));
    text = np_node_yaml(map, NULL);
    if (text)
        hash = XXH3_64bits_withSeed(text, strlen(text), hash);
    np_free(text);
    np_node_free(map);
    np_node_free(all);
    return hash;
}

static uint64_t text_hash(const char *text, uint64_t hash)
{
    return XXH3_64bits_withSeed(text ? text : "", text ? strlen(text) : 0, hash);
}

/* Where the set lies, the state of its files, and its samples. */
static uint64_t set_hash(const struct np_index *index, const int32_t *labels, uint64_t hash)
{
    uint64_t sums[2];

    if (!index)
        return hash;
    for (int i = 0; i < index->nr_files; i++)
        hash = text_hash(index->paths[i], hash);
    hash = text_hash(index->root, hash);
    hash = XXH3_64bits_withSeed(&index->raw, sizeof(index->raw), hash);
    if (index->stamps)
        hash = XXH3_64bits_withSeed(
            index->stamps, (size_t)index->nr_files * sizeof(*index->stamps), hash);
    sums[0] = np_index_names_sum(index, labels);
    sums[1] = np_index_sizes_sum(index, labels);
    return XXH3_64bits_withSeed(sums, sizeof(sums), hash);
}

uint64_t np_share_key(const struct np_loader_config *config, uint64_t more)
{
    const struct np_loader_options *options = config->options;
    uint64_t hash = text_hash(NP_VERSION, more);

    if (!options->share || (config->train && config->train->memory) ||
        (config->eval && config->eval->memory))
        return 0;
    hash = keys_hash(options, text_hash(options->share_name, hash));
    hash = set_hash(config->train, config->train_labels, hash);
    hash = set_hash(config->eval, config->eval_labels, hash);
    return hash ? hash : 1;
}

uint64_t np_share_pictures_key(const struct np_loader_config *config)
{
    const struct np_loader_options *options = config->options;
    const struct np_index *sets[] = {config->train, config->eval};
    const int64_t pixels[] = {options->channels, options->pixels, options->max_pixels};
    uint64_t hash = text_hash(options->share_name, text_hash(NP_VERSION, 0));

    if (!options->share || options->stubs || config->picture_bytes < MIN_PICTURE_BYTES ||
        (options->cache != NP_CACHE_DECODED && options->cache != NP_CACHE_AUTO))
        return 0;
    for (int s = 0; s < 2; s++) {
        if (sets[s] && (sets[s]->memory || sets[s]->raw.kind != NP_RAW_NONE))
            return 0;
        hash = set_hash(sets[s], NULL, hash);
    }
    hash = XXH3_64bits_withSeed(pixels, sizeof(pixels), hash);
    return hash ? hash : 1;
}
