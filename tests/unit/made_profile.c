/* See made_profile.h. */
#include "tests/unit/made_profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RATE    1730.0
#define SECONDS 12.0
#define BATCH   256
#define READERS 4

/* What stops at `limiter`: its cost such that it can do 1 % more than the run. */
static void make_model(int limiter, struct np_model *model)
{
    double limit = RATE * 1.01;

    *model = (struct np_model){.rate = RATE,
        .cores = 7.9,
        .thread_s = {0, 0.1e-3, 0.6e-3, 0.2e-3, 0.02e-3, 0, 0, 0},
        .read_rate = 6900,
        .copy_rate = 28100,
        .step_rate = 2890,
        .checkpoint_share = 0.004,
        .coupling = 0.99};
    switch (limiter) {
    case NP_STAGE_READ: model->read_rate = limit; break;
    case NP_STAGE_DECOMPRESS: model->thread_s[limiter] = READERS / limit - 0.8e-3; break;
    case NP_STAGE_DECODE: model->thread_s[limiter] = READERS / limit - 0.3e-3; break;
    case NP_STAGE_AUGMENT: model->thread_s[limiter] = READERS / limit - 0.7e-3; break;
    case NP_STAGE_BATCH: model->coupling = 0.6; break;
    case NP_STAGE_COPY: model->copy_rate = limit; break;
    case NP_STAGE_STEP: model->step_rate = limit; break;
    case NP_STAGE_CHECKPOINT:
        model->checkpoint_share = 0.41;
        model->step_rate = 2960;
        break;
    default: model->step_rate = 1790; model->thread_s[NP_STAGE_DECODE] = READERS / 1760.0 - 0.3e-3;
    }
}

static void make_knobs(struct np_knobs *knobs)
{
    *knobs = (struct np_knobs){.readers = READERS,
        .depth = 8,
        .prefetch = 4,
        .batch = BATCH,
        .io = "uring",
        .cache = "off",
        .device = "cuda:0",
        .precision = "bf16",
        .checkpoint_steps = 500,
        .nr_samples = 1281167,
        .set_bytes = 147ull << 30,
        .picture_bytes = 500 * 375 * 3,
        .memory_bytes = 125ull << 30,
        .free_bytes = 96ull << 30,
        .cores = 8,
        .device_has_memory = true,
        .packed = true};
}

static void make_observation(int limiter, const struct np_model *model, struct np_observation *seen)
{
    double images = RATE * SECONDS, wait = limiter == NP_STAGE_STEP ? 0.01 : 0.37;
    int cause = limiter < NP_STAGE_STEP ? limiter : NP_STAGE_DECODE;

    *seen = (struct np_observation){.seconds = SECONDS,
        .images = (uint64_t)images,
        .entered = (uint64_t)(images / 8),
        .missed = (uint64_t)(images - images / 8),
        .steps = (uint64_t)(images / BATCH),
        .images_per_second = RATE,
        .nr_readers = READERS,
        .reader_s = {34, 1.5, 8, 4.5},
        .reader_cpu_s = 33.1,
        .reader_delay_s = 0.4,
        .trainer_s = {4.3, 7.6, 0, 0.1},
        .process_cpu_s = 42,
        .cores = 8,
        .other_cores = 0.1,
        .ring_full = limiter == NP_STAGE_STEP || limiter == NP_STAGE_COPY ? 0.94 : 0.04,
        .reads_full = limiter == NP_STAGE_READ ? 0.99 : 0.31,
        .checkpoint_s = 1.1,
        .nr_checkpoints = 1};
    if (limiter == NP_STAGE_CHECKPOINT) {
        seen->checkpoint_s = 0.41 * SECONDS;
        seen->nr_checkpoints = 8;
        wait = 0.02;
    } else {
        seen->checkpoint_s = 0.004 * SECONDS;
    }
    seen->checkpoint_each_s = seen->checkpoint_s / (double)seen->nr_checkpoints;
    seen->stall_s = wait * SECONDS;
    seen->blame_s[cause] = 0.9 * seen->stall_s;
    seen->blame_s[cause == NP_STAGE_READ ? NP_STAGE_DECODE : NP_STAGE_READ] = 0.1 * seen->stall_s;
    seen->feed = (struct np_feed_times){.nr_batches = seen->steps,
        .copy_ns = (uint64_t)(images / model->copy_rate * 1e9),
        .compute_ns = (uint64_t)(images / model->step_rate * 1e9)};
    seen->feed.idle_ns = (uint64_t)(SECONDS * 1e9) - seen->feed.compute_ns;
    for (int s = 0; s < NP_NR_STAGES; s++) {
        double each = s < NP_STAGE_COPY          ? model->thread_s[s]
                      : s == NP_STAGE_CHECKPOINT ? 0.6
                                                 : 0.088;
        uint64_t items = s < NP_STAGE_COPY          ? seen->images
                         : s == NP_STAGE_CHECKPOINT ? seen->nr_checkpoints
                                                    : seen->steps;
        seen->stages[s] = (struct np_observed_stage){.items = items,
            .bytes = s == NP_STAGE_STEP ? 0 : seen->images * 115000,
            .work_s = (double)items * each,
            .p50_s = each > 0 ? each * 0.9 : 0.00042,
            .p99_s = each > 0 ? each * 3.7 : 0.0061};
    }
}

