/* The `sim` backend's reads: as slow, short, unordered and faulty as its options say. Data that is
 * drawn depends on the seed and the order of calls. The thread that opened the np_io. */
#include "tests/sim/io_sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "tests/sim/sim_plant.h"

struct pending {
    struct np_io_read *read;
    uint64_t due_ns;
    bool fails;
};

/* Until when the planted disk is busy with the reads it has been given. All threads read from one
 * disk: hence the only shared state in this file. */
static _Atomic uint64_t disk_free_ns;

struct sim {
    struct np_sim_disk disk; /* the options, and the writing half */
    struct np_draws draws;
    struct np_sim_plant plant;
    int64_t nr_calls, nr_reads; /* opens and reads; reads alone */
    int nr_pending;
    struct pending pending[]; /* (depth), oldest first */
};

#define FIELD(name) offsetof(struct np_io_sim_options, name)

static const struct np_option table[] = {
    {"seed", NP_OPT_INT, FIELD(seed), "0", 0, 0, NULL, NULL},
    {"short", NP_OPT_SHARE, FIELD(short_share), "0", 0, 1, NULL, NULL},
    {"latency_us", NP_OPT_INT, FIELD(latency_us), "0", 0, 1e9, NULL, NULL},
    {"shuffle", NP_OPT_BOOL, FIELD(shuffle), "false", 0, 0, NULL, NULL},
    {"fail_read", NP_OPT_INT, FIELD(fail_read), "0", 0, 1e15, NULL, NULL},
    {"fail_reads", NP_OPT_INT, FIELD(fail_reads), "1", 1, 1e15, NULL, NULL},
    {"slow_read", NP_OPT_INT, FIELD(slow_read), "0", 0, 1e15, NULL, NULL},
    {"slow_us", NP_OPT_INT, FIELD(slow_us), "6000000", 0, 1e9, NULL, NULL},
    {"skip_sync", NP_OPT_INT, FIELD(skip_sync), "0", 0, 1e15, NULL, NULL},
    {"fail_write", NP_OPT_INT, FIELD(fail_write), "0", 0, 1e15, NULL, NULL},
    {"cut", NP_OPT_INT, FIELD(cut), "0", 0, 1e15, NULL, NULL},
    {"space", NP_OPT_BYTES, FIELD(space), "any", 0, 1e18, "any", NULL},
    {NULL, 0, 0, NULL, 0, 0, NULL, NULL},
};

static int open_sim(struct np_io *io, int depth, struct np_err *err)
{
    struct np_io_sim_options options = {.seed = 0};
    const char *text = getenv("NNPIPE_IO_SIM");
    struct np_sim_plant plant;
    int status = np_sim_options(text ? text : "", table, "NNPIPE_IO_SIM", &options, err);

    if (status == 0)
        status = np_sim_plant_read(&plant, err);
    if (status)
        return status;
    io->state = np_try_alloc(
        sizeof(struct sim) + (size_t)depth * sizeof(((struct sim *)0)->pending[0]), NULL);
    if (!io->state)
        return np_err_set(err, -ENOMEM, "no memory for %d reads in flight", depth);
    np_io_sim_set(io, &options);
    ((struct sim *)io->state)->plant = plant;
    return 0;
}

struct np_sim_disk *np_sim_disk(const struct np_io *io)
{
    return &((struct sim *)io->state)->disk;
}

void np_io_sim_set(struct np_io *io, const struct np_io_sim_options *options)
{
    struct sim *sim = io->state;

    sim->disk.options = *options;
    np_draws_init(&sim->draws, (uint64_t)options->seed, NP_STREAM_TEST, 0, 0, 0);
    np_draws_init(&sim->disk.draws, (uint64_t)options->seed, NP_STREAM_TEST, 0, 0, 1);
}

static bool among(int64_t k, int64_t first, int64_t n)
{
    return first > 0 && k >= first && k - first < n;
}

/* When a disk as planted is done with a read asked for now: bytes move one read after the other, the
 * latencies before them pass side by side. So the rate is the least of mbps, and reads in flight over
 * (latency + a read's own time). */
static uint64_t disk_done_ns(const struct np_sim_plant *plant, uint32_t bytes)
{
    const uint64_t now = np_now_ns();
    const uint64_t latency = (uint64_t)plant->disk_latency_us * 1000;
    uint64_t took, free_ns, end;

    if (plant->disk_mbps <= 0)
        return now + latency;
    took = (uint64_t)(bytes * 1e3 / plant->disk_mbps);
    free_ns = atomic_load_explicit(&disk_free_ns, memory_order_relaxed);
    do
        end = (free_ns > now ? free_ns : now) + took;
    while (!atomic_compare_exchange_weak_explicit(
        &disk_free_ns, &free_ns, end, memory_order_relaxed, memory_order_relaxed));
    return end + latency;
}

