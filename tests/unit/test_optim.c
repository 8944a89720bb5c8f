/* Optimizers against torch's formulas in double, and the same bits for any split. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/rng.h"
#include "tests/test.h"
#include "trainer/optim.h"

#define N 1003

struct buffers {
    float params[N], m[N], v[N], grads[N];
};

static void fill(struct buffers *b, uint32_t round)
{
    struct np_draws draws;
    np_draws_init(&draws, 7, NP_STREAM_TEST, round, 0, 0);
    for (int i = 0; i < N; i++) {
        if (round == 0) {
            b->params[i] = (float)np_draw_normal(&draws);
            b->m[i] = b->v[i] = 0;
        }
        b->grads[i] = (float)(np_draw_normal(&draws) * (i % 3 == 0 ? 1e-4 : 10));
    }
}

static void update(
    struct buffers *b, int first, int n, const struct np_hyper *hyper, float grad_scale)
{
    const struct np_update range = {.params = b->params + first,
        .state = {b->m + first, b->v + first},
        .grads = b->grads + first,
        .n = (uint64_t)n,
        .grad_scale = grad_scale,
        .rule = {1, 1, 0}};

    np_optim_update(hyper, &range);
}

static void update_one(
    float *param, float *m, float *v, float grad, const struct np_hyper *hyper, bool decay)
{
    const struct np_update range = {.params = param,
        .state = {m, v},
        .grads = &grad,
        .n = 1,
        .grad_scale = 1,
        .rule = {1, decay, 0}};

    np_optim_update(hyper, &range);
}

/* torch.optim.SGD, one element, in double. */
static void sgd_in_double(
    double *p, double *buffer, double grad, double lr, double momentum, double decay, bool nesterov)
{
    grad += decay * *p;
    if (momentum > 0) {
        *buffer = momentum * *buffer + grad;
        grad = nesterov ? grad + momentum * *buffer : *buffer;
    }
    *p -= lr * grad;
}

/* torch.optim.AdamW, one element, in double; t counts from 1. */
static void adamw_in_double(double *p, double *m, double *v, double grad, double lr, double decay,
    double beta1, double beta2, double eps, int t)
{
    *p *= 1 - lr * decay;
    *m = beta1 * *m + (1 - beta1) * grad;
    *v = beta2 * *v + (1 - beta2) * grad * grad;
    double m_hat = *m / (1 - pow(beta1, t)), v_hat = *v / (1 - pow(beta2, t));
    *p -= lr * m_hat / (sqrt(v_hat) + eps);
}

/* Largest difference after five updates, relative to the largest of 1 and the value. */
static double sgd_error(double momentum, bool nesterov, double weight_decay)
{
    static struct buffers b;
    static double p[N], buffer[N];
    double error = 0;
    struct np_optim_options options = {
        .lr = 0.05, .momentum = momentum, .nesterov = nesterov, .weight_decay = weight_decay};

    memset(buffer, 0, sizeof(buffer));
    for (int t = 0; t < 5; t++) {
        struct np_hyper hyper;
        fill(&b, (uint32_t)t);
        if (t == 0)
            for (int i = 0; i < N; i++)
                p[i] = b.params[i];
        np_optim_hyper(&options, 0.5, (uint64_t)t, &hyper);
        update(&b, 0, N, &hyper, 0.25f);
        for (int i = 0; i < N; i++)
            sgd_in_double(
                &p[i], &buffer[i], 0.25 * b.grads[i], 0.025, momentum, weight_decay, nesterov);
    }
    for (int i = 0; i < N; i++)
        error = fmax(error, fabs(b.params[i] - p[i]) / fmax(1, fabs(p[i])));
    return error;
}

Test(optim, sgd_is_torch_SGD)
{
    cr_assert_lt(sgd_error(0, false, 0), 1e-6);
    cr_assert_lt(sgd_error(0, false, 0.1), 1e-6);
    cr_assert_lt(sgd_error(0.9, false, 0.1), 1e-6);
    cr_assert_lt(sgd_error(0.9, true, 5e-4), 1e-6);
}

