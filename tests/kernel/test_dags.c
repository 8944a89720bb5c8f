/* Random graphs: residuals, concats, tensors with several readers, in any order. What must hold for
 * every one: fusion changes no bit of loss and gradients (reference kernels, f32); cutting the
 * batch changes them by rounding only; bf16 and the fast kernels stay near; gradients agree with
 * differences of the loss along a random direction. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/rng.h"
#include "tests/kernel/interp.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/device.h"
#include "trainer/recompute.h"

#define NR_SEEDS  NP_TIMES(24, 4)
#define MAX_TEXT  8192
#define NR_LAYERS 9

static const struct np_fusions all_fusions = {true, true, true, true, true, true, true, true};

/* --- making -------------------------------------------------------------------------------- */

struct maker {
    struct np_draws draws;
    char text[MAX_TEXT];
    int channels[64]; /* of layer l<i>; all are 8 x 8 */
    int nr_layers;
    bool read[64];
};

static void __attribute__((format(printf, 2, 3))) put(struct maker *m, const char *format, ...)
{
    size_t used = strlen(m->text);
    va_list args;

    va_start(args, format);
    vsnprintf(m->text + used, sizeof(m->text) - used, format, args);
    va_end(args);
}

static int below(struct maker *m, int n)
{
    return (int)np_draw_below(&m->draws, (uint32_t)n);
}

static int pick(struct maker *m)
{
    /* Later layers are likelier: chains with shortcuts rather than a bush. */
    int i = m->nr_layers - 1 - below(m, m->nr_layers < 4 ? m->nr_layers : 4);

    m->read[i] = true;
    return i;
}

static void add_layer(struct maker *m)
{
    int from = pick(m), other, self = m->nr_layers;

    m->channels[self] = m->channels[from];
    switch (below(m, 8)) {
    case 0:
        m->channels[self] = 2 * (1 + below(m, 4));
        put(m, "  - conv: {name: l%d, from: l%d, out: %d, kernel: 3, pad: 1, groups: 2}\n", self,
            from, m->channels[self]);
        break;
    case 1:
        m->channels[self] = 4;
        put(m, "  - conv: {name: l%d, from: l%d, out: 4, kernel: 1, bias: false}\n", self, from);
        break;
    case 2:
    case 3: put(m, "  - batchnorm: {name: l%d, from: l%d}\n", self, from); break;
    case 4: put(m, "  - relu: {name: l%d, from: l%d}\n", self, from); break;
    case 5:
        put(m, "  - maxpool: {name: l%d, from: l%d, kernel: 3, stride: 1, pad: 1}\n", self, from);
        break;
    case 6:
        put(m, "  - concat: {name: l%d, from: [l%d, ", self, from);
        other = pick(m);
        m->channels[self] += m->channels[other];
        put(m, "l%d]}\n", other);
        break;
    default:
        for (other = self - 1; other > 0 && m->channels[other] != m->channels[from];)
            other--;
        m->read[other] = true;
        if (m->channels[other] != m->channels[from])
            other = from;
        put(m, "  - add: {name: l%d, from: [l%d, l%d]}\n", self, from, other);
        /* what fuses: something + something, then relu */
        put(m, "  - relu: {name: l%d, from: l%d}\n", self + 1, self);
        m->channels[self + 1] = m->channels[self];
        m->read[self] = true;
        m->nr_layers++;
        break;
    }
    m->nr_layers++;
}

/* A residual block as ResNet's, so that every seed has what fuses best. */
static void add_residual(struct maker *m)
{
    int from = pick(m), l = m->nr_layers, c = m->channels[from];

    put(m, "  - conv: {name: l%d, from: l%d, out: %d, kernel: 3, pad: 1, bias: false}\n", l, from,
        c);
    put(m, "  - batchnorm: {name: l%d}\n  - relu: {name: l%d}\n", l + 1, l + 2);
    put(m, "  - conv: {name: l%d, out: %d, kernel: 3, pad: 1}\n", l + 3, c);
    put(m, "  - batchnorm: {name: l%d}\n  - add: {name: l%d, from: [l%d, l%d]}\n", l + 4, l + 5,
        l + 4, from);
    put(m, "  - relu: {name: l%d}\n", l + 6);
    for (int i = 0; i < 7; i++) {
        m->channels[l + i] = c;
        m->read[l + i] = i < 6;
    }
    m->nr_layers += 7;
}

