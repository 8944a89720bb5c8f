/* The loop of steps: feed -> plan -> reports. Trainer thread. The order at a step's end is
 * fixed: update, evaluation if due, then the boundary, where a checkpoint may be written and the
 * loop may end.
 *
 * A step is reported while later ones run: one, or NP_MAX_LATER if they are short, so that the
 * host's delays do not reach the device. All are reported before an evaluation and a boundary: a loss
 * that is not a number may be seen a few steps late, but nothing is saved or evaluated before. */
#include "trainer/trainer.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "loader/base/clock.h"

#define IDLE_NS  2000000 /* between two calls of the hook while there is no batch */
#define SHORT_NS 2000000 /* of a step: shorter ones are queued further ahead */

struct queued {                 /* a step that is not reported yet */
    double lr;                  /* of its update, or of the next one */
    uint64_t seq;               /* of its batch in the ring */
    struct np_metrics of_lanes; /* of a batch that was computed in lanes */
};

struct loop {
    const struct np_trainer_config *config;
    uint64_t step;     /* done */
    uint64_t last_ns;  /* end of the previous step */
    uint64_t stall_ns; /* of the feed, up to there */
    double lr;
    uint64_t reported;                      /* steps reported */
    struct queued queued[NP_MAX_LATER + 1]; /* the newest steps, by number */
    uint64_t took_ns;                       /* of the newest reported step; 0: none yet */
    uint64_t whole;                         /* step of the last update: the last boundary */
    bool no_batch;                          /* there is no next batch */
};

static struct queued *queued(struct loop *loop, uint64_t step)
{
    return &loop->queued[step % (NP_MAX_LATER + 1)];
}

static uint64_t updates_of(const struct np_trainer_config *config, uint64_t steps)
{
    return steps / (uint64_t)config->accumulate;
}

/* Of the update that the current step belongs to. */
static void next_hyper(struct loop *loop, struct np_hyper *ret_hyper)
{
    const struct np_trainer_config *config = loop->config;
    uint64_t number = updates_of(config, loop->step);
    uint64_t start = updates_of(config, config->schedule_start);
    double an_epoch = (double)config->nr_train / ((double)config->batch * config->accumulate);
    const uint64_t since = number - start, nr = updates_of(config, config->nr_steps) - start;
    double factor = np_schedule_factor(config->schedule, since, nr, an_epoch);
    const double momentum = np_schedule_momentum(config->schedule, since, nr);

    if (config->plateau)
        factor *= np_plateau_factor(config->plateau);
    np_optim_hyper(config->optim, factor, number, ret_hyper);
    if (momentum > 0)
        np_optim_set_momentum(momentum, ret_hyper);
    loop->lr = config->optim->lr * factor;
}

static bool leaves_out_steps(const struct np_trainer_config *config)
{
    return config->stubs & 1u << NP_STAGE_STEP;
}

static bool in_lanes(const struct np_trainer_config *config)
{
    return config->lanes.nr > 1;
}

/* The device queues lanes; otherwise they are computed when compute_lanes() returns. */
static bool queues_lanes(const struct np_trainer_config *config)
{
    return in_lanes(config) && config->device->plan_ops->step_lanes;
}

static int read_metrics(struct loop *loop, struct np_metrics *ret_metrics, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;

    if (leaves_out_steps(config)) {
        *ret_metrics = (struct np_metrics){.rows = (uint64_t)config->batch};
        return 0;
    }
    if (in_lanes(config) && !queues_lanes(config)) {
        *ret_metrics = queued(loop, loop->reported)->of_lanes;
        return 0;
    }
    np_stat_wait(config->block, NP_STATE_BLOCKED, "metrics", "the device, step", loop->reported);
    const int later = (int)(loop->step - loop->reported - 1);
    int code = queues_lanes(config)
                   ? np_lanes_read(&config->lanes, config->device, config->plan, ret_metrics, err)
                   : config->device->plan_ops->metrics(config->plan, later, ret_metrics, err);
    np_stat_done(config->block);
    return code;
}

