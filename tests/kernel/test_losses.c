/* Losses against torch's numbers of the same batch (tests/golden/torch_losses.py prints the table), and mistakes in
 * `loss:`. */
#include <stdio.h>
#include <string.h>

#include "tests/kernel/interp.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"

#define BATCH   4
#define CLASSES 3

struct loss_row {
    const char *loss;
    double mean, grads[CLASSES]; /* of the sum over rows, to the logits of all rows */
};

static const struct loss_row rows[] = {
    {"{cross_entropy: {class_weights: [0.5, 2, 3]}}", 1.6735827,
        {1.0468548, -1.8402471, 0.7933922}},
    {"{cross_entropy: {class_weights: [0.5, 2, 3], label_smoothing: 0.1}}", 1.6364414,
        {1.0350470, -1.7697873, 0.7347402}},
    {"focal", 1.2685959, {0.2983467, -2.1507116, 1.8523649}},
    {"{focal: {gamma: 0.5, class_weights: [0.5, 2, 3]}}", 1.5329082,
        {1.0177019, -1.9767622, 0.9590603}},
    {"bce", 0.8862639, {0.4325900, -0.3580330, 0.6145993}},
    {"{bce: {label_smoothing: 0.1}}", 0.8762639, {0.4214789, -0.3358108, 0.6034882}},
    {"{bce: {label_smoothing: 0.1, threshold: 0.2}}", 0.8862639,
        {0.4325900, -0.3580330, 0.6145993}},
    {"{bce: {label_smoothing: 0.3, reduce: sum, class_weights: [0.5, 2, 3]}}", 4.9734542,
        {0.5988850, -1.7481983, 5.2313940}},
};

/* All rows have the biases as logits: one linear layer on nothing. */
static struct np_graph *graph_of(const char *loss)
{
    char model[256];

    snprintf(model, sizeof(model), "model: [linear: {name: l, out: classes, init: zero}]\nloss: %s",
        loss);
    struct np_graph *graph = made_good_graph(model, (struct made){BATCH, 1, 1, 3, CLASSES, NP_F32});

    cr_assert_eq(np_autodiff(graph, NULL), 0);
    return graph;
}

static void run_row(struct interp *interp, const struct np_graph *graph, bool reference)
{
    static const float logits[CLASSES] = {0.3f, -1.2f, 0.9f};
    const uint8_t images[BATCH * 3] = {0};
    const int32_t labels[BATCH] = {0, 2, 1, 1};

    interp_init(interp, graph, reference);
    memcpy(interp->params + graph->tensors[made_tensor(graph, "l.bias")].offset, logits,
        sizeof(logits));
    interp_run(interp, images, labels, 0);
}

Test(losses, are_torchs)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int reference = 0; reference < 2; reference++) {
            struct np_graph *graph = graph_of(rows[i].loss);
            struct interp interp;
            const float *grads;

            run_row(&interp, graph, reference);
            cr_expect_float_eq(
                interp_loss(&interp) / BATCH, rows[i].mean, 2e-6, "%s", rows[i].loss);
            grads = interp.grads + graph->tensors[made_tensor(graph, "l.bias")].offset;
            for (int c = 0; c < CLASSES; c++)
                cr_expect_float_eq(
                    (double)grads[c], rows[i].grads[c], 2e-6, "%s, class %d", rows[i].loss, c);
            interp_fini(&interp);
            np_graph_free(graph);
        }
}

Test(losses, of_an_evaluation_have_no_class_weights)
{
    struct np_graph *graph = graph_of("{cross_entropy: {class_weights: [0.5, 2, 3]}}");
    struct np_graph *plain = graph_of("cross_entropy"), *eval = np_graph_eval(graph);
    struct interp with, without;

    run_row(&with, eval, true);
    run_row(&without, plain, true);
    cr_expect(interp_loss(&with) == interp_loss(&without));
    interp_fini(&with);
    interp_fini(&without);
    np_graph_free(eval);
    np_graph_free(plain);
    np_graph_free(graph);
}
