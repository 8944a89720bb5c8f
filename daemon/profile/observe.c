/* See observe.h. Two snapshots and their difference. Both are taken of runs that go on, too: nothing is
 * allocated. */
#include "daemon/profile/observe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/bench.h"
#include "daemon/run.h"
#include "loader/base/box.h"
#include "loader/base/clock.h"

/* --- what the kernel knows -------------------------------------------------------------------- */

static bool read_text(const char *path, char *text, size_t text_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, text_bytes - 1) : 0;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Seconds that all cores have worked for anybody (proc_stat(5): all but idle and iowait); guests are
 * in user already. */
static double all_cpu_seconds(void)
{
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
    char text[512];

    if (!read_text("/proc/stat", text, sizeof(text)) ||
        sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
            &iowait, &irq, &softirq, &steal) != 8)
        return -1;
    return (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK);
}

/* schedstat: on a core, and on a run queue, in ns. Threads are named "reader N". */
static void add_delay(const char *task, struct np_delay *delay)
{
    unsigned long long on = 0, waiting = 0;
    char path[300], text[128];

    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
    if (!read_text(path, text, sizeof(text)) || strncmp(text, "reader", 6) != 0)
        return;
    snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task);
    if (!read_text(path, text, sizeof(text)) || sscanf(text, "%llu %llu", &on, &waiting) != 2)
        return;
    delay->nr_threads++;
    delay->cpu_s += (double)on * 1e-9;
    delay->delay_s += (double)waiting * 1e-9;
}

static void reader_delay(struct np_delay *ret_delay)
{
    const int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct dirent64) char entries[4096];

    *ret_delay = (struct np_delay){0};
    for (ssize_t n; tasks >= 0 && (n = getdents64(tasks, entries, sizeof(entries))) > 0;) {
        const struct dirent64 *task;

        for (char *at = entries; at < entries + n; at += task->d_reclen) {
            task = (const struct dirent64 *)at;
            if (task->d_name[0] != '.')
                add_delay(task->d_name, ret_delay);
        }
    }
    if (tasks >= 0)
        close(tasks);
}

/* --- snapshots -------------------------------------------------------------------------------- */

void np_observe_now(const struct np_run *run, struct np_snapshot *ret_snapshot)
{
    *ret_snapshot = (struct np_snapshot){.ns = np_now_ns(),
        .images = run->total.rows,
        .steps = run->position.step,
        .stall_ns = np_feed_stall_ns(run->feed),
        .ring_ready_ns = np_ring_ready_ns(np_loader_ring(run->loader)),
        .process_cpu_s = np_cpu_seconds(),
        .all_cpu_s = all_cpu_seconds()};
    np_stat_read(run->stat, "reader", &ret_snapshot->readers);
    np_stat_read(run->stat, "trainer", &ret_snapshot->trainer);
    np_feed_times(run->feed, &ret_snapshot->feed);
    np_feed_blame(run->feed, ret_snapshot->blame_ns);
    reader_delay(&ret_snapshot->reader_delay);
}

static void stages_between(const struct np_run *run, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *observation)
{
    for (int s = 0; s < NP_NR_STAGES; s++) {
        const struct np_stage_sum *a[2] = {&start->readers.stages[s], &start->trainer.stages[s]};
        const struct np_stage_sum *b[2] = {&end->readers.stages[s], &end->trainer.stages[s]};
        struct np_observed_stage *stage = &observation->stages[s];

        for (int i = 0; i < 2; i++) {
            stage->items += b[i]->items - a[i]->items;
            stage->bytes += b[i]->bytes - a[i]->bytes;
            stage->work_s += (double)(b[i]->work_ns - a[i]->work_ns) * 1e-9;
        }
        stage->p50_s = (double)np_stat_quantile(run->stat, (enum np_stage)s, 0.5) * 1e-9;
        stage->p99_s = (double)np_stat_quantile(run->stat, (enum np_stage)s, 0.99) * 1e-9;
    }
    for (int s = 0; s < NP_NR_STATES; s++) {
        observation->reader_s[s] =
            (double)(end->readers.state_ns[s] - start->readers.state_ns[s]) * 1e-9;
        observation->trainer_s[s] =
            (double)(end->trainer.state_ns[s] - start->trainer.state_ns[s]) * 1e-9;
    }
}