/* Reports the oldest unreported step; waits only for that step. */
static int report_step(struct loop *loop, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;
    const struct queued *of = queued(loop, loop->reported);
    struct np_metrics metrics;
    int code = read_metrics(loop, &metrics, err);

    if (code < 0)
        return code;
    if (config->losses && !in_lanes(config)) /* else they are there */
        config->device->plan_ops->losses(config->plan, config->losses);
    uint64_t now = np_now_ns(), stall = np_feed_account(config->feed)->stall_ns;
    if (stall - loop->stall_ns > now - loop->last_ns) /* part of it belongs to the next step */
        stall = loop->stall_ns + (now - loop->last_ns);
    struct np_step_report report = {
        .step = loop->reported + 1,
        .epoch = (double)(loop->reported + 1) * config->batch / (double)config->nr_train,
        .lr = of->lr,
        .loss = metrics.rows ? metrics.loss_sum / (double)metrics.rows : 0,
        .loss_sum = metrics.loss_sum,
        .grad_norm = metrics.grad_norm,
        .losses = config->losses,
        .rows = metrics.rows,
        .correct = metrics.correct,
        .seconds = (double)(now - loop->last_ns) * 1e-9,
        .stall_seconds = (double)(stall - loop->stall_ns) * 1e-9,
    };
    loop->took_ns = now - loop->last_ns - (stall - loop->stall_ns);
    np_stat_about(config->block, of->seq, -1);
    np_stat_item(config->block, NP_STAGE_STEP, 0, loop->took_ns);
    loop->last_ns = now;
    loop->stall_ns = stall;
    loop->reported++;
    /* The norm too: a relu may hide from the loss that weights are no longer finite. */
    if (!isfinite(report.loss) || !isfinite(report.grad_norm)) {
        bool of_loss = !isfinite(report.loss);

        return np_err_set(err, -EDOM,
            "step %llu: the %s is %s at a learning rate of %g; a smaller optimizer lr, a longer "
            "warm-up or train.clip_norm may help",
            (unsigned long long)report.step, of_loss ? "loss" : "norm of the gradients",
            isnan(of_loss ? report.loss : report.grad_norm) ? "not a number" : "infinite",
            report.lr);
    }
    return config->hooks.step(config->hooks.context, &report);
}

static int seen(const struct np_trainer_config *config, const struct np_input *input)
{
    return config->hooks.batch ? config->hooks.batch(config->hooks.context, &input->about) : 0;
}

/* Queues the average after an update, if one is due. */
static int average(const struct loop *loop, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;
    const struct np_plan_ops *ops = config->device->plan_ops;
    float weight = 0;

    if (config->average && ops->average)
        weight = np_average_weight(config->average, updates_of(config, loop->step) + 1,
            updates_of(config, config->nr_steps));
    return weight > 0 ? ops->average(config->plan, weight, config->average->lookahead, err) : 0;
}

/* --- several processes ---------------------------------------------------------------------- */

enum { ASKS = 1, STOPS = 2, HAS_NO_BATCH = 4 };

/* What one process wants, all do. */
static int agree(const struct np_trainer_config *config, uint32_t *bits, struct np_err *err)
{
    const struct np_trainer_hooks *hooks = &config->hooks;

    if (!config->lanes.comm)
        return 0;
    if (hooks->stopping(hooks->context))
        *bits |= STOPS;
    np_stat_wait(config->block, NP_STATE_BLOCKED, "peers", "the other processes", 0);
    const int code = np_comm_any(config->lanes.comm, bits, err);
    np_stat_done(config->block);
    if (code == 0 && *bits & STOPS)
        hooks->agreed(hooks->context);
    return code;
}

/* The next batch. A wait that another process's news has interrupted ends for that one's reason. */
static int next_batch(
    const struct np_trainer_config *config, struct np_input *ret_input, struct np_err *err)
{
    const struct np_trainer_hooks *hooks = &config->hooks;
    struct np_err heard = {0};

    while (hooks->idle && np_feed_starves(config->feed) && hooks->idle(hooks->context))
        np_feed_expect(config->feed, np_now_ns() + IDLE_NS);
    const int code = np_feed_next(config->feed, ret_input, err);

    if (code != -EINTR || np_comm_heard(config->lanes.comm, &heard) == 0)
        return code;
    if (err)
        *err = heard;
    return heard.code;
}