Test(optim, nesterov_differs_from_momentum)
{
    struct np_hyper hyper = {.lr = 1, .momentum = 0.5f, .nesterov = true};
    float p[2] = {0, 0}, state[2] = {0, 0};
    update_one(&p[0], &state[0], NULL, 1, &hyper, true);
    hyper.nesterov = false;
    update_one(&p[1], &state[1], NULL, 1, &hyper, true);
    cr_assert_float_eq(p[0], -1.5, 1e-7);
    cr_assert_float_eq(p[1], -1, 1e-7);
    cr_assert_float_eq(state[0], 1, 1e-7);
}

Test(optim, adamw_is_torch_AdamW)
{
    static struct buffers b;
    static double p[N], m[N], v[N];
    struct np_optim_options options = {.kind = NP_ADAMW,
        .lr = 1e-2,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = 0.1};
    double error = 0;

    for (int t = 0; t < 6; t++) {
        struct np_hyper hyper;
        fill(&b, (uint32_t)t);
        for (int i = 0; i < N && t == 0; i++)
            p[i] = b.params[i], m[i] = v[i] = 0;
        np_optim_hyper(&options, 1, (uint64_t)t, &hyper);
        update(&b, 0, N, &hyper, 1);
        for (int i = 0; i < N; i++)
            adamw_in_double(&p[i], &m[i], &v[i], b.grads[i], 1e-2, 0.1, 0.9, 0.999, 1e-8, t + 1);
    }
    for (int i = 0; i < N; i++) {
        error = fmax(error, fabs(b.params[i] - p[i]));
        error = fmax(error, fabs(b.v[i] - v[i]) / v[i]);
    }
    cr_assert_lt(error, 2e-6);
}

/* One element of torch.optim.AdamW worked out by hand: the first step is lr * sign(g). */
Test(optim, first_adamw_step_is_the_rate)
{
    struct np_hyper hyper = {.lr = 0.1f, .beta1 = 0.9, .beta2 = 0.999, .kind = NP_ADAMW};
    float p = 2, m = 0, v = 0, grad = -3e-5f;
    hyper.weight_decay = 0.5f;
    update_one(&p, &m, &v, grad, &hyper, false);
    cr_assert_float_eq(p, 2.1, 1e-6);
    p = 2, m = v = 0;
    update_one(&p, &m, &v, grad, &hyper, true);
    cr_assert_float_eq(p, 2 * (1 - 0.1 * 0.5) + 0.1, 1e-6);
}

Test(optim, weight_decay_can_be_left_out_of_a_range)
{
    struct np_hyper hyper = {.lr = 0.1f, .weight_decay = 0.5f};
    float p[2] = {1, 1};
    update_one(&p[0], NULL, NULL, 0, &hyper, true);
    update_one(&p[1], NULL, NULL, 0, &hyper, false);
    cr_assert_float_eq(p[0], 0.95, 1e-7);
    cr_assert_eq(p[1], 1);
}

/* All but lamb, which needs a parameter whole. */
Test(optim, any_split_gives_the_same_bits)
{
    static struct buffers whole, split;
    struct np_hyper hyper = {.lr = 0.1f,
        .momentum = 0.9f,
        .weight_decay = 1e-3f,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .momentum_decay = 4e-3,
        .eps = 1e-8f};

    for (int kind = 0; kind < 2 * NP_LAMB; kind++) {
        hyper.kind = kind / 2;
        hyper.nesterov = kind % 2;
        hyper.momentum = kind % 2 ? 0.9f : 0;
        fill(&whole, 0);
        fill(&split, 0);
        for (int first = 0, step = 1; first < N; first += step, step = step % 37 + 1)
            update(&split, first, first + step > N ? N - first : step, &hyper, 0.3f);
        update(&whole, 0, N, &hyper, 0.3f);
        cr_assert_eq(memcmp(&whole, &split, sizeof(whole)), 0);
    }
}

