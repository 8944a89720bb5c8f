/* Starts and stops the loader: resolves `auto`, allocates, starts threads. Trainer thread. */
#include "loader/loader.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/box.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/loader_parts.h"
#include "loader/remote/store.h"
#include "loader/source/entries.h"
#include "loader/source/files.h"

#define MIB (1024ull * 1024)

/* Up to this mean size of a record the kernel reads ahead, in spite of the random order. */
#define READ_AHEAD_BYTES (64u << 10)

/* auto: mean bytes of all reads in flight of a reader, and of the prefetched batches. */
#define AUTO_DEPTH_BYTES    (8 * MIB)
#define AUTO_PREFETCH_BYTES (32 * MIB)
/* The same for objects of servers, whose latency is longer. */
#define AUTO_REMOTE_DEPTH 64

/* A replayed stage stores the outputs of at most this number of batches and samples, over all
 * readers. */
#define REPLAY_BATCHES 2
#define REPLAY_SAMPLES 256
#define REPLAY_MIN     8 /* samples per reader */
/* With the batch stage replayed: additional slots, and the max size of the ring, since new memory
 * is slow at its first use. */
#define REPLAY_SLOTS      64
#define REPLAY_RING_BYTES (128 * MIB)

/* After a stop, a reader that hangs in a read or open() for this time is abandoned. */
#define HANG_NS 500000000ull

/* Batches offered to other jobs take at most this part of the memory, 1 to this number. */
#define SHARE_OF_MEMORY 16

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void np_loader_own_box(const struct np_loader_options *options, struct np_box *ret_box)
{
    const int nr = options->nr_sharing > 1 ? options->nr_sharing : 1;

    np_box_read(ret_box);
    const int near = options->nr_near > 0 ? options->nr_near : nr;
    ret_box->nr_cpus = (ret_box->nr_cpus + near - 1) / near;
    ret_box->memory_bytes /= (uint64_t)nr;
    ret_box->free_bytes /= (uint64_t)nr;
}

int np_loader_auto_readers(const struct np_loader_options *options)
{
    struct np_box box;

    if (options->readers > 0)
        return (int)options->readers;
    np_loader_own_box(options, &box);
    return box.nr_cpus;
}

int np_loader_auto_depth(const struct np_loader_options *options, const struct np_index *train,
    const struct np_index *eval)
{
    const struct np_index *sets[2] = {train, eval};
    uint64_t mean = 1;
    bool is_remote = false;

    if (options->depth > 0)
        return (int)options->depth;
    for (int s = 0; s < 2; s++) {
        mean = max(mean, sets[s] ? np_index_mean_extent(sets[s]) : 0);
        is_remote |= sets[s] && np_index_is_remote(sets[s]);
    }
    return (int)clamp((int64_t)(AUTO_DEPTH_BYTES / mean), 2, is_remote ? AUTO_REMOTE_DEPTH : 16);
}

static int64_t batch_bytes(const struct np_batch_shape *shape)
{
    return (int64_t)np_batch_row_room(shape) * (int64_t)shape->rows + 1;
}

int np_loader_slots(const struct np_loader_options *options, const struct np_batch_shape *shape)
{
    if (options->prefetch > 0)
        return (int)clamp(options->prefetch, 2, 1024);
    return (int)clamp((int64_t)AUTO_PREFETCH_BYTES / batch_bytes(shape), 4, 8);
}

static int nr_slots(const struct np_loader_config *config)
{
    const int64_t slots = np_loader_slots(config->options, &config->shape);
    const int64_t bytes = batch_bytes(&config->shape);

    if (!(config->options->stubs & 1u << NP_STAGE_BATCH))
        return (int)slots;
    return (int)clamp((int64_t)REPLAY_RING_BYTES / bytes, slots, slots + REPLAY_SLOTS);
}

/* So few that each reader has stored its own within the first batches. */
static int replay_samples(const struct np_loader_config *config, int nr_readers)
{
    return (int)clamp(
        clamp(REPLAY_BATCHES * (int64_t)config->shape.rows, 1, REPLAY_SAMPLES) / nr_readers,
        REPLAY_MIN, REPLAY_SAMPLES);
}

/* Opens and closes the backend once, so that an error is reported before anything starts. */
static int probe_io(struct np_loader *loader, const char *name, int depth, struct np_err *err)
{
    struct np_io io = {0};
    int code = np_io_open(&io, name, depth, err);

    if (code)
        return code;
    loader->io = io.ops->name;
    np_io_close(&io);
    return 0;
}