/* Tells the other processes why this one goes no further. */
static void tell(const struct np_trainer_config *config, int code, const struct np_err *err)
{
    np_comm_abort(config->lanes.comm, code, err && err->code ? err->text : "it was told to stop");
}

static struct np_stripe stripe_of(
    const struct np_trainer_config *config, const struct np_input *input)
{
    return (struct np_stripe){input->images, input->labels, np_feed_row_bytes(config->feed, input)};
}

static int compute_lanes(
    struct loop *loop, const struct np_input *input, bool updates, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;
    const struct np_stripe stripe = stripe_of(config, input);
    struct np_hyper hyper;

    if (updates)
        next_hyper(loop, &hyper);
    const int code =
        queues_lanes(config)
            ? np_lanes_queue(&config->lanes, config->device, config->plan, &stripe, loop->step,
                  updates ? &hyper : NULL, err)
            : np_lanes_step(&config->lanes, config->device, config->plan, &stripe, loop->step,
                  updates ? &hyper : NULL, &queued(loop, loop->step)->of_lanes, err);
    return code == 0 && updates ? average(loop, err) : code;
}

/* --- steps and evaluations ------------------------------------------------------------------ */

/* Queues forward, backward, and the update when the batch ends an accumulation. */
static int compute(struct loop *loop, const struct np_input *input, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;
    const struct np_plan_ops *ops = config->device->plan_ops;
    uint64_t phase = loop->step % (uint64_t)config->accumulate;
    float loss_scale = 1.0f / (float)(config->batch * config->accumulate);
    bool updates = phase + 1 == (uint64_t)config->accumulate;
    struct np_hyper hyper;
    int code;

    if (leaves_out_steps(config))
        return 0;
    if (in_lanes(config))
        return compute_lanes(loop, input, updates, err);
    if (updates)
        next_hyper(loop, &hyper);
    if (updates && phase == 0 && ops->step_update) {
        code = ops->step_update(
            config->plan, input->images, input->labels, loop->step, loss_scale, &hyper, err);
    } else {
        code = ops->step(
            config->plan, input->images, input->labels, loop->step, loss_scale, phase > 0, err);
        if (code == 0 && updates)
            code = ops->update(config->plan, &hyper, err);
    }
    return code == 0 && updates ? average(loop, err) : code;
}

/* Reports steps until this number is done. */
static int report_to(struct loop *loop, uint64_t step, struct np_err *err)
{
    int code = 0;

    while (code == 0 && loop->reported < step)
        code = report_step(loop, err);
    return code;
}

/* Reports every step done, before a checkpoint or an evaluation reads the run's position. */
static int catch_up(struct loop *loop, struct np_err *err)
{
    return report_to(loop, loop->step, err);
}

/* Steps that stay unreported behind the newest one. None on a device that computes at once, else a step's time
 * would be the next one's. */
static uint64_t nr_later(const struct loop *loop)
{
    if (loop->config->device->plan_ops->synchronous)
        return 0;
    if (queues_lanes(loop->config) && loop->config->lanes.comm)
        return 1; /* the same in all processes, which report together: not by the time it took */
    return loop->took_ns > 0 && loop->took_ns < SHORT_NS ? NP_MAX_LATER : 1;
}

/* Before lanes are queued: a process that has no batch says so while all still take part, so that the
 * numbers of the steps before, which come from all, are known, and these steps can be saved. code: of
 * this process. Returns it, or the code of the one that has none. */
static int all_have_batch(struct loop *loop, int code, struct np_err *err)
{
    struct np_comm *comm = loop->config->lanes.comm;
    struct np_err why = {0};
    uint32_t bits = code < 0 ? HAS_NO_BATCH : 0;
    int told = comm ? np_comm_any(comm, &bits, &why) : 0;

    if (told == 0 && bits & HAS_NO_BATCH) {
        told = catch_up(loop, &why);
        if (told == 0 && code == 0 && (told = np_comm_any(comm, &bits, &why)) == 0)
            told = np_err_set(&why, -EIO, "another process has no batch");
    }
    if (code == 0 && told < 0)
        code = np_err_set(err, told, "%s", why.text);
    return code;
}

