#include "daemon/analysis/observe.h"

#include <string.h>

#include "loader/base/clock.h"

bool np_observe_fills(const struct np_knobs *knobs, uint64_t step)
{
    return strcmp(knobs->cache, "none") != 0 && step * (uint64_t)knobs->batch < knobs->nr_samples;
}

void np_observe_now(const struct np_observed *seen, struct np_snapshot *ret_snapshot)
{
    const struct np_account *account = np_feed_account(seen->feed);

    *ret_snapshot = (struct np_snapshot){.ns = np_now_ns(),
        .images = seen->images,
        .steps = seen->steps,
        .entered = seen->entered,
        .missed = seen->missed,
        .made = seen->made,
        .taken = seen->taken,
        .decoded = seen->decoded,
        .found = seen->found,
        .stall_ns = account->stall_ns,
        .feed = account->times,
        .ring_ready_ns = np_ring_ready_ns(seen->ring),
        .process_cpu_s = np_cpu_seconds()};
    np_cores_read(&ret_snapshot->cores);
    np_stat_read(seen->stat, "reader", &ret_snapshot->readers);
    np_stat_read(seen->stat, "trainer", &ret_snapshot->trainer);
    memcpy(ret_snapshot->blame_ns, account->blame_ns, sizeof(account->blame_ns));
    memcpy(ret_snapshot->bridged_ns, account->bridged_ns, sizeof(account->bridged_ns));
    np_stat_sched(
        seen->stat, "reader", &ret_snapshot->reader_cpu_ns, &ret_snapshot->reader_delay_ns);
}

static void stages_between(const struct np_observed *seen, const struct np_snapshot *start,
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
        stage->p50_s = (double)np_stat_quantile(seen->stat, (enum np_stage)s, 0.5) * 1e-9;
        stage->p99_s = (double)np_stat_quantile(seen->stat, (enum np_stage)s, 0.99) * 1e-9;
    }
    for (int s = 0; s < NP_NR_STATES; s++) {
        observation->reader_s[s] =
            (double)(end->readers.state_ns[s] - start->readers.state_ns[s]) * 1e-9;
        observation->trainer_s[s] =
            (double)(end->trainer.state_ns[s] - start->trainer.state_ns[s]) * 1e-9;
    }
}

static void cores_between(const struct np_observed *seen, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *observation)
{
    observation->cores = seen->knobs->cores;
    observation->process_cpu_s = end->process_cpu_s - start->process_cpu_s;
    observation->reader_cpu_s = (double)(end->reader_cpu_ns - start->reader_cpu_ns) * 1e-9;
    observation->reader_delay_s = (double)(end->reader_delay_ns - start->reader_delay_ns) * 1e-9;
    observation->other_cores = np_cores_others(&start->cores, &end->cores, observation->seconds,
        observation->process_cpu_s, observation->cores);
}

void np_observe_between(const struct np_observed *seen, const struct np_snapshot *start,
    const struct np_snapshot *end, struct np_observation *ret_observation)
{
    struct np_observation *o = ret_observation;

    *o = (struct np_observation){.seconds = (double)(end->ns - start->ns) * 1e-9,
        .images = end->images - start->images,
        .steps = end->steps - start->steps,
        .entered = end->entered - start->entered,
        .missed = end->missed - start->missed,
        .made = end->made - start->made,
        .taken = end->taken - start->taken,
        .decoded = end->decoded - start->decoded,
        .found = end->found - start->found,
        .nr_readers = seen->knobs->readers,
        .stall_s = (double)(end->stall_ns - start->stall_ns) * 1e-9};
    o->images_per_second = (double)o->images / o->seconds;
    stages_between(seen, start, end, o);
    cores_between(seen, start, end, o);
    o->feed = (struct np_feed_times){
        .nr_batches = end->feed.nr_batches - start->feed.nr_batches,
        .copy_ns = end->feed.copy_ns - start->feed.copy_ns,
        .compute_ns = end->feed.compute_ns - start->feed.compute_ns,
        .idle_ns = end->feed.idle_ns - start->feed.idle_ns,
    };
    o->ring_full = (double)(end->ring_ready_ns - start->ring_ready_ns) * 1e-9 /
                   (o->seconds * np_ring_slots(seen->ring));
    o->reads_full = (double)(end->readers.in_flight_ns - start->readers.in_flight_ns) * 1e-9 /
                    (o->seconds * o->nr_readers * seen->knobs->depth);
    for (int s = 0; s < NP_NR_STAGES; s++)
        o->blame_s[s] = (double)(end->blame_ns[s] - start->blame_ns[s]) * 1e-9;
    for (int i = 0; i < NP_FEED_BRIDGES; i++)
        o->bridged_s[i] = (double)(end->bridged_ns[i] - start->bridged_ns[i]) * 1e-9;
    o->checkpoint_s = o->stages[NP_STAGE_CHECKPOINT].work_s;
    o->nr_checkpoints = o->stages[NP_STAGE_CHECKPOINT].items;
}
