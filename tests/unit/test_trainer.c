/* The loop of steps: the order of calls, accumulation, evaluations, boundaries and errors,
 * with a plan that only writes down what it is asked for. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/trainer.h"

struct np_plan {
    char calls[512]; /* "s" step, "a" accumulating step, "u" update, "e" evaluation batch ... */
    double loss, grad_norm;
    float last_lr, last_scale;
    uint64_t last_update;
    int max_later;            /* of the calls of metrics() */
    uint64_t takes_ns;        /* each of them */
    uint64_t nr_read, nan_at; /* calls; the one that gives NaN, 0: none */
};

static void note(struct np_plan *plan, const char *call)
{
    strncat(plan->calls, call, sizeof(plan->calls) - strlen(plan->calls) - 1);
}

static int fake_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    (void)images, (void)labels, (void)step, (void)err;
    plan->last_scale = loss_scale;
    note(plan, accumulate ? "a" : "s");
    return 0;
}

static int fake_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    (void)err;
    plan->last_lr = hyper->lr;
    plan->last_update = hyper->update;
    note(plan, "u");
    return 0;
}

static int fake_eval(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    (void)images, (void)labels, (void)err;
    note(plan, "e");
    return 0;
}

static int fake_metrics(
    struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err)
{
    (void)err;
    plan->max_later = later > plan->max_later ? later : plan->max_later;
    if (plan->takes_ns > 0)
        np_sleep_until_ns(np_now_ns() + plan->takes_ns);
    const bool nan = ++plan->nr_read == plan->nan_at;
    *ret_metrics = (struct np_metrics){.loss_sum = nan ? NAN : 2 * plan->loss,
        .rows = 2,
        .correct = 1,
        .grad_norm = plan->grad_norm};
    return 0;
}

static const struct np_plan_ops fake_ops = {
    .step = fake_step, .update = fake_update, .eval = fake_eval, .metrics = fake_metrics};

/* --- a loop over batches that are all there -------------------------------------------------- */

struct bench {
    struct np_plan plan;
    struct np_device device;
    struct np_ring *ring;
    struct np_feed *feed;
    struct np_trainer_config config;
    struct np_optim_options optim;
    struct np_schedule_options schedule;
    uint64_t seq;
    uint64_t eval_every; /* steps */
    uint64_t stop_after; /* stopping() once so many calls were made; 0: never */
    uint64_t fail_at;    /* boundary() fails at this step */
    bool cut;            /* a boundary had its evaluation due */
    uint64_t rescued;    /* rescue()'s step */
    int why;             /* its error */
    struct np_step_report last_step;
    struct np_eval_report last_eval;
};

static int on_batch(void *context, const struct np_batch *batch)
{
    struct bench *bench = context;

    note(&bench->plan, batch->kind == NP_BATCH_TRAIN ? "b" : "B");
    return 0;
}

static int on_step(void *context, const struct np_step_report *report)
{
    struct bench *bench = context;

    bench->last_step = *report;
    note(&bench->plan, ".");
    return 0;
}

static int on_eval(void *context, const struct np_eval_report *report)
{
    struct bench *bench = context;

    bench->last_eval = *report;
    note(&bench->plan, "E");
    return 0;
}

static bool follows(void *context, uint64_t step)
{
    const struct bench *bench = context;

    return bench->eval_every && step % bench->eval_every == 0;
}

static bool stopping(void *context)
{
    const struct bench *bench = context;

    return bench->stop_after && strlen(bench->plan.calls) >= bench->stop_after;
}

static int on_boundary(void *context, uint64_t step, bool eval_due)
{
    struct bench *bench = context;

    note(&bench->plan, eval_due ? "!" : "|");
    bench->cut = eval_due;
    if (bench->fail_at && step == bench->fail_at)
        return -ENOSPC;
    return stopping(context) ? -EINTR : 0;
}

static void on_rescue(void *context, uint64_t step, bool eval_due, int why)
{
    struct bench *bench = context;

    bench->rescued = step;
    bench->why = why;
    note(&bench->plan, eval_due ? "X" : "x");
}

