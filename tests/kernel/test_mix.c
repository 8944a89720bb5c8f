/* The draws of mixup and cutmix: torchvision's boxes (tests/golden/torchvision_mix.py prints the table), the shares'
 * moments, and losses with two labels a row. */
#include <math.h>
#include <stdio.h>

#include "tests/kernel/interp.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "trainer/graph/mix.h"

struct box_row {
    double keep;
    int x, y, height, width;
    struct np_mixed mixed;
};

static const struct box_row boxes[] = {
    {0.3, 5, 2, 9, 7, {0.682539683f, 1, 0, 3, 5, 7}},
    {0.9, 0, 0, 9, 7, {0.984126984f, 1, 0, 0, 1, 1}},
    {0.0, 4, 3, 9, 7, {0.333333333f, 1, 0, 1, 7, 7}},
    {0.5, 31, 0, 32, 32, {0.871093750f, 1, 0, 20, 11, 32}},
    {0.999, 3, 3, 32, 32, {1.000000000f, 1, 3, 3, 3, 3}},
    {0.25, 100, 223, 224, 224, {0.628826531f, 1, 127, 4, 224, 196}},
    {0.01, 0, 479, 480, 640, {0.752597656f, 1, 241, 0, 480, 318}},
};

Test(mix, boxes_are_torchvisions)
{
    for (size_t i = 0; i < sizeof(boxes) / sizeof(*boxes); i++) {
        const struct box_row *b = &boxes[i];
        struct np_mixed m;

        np_mix_box(b->keep, b->x, b->y, b->height, b->width, &m);
        cr_expect(m.box && m.top == b->mixed.top && m.left == b->mixed.left &&
                      m.bottom == b->mixed.bottom && m.right == b->mixed.right,
            "row %zu", i);
        cr_expect(fabsf(m.keep - b->mixed.keep) < 1e-6f, "row %zu", i);
    }
}

/* Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)); 4,000 draws, errors of four deviations at most. */
static void check_moments(double alpha)
{
    const struct np_mix mix = {.mixup = alpha, .share = 1, .seed = 5, .height = 8, .width = 8};
    const double var = 1 / (4 * (2 * alpha + 1));
    double sum = 0, squares = 0;

    for (uint64_t step = 0; step < 4000; step++) {
        struct np_mixed m;

        np_mix_draw(&mix, step, &m);
        sum += (double)m.keep;
        squares += ((double)m.keep - 0.5) * ((double)m.keep - 0.5);
    }
    cr_expect(fabs(sum / 4000 - 0.5) < 4 * sqrt(var / 4000), "alpha %g", alpha);
    cr_expect(
        fabs(squares / 4000 / var - 1) < 0.09, "alpha %g: %g of %g", alpha, squares / 4000, var);
}

Test(mix, shares_have_the_moments_of_beta)
{
    check_moments(0.05);
    check_moments(0.2);
    check_moments(1);
    check_moments(4);
}

Test(mix, a_share_of_the_batches_is_mixed_and_half_of_these_is_cut)
{
    const struct np_mix mix = {
        .mixup = 1, .cutmix = 1, .share = 0.4, .seed = 9, .height = 32, .width = 32};
    int mixed = 0, cut = 0;

    for (uint64_t step = 0; step < 4000; step++) {
        struct np_mixed m, again;

        np_mix_draw(&mix, step, &m);
        np_mix_draw(&mix, step, &again);
        cr_assert(m.keep == again.keep && m.left == again.left);
        mixed += m.keep < 1 || m.box;
        cut += m.box;
    }
    cr_expect(abs(mixed - 1600) < 130 && abs(cut - 800) < 110, "%d mixed, %d cut", mixed, cut);
}

/* Sets the mix of every node; forward and backward nodes have their attributes since np_autodiff(). */
static void set_mix(struct np_graph *graph, double mixup, double cutmix)
{
    for (int n = 0; n < graph->nr_nodes; n++)
        graph->nodes[n].attrs.mix = (struct np_mix){mixup, cutmix, 1, 7, 1, 1};
}

