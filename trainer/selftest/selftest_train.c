/* The self-test's short training: the device's loss curve against the CPU device's, and the same
 * training twice. Pictures are drawn: each class has one of its own, and every sample is that under
 * noise, so that a few steps are enough to learn them. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/rng.h"
#include "trainer/optim.h"
#include "trainer/selftest/selftest_side.h"

#define STEPS 60
#define LAST  10 /* whose mean is what was learnt */

struct course {
    const struct np_selftest_case *the_case;
    uint64_t seed;
    uint8_t *images;
    int32_t *labels;
    float *params, *buffers; /* to start with */
    float *block;            /* holds both; NULL: not drawn yet */
    uint64_t nr_params;
};

/* A class's picture: colours of its own in blocks of 4 x 4 pixels. */
static void draw_row(struct course *course, int row, struct np_draws *noise)
{
    const struct np_selftest_case *the_case = course->the_case;
    const int c = the_case->channels, w = the_case->width;
    uint8_t *at = course->images + (size_t)row * (size_t)(the_case->height * w * c);

    for (int i = 0; i < the_case->height * w * c; i++) {
        struct np_draws block;
        uint32_t colour;

        np_draws_init(&block, course->seed, NP_STREAM_TEST, 12, (uint32_t)course->labels[row],
            (uint32_t)((i / (w * c) / 4 * w + i / c % w / 4) * c + i % c));
        colour = np_draw_below(&block, 256);
        at[i] = (uint8_t)((colour + np_draw_below(noise, 256)) / 2);
    }
}

/* Batch number `step`: the same for everyone. */
static void draw_batch(struct course *course, uint64_t step)
{
    struct np_draws labels, noise;

    np_draws_init(&labels, course->seed, NP_STREAM_TEST, 10, (uint32_t)step, 0);
    np_draws_init(&noise, course->seed, NP_STREAM_TEST, 11, (uint32_t)step, 0);
    for (int row = 0; row < course->the_case->batch; row++) {
        course->labels[row] = (int32_t)np_draw_below(&labels, (uint32_t)course->the_case->classes);
        draw_row(course, row, &noise);
    }
}

static int train_steps(
    struct np_self_side *side, struct course *course, double losses[STEPS], struct np_err *err)
{
    const struct np_plan_ops *ops = side->device->plan_ops;
    struct np_hyper hyper = {
        .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true, .clip_norm = 5};
    struct np_metrics metrics;
    int code = np_self_write(side, course->params, course->buffers, false, err);

    if (code == 0)
        code = ops->metrics(side->plan, false, &metrics, err);
    for (int i = 0; i < STEPS && code == 0; i++) {
        hyper.lr = 0.05f * (float)(i < 10 ? i + 1 : 10) / 10;
        hyper.update = (uint64_t)i;
        draw_batch(course, (uint64_t)i);
        code = np_self_load(side, i % NP_SELF_BATCHES, course->images, course->labels, err);
        if (code == 0)
            code = np_self_step_update(side, i % NP_SELF_BATCHES, (uint64_t)i, &hyper, err);
        if (code == 0)
            code = ops->metrics(side->plan, false, &metrics, err);
        losses[i] = code == 0 ? metrics.loss_sum / (double)metrics.rows : 0;
    }
    return code;
}

/* A device from fresh to trained; *ret_params: np_free. */
static int train_once(struct np_device *device, struct course *course, enum np_dtype precision,
    bool reference, double losses[STEPS], float **ret_params, struct np_err *err)
{
    struct np_self_side side;
    float *params = NULL;
    int code = np_self_open(&side, device, course->the_case, precision, reference, err);

    if (code == 0 && !(params = np_try_array(side.train->nr_params, sizeof(float), err)))
        code = -ENOMEM;
    if (code == 0 && !course->block) {
        course->nr_params = side.train->nr_params;
        course->block =
            np_self_arrays((const uint64_t[]){side.train->nr_params, side.train->nr_buffers}, 2,
                (float **const[]){&course->params, &course->buffers}, err);
        if (course->block)
            np_graph_init(side.train, course->seed, course->params, course->buffers);
        else
            code = -ENOMEM;
    }
    for (int at = 0; at < NP_SELF_BATCHES && code == 0; at++) {
        draw_batch(course, (uint64_t)at);
        code = np_self_load(&side, at, course->images, course->labels, err);
    }
    if (code == 0 && precision == NP_F16)
        code = np_self_settle(&side, course->params, course->buffers, err);
    if (code == 0)
        code = train_steps(&side, course, losses, err);
    if (code == 0)
        code = device->plan_ops->read(side.plan, NP_ARRAY_PARAMS, params, err);
    np_self_close(&side);
    *ret_params = params;
    return code;
}

static void judge(struct np_selftest_result *result, const double *found, const double *want)
{
    double off = 0, size = 0, first = 0, last = 0;
    double *error = result->error;

    for (int i = 0; i < STEPS; i++) {
        off += (found[i] - want[i]) * (found[i] - want[i]);
        size += want[i] * want[i];
    }
    for (int i = 0; i < LAST; i++)
        last += found[STEPS - LAST + i] / LAST;
    first = found[0];
    error[NP_SELF_CURVE] = sqrt(off / size);
    error[NP_SELF_LEARNT] = last / first;
    result->ok = true;
    result->worst = NP_SELF_CURVE;
    for (int k = 0; k < NP_SELF_NR; k++)
        if (result->tolerance[k] >= 0 && !(error[k] <= result->tolerance[k])) {
            result->ok = false;
            result->worst = k;
        }
}

int np_selftest_train(struct np_device *device, struct np_device *cpu,
    const struct np_selftest_case *the_case, enum np_dtype precision, uint64_t seed,
    struct np_selftest_result *ret_result, struct np_err *err)
{
    const size_t rows = (size_t)the_case->batch;
    struct course course = {.the_case = the_case,
        .seed = seed,
        .images = np_try_alloc(
            rows * (size_t)the_case->height * (size_t)the_case->width * (size_t)the_case->channels,
            err),
        .labels = np_alloc_array(rows, sizeof(int32_t))};
    const bool on_cpu = device->ops == cpu->ops;
    double losses[3][STEPS];
    float *params[3] = {0};
    int code = course.images ? 0 : -ENOMEM;

    *ret_result = (struct np_selftest_result){.draws = 1};
    for (int k = 0; k < NP_SELF_NR; k++)
        ret_result->tolerance[k] = k >= NP_SELF_AGAIN ? np_self_tolerance(precision, 1, k) : -1;
    for (int i = 0; i < 2 && code == 0; i++)
        code = train_once(device, &course, precision, false, losses[i], &params[i], err);
    if (code == 0)
        code = train_once(cpu, &course, NP_F32, on_cpu, losses[2], &params[2], err);
    for (uint64_t i = 0; i < course.nr_params && code == 0; i++)
        ret_result->error[NP_SELF_AGAIN] +=
            memcmp(&params[0][i], &params[1][i], sizeof(float)) != 0;
    if (code == 0)
        judge(ret_result, losses[0], losses[2]);
    np_free(course.images);
    np_free(course.labels);
    np_free(course.block);
    for (int i = 0; i < 3; i++)
        np_free(params[i]);
    return code;
}
