/* Average pooling, concat, dropout and the loss on the CPU against the reference, on sizes that are no
 * multiple of a vector, cut into lanes and chunks. All but the loss are the reference's bits. And: no
 * shipped network needs a reference kernel. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel/kernel_case.h"
#include "tests/kernel/kernel_draws.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/cpu/kernels_check.h"

#define BATCH          5
#define LOSS_TOLERANCE 2e-6
#define BF16_TOLERANCE 0.008 /* a unit in the last place of the largest: 2^-7 */

static bool check(struct kernel_case *the_case, double tolerance, int lanes, int chunk)
{
    bool found = kernel_case_run(the_case, lanes, chunk);
    double error = kernel_case_error(the_case, 0);
    bool right = found && error <= tolerance;

    if (!right)
        kernel_case_say(the_case, error);
    kernel_case_fini(the_case);
    return right;
}

/* --- average pooling ------------------------------------------------------------------------ */

static bool avgpool_is_right(
    struct np_window window, enum np_dtype dtype, struct kernel_shape shape, bool back)
{
    int h = shape.h, w = shape.w, c = shape.c;
    int out_h = kernel_pool_out(h, window.kernel_h, window.stride_h, window.pad_h, c % 2);
    int out_w = kernel_pool_out(w, window.kernel_w, window.stride_w, window.pad_w, c % 2);
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_AVGPOOL_DGRAD : NP_OP_AVGPOOL, shape.batch);
    kernel_case_node(&the_case)->attrs.window = window;
    if (back)
        kernel_case_activation(&the_case, dtype, out_h, out_w, c, false);
    kernel_case_activation(&the_case, dtype, h, w, c, back);
    if (!back)
        kernel_case_activation(&the_case, dtype, out_h, out_w, c, true);
    return check(&the_case, 0, shape.lanes, shape.chunk);
}

Test(kernels_rest, avgpool_and_its_gradient_are_the_references_bits)
{
    /* h, w, c, kernel, stride, pad */
    static const int shapes[][6] = {{8, 8, 16, 2, 2, 0}, {9, 7, 5, 2, 2, 0}, {9, 9, 24, 3, 2, 1},
        {5, 6, 9, 3, 1, 1}, {7, 7, 33, 7, 1, 0}, {1, 1, 3, 2, 2, 1}, {6, 5, 8, 2, 4, 1}};

    for (int i = 0; i < 7; i++)
        for (int back = 0; back < 2; back++) {
            const int *s = shapes[i];
            const struct np_window window = NP_SQUARE(s[3], s[4], s[5], 1, 1);
            const struct kernel_shape shape = {BATCH, s[0], s[1], s[2], 2, 2};

            cr_assert(avgpool_is_right(window, NP_F32, shape, back));
            cr_assert(avgpool_is_right(window, NP_BF16, shape, back));
        }
}

/* --- concat --------------------------------------------------------------------------------- */

/* shape: of a part, but for its channels */
static bool concat_is_right(
    const int channels[4], enum np_dtype dtype, struct kernel_shape shape, bool back)
{
    struct kernel_case the_case;
    int all = 0;

    for (int i = 0; channels[i]; i++)
        all += channels[i];
    kernel_case_init(&the_case, back ? NP_OP_CONCAT_DGRAD : NP_OP_CONCAT, shape.batch);
    if (back)
        kernel_case_activation(&the_case, dtype, shape.h, shape.w, all, false);
    for (int i = 0; channels[i]; i++)
        kernel_case_activation(&the_case, dtype, shape.h, shape.w, channels[i], back);
    if (!back)
        kernel_case_activation(&the_case, dtype, shape.h, shape.w, all, true);
    return check(&the_case, 0, shape.lanes, shape.chunk);
}