static void cores_between(const struct np_run *run, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *observation)
{
    const double seconds = observation->seconds;

    observation->cores = run->nr_cpus;
    observation->process_cpu_s = end->process_cpu_s - start->process_cpu_s;
    observation->reader_cpu_s = end->reader_delay.cpu_s - start->reader_delay.cpu_s;
    observation->reader_delay_s = end->reader_delay.delay_s - start->reader_delay.delay_s;
    if (end->reader_delay.nr_threads < start->reader_delay.nr_threads) { /* some have ended */
        observation->reader_cpu_s = observation->reader_s[NP_STATE_WORK];
        observation->reader_delay_s = 0;
    }
    if (start->all_cpu_s >= 0 && end->all_cpu_s >= 0)
        observation->other_cores =
            (end->all_cpu_s - start->all_cpu_s - observation->process_cpu_s) / seconds;
    /* /proc/stat counts in hundredths of a second; a box with more cores than we may use has tenants
     * on the others. */
    const double others = sysconf(_SC_NPROCESSORS_ONLN) - observation->cores;
    observation->other_cores -= others;
    if (observation->other_cores < 0)
        observation->other_cores = 0;
    if (observation->other_cores > observation->cores)
        observation->other_cores = observation->cores;
}

void np_observe_between(const struct np_run *run, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *ret_observation)
{
    struct np_observation *o = ret_observation;

    *o = (struct np_observation){.seconds = (double)(end->ns - start->ns) * 1e-9,
        .images = end->images - start->images,
        .steps = end->steps - start->steps,
        .nr_readers = np_loader_readers(run->loader),
        .stall_s = (double)(end->stall_ns - start->stall_ns) * 1e-9};
    o->images_per_second = (double)o->images / o->seconds;
    stages_between(run, start, end, o);
    cores_between(run, start, end, o);
    o->feed = (struct np_feed_times){
        .nr_batches = end->feed.nr_batches - start->feed.nr_batches,
        .copy_ns = end->feed.copy_ns - start->feed.copy_ns,
        .compute_ns = end->feed.compute_ns - start->feed.compute_ns,
        .idle_ns = end->feed.idle_ns - start->feed.idle_ns,
    };
    o->ring_full = (double)(end->ring_ready_ns - start->ring_ready_ns) * 1e-9 /
                   (o->seconds * np_ring_slots(np_loader_ring(run->loader)));
    o->reads_full = (double)(end->readers.held_ns - start->readers.held_ns) * 1e-9 /
                    (o->seconds * o->nr_readers * np_loader_depth(run->loader));
    for (int s = 0; s < NP_NR_STAGES; s++)
        o->blame_s[s] = (double)(end->blame_ns[s] - start->blame_ns[s]) * 1e-9;
    o->checkpoint_s = o->stages[NP_STAGE_CHECKPOINT].work_s;
    o->nr_checkpoints = o->stages[NP_STAGE_CHECKPOINT].items;
}

/* --- knobs ------------------------------------------------------------------------------------ */

static double checkpoint_steps(const struct np_run *run)
{
    const struct np_period *every = &run->config->checkpoint.every;

    if (every->steps > 0)
        return (double)every->steps;
    return every->epochs * (double)run->nr_train / (double)run->config->loader.batch;
}

static uint64_t set_bytes(const struct np_index *index, bool *ret_packed)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < np_index_samples(index); i++) {
        const struct np_record record = np_index_get(index, i);

        bytes += record.inner_bytes;
        *ret_packed |= record.packing != NP_PACKING_NONE;
    }
    return bytes;
}

void np_observe_knobs(const struct np_run *run, struct np_knobs *ret_knobs)
{
    struct np_knobs *knobs = ret_knobs;
    struct np_box box;

    np_box_read(&box);
    *knobs = (struct np_knobs){.readers = np_loader_readers(run->loader),
        .depth = np_loader_depth(run->loader),
        .prefetch = np_ring_slots(np_loader_ring(run->loader)),
        .batch = (int)run->config->loader.batch,
        .checkpoint_steps = checkpoint_steps(run),
        .nr_samples = run->nr_train,
        .picture_bytes = np_picture_bytes(run->setup.train, (int)run->config->loader.channels),
        .memory_bytes = box.memory_bytes,
        .free_bytes = box.free_bytes,
        .cores = box.nr_cpus,
        .device_has_memory = run->device->ops->alloc != NULL};
    knobs->set_bytes = set_bytes(run->setup.train, &knobs->packed);
    snprintf(knobs->io, sizeof(knobs->io), "%s", np_loader_io(run->loader));
    snprintf(knobs->cache, sizeof(knobs->cache), "%s", np_loader_cache(run->loader));
    snprintf(knobs->device, sizeof(knobs->device), "%s", run->device->name);
    snprintf(knobs->precision, sizeof(knobs->precision), "%s", np_precision_names[run->precision]);
}
