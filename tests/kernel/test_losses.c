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

/* Labels that are several classes, or numbers. */
static const float values[BATCH][CLASSES] = {{1, 0, 1}, {0, 0, 0}, {0, 1, 1}, {1, 1, 1}};
static const struct loss_row multi_rows[] = {
    {"bce", 0.7112639, {0.0992567, -0.3580330, -0.0520673}},
    {"{bce: {reduce: sum, class_weights: [0.5, 2, 3]}}", 3.7772042,
        {0.1488850, -2.1481983, -0.4686060}},
};
static const struct loss_row value_rows[] = {
    {"mse", 1.2133333, {-0.5333333, -4.5333333, 0.4000000}},
    {"l1", 0.8333333, {0.0000000, -1.3333333, -0.6666667}},
    {"huber", 0.4833333, {-0.2666667, -1.3333333, 0.2000000}},
    {"{huber: {delta: 0.5}}", 0.3150000, {-0.1333333, -0.6666667, 0.0666667}},
};

static struct np_graph *typed_graph_of(const char *loss, enum np_label_type type)
{
    char model[256];

    snprintf(model, sizeof(model), "model: [linear: {name: l, out: classes, init: zero}]\nloss: %s",
        loss);
    struct np_graph *graph =
        made_good_typed_graph(model, (struct made){BATCH, 1, 1, 3, CLASSES, NP_F32}, type);

    cr_assert_eq(np_autodiff(graph, NULL), 0);
    return graph;
}

/* All rows have the biases as logits: one linear layer on nothing. */
static struct np_graph *graph_of(const char *loss)
{
    return typed_graph_of(loss, NP_LABEL_CLASS);
}

static void run_row(struct interp *interp, const struct np_graph *graph, bool reference)
{
    static const float logits[CLASSES] = {0.3f, -1.2f, 0.9f};
    const uint8_t images[BATCH * 3] = {0};
    struct {
        int32_t labels[BATCH];
        float values[BATCH][CLASSES];
    } batch = {.labels = {0, 2, 1, 1}};

    memcpy(batch.values, values, sizeof(values));
    interp_init(interp, graph, reference);
    memcpy(interp->params + graph->tensors[made_tensor(graph, "l.bias")].offset, logits,
        sizeof(logits));
    interp_run(interp, images, batch.labels, 0);
}

static void check_rows(const struct loss_row *list, size_t n, enum np_label_type type)
{
    for (size_t i = 0; i < n; i++)
        for (int reference = 0; reference < 2; reference++) {
            struct np_graph *graph = typed_graph_of(list[i].loss, type);
            struct interp interp;
            const float *grads;

            run_row(&interp, graph, reference);
            cr_expect_float_eq(
                interp_loss(&interp) / BATCH, list[i].mean, 2e-6, "%s", list[i].loss);
            grads = interp.grads + graph->tensors[made_tensor(graph, "l.bias")].offset;
            for (int c = 0; c < CLASSES; c++)
                cr_expect_float_eq(
                    (double)grads[c], list[i].grads[c], 2e-6, "%s, class %d", list[i].loss, c);
            interp_fini(&interp);
            np_graph_free(graph);
        }
}

Test(losses, are_torchs)
{
    check_rows(rows, sizeof(rows) / sizeof(*rows), NP_LABEL_CLASS);
}

Test(losses, of_several_classes_and_of_numbers_are_torchs)
{
    check_rows(multi_rows, sizeof(multi_rows) / sizeof(*multi_rows), NP_LABEL_MULTI);
    check_rows(value_rows, sizeof(value_rows) / sizeof(*value_rows), NP_LABEL_VALUE);
}

static void check_refused(const char *loss, enum np_label_type type, const char *message)
{
    char text[256];
    struct np_report report;

    snprintf(text, sizeof(text), "model: [linear: {out: classes}]\n%s", loss);
    np_report_init(&report, "test.yaml");
    cr_expect_null(
        made_typed_graph(text, (struct made){BATCH, 1, 1, 3, CLASSES, NP_F32}, type, &report));
    cr_assert(report.nr_errs == 1);
    cr_expect(strstr(report.errs[0].text, message), "%s", report.errs[0].text);
    np_report_fini(&report);
}

Test(losses, that_do_not_fit_the_labels_are_refused)
{
    check_refused("", NP_LABEL_MULTI, "cross_entropy, the default, does not fit");
    check_refused("loss: focal", NP_LABEL_VALUE, "choose mse, l1 or huber");
    check_refused("loss: bce", NP_LABEL_VALUE, "`label_type: value`");
    check_refused("loss: mse", NP_LABEL_MULTI, "choose bce");
    check_refused("loss: huber", NP_LABEL_CLASS, "choose cross_entropy, focal or bce");
    check_refused(
        "loss: {bce: {label_smoothing: 0.1}}", NP_LABEL_MULTI, "label_smoothing: it does");
    check_refused(
        "loss: {bce: {class_weights: balanced}}", NP_LABEL_MULTI, "class_weights: balanced: it");
}

/* A row is right if all its classes are on the right side of 0.5. */
Test(losses, of_several_classes_count_rows_whose_classes_are_all_right)
{
    struct np_graph *graph = typed_graph_of("bce", NP_LABEL_MULTI);
    struct interp interp;

    run_row(&interp, graph, true); /* logits 0.3, -1.2, 0.9: only the first row's are right */
    for (int r = 0; r < BATCH; r++)
        cr_expect(interp_get(&interp, graph->correct, (uint64_t)r) == (float)(r == 0), "row %d", r);
    interp_fini(&interp);
    np_graph_free(graph);
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
