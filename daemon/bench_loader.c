/* `nnpipe bench loader`: the training loader with nobody to wait for. The clock runs from the
 * first reader's start to the last batch. The digest is XXH3-64 of the rows of the first
 * `digest_batches` batches, in order: all of them with --epochs or --steps; with --seconds the
 * first DIGEST_BATCHES (fewer in an epoch: those), which are always run. So equal settings
 * digest the same rows however fast the box is. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/bench.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define DIGEST_BATCHES 64

struct measured {
    uint64_t nr_batches, digest_batches, nr_bad;
    double seconds, cpu_seconds;
    XXH3_state_t hash;
};

static uint64_t digest_batches(const struct np_bench *bench, uint64_t nr_steps)
{
    const uint64_t batch = (uint64_t)bench->config->loader.batch;
    const uint64_t epoch = (np_index_samples(bench->setup.train) + batch - 1) / batch;

    if (nr_steps != UINT32_MAX)
        return nr_steps;
    return epoch < DIGEST_BATCHES ? epoch : DIGEST_BATCHES;
}

/* Takes batches until the run, or (once the digest is whole) the time is over. */
static int drain(const struct np_bench *bench, struct np_loader *loader, uint64_t nr_steps,
    uint64_t start_ns, struct measured *measured, struct np_err *err)
{
    struct np_block *block = np_stat_join(bench->stat, "bench");
    const uint64_t end_ns = start_ns + (uint64_t)(bench->seconds * 1e9);
    const size_t bytes = (size_t)bench->config->loader.batch * (size_t)bench->setup.height *
                         (size_t)bench->setup.width * (size_t)bench->config->loader.channels;

    if (!block)
        return np_err_set(err, -ENOMEM, "out of memory for counters");
    while (measured->nr_batches < nr_steps) {
        struct np_batch *batch = np_ring_take(np_loader_ring(loader), block, err);

        if (!batch)
            return err->code ? err->code : -ESHUTDOWN;
        if (measured->nr_batches++ < measured->digest_batches)
            XXH3_64bits_update(&measured->hash, batch->images, bytes);
        np_ring_release(np_loader_ring(loader), batch);
        if (bench->seconds > 0 && measured->nr_batches >= measured->digest_batches &&
            np_now_ns() >= end_ns)
            break;
    }
    return 0;
}

static int measure(const struct np_bench *bench, struct np_loader **ret_loader,
    struct measured *measured, struct np_err *err)
{
    const uint64_t nr_steps = np_bench_steps(bench, 1);
    const double cpu_before = np_cpu_seconds();
    const uint64_t start_ns = np_now_ns();
    struct np_loader_config config;
    int code;