/* All tensors without a reader are joined at the end. */
static const char *make(struct maker *m, uint64_t seed)
{
    bool first = true;

    memset(m, 0, sizeof(*m));
    np_draws_init(&m->draws, seed, NP_STREAM_TEST, 1, 2, 3);
    put(m, "model:\n  - conv: {name: l0, out: 4, kernel: 3, pad: 1}\n");
    m->channels[0] = 4;
    m->nr_layers = 1;
    for (int i = 0; i < NR_LAYERS; i++)
        add_layer(m);
    add_residual(m);
    put(m, "  - conv: {name: z, from: l%d, out: 3, kernel: 1}\n  - concat: [z", m->nr_layers - 1);
    for (int i = 0; i < m->nr_layers - 1; i++)
        if (!m->read[i]) {
            put(m, ", l%d", i);
            first = false;
        }
    put(m,
        "%s]\n  - avgpool: {kernel: 2}\n  - flatten\n  - linear: {out: classes}\n"
        "loss: {cross_entropy: {label_smoothing: 0.1}}\n",
        first ? ", z" : "");
    return m->text;
}

static struct np_graph *dag_of(uint64_t seed, enum np_dtype precision, int side)
{
    static const int batch = 6;
    struct maker *m = malloc(sizeof(*m));
    struct np_graph *graph =
        made_good_graph(make(m, seed), (struct made){batch, side, side, 3, 10, precision});

    if (!graph)
        fprintf(stderr, "seed %llu:\n%s", (unsigned long long)seed, m->text);
    free(m);
    if (graph && np_autodiff(graph, NULL) < 0) {
        np_graph_free(graph);
        graph = NULL;
    }
    return graph;
}

static struct np_graph *dag(uint64_t seed, enum np_dtype precision)
{
    return dag_of(seed, precision, 8);
}

/* --- running ------------------------------------------------------------------------------- */

struct result {
    uint64_t nr_params, nr_buffers;
    float *grads, *buffers;
    double loss;
};

static void result_free(struct result *result)
{
    free(result->grads);
    free(result->buffers);
}

static struct result run(const struct np_graph *graph, bool reference, int lanes, int chunk)
{
    struct result result = {.nr_params = graph->nr_params, .nr_buffers = graph->nr_buffers};
    struct interp interp;
    uint8_t *images;
    int32_t *labels;

    result.grads = calloc(graph->nr_params, sizeof(float));
    result.buffers = calloc(graph->nr_buffers, sizeof(float));
    result.loss = NAN;
    if (interp_init_cut(&interp, graph, reference, lanes, chunk) == 0) {
        interp_batch(graph, 9, &images, &labels);
        interp_run(&interp, images, labels, 1);
        result.loss = interp_loss(&interp);
        memcpy(result.grads, interp.grads, graph->nr_params * sizeof(float));
        memcpy(result.buffers, interp.buffers, graph->nr_buffers * sizeof(float));
        free(images);
        free(labels);
    } else {
        fprintf(stderr, "no kernel for %s\n", interp.missing);
    }
    interp_fini(&interp);
    return result;
}

/* The same through the device: tensors share memory, calls run in groups and chunks. */
static struct result run_device(
    const struct np_graph *graph, int lanes, int threads, bool recompute)
{
    const struct np_plan_options options = {
        .lanes = lanes, .threads = threads, .reference = true, .recompute = recompute};
    struct result result = {.nr_params = graph->nr_params, .nr_buffers = graph->nr_buffers};
    float *params = calloc(graph->nr_params, sizeof(float));
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    struct np_metrics metrics = {.loss_sum = NAN};
    struct np_err err = {0};
    uint8_t *images;
    int32_t *labels;

    result.grads = calloc(graph->nr_params, sizeof(float));
    result.buffers = calloc(graph->nr_buffers, sizeof(float));
    np_graph_init(graph, INTERP_SEED, params, result.buffers);
    interp_batch(graph, 9, &images, &labels);
    if (np_device_open("cpu", NULL, &device, &err) == 0 &&
        device->plan_ops->prepare(device, graph, NULL, &options, &plan, &err) == 0 &&
        device->plan_ops->write(plan, NP_ARRAY_PARAMS, params, &err) == 0 &&
        device->plan_ops->write(plan, NP_ARRAY_BUFFERS, result.buffers, &err) == 0 &&
        device->plan_ops->step(plan, images, labels, 1, 1, false, &err) == 0 &&
        device->plan_ops->read(plan, NP_ARRAY_GRADS, result.grads, &err) == 0 &&
        device->plan_ops->read(plan, NP_ARRAY_BUFFERS, result.buffers, &err) == 0)
        device->plan_ops->metrics(plan, false, &metrics, &err);
    else
        fprintf(stderr, "%s\n", err.text);
    result.loss = metrics.loss_sum;
    if (plan)
        device->plan_ops->free(plan);
    np_device_close(device);
    free(params);
    free(images);
    free(labels);
    return result;
}

