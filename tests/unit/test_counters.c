/* The counters of a real loader: every moment of a reader is accounted for, and every byte. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/clock.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"

/* Bytes that this process has read, by any call (proc_pid_io(5)). */
static uint64_t bytes_read(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "re");

    if (!file || fscanf(file, "rchar: %llu", &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

/* Batches taken for so long. slow_ns: the taker sleeps so long on each. */
static void take_for(struct np_ring *ring, struct np_block *block, uint64_t ns, uint64_t slow_ns)
{
    const uint64_t end_ns = np_now_ns() + ns;

    while (np_now_ns() < end_ns) {
        struct np_batch *batch = np_ring_take(ring, block, NULL);

        if (slow_ns > 0)
            np_sleep_until_ns(np_now_ns() + slow_ns);
        np_ring_release(ring, batch);
    }
}

struct window {
    double wall, stages, held, ready; /* ns; the last two: number x ns */
    double state[NP_NR_STATES];
};

/* What the counters say of 200 ms in the middle of a run. */
static void measure(struct rig *rig, uint64_t slow_ns, struct window *ret_window)
{
    struct np_block *block = np_stat_join(rig->config.stat, "trainer", NULL);
    struct np_stat_sum start, end;
    struct np_loader *loader = NULL;

    rig->config.sampler.nr_steps = 10000000;
    cr_assert_eq(np_loader_start(&rig->config, &loader, NULL), 0);
    struct np_ring *ring = loader->ring;
    take_for(ring, block, 50000000, slow_ns);
    np_stat_read(rig->config.stat, "reader", &start);
    const uint64_t start_ns = np_now_ns(), ready_ns = np_ring_ready_ns(ring);
    take_for(ring, block, 200000000, slow_ns);
    np_stat_read(rig->config.stat, "reader", &end);
    const uint64_t end_ns = np_now_ns();
    ret_window->ready = (double)(np_ring_ready_ns(ring) - ready_ns);
    np_loader_stop(loader);
    ret_window->wall = (double)(end_ns - start_ns) * end.nr_threads;
    ret_window->stages = 0;
    for (int i = 0; i < NP_NR_STAGES; i++)
        ret_window->stages += (double)(end.stages[i].work_ns - start.stages[i].work_ns);
    for (int i = 0; i < NP_NR_STATES; i++)
        ret_window->state[i] = (double)(end.state_ns[i] - start.state_ns[i]);
    ret_window->held = (double)(end.in_flight_ns - start.in_flight_ns);
}

#define DEPTH 8

/* Shares of the window. The thread that reads clock and counters may lose its core in between, and a reader in the
 * middle of a piece of work: a window in which that has happened proves nothing, and another is taken. */
static double states_off(const struct window *w)
{
    return fabs((w->state[NP_STATE_WORK] + w->state[NP_STATE_STARVED] + w->state[NP_STATE_BLOCKED] +
                    w->state[NP_STATE_IO_WAIT]) /
                    w->wall -
                1);
}

static double stages_off(const struct window *w)
{
    return fabs(w->stages - w->state[NP_STATE_WORK]) / w->wall;
}

Test(counters, states_add_up_to_the_readers_time_and_stages_to_their_work, .timeout = 120)
{
    static const char *const backends[] = {"auto", "pread", "sim"};

    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        for (int slow = 0; slow < 2; slow++) {
            struct window w;

            for (int tries = 0; tries < 40; tries++) {
                struct rig rig;

                cr_assert_eq(rig_make(&rig, (enum made_kind)kind, true, 0), 0);
                rig.options.io = (char *)backends[(kind + slow) % 3];
                rig.options.depth = DEPTH;
                measure(&rig, slow ? 3000000 : 0, &w);
                rig_free(&rig);
                if (states_off(&w) <= 0.005 && stages_off(&w) <= 0.01)
                    break;
            }
            cr_assert_leq(states_off(&w), 0.005, "kind %d, of %g", kind, w.wall);
            cr_assert_leq(stages_off(&w), 0.01, "kind %d, slow %d: stages %g, work %g of %g", kind,
                slow, w.stages, w.state[NP_STATE_WORK], w.wall);
            cr_assert_eq(w.state[NP_STATE_STARVED], 0);
            if (slow) { /* the ring is full, and its readers wait */
                cr_assert_gt(w.state[NP_STATE_BLOCKED] / w.wall, 0.5);
                cr_assert_gt(w.ready / (w.wall / 2), 1);
            }
            cr_assert_leq(w.held / w.wall, DEPTH);
        }
    }
}

Test(counters, bytes_of_the_read_stage_are_those_of_the_kernel, .timeout = 120)
{
    struct np_stat_sum sum;
    struct rig rig;

    cr_assert_eq(rig_make(&rig, MADE_PPM, true, 0), 0);
    rig.config.sampler.nr_steps = 2000;
    const uint64_t before = bytes_read();
    const struct outcome outcome = rig_run(&rig, 0);
    const uint64_t bytes = bytes_read() - before;
    cr_assert_eq(outcome.nr_batches, 2000);
    np_stat_read(rig.config.stat, "reader", &sum);
    cr_assert_gt(sum.stages[NP_STAGE_READ].bytes, 10u << 20);
    if (bytes > 0) /* else there is no such file here */
        cr_assert_float_eq((double)sum.stages[NP_STAGE_READ].bytes / (double)bytes, 1, 0.01,
            "%llu counted, %llu read", (unsigned long long)sum.stages[NP_STAGE_READ].bytes,
            (unsigned long long)bytes);
    rig_free(&rig);
}