    np_bench_loader_config(bench, nr_steps, &np_page_allocator, &config);
    measured->digest_batches = digest_batches(bench, nr_steps);
    XXH3_64bits_reset(&measured->hash);
    code = np_loader_start(&config, ret_loader, err);
    if (code == 0)
        code = drain(bench, *ret_loader, nr_steps, start_ns, measured, err);
    measured->seconds = (double)(np_now_ns() - start_ns) * 1e-9;
    measured->cpu_seconds = np_cpu_seconds() - cpu_before;
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

/* Microseconds of a stage an image, over all readers. */
static double stage_us(const struct np_stat_sum *sum, enum np_stage stage)
{
    return sum->stages[stage].items
               ? (double)sum->stages[stage].work_ns / 1e3 / (double)sum->stages[stage].items
               : 0;
}

static void report_json(struct np_bench *bench, const struct np_loader *loader,
    const struct measured *measured, const struct np_stat_sum *sum, const char *digest)
{
    struct np_json *json = &bench->ui.object;
    const double images = (double)measured->nr_batches * (double)bench->config->loader.batch;

    np_json_begin(json, "done");
    np_json_int(json, "images", (int64_t)images);
    np_json_real(json, "seconds", measured->seconds);
    np_json_real(json, "images_per_second", images / measured->seconds);
    np_json_real(
        json, "bytes_per_second", (double)sum->stages[NP_STAGE_READ].bytes / measured->seconds);
    np_json_real(json, "cpu_seconds", measured->cpu_seconds);
    np_json_int(json, "readers", np_loader_readers(loader));
    np_json_text(json, "io", np_loader_io(loader));
    np_json_int(json, "depth", np_loader_depth(loader));
    np_json_text(json, "cache", np_loader_cache(loader));
    np_json_text(json, "digest", digest);
    np_json_int(json, "digest_batches", (int64_t)measured->digest_batches);
    np_json_int(json, "bad_samples", (int64_t)measured->nr_bad);
    np_json_int(json, "peak_rss_bytes", (int64_t)np_peak_rss_bytes());
    for (int stage = NP_STAGE_READ; stage <= NP_STAGE_BATCH; stage++) {
        char key[32];

        snprintf(key, sizeof(key), "%s_us", np_stage_names[stage]);
        np_json_real(json, key, stage_us(sum, (enum np_stage)stage));
    }
    np_ui_event(&bench->ui, np_json_end(json));
}

static void report_text(struct np_bench *bench, const struct np_loader *loader,
    const struct measured *measured, const struct np_stat_sum *sum, const char *digest)
{
    const double images = (double)measured->nr_batches * (double)bench->config->loader.batch;

    np_ui_say(&bench->ui,
        "%.0f images in %.2f s: %.0f img/s, %.1f MB/s read, %.2f CPU seconds, %d readers, %s, "
        "depth %d, cache %s",
        images, measured->seconds, images / measured->seconds,
        (double)sum->stages[NP_STAGE_READ].bytes / measured->seconds / 1e6, measured->cpu_seconds,
        np_loader_readers(loader), np_loader_io(loader), np_loader_depth(loader),
        np_loader_cache(loader));
    for (int stage = NP_STAGE_READ; stage <= NP_STAGE_BATCH; stage++)
        if (sum->stages[stage].items)
            np_ui_say(&bench->ui, "  %-10s %9.2f us an item, %" PRIu64 " items",
                np_stage_names[stage], stage_us(sum, (enum np_stage)stage),
                sum->stages[stage].items);
    np_ui_say(&bench->ui, "  readers waited %.2f s for files, %.2f s for a free slot",
        (double)sum->state_ns[NP_STATE_IO_WAIT] * 1e-9,
        (double)sum->state_ns[NP_STATE_BLOCKED] * 1e-9);
    np_ui_say(&bench->ui, "digest %s of the first %" PRIu64 " batches, peak memory %" PRIu64 " MiB",
        digest, measured->digest_batches, np_peak_rss_bytes() >> 20);
    if (measured->nr_bad)
        np_ui_say(&bench->ui, "%" PRIu64 " bad samples", measured->nr_bad);
}

int np_bench_loader(int argc, char **argv)
{
    struct np_bench bench = {0};
    const struct np_flag flags[] = {
        {"--seconds", &bench.seconds_text, NULL, NULL},
        {"--epochs", &bench.epochs_text, NULL, NULL},
        {"--steps", &bench.steps_text, NULL, NULL},
        {"--json", NULL, &bench.json, NULL},
        {"--help", NULL, &bench.help, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct measured measured = {0};
    struct np_loader *loader = NULL;
    struct np_stat_sum sum;
    struct np_err err = {0};
    char digest[20];
    int code = np_bench_open(argc, argv, flags, &bench);

    if (code >= 0)
        return code;
    code = measure(&bench, &loader, &measured, &err);
    if (loader)
        count_bad(&bench, loader, &measured);
    if (code == 0) {
        np_stat_read(bench.stat, "reader", &sum);
        snprintf(digest, sizeof(digest), "%016" PRIx64, XXH3_64bits_digest(&measured.hash));
        if (bench.json)
            report_json(&bench, loader, &measured, &sum, digest);
        else
            report_text(&bench, loader, &measured, &sum, digest);
    } else {
        np_complain(&err);
    }
    np_loader_stop(loader);
    np_bench_close(&bench);
    return code ? NP_EXIT_FAILED : NP_EXIT_DONE;
}