/* The cache on local disk. `auto`: only if the set fits, and is read more than once; it may be
 * missing. */
static int open_store(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    const int64_t bytes = config->options->disk_cache;
    const uint64_t left = config->sampler.nr_steps - config->first_step;
    struct np_store_set sets[2];
    struct np_err why = {0};
    int nr = 0, code;

    if (bytes == -2 ||
        (bytes < 0 && left * (uint64_t)config->shape.rows <= config->sampler.nr_train))
        return 0;
    for (int s = 0; s < 2; s++) {
        const struct np_index *index = loader->sets[s].index;

        if (loader->files[s] && np_index_is_remote(index) && index->cached)
            sets[nr++] = (struct np_store_set){index->paths, index->nr_files, index->cached};
    }
    code = np_remote_store_open(
        sets, nr, bytes < 0 ? 0 : (uint64_t)bytes, &loader->session->store, &why);
    if (!code)
        return 0;
    snprintf(loader->disk_note, sizeof(loader->disk_note), "loader.disk_cache: %.380s", why.text);
    return bytes < 0 && code != -ENOMEM ? 0 : np_err_set(err, code, "%s", loader->disk_note);
}

/* For sets with objects of servers. */
static int open_session(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    int nr = 0;

    for (int s = 0; s < 2; s++)
        nr += loader->files[s] ? np_files_nr_remote(loader->files[s]) : 0;
    if (nr == 0)
        return 0;
    loader->session = np_try_alloc(sizeof(*loader->session), err);
    if (!loader->session)
        return -ENOMEM;
    loader->session->limit_ns = (uint64_t)config->options->read_timeout * 1000000000;
    loader->config.remote = loader->session;
    loader->io = "http";
    return open_store(loader, config, err);
}

static int open_set(
    struct np_loader *loader, int s, const struct np_loader_options *options, struct np_err *err)
{
    struct np_set *set = &loader->sets[s];
    int code = 0;

    if (set->index->raw.kind == NP_RAW_NONE)
        code = np_entries_open(
            set->index, options->entries_bytes, !options->entries_fixed, &loader->entries[s], err);
    set->entries = loader->entries[s];
    /* Read-ahead is good for whole records, and bad around parts of large ones. */
    const bool parts = s == NP_BATCH_TRAIN && options->shuffle == NP_SHUFFLE_FULL && set->entries &&
                       np_index_mean_extent(set->index) >= READ_AHEAD_BYTES;
    if (!code)
        code = np_files_open(set->index, parts, &loader->files[s], err);
    set->files = loader->files[s];
    if (!code && set->index->root) {
        set->changed = loader->changed[s] = np_changed_new(np_index_samples(set->index), err);
        code = set->changed ? 0 : -ENOMEM;
    }
    return code;
}

static int open_sets(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    struct np_set *sets = loader->sets;
    int code = 0;

    sets[NP_BATCH_TRAIN] = (struct np_set){
        .index = config->train, .labels = config->train_labels, .chain = config->augment};
    sets[NP_BATCH_EVAL] = (struct np_set){
        .index = config->eval, .labels = config->eval_labels, .chain = config->test_augment};
    for (int s = 0; !code && s < 2; s++) {
        struct np_set *set = &sets[s];

        if (s == NP_BATCH_EVAL && set->index == sets[0].index) { /* two parts of one set */
            set->files = sets[0].files;
            set->changed = sets[0].changed;
            set->entries = sets[0].entries;
        } else if (set->index) {
            code = open_set(loader, s, config->options, err);
        }
    }
    return code;
}

/* Fewer than NP_READER_AHEAD if the ring has few rows: a reader must not hold tickets on which
 * other readers could work. */
static int nr_ahead(const struct np_loader_config *config)
{
    const int64_t rows = (int64_t)nr_slots(config) * config->shape.rows;
    const int64_t share = rows / (8 * np_loader_auto_readers(config->options));

    return share < 1 ? 1 : share < NP_READER_AHEAD ? (int)share : NP_READER_AHEAD;
}