static struct result run_plan(const struct np_graph *graph, int lanes, int threads)
{
    return run_device(graph, lanes, threads, false);
}

/* |a - b| / |b| over all gradients. */
static double distance(const struct result *a, const struct result *b)
{
    double wrong = 0, all = 0;

    for (uint64_t i = 0; i < a->nr_params; i++) {
        double d = (double)a->grads[i] - (double)b->grads[i];

        wrong += d * d;
        all += (double)b->grads[i] * (double)b->grads[i];
    }
    return sqrt(wrong / all);
}

static bool equal(const struct result *a, const struct result *b)
{
    bool same = a->loss == b->loss && a->nr_params == b->nr_params;

    for (uint64_t i = 0; same && i < a->nr_params; i++)
        same = a->grads[i] == b->grads[i];
    for (uint64_t i = 0; same && i < a->nr_buffers; i++)
        same = a->buffers[i] == b->buffers[i];
    return same;
}

/* Every gradient is in use: none is all zeros by omission. */
static bool all_there(const struct np_graph *graph)
{
    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_PARAM && graph->tensors[t].grad < 0)
            return false;
    return true;
}

static int count_op(const struct np_graph *graph, enum np_op op)
{
    int n = 0;

    for (int i = 0; i < graph->nr_nodes; i++)
        n += graph->nodes[i].op == op;
    return n;
}

Test(dags, fusion_changes_no_bit)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed++) {
        struct np_graph *plain = dag(seed, NP_F32), *fused;
        struct result a, b;
        int relus;

        cr_assert(plain && all_there(plain));
        fused = np_graph_copy(plain);
        relus = count_op(fused, NP_OP_RELU);
        np_fuse(fused, &all_fusions);
        cr_assert_leq(count_op(fused, NP_OP_RELU), relus - 2);
        cr_assert_lt(fused->nr_nodes, plain->nr_nodes);
        a = run(plain, true, 1, 6);
        b = run(fused, true, 1, 6);
        cr_assert(isfinite(a.loss));
        cr_assert(equal(&a, &b));
        result_free(&a);
        result_free(&b);
        np_graph_free(plain);
        np_graph_free(fused);
    }
}

/* Two residual blocks of that many channels. */
static struct np_graph *residuals(int channels, enum np_dtype dtype)
{
    char text[1000];
    struct np_graph *graph;

    snprintf(text, sizeof(text),
        "model:\n  - conv: {out: %d, kernel: 3, pad: 1, bias: false}\n  - batchnorm\n  - relu\n"
        "  - block: {name: a, use: basic}\n  - block: {name: b, use: basic}\n"
        "  - global_avgpool\n  - linear: {out: classes}\nblocks:\n  basic:\n"
        "    - conv: {out: %d, kernel: 3, pad: 1, bias: false}\n    - batchnorm: {name: bn}\n"
        "    - add: [bn, input]\n    - relu\n",
        channels, channels);
    graph = made_good_graph(text, (struct made){6, 8, 8, 3, 10, dtype});
    return graph && np_autodiff(graph, NULL) == 0 ? graph : NULL;
}

static int count_masks(const struct np_graph *graph)
{
    int n = 0;

    for (int i = 0; i < graph->nr_forward; i++)
        n += graph->nodes[i].op == NP_OP_BN_APPLY && graph->nodes[i].nr_outs == 2;
    return n;
}