static int submit(struct np_io *io, struct np_io_read *read)
{
    struct sim *sim = io->state;
    const struct np_io_sim_options *options = &sim->disk.options;
    uint64_t takes_us = np_draw_below(&sim->draws, (uint32_t)options->latency_us + 1);

    sim->nr_calls++;
    sim->nr_reads += !read->path;
    if (!read->path && among(sim->nr_reads, options->slow_read, 1))
        takes_us = (uint64_t)options->slow_us;
    sim->pending[sim->nr_pending++] = (struct pending){.read = read,
        .due_ns = disk_done_ns(&sim->plant, read->bytes) + takes_us * 1000,
        .fails = among(sim->nr_calls, options->fail_read, options->fail_reads)};
    return 0;
}

/* The one to complete next: any of those that are due, or the one due first. */
static int choose(struct sim *sim)
{
    uint64_t now = np_now_ns();
    int best = 0, nr_due = 0;

    for (int i = 0; i < sim->nr_pending; i++) {
        nr_due += sim->pending[i].due_ns <= now;
        if (sim->pending[i].due_ns < sim->pending[best].due_ns)
            best = i;
    }
    if (!sim->disk.options.shuffle || nr_due < 2)
        return best;
    nr_due = (int)np_draw_below(&sim->draws, (uint32_t)nr_due);
    for (best = 0; sim->pending[best].due_ns > now || nr_due-- > 0; best++)
        ;
    return best;
}

/* One call of a kernel that gives less than was asked for, now and then. */
static int64_t read_some(struct sim *sim, const struct np_io_read *read)
{
    uint32_t left = read->bytes - read->done_bytes;
    ssize_t got;

    if (read->path) {
        got = open(read->path, O_RDONLY | O_CLOEXEC | (read->direct ? O_DIRECT : 0));
        return got < 0 ? -errno : got;
    }
    if (np_draw_uniform(&sim->draws) < sim->disk.options.short_share) {
        if (np_draw_below(&sim->draws, 4) == 0)
            return -EINTR;
        left = 1 + np_draw_below(&sim->draws, left);
    }
    got = pread(read->fd, (char *)read->buffer + read->done_bytes, left,
        (off_t)(read->offset + read->done_bytes));
    return got < 0 ? -errno : got;
}

static struct np_io_read *reap(struct np_io *io, bool wait)
{
    struct sim *sim = io->state;
    struct pending next;
    int index;

    if (sim->nr_pending == 0)
        return NULL;
    index = choose(sim);
    next = sim->pending[index];
    if (next.due_ns > np_now_ns()) {
        if (!wait)
            return NULL;
        np_sleep_until_ns(next.due_ns);
    }
    sim->nr_pending--;
    memmove(sim->pending + index, sim->pending + index + 1,
        (size_t)(sim->nr_pending - index) * sizeof(next));
    while (!np_io_advance(next.read, next.fails ? -EIO : read_some(sim, next.read)))
        ;
    return next.read;
}

static void close_sim(struct np_io *io)
{
    np_sim_disk_fini(np_sim_disk(io));
    np_free(io->state);
}

void np_io_sim_power_cut(struct np_io *io)
{
    np_sim_disk_cut(np_sim_disk(io));
}

bool np_io_sim_is_off(const struct np_io *io)
{
    return np_sim_disk(io)->off;
}

int64_t np_io_sim_nr_writes(const struct np_io *io)
{
    return np_sim_disk(io)->nr_calls;
}

int64_t np_io_sim_nr_syncs(const struct np_io *io)
{
    return np_sim_disk(io)->nr_syncs;
}

static const struct np_io_ops np_io_sim = {
    .name = "sim",
    .no_cache_probe = true,
    .opens = true,
    .open = open_sim,
    .submit = submit,
    .reap = reap,
    .close = close_sim,
    .write = &np_io_sim_write,
};

/* --- in np_io_open()'s place, by the linker -------------------------------------------------- */

int __real_np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err);
int __wrap_np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err);

static bool is_set(const char *variable)
{
    const char *text = getenv(variable);

    return text && *text;
}

int __wrap_np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err)
{
    const bool asked = is_set("NNPIPE_IO_SIM") || is_set("NNPIPE_SIM_PLANT");
    int status;

    if (strcmp(name, "sim") != 0 && !(asked && strcmp(name, "uring") == 0))
        return __real_np_io_open(io, name, depth, err);
    status = __real_np_io_open(io, "pread", depth, err);
    if (status)
        return status;
    io->ops->close(io);
    io->ops = &np_io_sim;
    io->opens = true;
    status = open_sim(io, depth, err);
    if (status) {
        np_free(io->complete);
        memset(io, 0, sizeof(*io));
    }
    return status;
}
