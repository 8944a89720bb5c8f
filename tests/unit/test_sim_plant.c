/* A planted disk is as slow as its file says, for all readers together, and latencies pass side by
 * side; planted steps and copies take the plant's time, not the config's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "tests/sim/sim_plant.h"
#include "trainer/device.h"

#include "tests/test.h"

enum { PIECE = 10000, DEPTH = 8 };

/* Writes the plant file and names it in the environment. */
static void plant(const char *text)
{
    static char path[64];
    FILE *file;

    snprintf(path, sizeof(path), "/tmp/np_test_plant.%d", (int)getpid());
    file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
    setenv("NNPIPE_SIM_PLANT", path, 1);
}

static void uproot(void)
{
    unlink(getenv("NNPIPE_SIM_PLANT"));
    unsetenv("NNPIPE_SIM_PLANT");
}

/* Seconds that `rounds` times DEPTH reads take on each of two np_io. */
static double seconds_of(int rounds)
{
    struct np_io ios[2];
    struct np_io_read reads[2][DEPTH];
    static char buffer[PIECE];
    char path[] = "/tmp/np_test_sim.XXXXXX";
    const int fd = mkostemp(path, O_CLOEXEC);
    uint64_t start;

    unlink(path);
    if (fd < 0 || ftruncate(fd, PIECE) < 0)
        abort();
    for (int i = 0; i < 2; i++)
        if (np_io_open(&ios[i], "sim", DEPTH, NULL))
            abort();
    start = np_now_ns();
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2 * DEPTH; i++) {
            struct np_io_read *read = &reads[i % 2][i / 2];

            *read = (struct np_io_read){.fd = fd, .bytes = PIECE, .buffer = buffer};
            if (np_io_submit(&ios[i % 2], read))
                abort();
        }
        for (int i = 0; i < 2 * DEPTH; i++)
            if (np_io_reap(&ios[i % 2], true)->result != PIECE)
                abort();
    }
    start = np_now_ns() - start;
    np_io_close(&ios[0]);
    np_io_close(&ios[1]);
    close(fd);
    return (double)start * 1e-9;
}

Test(sim_plant, all_readers_share_the_disk)
{
    double seconds;

    plant("disk_mbps=4\n"); /* 64 reads of 10 kB: 0.16 s */
    seconds = seconds_of(4);
    uproot();
    cr_assert_geq(seconds, 0.159);
    cr_assert_leq(seconds, 0.6);
}

Test(sim_plant, latencies_overlap)
{
    double seconds;

    plant("disk_latency_us=40000\n"); /* 16 at once, four times: 0.16 s; one by one 2.56 s */
    seconds = seconds_of(4);
    uproot();
    cr_assert_geq(seconds, 0.16);
    cr_assert_leq(seconds, 1.0);
}

Test(sim_plant, bytes_and_latency_add_up)
{
    double seconds;

    plant("disk_mbps=4,disk_latency_us=60000\n"); /* a round: 16 x 2.5 ms, and 60 ms */
    seconds = seconds_of(2);
    uproot();
    cr_assert_geq(seconds, 0.199);
    cr_assert_leq(seconds, 0.8);
}

Test(sim_plant, copies_take_the_planted_time)
{
    const struct np_device_options options = {.h2d_gbps = 100, .step_ms = 1};
    static char from[1 << 20];
    struct np_device *device;
    struct np_event event = {0};
    uint64_t start;
    void *to;

    plant("h2d_gbps=0.02\nstep_ms=5\n");
    cr_assert_eq(np_device_open("sim", &options, &device, NULL), 0);
    uproot();
    to = device->ops->alloc(device, sizeof(from));
    start = np_now_ns();
    cr_assert_eq(device->ops->upload(device, to, from, sizeof(from)), 0);
    device->ops->record(device, NP_STREAM_COPY, &event);
    cr_assert_eq(device->ops->done(device, &event, true), 1);
    cr_assert_geq(np_now_ns() - start, 52000000u); /* 1 MiB at 0.02 GB/s */
    device->ops->free(device, to);
    np_device_close(device);
}

Test(sim_plant, mistakes_are_named_and_an_empty_plant_is_allowed)
{
    struct np_sim_plant it = {.step_ms = 7};
    struct np_err err = {0};

    plant("disk_mbsp=4\n");
    cr_assert_eq(np_sim_plant_read(&it, &err), -EINVAL);
    cr_assert(strstr(err.text, "disk_mbsp") && strstr(err.text, "np_test_plant"), "%s", err.text);
    cr_assert_eq(it.step_ms, 7.0);
    unlink(getenv("NNPIPE_SIM_PLANT"));
    err = (struct np_err){0};
    cr_assert_eq(np_sim_plant_read(&it, &err), -ENOENT);
    unsetenv("NNPIPE_SIM_PLANT");
    cr_assert_eq(np_sim_plant_read(&it, NULL), 0);
    cr_assert_eq(it.step_ms, 0.0);
}