/* No pass of its own adds gradients, stores d other or reads y for its sign. */
Test(dags, batchnorm_joins_and_masks_gradients)
{
    for (int variant = 0; variant < 4; variant++) {
        const bool bytes = variant & 1; /* a byte of bits fits */
        struct np_graph *plain = residuals(bytes ? 16 : 12, variant & 2 ? NP_BF16 : NP_F32), *fused;
        struct result a, b;
        int joins = 0, results = 0;

        cr_assert_not_null(plain);
        cr_assert_eq(count_op(plain, NP_OP_ADD), 4);
        fused = np_graph_copy(plain);
        np_fuse(fused, &all_fusions);
        cr_assert_eq(count_op(fused, NP_OP_ADD), 0);
        cr_assert_eq(count_op(fused, NP_OP_RELU_DGRAD), 0);
        cr_assert_eq(count_masks(fused), bytes ? 2 : 0);
        for (int n = 0; n < fused->nr_nodes; n++) {
            const struct np_op_node *node = &fused->nodes[n];

            if (node->op == NP_OP_BN_DGRAD)
                cr_assert(node->nr_outs == 1 && node->nr_ins == 8 && !node->attrs.relu);
            if (node->op == NP_OP_BN_REDUCE) {
                joins += node->attrs.joins;
                results += node->nr_outs == 3;
            }
        }
        cr_assert(joins == 2 && results == 3);
        a = run(plain, true, 1, 6);
        b = run(fused, true, 1, 6);
        if (variant & 2) /* the masks are of rounded numbers, and z is not rounded */
            cr_assert_lt(distance(&b, &a), 0.1);
        else
            cr_assert(equal(&a, &b));
        np_recompute(fused, 3);
        result_free(&a);
        a = run(fused, true, 1, 6);
        cr_assert(equal(&a, &b));
        result_free(&a);
        result_free(&b);
        np_graph_free(plain);
        np_graph_free(fused);
    }
}

/* A relu before a pool needs neither a pass nor its output in the backward pass; one whose output
 * is read elsewhere, too, does. */
Test(dags, a_pool_masks_for_the_relu_before_it)
{
    static const char *const nets[] = {
        "model:\n  - conv: {out: 6, kernel: 3, pad: 1}\n  - relu\n"
        "  - maxpool: {kernel: 3, stride: 2, pad: 1}\n  - conv: {out: 5, kernel: 3}\n  - relu\n"
        "  - maxpool: {kernel: 2}\n  - flatten\n  - linear: {out: classes}\n",
        "model:\n  - conv: {out: 6, kernel: 3, pad: 1}\n  - relu: {name: r}\n"
        "  - maxpool: {name: p, kernel: 3, stride: 1, pad: 1}\n  - add: [p, r]\n  - flatten\n"
        "  - linear: {out: classes}\n"};

    for (int variant = 0; variant < 4; variant++) {
        struct np_graph *plain = made_good_graph(
            nets[variant / 2], (struct made){6, 8, 8, 3, 10, variant & 1 ? NP_BF16 : NP_F32});
        struct result a, b;

        cr_assert(plain && np_autodiff(plain, NULL) == 0);
        struct np_graph *fused = np_graph_copy(plain);

        np_fuse(fused, &all_fusions);
        cr_assert_eq(count_op(fused, NP_OP_RELU_DGRAD), variant / 2);
        a = run(plain, true, 1, 6);
        b = run(fused, true, 1, 6);
        cr_assert(variant & 1 ? distance(&b, &a) < 0.1 : equal(&a, &b), "%d", variant);
        np_recompute(fused, 3);
        result_free(&a);
        a = run(fused, true, 1, 6);
        cr_assert(equal(&a, &b));
        result_free(&a);
        result_free(&b);
        np_graph_free(plain);
        np_graph_free(fused);
    }
}

/* The first relu's output is read by the dropout alone, the second one's by an add, too; the third is another layer's
 * work. All relus keep their gradients' bits. */
