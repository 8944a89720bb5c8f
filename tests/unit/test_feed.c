/* The feed on the sim device and on a device that reads the host's memory: order and bytes, copies
 * beside steps, stopping, a loader and a device that fail. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "loader/base/clock.h"
#include "tests/test.h"
#include "tests/unit/made_feed.h"

#define MS 1000000u

Test(feed, sim_gets_every_batch_in_order_with_its_own_bytes, .timeout = 120)
{
    struct np_device_options options = {.h2d_gbps = 0.002, .step_ms = 0.3};
    struct made_feed *bench = made_feed_new(3, &options);
    struct np_err err = {0};
    uint64_t nr_right = 0;

    made_feed_start(bench, 200, 0);
    for (uint64_t seq = 0; seq < 200; seq++) {
        struct np_input input;
        if (np_feed_next(bench->feed, &input, &err) < 0)
            break;
        made_feed_step(bench, &input);
        made_feed_drain(bench); /* the step follows the copy, so the bytes are there */
        nr_right += made_feed_holds(&input, seq);
        np_feed_release(bench->feed, &input);
    }
    cr_assert_eq(nr_right, 200);
    made_feed_free(bench);
}

Test(feed, a_device_that_reads_the_host_gets_the_slot_itself, .timeout = 120)
{
    struct made_feed *bench = made_feed_new(2, NULL);
    uint64_t nr_right = 0;

    made_feed_start(bench, 100, 0);
    for (uint64_t seq = 0; seq < 100; seq++) {
        struct np_input input;
        np_feed_next(bench->feed, &input, NULL);
        nr_right += made_feed_holds(&input, seq) && input.images == input.about.images;
        np_feed_release(bench->feed, &input);
    }
    cr_assert_eq(nr_right, 100);
    made_feed_free(bench);
}

Test(feed, a_batchs_facts_stay_while_the_slot_is_refilled, .timeout = 120)
{
    struct np_device_options options = {.h2d_gbps = 10, .step_ms = 1};
    struct made_feed *bench = made_feed_new(2, &options);
    struct np_input first, second;

    made_feed_start(bench, 8, 0);
    np_feed_next(bench->feed, &first, NULL);
    made_feed_step(bench, &first);
    made_feed_drain(bench);
    np_feed_next(bench->feed, &second, NULL); /* its slots go back and are written again */
    made_feed_step(bench, &second);
    made_feed_drain(bench);
    np_sleep_until_ns(np_now_ns() + 20 * MS);
    cr_assert(made_feed_holds(&first, 0));
    cr_assert(made_feed_holds(&second, 1));
    cr_assert_null(first.about.images);
    np_feed_release(bench->feed, &first);
    np_feed_release(bench->feed, &second);
    made_feed_free(bench);
}

/* The device's idle time in 40 steps, to its busy time. */
static double idle_to_busy(void)
{
    /* A copy takes 4 ms, a step 5: one after the other would be 9 each. */
    struct np_device_options options = {
        .h2d_gbps = MADE_FEED_ROWS * (MADE_FEED_ROW_BYTES + 4) / 4e6, .step_ms = 5};
    struct made_feed *bench = made_feed_new(4, &options);
    struct np_sim_times times;

    made_feed_start(bench, 40, 0);
    made_feed_run(bench, 40);
    made_feed_drain(bench);
    np_sim_read(bench->device, &times);
    cr_assert_eq(times.nr_steps, 40);
    cr_assert_eq(times.copy_bytes, 40u * MADE_FEED_ROWS * (MADE_FEED_ROW_BYTES + 4));
    made_feed_free(bench);
    return (double)times.idle_ns / (double)times.busy_ns;
}

/* On a busy machine a thread may wake late: the best of some tries counts. */
Test(feed, the_next_copy_runs_beside_the_step, .timeout = 120)
{
    bool overlaps = false;

    for (int i = 0; i < 30 && !overlaps; i++)
        overlaps = idle_to_busy() < 0.3; /* not overlapped: 0.8 */
    cr_assert(overlaps);
}

static void *stop_later(void *context)
{
    np_sleep_until_ns(np_now_ns() + 30 * MS);
    np_ring_stop(context, NULL);
    return NULL;
}