static void add_batch(
    struct bench *bench, enum np_batch_kind kind, uint64_t step, uint32_t part, uint32_t nr_parts)
{
    struct np_batch *batch = np_ring_claim(bench->ring, bench->seq++, NULL);

    batch->kind = kind;
    batch->step = step;
    batch->part = part;
    batch->nr_parts = nr_parts;
    np_ring_commit(bench->ring, batch, NULL);
    np_ring_commit(bench->ring, batch, NULL);
}

/* All batches of nr_steps, two a evaluation after every eval_every of them. */
static void setup(struct bench *bench, uint64_t nr_steps, uint64_t eval_every, int accumulate)
{
    const struct np_batch_shape shape = {2, 1, 1, 1, {0}, 0, 0, 0, NULL, 0};
    struct np_report report;

    memset(bench, 0, sizeof(*bench));
    np_report_init(&report, NULL);
    np_optim_parse(NULL, &bench->optim, &report);
    np_schedule_parse(NULL, &bench->schedule, &report);
    np_report_fini(&report);
    bench->eval_every = eval_every;
    bench->plan.loss = 0.5;
    bench->device = (struct np_device){
        .ops = &np_device_cpu, .plan_ops = &fake_ops, .pinned = np_page_allocator};
    np_ring_new(&shape, 64, &np_page_allocator, &bench->ring, NULL);
    np_ring_start(bench->ring, 0);
    np_feed_new(&bench->device, bench->ring, &shape, NULL, &bench->feed, NULL);
    for (uint64_t step = 0; step < nr_steps; step++) {
        add_batch(bench, NP_BATCH_TRAIN, step, 0, 1);
        for (uint32_t part = 0; part < 2 && follows(bench, step + 1); part++)
            add_batch(bench, NP_BATCH_EVAL, step + 1, part, 2);
    }
    bench->config = (struct np_trainer_config){
        .device = &bench->device,
        .plan = &bench->plan,
        .feed = bench->feed,
        .optim = &bench->optim,
        .schedule = &bench->schedule,
        .nr_steps = nr_steps,
        .nr_train = 4,
        .batch = 2,
        .accumulate = accumulate,
        .hooks = {.batch = on_batch,
            .step = on_step,
            .eval = on_eval,
            .eval_follows = follows,
            .stopping = stopping,
            .boundary = on_boundary,
            .context = bench},
    };
}

static void teardown(struct bench *bench)
{
    np_feed_free(bench->feed);
    np_ring_free(bench->ring);
    np_schedule_fini(&bench->schedule);
}

Test(trainer, steps_left_out_are_reported_and_compute_nothing)
{
    struct bench bench;
    struct np_err err = {0};

    setup(&bench, 4, 0, 2);
    bench.config.stubs = 1u << NP_STAGE_STEP;
    cr_assert_eq(np_trainer_run(&bench.config, &err), 0, "%s", err.text);
    cr_expect_eq(bench.last_step.step, 4u);
    cr_expect_eq(bench.last_step.rows, 2u, "images count as they would");
    cr_expect_null(strpbrk(bench.plan.calls, "sau"), "%s", bench.plan.calls);
    teardown(&bench);
}

Test(trainer, a_step_is_batch_step_update_report_boundary, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 2, 0, 1);
    cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
    cr_assert_str_eq(bench.plan.calls, "bsu.|bsu.|");
    cr_assert_eq(bench.last_step.step, 2);
    cr_assert_float_eq(bench.last_step.epoch, 1, 0);
    cr_assert_float_eq(bench.last_step.loss, 0.5, 0);
    cr_assert_float_eq(bench.last_step.lr, 0.1, 1e-12);
    cr_assert_float_eq(bench.plan.last_scale, 0.5, 0);
    cr_assert_eq(bench.plan.last_update, 1);
    teardown(&bench);
}

