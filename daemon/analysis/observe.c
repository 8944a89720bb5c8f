/* See observe.h. Two snapshots and their difference. Both are taken of runs that go on, too: nothing is
 * allocated. */
#include "daemon/analysis/observe.h"

#include <stdio.h>
#include <string.h>

#include "daemon/bench/bench.h"
#include "daemon/run/run.h"
#include "loader/base/box.h"
#include "loader/base/clock.h"

/* --- snapshots -------------------------------------------------------------------------------- */

void np_observe_now(const struct np_run *run, struct np_snapshot *ret_snapshot)
{
    *ret_snapshot = (struct np_snapshot){.ns = np_now_ns(),
        .images = run->total.rows,
        .steps = run->position.step,
        .stall_ns = np_feed_stall_ns(run->feed),
        .ring_ready_ns = np_ring_ready_ns(np_loader_ring(run->loader)),
        .process_cpu_s = np_cpu_seconds()};
    np_cores_read(&ret_snapshot->cores);
    np_stat_read(run->stat, "reader", &ret_snapshot->readers);
    np_stat_read(run->stat, "trainer", &ret_snapshot->trainer);
    np_feed_times(run->feed, &ret_snapshot->feed);
    np_feed_blame(run->feed, ret_snapshot->blame_ns);
    np_feed_bridged(run->feed, ret_snapshot->bridged_ns);
    np_stat_sched(
        run->stat, "reader", &ret_snapshot->reader_cpu_ns, &ret_snapshot->reader_delay_ns);
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
    observation->cores = run->nr_cpus;
    observation->process_cpu_s = end->process_cpu_s - start->process_cpu_s;
    observation->reader_cpu_s = (double)(end->reader_cpu_ns - start->reader_cpu_ns) * 1e-9;
    observation->reader_delay_s = (double)(end->reader_delay_ns - start->reader_delay_ns) * 1e-9;
    observation->other_cores = np_cores_others(&start->cores, &end->cores, observation->seconds,
        observation->process_cpu_s, observation->cores);
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
    for (int i = 0; i < NP_FEED_BRIDGES; i++)
        o->bridged_s[i] = (double)(end->bridged_ns[i] - start->bridged_ns[i]) * 1e-9;
    o->checkpoint_s = o->stages[NP_STAGE_CHECKPOINT].work_s;
    o->nr_checkpoints = o->stages[NP_STAGE_CHECKPOINT].items;
}

/* --- knobs ------------------------------------------------------------------------------------ */

bool np_observe_fills(const struct np_run *run, uint64_t step)
{
    return strcmp(np_loader_cache(run->loader), "none") != 0 &&
           step * (uint64_t)run->config->loader.batch < run->nr_train;
}

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
        .device_has_memory = run->device->ops->alloc != NULL,
        .cache_fills = np_observe_fills(run, run->position.step),
        .geometry_only =
            !np_augment_has_apply(run->config->loader.augment) &&
            !(run->config->loader.test_augment && np_augment_has_apply(run->config->loader.test_augment))};
    if (run->device->ops->room && run->device->ops->make_rows)
        knobs->device_room = run->device->ops->room(run->device);
    knobs->row_bytes = (uint64_t)run->setup.height * (uint64_t)run->setup.width *
                       (uint64_t)run->config->loader.channels;
    knobs->set_bytes = set_bytes(run->setup.train, &knobs->packed);
    snprintf(knobs->io, sizeof(knobs->io), "%s", np_loader_io(run->loader));
    snprintf(knobs->cache, sizeof(knobs->cache), "%s", np_loader_cache(run->loader));
    snprintf(knobs->device, sizeof(knobs->device), "%s", run->device->name);
    snprintf(knobs->precision, sizeof(knobs->precision), "%s", np_precision_names[run->precision]);
}