Test(kernels_rest, concat_and_its_gradient_are_the_references_bits)
{
    static const int parts[][4] = {{16, 16, 0}, {1, 2, 3, 0}, {7, 33, 0}, {1, 1, 0}};
    const struct kernel_shape shape = {BATCH, 3, 5, 0, 2, 2};

    for (int i = 0; i < 4; i++)
        for (int back = 0; back < 2; back++) {
            cr_assert(concat_is_right(parts[i], NP_F32, shape, back));
            cr_assert(concat_is_right(parts[i], NP_BF16, shape, back));
        }
}

/* --- dropout -------------------------------------------------------------------------------- */

static bool dropout_is_right(struct kernel_shape shape, double rate, enum np_dtype dtype, bool back)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_DROPOUT_DGRAD : NP_OP_DROPOUT, shape.batch);
    kernel_case_node(&the_case)->attrs.rate = rate;
    kernel_case_node(&the_case)->attrs.seed = 0x123456789abcdefull;
    kernel_case_activation(&the_case, dtype, shape.h, shape.w, shape.c, false);
    kernel_case_activation(&the_case, dtype, shape.h, shape.w, shape.c, true);
    return check(&the_case, 0, shape.lanes, shape.chunk);
}

Test(kernels_rest, dropout_and_its_gradient_are_the_references_bits)
{
    static const struct kernel_shape shapes[] = {{BATCH, 1, 1, 1, 3, 1}, {BATCH, 3, 5, 7, 3, 1},
        {BATCH, 4, 4, 16, 3, 1}, {BATCH, 1, 1, 4099, 3, 1}, {BATCH, 1, 1, 31, 3, 1}};
    static const double rates[] = {1e-9, 0.1, 0.5, 0.999};

    for (int i = 0; i < 5; i++)
        for (int r = 0; r < 4; r++) {
            cr_assert(dropout_is_right(shapes[i], rates[r], NP_F32, false));
            cr_assert(dropout_is_right(shapes[i], rates[r], NP_F32, true));
            cr_assert(dropout_is_right(shapes[i], rates[r], NP_BF16, false));
            cr_assert(dropout_is_right(shapes[i], rates[r], NP_BF16, true));
        }
}

/* --- the loss ------------------------------------------------------------------------------- */

struct loss_case {
    int batch, classes;
    double smoothing;
    float scale; /* how far the logits lie apart, in f32 */
};

/* Logits and labels, masked ones among them. */
static void make_loss(
    struct kernel_case *the_case, const struct loss_case *c, enum np_dtype dtype, bool back)
{
    const int rows[4] = {c->batch};

    kernel_case_init(the_case, back ? NP_OP_CROSS_ENTROPY_DGRAD : NP_OP_CROSS_ENTROPY, c->batch);
    kernel_case_node(the_case)->attrs.label_smoothing = c->smoothing;
    kernel_case_activation(the_case, dtype, 1, 1, c->classes, false);
    kernel_case_values(the_case, rows, 1, 0, NP_ROLE_INPUT, false);
    the_case->graph->tensors[1].dtype = NP_I32;
    for (int i = 0; i < c->batch * c->classes; i++)
        for (int which = 0; which < 2; which++) {
            void *x = which ? the_case->tested[0] : the_case->reference[0];

            if (dtype == NP_F32)
                ((float *)x)[i] *= c->scale;
        }
    for (int i = 0; i < c->batch; i++)
        ((int32_t *)the_case->reference[1])[i] = ((int32_t *)the_case->tested[1])[i] =
            i == 3 ? -1 : (i * 37 + c->classes / 2) % c->classes;
    if (back)
        kernel_case_activation(the_case, dtype, 1, 1, c->classes, true);
    for (int i = 0; !back && i < 3; i++)
        kernel_case_values(the_case, rows, 1, 0, NP_ROLE_SAVED, true);
}

static bool loss_is_right(
    const struct loss_case *c, enum np_dtype dtype, bool back, int lanes, int chunk)
{
    struct kernel_case the_case;

    make_loss(&the_case, c, dtype, back);
    /* A sure row's is nearly 0. A gradient (its scale is 0.125) is e^(logit - sum), and the difference
     * is as exact as the sum, which is as large as the largest logit. */
    the_case.typical = back ? 0.125 * fmax(1, c->scale / 3) : 1;
    return check(
        &the_case, dtype == NP_BF16 && back ? BF16_TOLERANCE : LOSS_TOLERANCE, lanes, chunk);
}