Test(trainer, an_evaluation_comes_before_the_boundary, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 3, 2, 1);
    cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
    cr_assert_str_eq(bench.plan.calls, "bsu.|bsu.BeBeE|bsu.|");
    cr_assert_eq(bench.last_eval.step, 2);
    cr_assert_eq(bench.last_eval.images, 2);
    teardown(&bench);
}

Test(trainer, gradients_of_several_batches_make_one_update, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 4, 3, 2);
    cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
    /* the evaluation after step 3 is made within an accumulation, where no boundary is */
    cr_assert_str_eq(bench.plan.calls, "bsbau..|bs.BeBeEbau.|");
    cr_assert_float_eq(bench.plan.last_scale, 0.25, 0);
    cr_assert_eq(bench.plan.last_update, 1);
    teardown(&bench);
}

static bool no_boundary(void *context, uint64_t step)
{
    (void)context;
    (void)step;
    return false;
}

Test(trainer, a_computed_step_is_reported_before_the_next_batch, .timeout = 120)
{
    struct np_plan_ops ops = fake_ops;
    struct bench bench;

    ops.synchronous = true;
    setup(&bench, 3, 2, 1);
    bench.device.plan_ops = &ops;
    bench.config.hooks.boundary_follows = no_boundary;
    cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
    cr_assert_str_eq(bench.plan.calls, "bsu.bsu.BeBeE|bsu.|");
    teardown(&bench);
}

Test(trainer, metrics_are_read_a_step_late_if_no_boundary_follows, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 3, 0, 1);
    bench.config.hooks.boundary_follows = no_boundary;
    cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
    cr_assert_str_eq(bench.plan.calls, "bsubsu.bsu..|"); /* the last step's boundary always is */
    cr_assert_eq(bench.last_step.step, 3);
    teardown(&bench);
}

static uint64_t nr_of(const struct bench *bench, char call)
{
    uint64_t n = 0;

    for (const char *at = bench->plan.calls; *at; at++)
        n += *at == call;
    return n;
}

Test(trainer, short_steps_are_queued_further_ahead_than_long_ones, .timeout = 120)
{
    struct bench bench;

    for (int longer = 0; longer < 2; longer++) {
        setup(&bench, 20, 0, 1);
        bench.plan.takes_ns = longer ? 4000000 : 0;
        bench.config.hooks.boundary_follows = no_boundary;
        cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
        cr_expect_eq(bench.plan.max_later, longer ? 1 : NP_MAX_LATER);
        cr_expect_eq(nr_of(&bench, '.'), 20);
        teardown(&bench);
    }
}

/* A boundary before the end: every step is read before it, so that nothing is saved. */
static bool boundary_at_eight(void *context, uint64_t step)
{
    (void)context;
    return step == 8;
}

Test(trainer, a_nan_is_seen_late_but_before_a_boundary, .timeout = 120)
{
    for (uint64_t nan_at = 2; nan_at <= 8; nan_at++) {
        struct np_err err = {0};
        struct bench bench;
        char want[16];

        setup(&bench, 12, 0, 1);
        bench.plan.nan_at = nan_at;
        bench.config.hooks.boundary_follows = boundary_at_eight;
        cr_assert_eq(np_trainer_run(&bench.config, &err), -EDOM);
        snprintf(want, sizeof(want), "step %d:", (int)nan_at);
        cr_expect(strncmp(err.text, want, strlen(want)) == 0, "%s", err.text);
        cr_expect_eq(nr_of(&bench, '.'), nan_at - 1);
        cr_expect_eq(nr_of(&bench, '|'), 0);
        cr_expect(nr_of(&bench, 's') <= nan_at + NP_MAX_LATER && nr_of(&bench, 's') <= 8);
        teardown(&bench);
    }
}

/* Behind the sixth batch no file can be read. */
static int last_batch(void *context, const struct np_batch *batch)
{
    struct bench *bench = context;
    struct np_err why = {0};

    if (batch->step == 5)
        np_ring_stop(bench->ring, (np_err_set(&why, -EIO, "photo.jpg: read failed"), &why));
    return 0;
}