/* If the set is larger than the free memory, reads a part of it past the page cache. */
static void share_page_cache(struct np_loader *loader, const struct np_loader_options *options)
{
    uint64_t kept = (uint64_t)options->page_cache, bytes = 0;
    struct np_box box;

    for (int s = 0; s < 2; s++) {
        const struct np_index *index = loader->sets[s].index;

        if (loader->files[s])
            bytes += index->root ? np_index_samples(index) * np_index_mean_extent(index)
                                 : np_files_bytes(loader->files[s]);
    }
    np_box_read(&box);
    if (options->page_cache < 0)
        kept = loader->config.row.cache || bytes <= box.free_bytes ? bytes : box.free_bytes / 5 * 4;
    for (int s = 0; s < 2 && kept < bytes; s++)
        if (loader->files[s])
            np_files_share(loader->files[s], loader->sets[s].index, (double)kept / (double)bytes);
}

static int new_sampler(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    struct np_sampler_options order = config->sampler;

    if (order.balance) {
        const uint32_t *samples = order.split ? order.split + order.nr_eval : NULL;
        int code = np_balance_new(config->train, samples, order.nr_train, &loader->balance, err);

        if (code)
            return code;
        order.classes = loader->balance;
    }
    return np_sampler_new(&order, &loader->config.sampler, err);
}

static int open_shared(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    struct np_reader_config *shared = &loader->config;
    const uint64_t nr_train = config->sampler.nr_train;
    const struct np_bad_options bad = {
        .fail = config->options->bad_fail,
        .budget = config->options->bad_budget,
        .nr_train = nr_train,
        .nr_eval = config->sampler.nr_eval,
        .epoch =
            nr_train ? (uint32_t)(config->first_step * (uint64_t)config->shape.rows / nr_train) : 0,
        .nr_bad = config->nr_bad,
    };
    int code;

    assert(config->sampler.batch == config->shape.rows);
    shared->row = (struct np_row_options){
        .sets = loader->sets,
        .shape = config->shape,
        .seed = config->sampler.seed,
        .rule = (enum np_pixels_rule)config->options->pixels,
        .max_pixels = (uint64_t)config->options->max_pixels,
        .entered = &loader->entered,
        .formatter = config->formatter,
    };
    shared->stat = config->stat;
    /* Each reader resolves auto: the kernel may refuse a later reader's ring. */
    shared->io = config->options->io ? config->options->io : "auto";
    shared->depth = loader->depth =
        np_loader_auto_depth(config->options, config->train, config->eval);
    shared->ahead = nr_ahead(config);
    shared->stubs = config->options->stubs;
    shared->replay_samples = replay_samples(config, np_loader_auto_readers(config->options));
    code = probe_io(loader, shared->io, shared->depth, err);
    if (!code)
        code = new_sampler(loader, config, err);
    if (!code)
        code = np_ring_new(&config->shape, nr_slots(config), config->allocator, &shared->ring, err);
    if (!code)
        code = np_bad_new(&bad, &shared->bad, err);
    if (!code)
        code = open_sets(loader, config, err);
    if (!code)
        code = open_session(loader, config, err);
    if (!code)
        code = np_loader_open_cache(loader, config, err);
    if (!code)
        share_page_cache(loader, config->options);
    return code;
}

static int start_exchange(
    struct np_loader *loader, const struct np_loader_config *config, struct np_err *err)
{
    const struct np_loader_options *options = config->options;
    struct np_reader_config *shared = &loader->config;
    struct np_exchange_options exchange = {
        .sampler = shared->sampler,
        .ring = shared->ring,
        .bad = shared->bad,
        .shape = config->shape,
        .hash = config->share_key,
        .wait_ns = (uint64_t)options->share_wait_ms * 1000000,
    };
    struct np_err why = {0};
    struct np_box box;

    if (config->share_key == 0 || !options->share || options->stubs || config->sampler.dealt ||
        loader->resident)
        return 0;
    np_loader_own_box(options, &box);
    exchange.memory_bytes = (uint64_t)options->share_bytes < box.memory_bytes / SHARE_OF_MEMORY
                                ? (uint64_t)options->share_bytes
                                : box.memory_bytes / SHARE_OF_MEMORY;
    return np_loader_settle_sharing(
        config, np_exchange_new(&exchange, &shared->exchange, &why), &why, err);
}

struct np_exchanged np_loader_exchanged(const struct np_loader *loader)
{
    struct np_exchanged exchanged = {0};

    if (loader->config.exchange)
        np_exchange_read(loader->config.exchange, &exchanged);
    return exchanged;
}