struct advised {
    const char *key, *from, *to, *text;
    double cores;
    uint64_t memory_bytes;
};
static const struct advised advised[NP_NR_STAGES] = {
    {"loader.cache", "off", "encoded",
        "The set fits memory: from the second epoch on nothing is read.", 0, 147ull << 30},
    {"loader.readers", "4", "6", "The readers are busy, and cores are idle.", 2, 38u << 20},
    {"loader.readers", "4", "6", "The readers are busy, and cores are idle.", 2, 38u << 20},
    {"loader.readers", "4", "6", "The readers are busy, and cores are idle.", 2, 38u << 20},
    {"loader.prefetch", "1", "4", "One slot makes the readers wait for the trainer.", 0,
        115u << 20},
    {"loader.cache", "off", "device", "The pictures stay on the device and cross the bus once.", 0,
        0},
    {"", "", "",
        "The device is the limit: nothing in the loader helps. Precision bf16 or a larger batch "
        "may.",
        0, 0},
    {"checkpoint.every", "10", "250", "A checkpoint takes 610 ms and stops the run.", 0, 0},
};

static void make_verdict(int which, struct np_profile_verdict *verdict)
{
    *verdict = (struct np_profile_verdict){.kind = NP_LIMITED,
        .limiter = NP_STAGE_DECODE,
        .gain = 1.653,
        .next = which == NP_STAGE_STEP ? NP_STAGE_DECODE : NP_STAGE_STEP,
        .next_rate = 2860,
        .headroom = 0.653};
    if (which == NP_STAGE_STEP) {
        verdict->next_rate = 4400;
        verdict->gain = 4400 / RATE;
        verdict->headroom = verdict->gain - 1;
    }
    if (which < NP_NR_STAGES) {
        const struct advised *from = &advised[which];
        verdict->limiter = (enum np_stage)which;
        snprintf(verdict->advice.key, sizeof(verdict->advice.key), "%s", from->key);
        snprintf(verdict->advice.from, sizeof(verdict->advice.from), "%s", from->from);
        snprintf(verdict->advice.to, sizeof(verdict->advice.to), "%s", from->to);
        snprintf(verdict->advice.text, sizeof(verdict->advice.text), "%s", from->text);
        verdict->advice.rate = from->key[0] ? 2590 : 0;
        verdict->advice.cores = from->cores;
        verdict->advice.memory_bytes = from->memory_bytes;
    } else if (which == MADE_BALANCED) {
        verdict->kind = NP_BALANCED;
        verdict->gain = 1.017;
        verdict->headroom = 0.035;
        snprintf(verdict->reason, sizeof(verdict->reason),
            "decode and step reach their limits together: either one alone gains 2 %%");
    } else {
        verdict->kind = NP_INCONCLUSIVE;
        snprintf(verdict->reason, sizeof(verdict->reason),
            "equal trials differ by 14 %%: something else uses this box; try again when it is "
            "quiet");
    }
}

/* Waits that come and go, and a pause of a checkpoint in the middle. */
static void make_ribbon(int which, struct np_ribbon ribbon[MADE_RIBBON])
{
    int cause = which < NP_STAGE_STEP ? which : NP_STAGE_DECODE;
    double wait = which == NP_STAGE_STEP || which == NP_STAGE_CHECKPOINT ? 0.004 : 0.035;

    memset(ribbon, 0, MADE_RIBBON * sizeof(*ribbon));
    for (int i = 0; i < MADE_RIBBON; i++) {
        double swing = 0.5 + 0.5 * sin(i * 0.31) * cos(i * 0.083);
        bool pause = which == NP_STAGE_CHECKPOINT ? i % 15 < 6 : i >= 70 && i < 72;
        ribbon[i].at_s = i * 0.1;
        ribbon[i].wait_s[cause] = wait * (0.75 + 0.5 * swing);
        ribbon[i].wait_s[cause == NP_STAGE_READ ? NP_STAGE_DECODE : NP_STAGE_READ] =
            wait * 0.25 * (1 - swing);
        ribbon[i].rate = RATE * (1.1 - 0.2 * swing);
        if (pause) {
            memset(ribbon[i].wait_s, 0, sizeof(ribbon[i].wait_s));
            ribbon[i].wait_s[NP_STAGE_CHECKPOINT] = 0.1;
            ribbon[i].rate = 0;
        }
    }
}

void made_profile(int which, struct np_profile *ret_profile, struct np_ribbon ribbon[MADE_RIBBON])
{
    struct np_profile *profile = ret_profile;

    memset(profile, 0, sizeof(*profile));
    snprintf(profile->config, sizeof(profile->config), "configs/imagenet_resnet50.yaml");
    snprintf(profile->version, sizeof(profile->version), "0.5.0");
    snprintf(profile->started_at, sizeof(profile->started_at), "2026-11-21T11:10:38Z");
    snprintf(profile->files, sizeof(profile->files), "profile.html  profile.json");
    make_knobs(&profile->knobs);
    make_model(which, &profile->model);
    profile->model.knobs = profile->knobs;
    profile->model.checkpoint_each_s = profile->model.checkpoint_share *
                                       profile->knobs.checkpoint_steps * BATCH /
                                       profile->model.rate;
    make_observation(which, &profile->model, &profile->observation);
    profile->ceilings = (struct np_ceilings){.read_cold = 2900,
        .read_warm = 6900,
        .loader = 1750,
        .copy = profile->model.copy_rate,
        .step = profile->model.step_rate};
    make_verdict(which, &profile->verdict);
    profile->noise = which == MADE_INCONCLUSIVE ? 0.14 : 0.018;
    profile->overhead = 0.003;
    profile->seconds = 41.5;
    make_ribbon(which, ribbon);
    profile->ribbon = ribbon;
    profile->nr_ribbon = MADE_RIBBON;
    for (int i = 0; which < NP_NR_STAGES && i < 13; i++) {
        profile->curve_faster[i] = i < 12 ? pow(2, i / 4.0) : INFINITY;
        profile->curve_rate[i] = fmin(RATE * profile->curve_faster[i], profile->verdict.next_rate);
    }
    profile->nr_curve = which < NP_NR_STAGES ? 13 : 0;
}
