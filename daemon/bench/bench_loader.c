/* `nnpipe bench loader`: measures the training loader with a consumer that releases each batch at
 * once. With --epochs or --steps it measures exactly those, from the start of the first reader to
 * the last batch. Otherwise it runs for a time, and the clock starts when each slot of the ring has
 * been used, because the first use of memory costs page faults. The digest is XXH3-64 of the rows
 * of the first `digest_batches` batches, in order: all batches with --epochs or --steps; else the
 * first DIGEST_BATCHES (at most an epoch), which are always run. So equal settings digest the same
 * rows on any machine. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/bench/bench.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define DIGEST_BATCHES 64

struct measured {
    uint64_t nr_taken; /* batches, warm-up included */
    uint64_t digest_batches, nr_bad;
    uint64_t start_ns, start_bytes; /* when the clock started; ns 0: not yet */
    double start_cpu_seconds;
    /* Since the start of the clock: */
    uint64_t nr_batches;
    double images, epochs, seconds, cpu_seconds, bytes_read;
    XXH3_state_t hash;
};

static uint64_t digest_batches(const struct np_bench *bench, uint64_t nr_steps)
{
    const uint64_t batch = (uint64_t)bench->config->loader.batch;
    const uint64_t epoch = (np_index_samples(bench->setup.sets.train) + batch - 1) / batch;

    if (nr_steps != NP_BENCH_ENDLESS)
        return nr_steps;
    return epoch < DIGEST_BATCHES ? epoch : DIGEST_BATCHES;
}

static bool is_timed(const struct np_bench *bench)
{
    return bench->steps == 0 && bench->epochs == 0;
}

static void start_clock(const struct np_bench *bench, struct measured *measured)
{
    struct np_stat_sum sum;

    np_stat_read(bench->stat, "reader", &sum);
    measured->start_ns = np_now_ns();
    measured->start_bytes = sum.stages[NP_STAGE_READ].bytes;
    measured->start_cpu_seconds = np_cpu_seconds();
}

static void stop_clock(const struct np_bench *bench, struct measured *measured)
{
    struct np_stat_sum sum;

    np_stat_read(bench->stat, "reader", &sum);
    measured->seconds = (double)(np_now_ns() - measured->start_ns) * 1e-9;
    measured->cpu_seconds = np_cpu_seconds() - measured->start_cpu_seconds;
    measured->bytes_read = (double)(sum.stages[NP_STAGE_READ].bytes - measured->start_bytes);
    measured->images = (double)measured->nr_batches * (double)bench->config->loader.batch;
    measured->epochs = measured->images / (double)np_index_samples(bench->setup.sets.train);
}

static bool is_over(const struct np_bench *bench, const struct measured *measured)
{
    return is_timed(bench) && measured->start_ns &&
           measured->nr_taken >= measured->digest_batches &&
           np_now_ns() >= measured->start_ns + (uint64_t)(bench->seconds * 1e9);
}

/* Takes batches until the run ends, or until the time is over and the digest is complete. */
static int drain(const struct np_bench *bench, struct np_loader *loader, uint64_t nr_steps,
    struct measured *measured, struct np_err *err)
{
    struct np_ring *ring = loader->ring;
    const uint64_t warm_up = (uint64_t)np_ring_slots(ring);
    struct np_block *block = np_stat_join(bench->stat, "bench", err);
    const size_t bytes =
        (size_t)bench->config->loader.batch * (size_t)bench->setup.sets.size.height *
        (size_t)bench->setup.sets.size.width * (size_t)bench->config->loader.channels;

    if (!block)
        return -ENOMEM;
    while (measured->nr_taken < nr_steps && !is_over(bench, measured)) {
        struct np_batch *batch = np_ring_take(ring, block, err);

        if (!batch)
            return err->code ? err->code : -ESHUTDOWN;
        if (measured->nr_taken++ < measured->digest_batches)
            XXH3_64bits_update(&measured->hash, batch->images, bytes);
        np_ring_release(ring, batch);
        if (measured->start_ns)
            measured->nr_batches++;
        else if (measured->nr_taken >= warm_up)
            start_clock(bench, measured);
    }
    return 0;
}

static int measure(const struct np_bench *bench, struct np_loader **ret_loader,
    struct measured *measured, struct np_err *err)
{
    const struct np_loader_config config = np_bench_loader_config(bench, &np_page_allocator);
    const uint64_t nr_steps = config.sampler.nr_steps;
    int code;

    measured->digest_batches = digest_batches(bench, nr_steps);
    XXH3_64bits_reset(&measured->hash);
    if (!is_timed(bench))
        start_clock(bench, measured);
    code = np_loader_start(&config, ret_loader, err);
    if (code == 0)
        code = drain(bench, *ret_loader, nr_steps, measured, err);
    if (code == 0)
        stop_clock(bench, measured);
    return code;
}

static void count_bad(struct np_bench *bench, struct np_loader *loader, struct measured *measured)
{
    struct np_bad_sample bad;

    while (np_loader_next_bad(loader, &bad)) {
        if (measured->nr_bad++ < 10)
            np_ui_say(&bench->ui, "bad sample: %s at offset %" PRIu64 ": %s", bad.path, bad.offset,
                bad.reason);
    }
}