static int train_step(struct loop *loop, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;
    struct np_input input;
    int code = next_batch(config, &input, err);

    loop->no_batch = code < 0;
    if (queues_lanes(config))
        code = all_have_batch(loop, code, err);
    if (code < 0) {
        if (!loop->no_batch)
            np_feed_release(config->feed, &input);
        return code;
    }
    assert(input.about.kind == NP_BATCH_TRAIN && input.about.step == loop->step);
    queued(loop, loop->step)->seq = input.about.seq;
    code = seen(config, &input);
    loop->no_batch = code == -EBADMSG; /* with several processes the hook counts bad samples */
    if (code == 0)
        code = compute(loop, &input, err);
    np_feed_release(config->feed, &input);
    if (code < 0)
        return code;
    queued(loop, loop->step)->lr = loop->lr;
    loop->step++;
    const uint64_t later = nr_later(loop);
    return loop->step > later ? report_to(loop, loop->step - later, err) : 0;
}

static int eval_input(const struct np_trainer_config *config, const struct np_input *input,
    struct np_metrics *sums, struct np_err *err)
{
    const struct np_stripe stripe = stripe_of(config, input);

    return in_lanes(config)
               ? np_lanes_eval(&config->lanes, config->device, config->plan, &stripe, sums, err)
               : config->device->plan_ops->eval(config->plan, input->images, input->labels, err);
}

/* Runs the next batch of the evaluation after `step`. *ret_last: it was the last one. sums: of batches
 * in lanes. */
static int eval_batch(const struct np_trainer_config *config, uint64_t step,
    struct np_metrics *sums, bool *ret_last, struct np_err *err)
{
    struct np_input input;
    int code = next_batch(config, &input, err);

    if (code < 0)
        return code;
    assert(input.about.kind == NP_BATCH_EVAL && input.about.step == step);
    *ret_last = input.about.part + 1 == input.about.nr_parts;
    code = seen(config, &input);
    if (code == 0)
        code = eval_input(config, &input, sums, err);
    if (code == 0 && config->hooks.evaluated)
        code = config->hooks.evaluated(config->hooks.context, &input.about);
    np_feed_release(config->feed, &input);
    return code;
}

int np_trainer_eval(const struct np_trainer_config *config, uint64_t step, bool *ret_cut,
    struct np_eval_report *ret_report, struct np_err *err)
{
    uint64_t start = np_now_ns();
    struct np_metrics metrics, sums = {0};
    bool last = false;
    int code = 0;

    bool agreed = false;

    while (code == 0 && !last) {
        const bool own = ret_cut && config->hooks.stopping(config->hooks.context);
        uint32_t bits = own ? STOPS : 0;

        if (ret_cut)
            code = agree(config, &bits, err);
        agreed = bits & STOPS;
        if (code == 0)
            code = agreed ? -EINTR : eval_batch(config, step, &sums, &last, err);
    }
    if (code == -EINTR && ret_cut) {
        if (config->lanes.comm && !agreed) { /* one of them stopped while it waited for a batch */
            tell(config, code, err);
            config->hooks.agreed(config->hooks.context);
        }
        *ret_cut = true;
        return 0;
    }
    if (code < 0)
        return code;
    np_stat_wait(config->block, NP_STATE_BLOCKED, "metrics", "the device, evaluation", step);
    code = config->device->plan_ops->metrics(config->plan, false, &metrics, err);
    np_stat_done(config->block);
    if (code < 0)
        return code;
    if (in_lanes(config))
        metrics = sums;
    *ret_report = (struct np_eval_report){
        .numbers = config->numbers,
        .step = step,
        .images = metrics.rows,
        .correct = metrics.correct,
        .top5 = metrics.top5,
        /* fabs: do not print the sign of a NaN */
        .loss = metrics.rows ? fabs(metrics.loss_sum / (double)metrics.rows) : 0,
        .seconds = (double)(np_now_ns() - start) * 1e-9,
    };
    return 0;
}