Test(dags, a_dropout_masks_for_the_relu_before_it)
{
    static const char net[] =
        "model:\n  - conv: {out: 6, kernel: 3, pad: 1}\n  - maxpool: {kernel: 2}\n  - relu\n"
        "  - dropout: {rate: 0.3}\n  - conv: {name: c, out: 6, kernel: 3, pad: 1}\n"
        "  - relu: {name: r}\n  - dropout: {name: d, rate: 0.5}\n  - add: [d, r]\n"
        "  - conv: {out: 5, kernel: 3}\n  - relu\n  - dropout: {rate: 0.2}\n  - flatten\n"
        "  - linear: {out: classes}\n";

    for (int variant = 0; variant < 2; variant++) {
        struct np_graph *plain =
            made_good_graph(net, (struct made){6, 8, 8, 3, 10, variant & 1 ? NP_BF16 : NP_F32});
        struct result a, b;

        cr_assert(plain && np_autodiff(plain, NULL) == 0);
        struct np_graph *fused = np_graph_copy(plain);

        np_fuse(fused, &all_fusions);
        cr_assert_eq(count_op(plain, NP_OP_RELU), 3);
        cr_assert_eq(count_op(fused, NP_OP_RELU), 0); /* two of them are convolutions' */
        cr_assert_eq(count_op(plain, NP_OP_RELU_DGRAD), 3);
        cr_assert_eq(count_op(fused, NP_OP_RELU_DGRAD), 1);
        a = run(plain, true, 1, 6);
        b = run(fused, true, 1, 6);
        cr_assert(variant & 1 ? distance(&b, &a) < 0.1 : equal(&a, &b), "%d", variant);
        np_recompute(fused, 3);
        result_free(&a);
        a = run(fused, true, 1, 6);
        cr_assert(equal(&a, &b));
        result_free(&a);
        result_free(&b);
        np_graph_free(plain);
        np_graph_free(fused);
    }
}

Test(dags, nodes_stand_behind_what_they_read)
{
    enum { PLAIN, FUSED, RECOMPUTED, NR_FORMS };

    for (uint64_t seed = 0; seed < NR_SEEDS; seed++) {
        struct np_graph *graph = dag(seed, NP_F32);

        cr_assert_not_null(graph);
        for (int form = 0; form < NR_FORMS; form++) {
            bool *written = calloc((size_t)graph->nr_tensors, 1);

            for (int n = 0; n < graph->nr_nodes; n++) {
                const struct np_op_node *node = &graph->nodes[n];

                for (int i = 0; i < node->nr_ins; i++) {
                    enum np_role role = graph->tensors[node->ins[i]].role;

                    cr_assert(written[node->ins[i]] || role == NP_ROLE_PARAM ||
                              role == NP_ROLE_BUFFER || role == NP_ROLE_INPUT);
                }
                for (int o = 0; o < node->nr_outs; o++) {
                    cr_assert(!written[node->outs[o]]); /* one writer each */
                    written[node->outs[o]] = true;
                }
                cr_assert(node->forward < n);
                if (node->forward >= 0)
                    cr_assert_lt(node->forward, graph->nr_forward);
            }
            free(written);
            if (form == PLAIN)
                np_fuse(graph, &all_fusions);
            else if (form == FUSED)
                np_recompute(graph, 3);
        }
        np_graph_free(graph);
    }
}

Test(dags, running_segments_again_changes_no_bit)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed++) {
        struct np_graph *graph = dag(seed, NP_F32);
        struct result a, b;

        cr_assert_not_null(graph);
        a = run_device(graph, 3, 2, false);
        b = run_device(graph, 3, 2, true);
        cr_assert(equal(&a, &b), "%d", (int)seed);
        result_free(&a);
        result_free(&b);
        np_fuse(graph, &all_fusions);
        a = run(graph, true, 1, 6);
        for (int nr_segments = 1; nr_segments < 7; nr_segments += 1 + (int)(seed % 2)) {
            struct np_graph *again = np_graph_copy(graph);

            np_recompute(again, nr_segments);
            cr_assert_eq(nr_segments > 1, again->nr_nodes > graph->nr_nodes);
            b = run(again, true, 1, 6);
            cr_assert(equal(&a, &b), "%d: %d segments", (int)seed, nr_segments);
            result_free(&b);
            np_graph_free(again);
        }
        result_free(&a);
        np_graph_free(graph);
    }
}

/* Of n equal layers about 2 * sqrt(n) are in memory, and no layer runs more than twice. */
Test(dags, a_deep_net_needs_the_memory_of_a_shallow_one)
{
    enum { LAYERS = 64 };
    char text[64 * LAYERS + 200] = "model:\n";
    struct np_graph *graph;

    for (int i = 0; i < LAYERS; i++)
        strcat(text, "  - conv: {out: 8, kernel: 3, pad: 1}\n  - relu\n");
    strcat(text, "  - global_avgpool\n  - linear: {out: classes}\n");
    graph = made_good_graph(text, (struct made){4, 16, 16, 3, 10, NP_F32});
    cr_assert(graph && np_autodiff(graph, NULL) == 0);
    np_fuse(graph, &all_fusions);
    const struct np_recomputed r = np_recompute_best(graph);

    cr_assert_gt(r.bytes_before, 64ull * 4 * 16 * 16 * 8 * 4);
    cr_assert_lt(r.bytes, 20ull * 4 * 16 * 16 * 8 * 4);
    cr_assert(r.nr_segments > 3 && r.nr_nodes < LAYERS && r.nr_nodes > LAYERS / 2);
    np_graph_free(graph);
}