Test(feed, stop_wakes_a_waiting_upload, .timeout = 120)
{
    for (int kind = 0; kind < 2; kind++) {
        struct np_device_options options = {.h2d_gbps = 25, .step_ms = 1};
        struct made_feed *bench = made_feed_new(2, kind == 0 ? NULL : &options);
        struct np_err err = {0};
        struct np_input input;
        pthread_t thread;

        pthread_create(&thread, NULL, stop_later, bench->ring);
        int result = np_feed_next(bench->feed, &input, &err);
        pthread_join(thread, NULL);
        cr_assert_eq(result, -ESHUTDOWN);
        cr_assert_eq(err.code, -ESHUTDOWN);
        made_feed_free(bench);
    }
}

Test(feed, upload_reports_a_failed_loader, .timeout = 120)
{
    struct np_device_options options = {.h2d_gbps = 25, .step_ms = 1};
    struct made_feed *bench = made_feed_new(2, &options);
    struct np_err why = {0}, err = {0};
    struct np_input input;

    np_err_set(&why, -EIO, "x.tar: cannot be read");
    np_ring_stop(bench->ring, &why);
    cr_assert_eq(np_feed_next(bench->feed, &input, &err), -EIO);
    cr_assert_str_eq(err.text, "x.tar: cannot be read");
    cr_assert_eq(np_feed_next(bench->feed, &input, NULL), -EIO);
    made_feed_free(bench);
}

Test(feed, leaving_with_copies_under_way_is_fine, .timeout = 120)
{
    struct np_device_options options = {.h2d_gbps = 0.00002, .step_ms = 1}; /* 10 ms a copy */
    struct made_feed *bench = made_feed_new(4, &options);
    struct np_input input;

    made_feed_start(bench, 3, 0);
    np_feed_next(bench->feed, &input, NULL);
    np_sleep_until_ns(np_now_ns() + 5 * MS);
    np_feed_release(bench->feed, &input); /* starts two more copies */
    made_feed_free(bench);
    cr_assert(true);
}

/* A sim whose calls fail once each, at a chosen number. */
static struct np_device_ops failing_ops;
static int calls_left;

static int failing_upload(struct np_device *device, void *dst, const void *src, size_t bytes)
{
    return calls_left-- == 0 ? -EIO : np_device_sim.upload(device, dst, src, bytes);
}

static int failing_done(struct np_device *device, struct np_event *event, bool wait)
{
    return calls_left-- == 0 ? -ENODEV : np_device_sim.done(device, event, wait);
}

static void *failing_alloc(struct np_device *device, size_t bytes)
{
    return calls_left-- == 0 ? NULL : np_device_sim.alloc(device, bytes);
}

/* Runs 30 batches; the first error of an upload, or 0. */
static int run_failing(struct made_feed *bench)
{
    for (int i = 0; i < 30; i++) {
        struct np_input input;
        struct np_err err = {0};
        int result = np_feed_next(bench->feed, &input, &err);
        if (result < 0)
            return strstr(err.text, "sim: ") ? result : -EINVAL;
        made_feed_step(bench, &input);
        np_feed_release(bench->feed, &input);
    }
    return 0;
}

Test(feed, a_device_that_fails_is_named_by_the_next_upload, .timeout = 120)
{
    for (int call = 0; call < 40; call++) {
        struct np_device_options options = {.h2d_gbps = 25, .step_ms = 0.1};
        struct made_feed *bench = made_feed_new(3, &options);
        failing_ops = np_device_sim;
        if (call % 2 == 0)
            failing_ops.upload = failing_upload;
        else
            failing_ops.done = failing_done;
        calls_left = call / 2;
        bench->device->ops = &failing_ops;
        made_feed_start(bench, 30, 0);
        cr_assert_eq(run_failing(bench), call % 2 == 0 ? -EIO : -ENODEV);
        np_ring_stop(bench->ring, NULL);
        calls_left = -1;
        made_feed_free(bench);
    }
}

Test(feed, without_device_memory_the_error_advises_a_smaller_batch, .timeout = 120)
{
    for (int call = 0; call < 6; call++) {
        struct np_device_options options = {.h2d_gbps = 25, .step_ms = 0.1};
        struct made_feed *bench = made_feed_new(3, &options);
        struct np_feed *feed = NULL;
        struct np_err err = {0};
        failing_ops = np_device_sim;
        failing_ops.alloc = failing_alloc;
        bench->device->ops = &failing_ops;
        calls_left = call;
        cr_assert_eq(
            np_feed_new(bench->device, bench->ring, &made_feed_shape, bench->block, &feed, &err),
            -ENOMEM);
        cr_assert_not_null(strstr(err.text, "smaller loader.batch"));
        cr_assert_null(feed);
        made_feed_free(bench);
    }
}