/* Before and after an evaluation of the averages. */
static int swap_averages(const struct np_trainer_config *config, struct np_err *err)
{
    const struct np_plan_ops *ops = config->device->plan_ops;

    return config->average && ops->swap ? ops->swap(config->plan, err) : 0;
}

/* Runs the evaluation after the steps done so far; if it is cut short, the boundary handles
 * that. */
static int evaluate(struct loop *loop, bool may_stop, bool *ret_cut, struct np_err *err)
{
    const struct np_trainer_config *config = loop->config;
    struct np_eval_report report;
    int code = swap_averages(config, err);

    if (code < 0)
        return code;
    code = np_trainer_eval(config, loop->step, may_stop ? ret_cut : NULL, &report, err);
    const int back =
        swap_averages(config, err); /* also after an error: a rescue saves the weights */
    code = code < 0 ? code : back;
    if (code == 0 && !*ret_cut)
        code = config->hooks.eval(config->hooks.context, &report);
    /* Its time belongs to no step. */
    loop->last_ns = np_now_ns();
    loop->stall_ns = np_feed_account(config->feed)->stall_ns;
    return code;
}

/* There is no next batch: the training so far can be saved. Weights are those of the last update,
 * whatever has been accumulated since. */
static void rescue(struct loop *loop, bool eval_due, int why, const struct np_err *err)
{
    const struct np_trainer_hooks *hooks = &loop->config->hooks;
    const bool may = why == -EIO || why == -ESTALE || why == -EBADMSG || why == -EINTR;

    /* While the others take part: numbers of lanes come from all. */
    const bool reported = may && report_to(loop, loop->whole, NULL) == 0;
    tell(loop->config, why, err);
    if (reported && hooks->rescue)
        hooks->rescue(hooks->context, loop->whole, eval_due && loop->step == loop->whole, why);
}

/* Does this process ask for a boundary after the steps done so far? */
static bool asks_for_boundary(const struct loop *loop, bool eval)
{
    const struct np_trainer_config *config = loop->config;
    const struct np_trainer_hooks *hooks = &config->hooks;

    return !hooks->boundary_follows || eval || loop->step == config->nr_steps ||
           hooks->boundary_follows(hooks->context, loop->step);
}

int np_trainer_run(const struct np_trainer_config *config, struct np_err *err)
{
    const struct np_trainer_hooks *hooks = &config->hooks;
    struct loop loop = {.config = config,
        .step = config->first_step,
        .reported = config->first_step,
        .last_ns = np_now_ns()};
    bool eval = config->eval_due;
    int code = 0;

    assert(config->first_step % (uint64_t)config->accumulate == 0);
    assert(config->nr_steps % (uint64_t)config->accumulate == 0);
    for (;;) {
        bool whole = loop.step % (uint64_t)config->accumulate == 0, cut = false;

        if (whole)
            loop.whole = loop.step;
        const bool may_ask = whole && (eval || loop.step > config->first_step);
        uint32_t bits = may_ask && asks_for_boundary(&loop, eval) ? ASKS : 0;

        if ((code = agree(config, &bits, err)) < 0) {
            rescue(&loop, eval, code, err);
            return code;
        }
        const bool asks = may_ask && bits;

        if ((eval || asks) && (code = catch_up(&loop, err)) < 0)
            return code;
        if (eval && (code = evaluate(&loop, whole, &cut, err)) < 0) {
            rescue(&loop, true, code, err);
            return code;
        }
        if (asks) {
            if ((code = hooks->boundary(hooks->context, loop.step, cut)) < 0)
                return code;
            loop.last_ns = np_now_ns(); /* a checkpoint's time belongs to no step either */
        }
        assert(!cut);
        if (loop.step == config->nr_steps || (asks && hooks->ends && hooks->ends(hooks->context)))
            return 0;
        if ((code = train_step(&loop, err)) < 0) {
            if (loop.no_batch || np_comm_aborted(config->lanes.comm))
                rescue(&loop, false, code, err);
            else
                tell(config, code, err);
            return code;
        }
        eval = hooks->eval_follows(hooks->context, loop.step);
    }
}