Test(trainer, a_rescue_reads_all_steps_first, .timeout = 120)
{
    for (uint64_t nan_at = 5; nan_at <= 7; nan_at++) {
        struct np_err err = {0};
        struct bench bench;

        setup(&bench, 6, 0, 1);
        bench.config.nr_steps = 12;
        bench.plan.nan_at = nan_at;
        bench.config.hooks.rescue = on_rescue;
        bench.config.hooks.boundary_follows = no_boundary;
        bench.config.hooks.batch = last_batch;
        const int code = np_trainer_run(&bench.config, &err);
        /* on a slow machine only the last step may be unread when the ring ends */
        cr_assert(code == -EIO || (code == -EDOM && nan_at == 5));
        cr_expect_eq(bench.rescued, nan_at <= 6 ? 0 : 6);
        cr_expect_eq(nr_of(&bench, '.'), nan_at <= 6 ? nan_at - 1 : 6);
        teardown(&bench);
    }
}

Test(trainer, a_stop_ends_at_the_boundary, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 4, 0, 2);
    bench.stop_after = 3; /* within the first accumulation */
    cr_assert_eq(np_trainer_run(&bench.config, NULL), -EINTR);
    cr_assert_str_eq(bench.plan.calls, "bsbau..|");
    teardown(&bench);
}

Test(trainer, a_stop_cuts_an_evaluation_and_marks_it, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 4, 2, 1);
    bench.stop_after = strlen("bsu.|bsu.Be");
    cr_assert_eq(np_trainer_run(&bench.config, NULL), -EINTR);
    cr_assert_str_eq(bench.plan.calls, "bsu.|bsu.Be!");
    cr_assert(bench.cut);
    teardown(&bench);
}

Test(trainer, a_stop_within_an_accumulation_lets_its_evaluation_end, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 4, 1, 2);
    bench.stop_after = strlen("bs.Be");
    cr_assert_eq(np_trainer_run(&bench.config, NULL), -EINTR);
    cr_assert_str_eq(bench.plan.calls, "bs.BeBeEbau.!");
    teardown(&bench);
}

Test(trainer, resumes_from_a_step_with_its_evaluation, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 0, 0, 1);
    add_batch(&bench, NP_BATCH_EVAL, 6, 0, 1);
    add_batch(&bench, NP_BATCH_TRAIN, 6, 0, 1);
    bench.config.first_step = 6;
    bench.config.nr_steps = 7;
    bench.config.eval_due = true;
    cr_assert_eq(np_trainer_run(&bench.config, NULL), 0);
    cr_assert_str_eq(bench.plan.calls, "BeE|bsu.|");
    cr_assert_eq(bench.plan.last_update, 6);
    cr_assert_eq(bench.last_step.step, 7);
    teardown(&bench);
}

Test(trainer, a_hook_that_fails_ends_the_loop_with_its_code, .timeout = 120)
{
    struct bench bench;

    setup(&bench, 4, 0, 1);
    bench.fail_at = 2;
    cr_assert_eq(np_trainer_run(&bench.config, NULL), -ENOSPC);
    cr_assert_str_eq(bench.plan.calls, "bsu.|bsu.|");
    teardown(&bench);
}

Test(trainer, a_nan_loss_is_an_error_with_step_and_rate, .timeout = 120)
{
    struct np_err err = {0};
    struct bench bench;

    setup(&bench, 4, 0, 1);
    bench.plan.loss = NAN;
    cr_assert_eq(np_trainer_run(&bench.config, &err), -EDOM);
    cr_assert(
        strncmp(err.text, "step 1: the loss is not a number at a learning rate of 0.1;", 59) == 0);
    cr_assert_str_eq(bench.plan.calls, "bsu"); /* no report, no boundary: nothing is saved */
    teardown(&bench);
    memset(&err, 0, sizeof(err));
    setup(&bench, 4, 0, 1);
    bench.plan.loss = INFINITY;
    cr_assert_eq(np_trainer_run(&bench.config, &err), -EDOM);
    cr_assert(strstr(err.text, "the loss is infinite"));
    teardown(&bench);
}