Test(optim, square_sum_by_blocks_is_the_sum_of_all)
{
    static float x[3 * NP_NORM_BLOCK + 5];
    double exact = 0, parts = 0;
    uint64_t n = sizeof(x) / sizeof(x[0]);

    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)((double)(i % 1000) - 300.5);
        exact += (double)x[i] * x[i];
    }
    for (uint64_t first = 0; first < n; first += NP_NORM_BLOCK)
        parts += np_square_sum(x + first, n - first < NP_NORM_BLOCK ? n - first : NP_NORM_BLOCK);
    double sum = np_square_sum(x, n);
    cr_assert_eq(memcmp(&sum, &parts, sizeof(sum)), 0);
    cr_assert_float_eq(sum / exact, 1, 1e-12);
    cr_assert_eq(np_square_sum(x, 0), 0);
}

Test(optim, clipping_is_torch_clip_grad_norm)
{
    cr_assert_float_eq(np_clip_scale(10, 5), 5 / (10 + 1e-6), 1e-7);
    cr_assert_eq(np_clip_scale(4, 5), 1);
    cr_assert_eq(np_clip_scale(1e9, 0), 1);
}

Test(optim, options_have_defaults_and_a_normal_form)
{
    struct np_report report;
    struct np_optim_options options, again;
    np_report_init(&report, "x.yaml");
    struct np_node *node = np_node_scalar("adamw", 2, 4);
    cr_assert_eq(np_optim_parse(node, &options, &report), 0);
    cr_assert_eq(options.kind, NP_ADAMW);
    cr_assert_float_eq(options.lr, 1e-3, 1e-12);
    cr_assert_float_eq(options.beta2, 0.999, 1e-12);
    cr_assert(options.decay_all);
    cr_assert_eq(np_optim_states(&options), 2);
    struct np_node *normal = np_optim_node(&options);
    cr_assert_eq(np_optim_parse(normal, &again, &report), 0);
    cr_assert_eq(memcmp(&options, &again, sizeof(options)), 0);
    cr_assert_eq(np_optim_parse(NULL, &options, &report), 0);
    cr_assert_eq(options.kind, NP_SGD);
    cr_assert_eq(np_optim_states(&options), 1);
    options.momentum = 0;
    cr_assert_eq(np_optim_states(&options), 0);
    cr_assert_eq(report.nr_errs, 0);
    np_node_free(normal);
    np_node_free(node);
    np_report_fini(&report);
}

Test(optim, nesterov_without_momentum_is_refused_at_its_line)
{
    struct np_report report;
    struct np_optim_options options;
    struct np_node *map = np_node_new(NP_NODE_MAP, 5, 1), *args = np_node_new(NP_NODE_MAP, 5, 2);
    np_report_init(&report, "x.yaml");
    np_node_add(args, "momentum", np_node_scalar("0", 5, 20));
    np_node_add(args, "nesterov", np_node_scalar("true", 6, 30));
    np_node_add(map, "sgd", args);
    cr_assert_eq(np_optim_parse(map, &options, &report), -EINVAL);
    cr_assert_eq(report.nr_errs, 1);
    cr_assert_eq(report.errs[0].line, 6);
    cr_assert_not_null(strstr(report.errs[0].text, "momentum"));
    np_node_free(map);
    np_report_fini(&report);
}

/* A table without the row would leave a factor of 0. */
Test(optim, every_optimizer_updates_all_layers_at_its_rate_by_default)
{
    for (const struct np_choice *choice = np_optim_choices; choice->name; choice++) {
        struct np_node *node = np_node_scalar(choice->name, 1, 1);
        struct np_optim_options options;
        struct np_report report;

        np_report_init(&report, "x.yaml");
        cr_assert(np_optim_parse(node, &options, &report) == 0);
        cr_expect(
            options.layer_decay == 1 && options.lr > 0 && options.decay_all, "%s", choice->name);
        np_report_fini(&report);
        np_node_free(node);
    }
}
