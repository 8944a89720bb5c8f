/* See made_loader.h. */
#include "tests/unit/made_loader.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

void rig_free(struct rig *rig)
{
    np_stat_free(rig->config.stat);
    np_chain_free(rig->augment);
    np_chain_free(rig->test_augment);
    np_node_free(rig->list);
    made_set_free(&rig->set);
    if (rig->eval.index)
        made_set_free(&rig->eval);
}

/* augment: [{random_crop: {size: SIDE, pad: 2}}, flip] */
static struct np_node *crop_and_flip(void)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1), *op = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_node *args = np_node_new(NP_NODE_MAP, 1, 1);
    char side[8];

    snprintf(side, sizeof(side), "%d", SIDE);
    np_node_add(args, "size", np_node_scalar(side, 1, 1));
    np_node_add(args, "pad", np_node_scalar("2", 1, 1));
    np_node_add(op, "random_crop", args);
    np_node_add(list, NULL, op);
    np_node_add(list, NULL, np_node_scalar("flip", 1, 1));
    return list;
}

int rig_make(struct rig *rig, enum made_kind kind, bool augment, int nr_eval)
{
    struct np_report report;
    int code;

    memset(rig, 0, sizeof(*rig));
    np_report_init(&report, "test");
    rig->list = augment ? crop_and_flip() : NULL;
    code = np_chain_parse(rig->list, "augment", &rig->augment, &report);
    code |= np_chain_parse(NULL, "test_augment", &rig->test_augment, &report);
    np_report_fini(&report);
    code |= made_set(
        kind, N, kind < MADE_JPEG ? SIDE : HIGH, kind < MADE_JPEG ? SIDE : WIDE, &rig->set);
    if (nr_eval)
        code |= made_set(kind, nr_eval, SIDE, SIDE, &rig->eval);
    rig->options = (struct np_loader_options){.batch = BATCH,
        .readers = 2,
        .depth = -1,
        .prefetch = -1,
        .io = "pread",
        .cache_bytes = -1,
        .page_cache = -1,
        .read_timeout = 120,
        .disk_cache = -2,
        .bad_budget = 0.2,
        .channels = 3};
    rig->config = (struct np_loader_config){.options = &rig->options,
        .sampler = {.seed = 7,
            .nr_train = N,
            .nr_eval = (uint64_t)nr_eval,
            .batch = BATCH,
            .nr_steps = STEPS,
            .eval_epochs = 1},
        .train = rig->set.index,
        .eval = rig->eval.index,
        .augment = rig->augment,
        .test_augment = rig->test_augment,
        .shape = {BATCH, SIDE, SIDE, 3},
        .allocator = &np_page_allocator,
        .stat = np_stat_new(NULL)};
    return code;
}

static void add_batch(XXH3_state_t *hash, const struct rig *rig, const struct np_batch *batch,
    struct outcome *outcome)
{
    const struct np_batch_shape *shape = &rig->config.shape;
    uint64_t facts[4] = {batch->seq, batch->step, batch->kind, batch->part};

    XXH3_64bits_update(hash, batch->images,
        (size_t)(shape->rows * shape->height * shape->width * shape->channels));
    XXH3_64bits_update(hash, batch->labels, (size_t)shape->rows * sizeof(int32_t));
    XXH3_64bits_update(hash, facts, sizeof(facts));
    for (int row = 0; row < shape->rows; row++) {
        const struct np_row *about = &batch->about[row];
        uint64_t more[3] = {about->sample, about->position, about->epoch};

        XXH3_64bits_update(hash, more, sizeof(more));
        outcome->nr_masked += about->sample == UINT64_MAX;
        outcome->nr_replaced += about->attempts > 0;
    }
    outcome->nr_batches++;
}

struct outcome rig_run(const struct rig *rig, uint64_t skip)
{
    struct outcome outcome = {0};
    struct np_loader *loader = NULL;
    struct np_block *block = np_stat_join(rig->config.stat, "trainer", NULL);
    XXH3_state_t *hash = XXH3_createState();
    struct np_bad_sample bad;

    XXH3_64bits_reset(hash);
    if (np_loader_start(&rig->config, &loader, &outcome.err)) {
        XXH3_freeState(hash);
        return outcome;
    }
    for (uint64_t seq = loader->sampler->first_seq; seq < loader->sampler->nr_batches; seq++) {
        struct np_batch *batch = np_ring_take(loader->ring, block, &outcome.err);

        if (!batch)
            break;
        if (seq >= skip)
            add_batch(hash, rig, batch, &outcome);
        np_ring_release(loader->ring, batch);
    }
    while (np_loader_next_bad(loader, &bad)) {
        size_t used = strlen(outcome.reasons);

        outcome.nr_bad++;
        snprintf(outcome.reasons + used, sizeof(outcome.reasons) - used, "%s at %llu: %s\n",
            bad.path, (unsigned long long)bad.offset, bad.reason);
    }
    outcome.nr_entered = np_loader_entered(loader).entered;
    outcome.nr_missed = np_loader_entered(loader).missed;
    np_loader_stop(loader);
    outcome.digest = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return outcome;
}