/* Microseconds per item by stage, over all readers. */
static double stage_us(const struct np_stat_sum *sum, enum np_stage stage)
{
    return sum->stages[stage].items
               ? (double)sum->stages[stage].work_ns / 1e3 / (double)sum->stages[stage].items
               : 0;
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static void put_remote(struct np_json *json, const struct np_loader *loader)
{
    struct np_loader_remote numbers;

    if (!np_loader_remote(loader, &numbers))
        return;
    np_json_int(json, "requests", (int64_t)numbers.remote.nr_requests);
    np_json_int(json, "retries", (int64_t)numbers.remote.nr_retries);
    np_json_int(json, "second_requests", (int64_t)numbers.remote.nr_hedges);
    np_json_int(json, "received_bytes", (int64_t)numbers.remote.bytes);
    np_json_int(json, "disk_hits", (int64_t)numbers.disk.nr_hits);
    np_json_int(json, "disk_bytes", (int64_t)numbers.disk.hit_bytes);
}

static void say_remote(struct np_bench *bench, const struct np_loader *loader)
{
    struct np_loader_remote numbers;

    if (!np_loader_remote(loader, &numbers))
        return;
    np_ui_say(&bench->ui,
        "  servers: %" PRIu64 " requests, of these %" PRIu64 " retries and %" PRIu64
        " second ones; %.1f MB received, %.1f MB read from disk_cache%s%s",
        numbers.remote.nr_requests, numbers.remote.nr_retries, numbers.remote.nr_hedges,
        (double)numbers.remote.bytes / 1e6, (double)numbers.disk.hit_bytes / 1e6,
        *loader->disk_note ? "; " : "", loader->disk_note);
}

static void report_json(struct np_bench *bench, const struct np_loader *loader,
    const struct measured *measured, const struct np_stat_sum *sum, const char *digest)
{
    struct np_json *json = &bench->ui.object;

    np_json_begin(json, "done");
    np_json_int(json, "images", (int64_t)measured->images);
    np_json_real(json, "epochs", measured->epochs);
    np_json_int(json, "warm_up_batches", (int64_t)(measured->nr_taken - measured->nr_batches));
    np_json_real(json, "seconds", measured->seconds);
    np_json_real(json, "images_per_second", measured->images / measured->seconds);
    np_json_real(json, "bytes_per_second", measured->bytes_read / measured->seconds);
    np_json_real(json, "cpu_seconds", measured->cpu_seconds);
    np_json_int(json, "readers", loader->nr_readers);
    np_json_text(json, "io", loader->io);
    np_json_int(json, "depth", loader->depth);
    np_json_text(json, "cache", loader->cache);
    np_json_text(json, "digest", digest);
    np_json_int(json, "digest_batches", (int64_t)measured->digest_batches);
    np_json_int(json, "bad_samples", (int64_t)measured->nr_bad);
    np_json_int(json, "peak_rss_bytes", (int64_t)peak_rss_bytes());
    for (int stage = NP_STAGE_READ; stage <= NP_STAGE_BATCH; stage++) {
        char key[32];

        snprintf(key, sizeof(key), "%s_us", np_stage_names[stage]);
        np_json_real(json, key, stage_us(sum, (enum np_stage)stage));
    }
    np_json_int(json, "entered", (int64_t)np_loader_entered(loader).entered);
    np_json_int(json, "missed_entries", (int64_t)np_loader_entered(loader).missed);
    put_remote(json, loader);
    np_ui_event(&bench->ui, np_json_end(json));
}

static void report_text(struct np_bench *bench, const struct np_loader *loader,
    const struct measured *measured, const struct np_stat_sum *sum, const char *digest)
{
    const struct np_entered entered = np_loader_entered(loader);

    np_ui_say(&bench->ui,
        "%.0f images (%.3g epochs) in %.2f s: %.0f img/s, %.1f MB/s read, %.2f CPU seconds, "
        "%d readers, %s, depth %d, cache %s",
        measured->images, measured->epochs, measured->seconds, measured->images / measured->seconds,
        measured->bytes_read / measured->seconds / 1e6, measured->cpu_seconds, loader->nr_readers,
        loader->io, loader->depth, loader->cache);
    say_remote(bench, loader);
    for (int stage = NP_STAGE_READ; stage <= NP_STAGE_BATCH; stage++)
        if (sum->stages[stage].items)
            np_ui_say(&bench->ui, "  %-10s %9.2f us per item, %" PRIu64 " items",
                np_stage_names[stage], stage_us(sum, (enum np_stage)stage),
                sum->stages[stage].items);
    if (entered.entered + entered.missed)
        np_ui_say(&bench->ui, "  %.0f %% of the JPEGs were decoded from an entry%s",
            100.0 * (double)entered.entered / (double)(entered.entered + entered.missed),
            entered.entered ? "" : "; `nnpipe data index --entries` finds them");
    np_ui_say(&bench->ui, "  readers waited %.2f s for files, %.2f s for a free slot",
        (double)sum->state_ns[NP_STATE_IO_WAIT] * 1e-9,
        (double)sum->state_ns[NP_STATE_BLOCKED] * 1e-9);
    np_ui_say(&bench->ui, "digest %s of the first %" PRIu64 " batches, peak memory %" PRIu64 " MiB",
        digest, measured->digest_batches, peak_rss_bytes() >> 20);
    if (measured->nr_bad)
        np_ui_say(&bench->ui, "%" PRIu64 " bad samples", measured->nr_bad);
}

int np_bench_loader(struct np_bench *bench, struct np_err *err)
{
    struct measured measured = {0};
    struct np_loader *loader = NULL;
    struct np_stat_sum sum;
    char digest[20];
    const int code = measure(bench, &loader, &measured, err);

    if (loader)
        count_bad(bench, loader, &measured);
    if (code == 0) {
        np_stat_read(bench->stat, "reader", &sum);
        snprintf(digest, sizeof(digest), "%016" PRIx64, XXH3_64bits_digest(&measured.hash));
        (bench->json ? report_json : report_text)(bench, loader, &measured, &sum, digest);
    }
    np_loader_stop(loader);
    return code;
}
