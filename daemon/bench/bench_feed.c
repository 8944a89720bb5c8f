/* `nnpipe bench feed`: measures loader, ring and the copies to a device. A sim device also
 * simulates the step, so the stall shows whether this machine can keep a device of that speed busy;
 * any other device releases a batch as soon as it has been copied. Main thread. */
#include <string.h>

#include "daemon/bench/bench.h"
#include "loader/base/clock.h"
#include "trainer/feed.h"
#include "trainer/plan.h"

#define WARMUP_STEPS 3 /* the first batches always wait for the readers */

struct feed_bench {
    struct np_device *device;
    struct np_plan *plan; /* of a sim device; else NULL */
    struct np_loader *loader;
    struct np_feed *feed;
    struct np_block *block;
    uint64_t max_steps, nr_steps, stall_ns;
    double seconds, busy; /* busy: share of the time in which the device had a step to do */
};

/* A plan for the sim device, which needs only the batch size. */
static int open_plan(struct np_bench *bench, struct feed_bench *feed, struct np_err *err)
{
    const struct np_graph graph = {.batch = (int)bench->config->loader.batch, .classes = 1};
    const struct np_plan_options options = {.threads = 1};

    if (strcmp(feed->device->ops->name, "sim") != 0)
        return 0;
    return feed->device->plan_ops->prepare(feed->device, &graph, NULL, &options, &feed->plan, err);
}

static int open_feed(struct np_bench *bench, struct feed_bench *feed, struct np_err *err)
{
    const struct np_config *config = bench->config;
    const bool is_sim = config->device && strcmp(config->device, "sim") == 0;
    int code;

    code = np_device_open(bench->device || is_sim ? config->device : "sim", &config->device_options,
        &feed->device, err);
    if (code)
        return code;
    const struct np_loader_config loader = np_bench_loader_config(bench, &feed->device->pinned);
    feed->max_steps = loader.sampler.nr_steps;
    code = open_plan(bench, feed, err);
    feed->block = np_stat_join(bench->stat, "trainer", NULL); /* NULL: nothing is counted */
    if (!code)
        code = np_loader_start(&loader, &feed->loader, err);
    if (!code)
        code = np_feed_new(
            feed->device, feed->loader->ring, &loader.shape, feed->block, &feed->feed, err);
    return code;
}

static int step(struct feed_bench *feed, uint64_t i, struct np_err *err)
{
    struct np_input input;
    int code = np_feed_next(feed->feed, &input, err);

    if (code)
        return code;
    if (feed->plan)
        code =
            feed->device->plan_ops->step(feed->plan, input.images, input.labels, i, 1, false, err);
    np_feed_release(feed->feed, &input);
    return code;
}

static int run(const struct np_bench *bench, struct feed_bench *feed, struct np_err *err)
{
    uint64_t start_ns = np_now_ns(), start_stall_ns = 0, end_ns = UINT64_MAX;
    struct np_feed_times start = {0}, end = {0};
    int code = 0;

    for (uint64_t i = 0; !code && i < feed->max_steps && np_now_ns() < end_ns; i++) {
        code = step(feed, i, err);
        feed->nr_steps++;
        if (i + 1 == WARMUP_STEPS) {
            start_ns = np_now_ns();
            start_stall_ns = np_feed_account(feed->feed)->stall_ns;
            start = np_feed_account(feed->feed)->times;
            feed->nr_steps = 0;
            if (bench->seconds > 0)
                end_ns = start_ns + (uint64_t)(bench->seconds * 1e9);
        }
    }
    feed->seconds = (double)(np_now_ns() - start_ns) * 1e-9;
    feed->stall_ns = np_feed_account(feed->feed)->stall_ns - start_stall_ns;
    end = np_feed_account(feed->feed)->times;
    if (end.compute_ns > start.compute_ns) {
        double busy = (double)(end.compute_ns - start.compute_ns);
        feed->busy = busy / (busy + (double)(end.idle_ns - start.idle_ns));
    }
    return code;
}

static void report(struct np_bench *bench, const struct feed_bench *feed)
{
    struct np_json *json = &bench->ui.object;
    const double images = (double)feed->nr_steps * (double)bench->config->loader.batch;
    const double stall = (double)feed->stall_ns * 1e-9 / feed->seconds;
    struct np_stat_sum sum;
    double gbps;

    np_stat_read(bench->stat, "trainer", &sum);
    gbps = sum.stages[NP_STAGE_COPY].work_ns
               ? (double)sum.stages[NP_STAGE_COPY].bytes / (double)sum.stages[NP_STAGE_COPY].work_ns
               : 0;
    np_json_begin(json, "done");
    np_json_int(json, "steps", (int64_t)feed->nr_steps);
    np_json_real(json, "seconds", feed->seconds);
    np_json_real(json, "images_per_second", images / feed->seconds);
    np_json_real(json, "stall_ratio", stall);
    np_json_real(json, "h2d_gigabytes_per_second", gbps);
    if (feed->plan)
        np_json_real(json, "device_busy", feed->busy);
    np_json_text(json, "device", feed->device->name);
    np_json_int(json, "readers", feed->loader->nr_readers);
    np_json_text(json, "io", feed->loader->io);
    np_ui_event(&bench->ui, np_json_end(json));
    if (!bench->json)
        np_ui_say(&bench->ui,
            "%.0f images in %.2f s to %s: %.0f img/s, %.2f %% of the time stalled, copies at %.1f "
            "GB/s; %d readers, %s",
            images, feed->seconds, feed->device->name, images / feed->seconds, stall * 100, gbps,
            feed->loader->nr_readers, feed->loader->io);
}

static void close_feed(struct feed_bench *feed)
{
    np_feed_free(feed->feed);
    np_loader_stop(feed->loader);
    if (feed->plan)
        feed->device->plan_ops->free(feed->plan);
    np_device_close(feed->device);
}

int np_bench_feed(struct np_bench *bench, struct np_err *err)
{
    struct feed_bench feed = {0};
    int code = open_feed(bench, &feed, err);

    if (code == 0)
        code = run(bench, &feed, err);
    if (code == 0)
        report(bench, &feed);
    close_feed(&feed);
    return code;
}