Test(trainer, a_nan_norm_of_the_gradients_is_an_error_too, .timeout = 120)
{
    struct np_err err = {0};
    struct bench bench;

    setup(&bench, 4, 0, 1);
    bench.plan.grad_norm = NAN;
    cr_assert_eq(np_trainer_run(&bench.config, &err), -EDOM);
    cr_assert(strstr(err.text, "step 1: the norm of the gradients is not a number"));
    teardown(&bench);
}

Test(trainer, a_ring_that_is_stopped_gives_its_error, .timeout = 120)
{
    struct np_err why = {0}, err = {0};
    struct bench bench;

    setup(&bench, 1, 0, 1);
    bench.config.nr_steps = 2;
    np_err_set(&why, -EIO, "photo.jpg: read failed");
    /* the batch that is there may still be used or not; the error comes through in any case */
    np_ring_stop(bench.ring, &why);
    cr_assert_eq(np_trainer_run(&bench.config, &err), -EIO);
    cr_assert(strstr(err.text, "photo.jpg"));
    teardown(&bench);
}

/* The loop over 3 batches, then a file that cannot be read. */
static void run_to_unreadable(struct bench *bench, uint64_t eval_every, int accumulate)
{
    struct np_err why = {0}, err = {0};

    setup(bench, 3, eval_every, accumulate);
    bench->config.nr_steps = 12;
    bench->config.hooks.rescue = on_rescue;
    np_err_set(&why, -EIO, "photo.jpg: read failed");
    struct np_batch *last = np_ring_claim(bench->ring, bench->seq, NULL);
    cr_assert_not_null(last); /* never committed */
    bench->config.hooks.stopping = stopping;
    np_ring_stop(bench->ring, &why);
    cr_assert_eq(np_trainer_run(&bench->config, &err), -EIO);
    teardown(bench);
}

Test(trainer, after_a_read_error_the_weights_can_be_saved, .timeout = 120)
{
    struct bench bench;

    run_to_unreadable(&bench, 0, 1);
    const char *calls = bench.plan.calls;
    cr_assert(calls[strlen(calls) - 1] == 'x');
    run_to_unreadable(&bench, 0, 4); /* gradients are under way: nothing whole but the start */
    calls = bench.plan.calls;
    cr_assert(strcmp(calls, "x") == 0 || !strchr(calls, 'x'));
}

Test(trainer, a_stop_during_a_wait_for_a_batch_keeps_the_last_update, .timeout = 120)
{
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        struct np_err err = {0};
        struct bench bench;

        setup(&bench, 3, 0, accumulate);
        bench.config.nr_steps = 4; /* the fourth batch never comes */
        bench.config.hooks.rescue = on_rescue;
        np_ring_interrupt(bench.ring);
        cr_assert_eq(np_trainer_run(&bench.config, &err), -EINTR);
        cr_assert_str_eq(bench.plan.calls, accumulate == 1 ? "bsu.|bsu.|bsu.|x" : "bsbau..|bsx");
        cr_assert_eq(bench.rescued, accumulate == 1 ? 3 : 2);
        cr_assert_eq(bench.why, -EINTR);
        teardown(&bench);
    }
}

Test(trainer, a_stop_during_a_wait_of_an_evaluation_cuts_it, .timeout = 120)
{
    struct np_err err = {0};
    struct bench bench;

    setup(&bench, 1, 0, 1);
    add_batch(&bench, NP_BATCH_EVAL, 1, 0, 2); /* its second part never comes */
    bench.eval_every = 1;
    bench.stop_after = strlen("bsu.Be");
    np_ring_interrupt(bench.ring);
    cr_assert_eq(np_trainer_run(&bench.config, &err), -EINTR);
    cr_assert_str_eq(bench.plan.calls, "bsu.Be!");
    teardown(&bench);
}