static bool losses_are_right(int classes, double smoothing, float scale)
{
    const struct loss_case c = {BATCH, classes, smoothing, scale};
    bool right = true;

    for (int variant = 0; variant < 4; variant++)
        right = loss_is_right(&c, variant & 1 ? NP_BF16 : NP_F32, variant & 2, 2, 2) && right;
    return right;
}

Test(kernels_rest, cross_entropy_and_its_gradient_are_the_reference)
{
    static const int classes[] = {1, 2, 5, 8, 10, 17, 100, 1000, 1003};

    for (int i = 0; i < 9; i++) {
        cr_assert(losses_are_right(classes[i], 0, 1));
        cr_assert(losses_are_right(classes[i], 0.1, 1));
        cr_assert(losses_are_right(classes[i], 0, 60));  /* most exponentials vanish */
        cr_assert(losses_are_right(classes[i], 0.1, 0)); /* ties: the first class is the largest */
    }
}

/* Gradients over all classes cancel, up to rounding: of p they are exact where p is. */
Test(kernels_rest, a_certain_and_right_row_has_no_gradient)
{
    struct kernel_case the_case;
    const float *gradient;
    int label;

    make_loss(&the_case, &(struct loss_case){BATCH, 19, 0, 0}, NP_F32, true);
    label = ((int32_t *)the_case.tested[1])[0];
    ((float *)the_case.tested[0])[label] = ((float *)the_case.reference[0])[label] = 200;
    cr_assert(kernel_case_run(&the_case, 1, BATCH));
    gradient = the_case.tested[2];
    for (int i = 0; i < 19; i++)
        cr_assert_eq(gradient[i], 0);
    kernel_case_fini(&the_case);
}

/* A NaN shows in the loss and is never right; a class of no chance costs the others nothing. */
Test(kernels_rest, nan_logits_show_in_the_loss)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};

    for (int at = 0; at < 21; at++) /* in a vector, and in the rest */
        for (int i = 0; i < 3; i++) {
            struct kernel_case the_case;
            float loss;

            make_loss(&the_case, &(struct loss_case){BATCH, 21, 0, 1}, NP_F32, false);
            ((float *)the_case.tested[0])[at] = ((float *)the_case.reference[0])[at] = odd[i];
            cr_assert(kernel_case_run(&the_case, 1, BATCH));
            loss = ((float *)the_case.tested[2])[0];
            if (odd[i] < 0)
                cr_assert_eq(isinf(loss) != 0, at == ((int32_t *)the_case.tested[1])[0]);
            cr_assert_eq(isnan(loss) != 0, !(odd[i] < 0));
            cr_assert_eq(isnan(((float *)the_case.reference[2])[0]) != 0, isnan(loss) != 0);
            for (int o = 3; o < 5; o++)
                cr_assert_eq(((float *)the_case.tested[o])[0], ((float *)the_case.reference[o])[0]);
            kernel_case_fini(&the_case);
        }
}

/* --- shapes drawn at random ----------------------------------------------------------------- */

static void drawn_avgpool(
    struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    const struct np_window window = kernel_draws_pool(draws, shape);

    kernel_draws_note(draws, avgpool_is_right(window, dtype, shape, false));
    kernel_draws_note(draws, avgpool_is_right(window, dtype, shape, true));
}

static void drawn_concat(struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    const int parts[4] = {shape.c, kernel_draws_int(draws, 1, 40),
        kernel_draws_int(draws, 0, 2) * kernel_draws_int(draws, 1, 20), 0};

    kernel_draws_note(draws, concat_is_right(parts, dtype, shape, false));
    kernel_draws_note(draws, concat_is_right(parts, dtype, shape, true));
}