/* Losses of rows whose logits are the biases, as in tests/kernel/test_losses.c. */
static void losses_of(
    const char *loss, bool mixes, const int32_t labels[4], float ret_losses[4], float ret_grads[3])
{
    const uint8_t images[4 * 3] = {0};
    char model[256];
    struct interp interp;

    snprintf(model, sizeof(model), "model: [linear: {name: l, out: classes, init: zero}]\nloss: %s",
        loss);
    struct np_graph *graph = made_good_graph(model, (struct made){4, 1, 1, 3, 3, NP_F32});

    cr_assert_eq(np_autodiff(graph, NULL), 0);
    set_mix(graph, mixes ? 2 : 0, 0);
    interp_init(&interp, graph, false);
    for (int c = 0; c < 3; c++)
        interp.params[graph->tensors[made_tensor(graph, "l.bias")].offset + (uint64_t)c] =
            0.7f * (float)c - 0.3f;
    interp_run(&interp, images, labels, 3);
    for (int r = 0; r < 4; r++)
        ret_losses[r] = interp_get(&interp, graph->loss, (uint64_t)r);
    for (int c = 0; c < 3; c++)
        ret_grads[c] =
            interp.grads[graph->tensors[made_tensor(graph, "l.bias")].offset + (uint64_t)c];
    interp_fini(&interp);
    np_graph_free(graph);
}

/* Losses are linear in the target: keep * loss(own label) + (1 - keep) * loss(the partner's). */
static void check_mixed(const char *loss)
{
    const int32_t own[4] = {0, 2, 1, 1}, others[4] = {1, 0, 2, 1};
    float a[4], b[4], both[4], grads_a[3], grads_b[3], grads[3];
    struct np_mixed m;

    np_mix_draw(&(struct np_mix){2, 0, 1, 7, 1, 1}, 3, &m);
    cr_assert(m.keep > 0.05f && m.keep < 0.95f);
    losses_of(loss, false, own, a, grads_a);
    losses_of(loss, false, others, b, grads_b);
    losses_of(loss, true, own, both, grads);
    for (int r = 0; r < 4; r++)
        cr_expect(
            fabsf(both[r] - m.keep * a[r] - (1 - m.keep) * b[r]) < 2e-6f, "%s, row %d", loss, r);
    for (int c = 0; c < 3; c++)
        cr_expect(fabsf(grads[c] - m.keep * grads_a[c] - (1 - m.keep) * grads_b[c]) < 4e-6f,
            "%s, %d", loss, c);
}

Test(mix, a_rows_loss_is_that_of_both_labels)
{
    check_mixed("cross_entropy");
    check_mixed("{cross_entropy: {label_smoothing: 0.1, class_weights: [1, 2, 0.5]}}");
    check_mixed("{focal: {gamma: 1.5}}");
    check_mixed("{bce: {label_smoothing: 0.1, class_weights: [1, 2, 0.5]}}");
}

/* With the smaller share above the threshold both classes are targets, else the one with the larger. */
Test(mix, a_threshold_makes_targets_of_the_classes_above_it)
{
    const int32_t own[4] = {0, 2, 1, 1},
                  partner[4] = {1, 0, 2, 1}; /* the row's partner is before it */
    const float logits[3] = {-0.3f, 0.4f, 1.1f};
    float both[4], one[4], grads[3];
    struct np_mixed m;

    np_mix_draw(&(struct np_mix){2, 0, 1, 7, 1, 1}, 3, &m);
    const float least = fminf(m.keep, 1 - m.keep);
    cr_assert(least > 0.11f && least < 0.49f);
    losses_of("{bce: {threshold: 0.1, reduce: sum}}", true, own, both, grads);
    losses_of("{bce: {threshold: 0.49, reduce: sum}}", true, own, one, grads);
    for (int r = 0; r < 4; r++) {
        float all = 0, larger = 0;

        for (int c = 0; c < 3; c++) {
            const float plain = log1pf(expf(logits[c])); /* of target 0 */
            const int main = m.keep > 0.5f ? own[r] : partner[r];

            all += c == own[r] || c == partner[r] ? plain - logits[c] : plain;
            larger += c == main ? plain - logits[c] : plain;
        }
        cr_expect(
            fabsf(both[r] - all) < 2e-6f, "row %d: %g, not %g", r, (double)both[r], (double)all);
        cr_expect(fabsf(one[r] - larger) < 2e-6f, "row %d", r);
    }
}