static int start_readers(struct np_loader *loader, int nr_readers, struct np_err *err)
{
    int code = 0;

    np_files_allow(nr_readers * (loader->config.depth + 1));
    loader->readers = np_try_array((size_t)nr_readers, sizeof(*loader->readers), err);
    if (!loader->readers)
        return -ENOMEM;
    while (!code && loader->nr_readers < nr_readers) {
        code = np_reader_start(
            &loader->config, loader->nr_readers, &loader->readers[loader->nr_readers], err);
        loader->nr_readers += !code;
    }
    return code;
}

int np_loader_start(
    const struct np_loader_config *config, struct np_loader **ret_loader, struct np_err *err)
{
    struct np_loader *loader = np_try_alloc(sizeof(*loader), err);
    int code;

    if (!loader)
        return -ENOMEM;
    code = open_shared(loader, config, err);
    loader->ring = loader->config.ring;
    loader->sampler = loader->config.sampler;
    if (!code) {
        np_sampler_start(loader->config.sampler, config->first_step, config->eval_due);
        if (config->sampler.dealt)
            np_ring_gate(loader->config.ring);
        np_ring_start(loader->config.ring, loader->config.sampler->first_seq);
        np_ring_judge(loader->config.ring, np_bad_judge, loader->config.bad);
        code = start_exchange(loader, config, err);
    }
    if (!code) {
        code = start_readers(loader, np_loader_auto_readers(config->options), err);
    }
    if (code) {
        np_loader_stop(loader);
        return code;
    }
    *ret_loader = loader;
    return 0;
}

uint64_t np_loader_changed(
    struct np_loader *loader, enum np_batch_kind kind, char *first, size_t first_bytes)
{
    return loader->changed[kind] ? np_changed_read(loader->changed[kind], first, first_bytes) : 0;
}

struct np_entered np_loader_entered(const struct np_loader *loader)
{
    return (struct np_entered){__atomic_load_n(&loader->entered.entered, __ATOMIC_RELAXED),
        __atomic_load_n(&loader->entered.missed, __ATOMIC_RELAXED)};
}

bool np_loader_remote(const struct np_loader *loader, struct np_loader_remote *ret_numbers)
{
    if (!loader->session)
        return false;
    memset(ret_numbers, 0, sizeof(*ret_numbers));
    np_remote()->numbers(&ret_numbers->remote);
    if (loader->session->store)
        np_remote_store_numbers(loader->session->store, &ret_numbers->disk);
    return true;
}

const char *np_loader_flush(struct np_loader *loader)
{
    const char *note = "";

    for (int s = 0; s < 2; s++) {
        struct np_err err = {0};

        if (np_entries_flush(loader->entries[s], &err) < 0)
            return "the entries of pictures were not written: out of memory";
        note = *note ? note : np_entries_note(loader->entries[s]);
    }
    if (!*note && loader->session && loader->session->store)
        note = np_remote_store_note(loader->session->store);
    return note;
}

uint64_t np_loader_nr_bad(const struct np_loader *loader)
{
    return np_bad_judged(loader->config.bad);
}

bool np_loader_next_bad(struct np_loader *loader, struct np_bad_sample *ret_bad)
{
    return np_bad_next(loader->config.bad, ret_bad);
}

void np_loader_stop(struct np_loader *loader)
{
    const uint64_t until_ns = np_now_ns() + HANG_NS;
    bool all_ended = true;

    if (!loader)
        return;
    if (loader->config.ring)
        np_ring_stop(loader->config.ring, NULL);
    if (loader->session)
        __atomic_store_n(&loader->session->stopped, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < loader->nr_readers; i++)
        all_ended &= np_reader_join(loader->readers[i], until_ns);
    np_free(loader->readers);
    np_exchange_free(loader->config.exchange);
    np_cache_free(loader->config.row.cache);
    if (all_ended) { /* an abandoned reader may still use them */
        np_entries_close(loader->entries[1]);
        np_entries_close(loader->entries[0]);
        np_files_close(loader->files[1]);
        np_files_close(loader->files[0]);
        if (loader->session)
            np_remote_store_close(loader->session->store);
        np_free(loader->session);
    }
    np_changed_free(loader->changed[1]);
    np_changed_free(loader->changed[0]);
    np_bad_free(loader->config.bad);
    np_ring_free(loader->config.ring);
    np_sampler_free(loader->config.sampler);
    np_balance_free(loader->balance);
    np_free(loader);
}