static void drawn_dropout(
    struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    double rate = kernel_draws_int(draws, 1, 99) / 100.0;

    kernel_draws_note(draws, dropout_is_right(shape, rate, dtype, false));
    kernel_draws_note(draws, dropout_is_right(shape, rate, dtype, true));
}

static void drawn_loss(struct kernel_draws *draws, enum np_dtype dtype, struct kernel_shape shape)
{
    const struct loss_case c = {shape.batch, kernel_draws_int(draws, 1, 1200),
        kernel_draws_int(draws, 0, 2) / 10.0, (float)kernel_draws_int(draws, 0, 60)};

    kernel_draws_note(draws, loss_is_right(&c, dtype, false, shape.lanes, shape.chunk));
    kernel_draws_note(draws, loss_is_right(&c, dtype, true, shape.lanes, shape.chunk));
}

Test(kernels_rest, shapes_drawn_at_random_are_the_reference, .timeout = 3600)
{
    struct kernel_draws draws;

    kernel_draws_init(&draws, 10);
    for (int i = 0; i < draws.nr_shapes; i++) {
        struct kernel_shape shape = kernel_draws_shape(&draws);

        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;

            drawn_avgpool(&draws, dtype, shape);
            drawn_concat(&draws, dtype, shape);
            drawn_dropout(&draws, dtype, shape);
            drawn_loss(&draws, dtype, shape);
        }
    }
    kernel_draws_done(&draws);
}

/* --- the choice of kernels ------------------------------------------------------------------ */

/* Nodes that only the reference takes; prints them. */
static int slow_nodes(const char *path, const struct np_graph *graph)
{
    int n = 0;

    for (int i = 0; i < graph->nr_nodes; i++) {
        struct np_prepared made = {NULL};
        struct np_err err = {0};

        if (np_kernel_find(graph, &graph->nodes[i], 2, false, NULL, &made, &err) == 0)
            made.kernel->free(made.state);
        if (made.kernel && strncmp(made.kernel->name, "reference", 9) != 0)
            continue;
        fprintf(
            stderr, "%s: %s '%s'\n", path, np_op_names[graph->nodes[i].op], graph->nodes[i].name);
        n++;
    }
    return n;
}

Test(kernels_rest, no_shipped_network_runs_on_the_reference)
{
    static const struct np_fusions fusions = {true, true, true, true, true, false, false, false};
    static const struct {
        const char *path;
        int side, channels, classes;
    } nets[] = {{"configs/alexnet.yaml", 224, 3, 1000}, {"configs/cifar10.yaml", 32, 3, 10},
        {"configs/cnn.yaml", 32, 3, 10}, {"configs/mnist.yaml", 28, 1, 10},
        {"configs/resnet18.yaml", 224, 3, 1000}, {"configs/resnet20.yaml", 32, 3, 10},
        {"configs/resnet50.yaml", 224, 3, 1000}, {"configs/mobilenet_v2.yaml", 224, 3, 1000},
        {"configs/squeezenet.yaml", 224, 3, 1000}, {"configs/vgg16.yaml", 224, 3, 1000},
        {"configs/vit_tiny.yaml", 224, 3, 1000}, {"configs/convnext_tiny.yaml", 224, 3, 1000},
        {"configs/efficientnet_b0.yaml", 224, 3, 1000}};

    for (int i = 0; i < 13; i++)
        for (int variant = 0; variant < 4; variant++) {
            char *text = made_read(nets[i].path);
            struct np_graph *graph =
                made_good_graph(text, (struct made){4, nets[i].side, nets[i].side, nets[i].channels,
                                          nets[i].classes, variant & 1 ? NP_BF16 : NP_F32});

            free(text);
            cr_assert_not_null(graph);
            if (variant & 2) {
                struct np_graph *eval = np_graph_eval(graph);

                np_graph_free(graph);
                graph = eval;
            } else {
                cr_assert_eq(np_autodiff(graph, NULL), 0);
            }
            np_fuse(graph, &fusions);
            cr_assert_eq(slow_nodes(nets[i].path, graph), 0);
            np_graph_free(graph);
        }
}