/* Losses of rows with labels of this type, as losses_of(). */
static void losses_of_values(const char *loss, enum np_label_type type, bool mixes,
    const float values[4][3], float ret_losses[4])
{
    const uint8_t images[4 * 3] = {0};
    char model[256];
    struct interp interp;
    float labels[4 * (1 + 3)] = {0}; /* labels of 0, then the values */

    snprintf(model, sizeof(model), "model: [linear: {name: l, out: classes, init: zero}]\nloss: %s",
        loss);
    struct np_graph *graph =
        made_good_typed_graph(model, (struct made){4, 1, 1, 3, 3, NP_F32}, type);

    set_mix(graph, mixes ? 2 : 0, 0);
    interp_init(&interp, graph, false);
    for (int c = 0; c < 3; c++)
        interp.params[graph->tensors[made_tensor(graph, "l.bias")].offset + (uint64_t)c] =
            0.7f * (float)c - 0.3f;
    memcpy(labels + 4, values, 12 * sizeof(float));
    interp_run(&interp, images, (const int32_t *)(const void *)labels, 3);
    for (int r = 0; r < 4; r++)
        ret_losses[r] = interp_get(&interp, graph->loss, (uint64_t)r);
    interp_fini(&interp);
    np_graph_free(graph);
}

Test(mix, values_of_a_row_are_mixed_with_those_of_its_partner)
{
    static const char *const losses[] = {"bce", "mse", "l1", "{huber: {delta: 0.3}}"};
    const float own[4][3] = {{1, 0, 1}, {0, 0, 0}, {1, 1, 1}, {0, 1, 0}};
    float targets[4][3], mixed[4], plain[4], unmixed[4];
    struct np_mixed m;

    np_mix_draw(&(struct np_mix){2, 0, 1, 7, 1, 1}, 3, &m);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 3; c++)
            targets[r][c] = m.keep * own[r][c] + (1 - m.keep) * own[np_mix_partner(r, 4)][c];
    for (int k = 0; k < 4; k++) {
        const enum np_label_type type = k == 0 ? NP_LABEL_MULTI : NP_LABEL_VALUE;
        int differs = 0;

        losses_of_values(losses[k], type, true, own, mixed);
        losses_of_values(losses[k], type, false, targets, plain);
        losses_of_values(losses[k], type, false, own, unmixed);
        for (int r = 0; r < 4; r++) {
            cr_expect(fabsf(mixed[r] - plain[r]) < 2e-6f, "%s, row %d", losses[k], r);
            differs += fabsf(mixed[r] - unmixed[r]) > 1e-3f;
        }
        cr_expect(differs > 1, "%s", losses[k]);
    }
}

Test(mix, a_row_beside_a_masked_one_keeps_its_label)
{
    const int32_t labels[4] = {0, 2, -1, 1};
    float plain[4], mixed[4], grads[3];

    losses_of("cross_entropy", false, labels, plain, grads);
    losses_of("cross_entropy", true, labels, mixed, grads);
    cr_expect(fabsf(mixed[3] - plain[3]) < 1e-6f);
    cr_expect(mixed[2] == 0);
    cr_expect(fabsf(mixed[1] - plain[1]) > 0.01f);
}

Test(mix, evaluation_is_not_mixed)
{
    struct np_graph *graph =
        made_good_graph("model: [linear: {out: classes}]\n", (struct made){4, 1, 1, 3, 3, NP_F32});

    set_mix(graph, 1, 1);
    struct np_graph *eval = np_graph_eval(graph);

    for (int n = 0; n < eval->nr_nodes; n++)
        cr_expect(!np_mix_on(&eval->nodes[n].attrs.mix));
    np_graph_free(eval);
    np_graph_free(graph);
}
