/* The queue when the power is cut: behind every write, truncation, deletion and sync of a life, the disk is had in
 * all the ways in which it could be found, and the queue opened: it has what was acknowledged, or what was
 * being written; and if any one sync that matters is left out, the test finds it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/queue.h"
#include "tests/test.h"
#include "tests/unit/made_disk.h"

enum { MAX_ACTIONS = 160, SEEDS = 3 };

/* What the queue holds, in short: runs' ids and states; a action's end is acknowledged at `calls`. */
struct action {
    uint64_t sum;
    int calls;
};
static struct action deeds[MAX_ACTIONS];
static int nr_deeds, first_syncs; /* until the first was acknowledged */

static int add_to_sum(void *context, const struct np_entry *entry, struct np_err *err)
{
    uint64_t *sum = context;

    (void)err;
    *sum = (*sum * 1000003 + (uint64_t)entry->id * 31 + entry->state) * 1000003 +
           (uint64_t)entry->attempt + strlen(entry->reason) + (uint64_t)entry->nr_after * 7;
    return 0;
}

/* 0: it cannot be read. */
static uint64_t sum_of(struct np_queue *queue)
{
    uint64_t sum = 17;
    struct np_err err = {0};

    return np_queue_read(queue, add_to_sum, &sum, &err) < 0 ? 0 : sum;
}

static void acknowledge(struct np_queue *queue)
{
    if (nr_deeds == 0)
        first_syncs = made_disk_syncs();
    if (nr_deeds < MAX_ACTIONS)
        deeds[nr_deeds++] = (struct action){sum_of(queue), made_disk_calls()};
}

/* Runs are added, changed and removed, long enough for the log to be written back. false: a call failed. */
static bool live(int nr_rounds)
{
    struct np_queue *queue = NULL;
    struct np_err err = {0};
    bool good = np_queue_open("/made/queue.db", "made-disk", &queue, &err) == 0, known;
    static char config[6000];

    nr_deeds = 0;
    memset(config, 'x', sizeof(config) - 1);
    if (good)
        acknowledge(queue);
    for (int i = 0; i < nr_rounds && good; i++) {
        struct np_entry entry = {.path = (char *)"/a",
            .config = config,
            .dir = (char *)"/runs",
            .device = "auto",
            .after = {1, 2},
            .nr_after = i % 3};
        int64_t id;

        snprintf(entry.key, sizeof(entry.key), "key %d", i);
        snprintf(entry.name, sizeof(entry.name), "run");
        good = np_queue_add(queue, &entry, &id, &known, &err) == 0;
        acknowledge(queue);
        entry.id = id;
        entry.state = NP_ENTRY_RUNNING;
        entry.attempt = i;
        good = good && np_queue_update(queue, &entry, &err) == 0;
        acknowledge(queue);
        if (i % 4 == 3) {
            good = good && np_queue_remove(queue, id - 2, &err) == 0;
            acknowledge(queue);
        }
    }
    np_queue_close(queue);
    return good;
}

/* Is the found state the last acknowledged one before the cut, or the one being written? */
static bool is_right(int calls)
{
    struct np_queue *queue = NULL;
    struct np_err err = {0};
    int last = -1;

    for (int i = 0; i < nr_deeds && deeds[i].calls <= calls; i++)
        last = i;
    if (np_queue_open("/made/queue.db", "made-disk", &queue, &err) < 0)
        return false;
    const uint64_t sum = sum_of(queue);
    np_queue_close(queue);
    if (last < 0) /* not even made */
        return sum == 17 || sum == deeds[0].sum;
    return sum == deeds[last].sum || (last + 1 < nr_deeds && sum == deeds[last + 1].sum);
}

/* Cuts behind call nr `from` and later ones of this life that lose something; no more than `enough` are looked for. */
static int count_losses(int from, int enough, int *ret_cuts)
{
    const int calls = made_disk_calls();
    int losses = 0;

    for (int k = from; k <= calls && losses < enough; k++)
        for (int cut = 0; cut < NR_MADE_CUTS; cut++)
            for (uint64_t seed = 1; seed <= (cut < MADE_CUT_SOME ? 1 : SEEDS); seed++) {
                made_disk_cut(k, (enum made_cut)cut, seed + (uint64_t)k * 31);
                losses += !is_right(k);
                ++*ret_cuts;
            }
    return losses;
}

Test(queue, keeps_acknowledged_changes_after_any_power_cut, .timeout = 300)
{
    int cuts = 0;

    made_disk_new(0);
    cr_assert(live(getenv("NNPIPE_LONG") ? 24 : 8));
    const int losses = count_losses(0, INT_MAX, &cuts);
    fprintf(stderr, "# queue: %d calls, %d syncs, %d cuts, %d losses\n", made_disk_calls(),
        made_disk_syncs(), cuts, losses);
    made_disk_free();
    cr_assert_gt(cuts, 500);
    cr_assert_eq(losses, 0);
}

/* Of those behind the making of an empty queue, before which nothing was acknowledged, one is redundant: that of the
 * log before it is written back, which the last commit had synced but for the padding behind it. All others are
 * missed. Cuts before the sync that is left out are those of the test above. */
Test(queue, a_missing_sync_is_noticed, .timeout = 300)
{
    int unnoticed = 0, nr_syncs, nr_first;

    made_disk_new(0);
    cr_assert(live(6));
    nr_syncs = made_disk_syncs();
    nr_first = first_syncs;
    made_disk_free();
    for (int skip = nr_first + 1; skip <= nr_syncs; skip++) {
        int cuts = 0;

        made_disk_new(skip);
        cr_assert(live(6));
        unnoticed += count_losses(made_disk_skipped_at(), 1, &cuts) == 0;
        made_disk_free();
    }
    fprintf(stderr, "# queue: of %d syncs left out all but %d are noticed\n", nr_syncs - nr_first,
        unnoticed);
    cr_assert_gt(nr_syncs - nr_first, 10);
    cr_assert_leq(unnoticed, 1);
}