/* Nothing is gained, and nothing is changed, where there is no backward pass, or little forward. */
Test(dags, what_gains_nothing_stays_as_it_is)
{
    struct np_graph *graph = made_good_graph(
        "model: [flatten, linear: {name: l, out: classes}]", (struct made){4, 8, 8, 3, 10, NP_F32});
    int nr_nodes;

    cr_assert_not_null(graph);
    nr_nodes = graph->nr_nodes;
    cr_assert_eq(np_recompute_best(graph).nr_segments, 0);
    cr_assert_eq(np_autodiff(graph, NULL), 0);
    cr_assert_gt(graph->nr_nodes, nr_nodes);
    nr_nodes = graph->nr_nodes;
    cr_assert_eq(np_recompute_best(graph).nr_segments, 0);
    cr_assert_eq(graph->nr_nodes, nr_nodes);
    np_graph_free(graph);
}

Test(dags, cuts_of_the_batch_change_rounding_only)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed += 3) {
        struct np_graph *graph = dag(seed, NP_F32);
        struct result whole, rows, lanes, again;

        cr_assert_not_null(graph);
        whole = run(graph, true, 1, 6);
        rows = run(graph, true, 1, 1);
        lanes = run(graph, true, 4, 1);
        again = run(graph, true, 4, 2);
        cr_assert(equal(&whole, &rows));
        cr_assert(equal(&lanes, &again)); /* chunks change nothing, lanes decide */
        cr_assert_lt(distance(&lanes, &whole), 1e-4);
        result_free(&whole);
        result_free(&rows);
        result_free(&lanes);
        result_free(&again);
        np_graph_free(graph);
    }
}

static bool plan_is_the_graph(const struct np_graph *graph, int lanes, int threads)
{
    struct result a = run(graph, true, lanes, 6), b = run_plan(graph, lanes, threads);
    bool same = equal(&a, &b);

    if (!same)
        fprintf(stderr, "%d lanes: loss %.9g and %.9g, gradients off by %g\n", lanes, a.loss,
            b.loss, distance(&b, &a));
    result_free(&a);
    result_free(&b);
    return same;
}

/* Small pictures: there a gradient of weights waits for its whole lane. */
Test(dags, sharing_memory_changes_no_bit)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed++) {
        struct np_graph *large = dag(seed, NP_F32), *small = dag_of(seed, NP_F32, 2);

        cr_assert(large && small);
        cr_assert(plan_is_the_graph(large, 1, 1));
        cr_assert(plan_is_the_graph(small, 1, 1));
        cr_assert(plan_is_the_graph(small, 3, 2));
        np_graph_free(large);
        np_graph_free(small);
    }
}

/* The gradient of a sum goes to both sides: one side's weights read it at the end of their lane,
 * while the other side would write what it makes of it in its place. */
Test(dags, a_gradient_that_weights_still_need_is_not_overwritten)
{
    static const char *const nets[] = {
        "model:\n  - conv: {name: a, out: 16, kernel: 3, pad: 1}\n"
        "  - conv: {name: b, out: 16, kernel: 3, pad: 1}\n  - add: [a, b]\n"
        "  - global_avgpool\n  - linear: {out: classes}\n",
        "model:\n  - flatten\n  - linear: {name: a, out: 32}\n  - linear: {name: b, out: 32}\n"
        "  - add: [a, b]\n  - linear: {out: classes}\n",
        "model:\n  - flatten\n  - linear: {name: a, out: 32}\n  - relu: {name: r}\n"
        "  - linear: {name: b, from: a, out: 32}\n  - add: [r, b]\n  - linear: {out: classes}\n",
        "model:\n  - flatten\n  - linear: {name: a, out: 32}\n  - dropout: {name: r}\n"
        "  - linear: {name: b, from: a, out: 32}\n  - add: [r, b]\n  - linear: {out: classes}\n"};

    for (int i = 0; i < 4; i++) {
        struct np_graph *graph = made_good_graph(nets[i], (struct made){6, 2, 2, 3, 10, NP_F32});

        cr_assert_not_null(graph);
        cr_assert_eq(np_autodiff(graph, NULL), 0);
        cr_assert(plan_is_the_graph(graph, 1, 1));
        cr_assert(plan_is_the_graph(graph, 3, 2));
        np_graph_free(graph);
    }
}

Test(dags, bf16_stays_near_f32)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed += 3) {
        struct np_graph *f32 = dag(seed, NP_F32), *bf16 = dag(seed, NP_BF16);
        struct result a, b;

        cr_assert(f32 && bf16);
        a = run(f32, true, 1, 6);
        b = run(bf16, true, 1, 6);
        cr_assert_lt(distance(&b, &a), 0.1);
        cr_assert_lt(fabs(a.loss - b.loss), 0.005 * a.loss);
        result_free(&a);
        result_free(&b);
        np_graph_free(f32);
        np_graph_free(bf16);
    }
}

Test(dags, fast_kernels_stay_near_the_reference)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed += 2) {
        struct np_graph *graph = dag(seed, NP_F32);
        struct result slow, fast;

        cr_assert_not_null(graph);
        np_fuse(graph, &all_fusions);
        slow = run(graph, true, 2, 3);
        fast = run(graph, false, 2, 3);
        cr_assert_lt(distance(&fast, &slow), 1e-5);
        cr_assert_lt(fabs(fast.loss - slow.loss), 1e-5 * slow.loss);
        result_free(&slow);
        result_free(&fast);
        np_graph_free(graph);
    }
}

Test(dags, fast_bf16_kernels_stay_near_the_reference)
{
    for (uint64_t seed = 1; seed < NR_SEEDS; seed += 4) {
        struct np_graph *graph = dag(seed, NP_BF16);
        struct result slow, fast;

        cr_assert_not_null(graph);
        np_fuse(graph, &all_fusions);
        slow = run(graph, true, 2, 3);
        fast = run(graph, false, 2, 3);
        cr_assert_lt(distance(&fast, &slow), 0.1);
        cr_assert_lt(fabs(fast.loss - slow.loss), 0.005 * slow.loss);
        result_free(&slow);
        result_free(&fast);
        np_graph_free(graph);
    }
}

/* Loss at params + h * direction. */
static double loss_along(struct interp *interp, const float *at, const float *direction, double h,
    const uint8_t *images, const int32_t *labels)
{
    for (uint64_t i = 0; i < interp->graph->nr_params; i++)
        interp->params[i] = (float)((double)at[i] + h * (double)direction[i]);
    interp_run(interp, images, labels, 1);
    return interp_loss(interp);
}

/* The slope of the loss along +-1 steps in all parameters, against the gradients' sum with those
 * signs: relative to the length of the gradient. */
static double slope_error(const struct np_graph *graph, uint64_t seed)
{
    float *at = malloc(graph->nr_params * sizeof(float));
    float *direction = malloc(graph->nr_params * sizeof(float));
    struct interp interp;
    struct np_draws draws;
    uint8_t *images;
    int32_t *labels;
    double slope = 0, length = 0, up, down, h = 2e-5;

    if (interp_init_cut(&interp, graph, true, 1, graph->batch) < 0)
        return NAN;
    interp_batch(graph, seed, &images, &labels);
    np_draws_init(&draws, seed, NP_STREAM_TEST, 3, 3, 3);
    memcpy(at, interp.params, graph->nr_params * sizeof(float));
    interp_run(&interp, images, labels, 1);
    for (uint64_t i = 0; i < graph->nr_params; i++) {
        double g = (double)interp.grads[i];

        direction[i] = np_draw_below(&draws, 2) ? 1 : -1;
        slope += g * (double)direction[i];
        length += g * g;
    }
    up = loss_along(&interp, at, direction, h, images, labels);
    down = loss_along(&interp, at, direction, -h, images, labels);
    interp_fini(&interp);
    free(images);
    free(labels);
    free(at);
    free(direction);
    return fabs((up - down) / (2 * h) - slope) / sqrt(length);
}

Test(dags, gradients_are_the_slope_of_the_loss)
{
    for (uint64_t seed = 0; seed < NR_SEEDS; seed++) {
        struct np_graph *graph = dag(seed, NP_F32);

        cr_assert_not_null(graph);
        cr_assert_lt(slope_error(graph, seed + 100), 0.03);
        np_graph_free(graph);
    }
}
